-- What retention does that only the tables' owner may.

create function {{schema}}.duly_add_partition(name text, lowest uuid, upper uuid)
    returns void language plpgsql security definer set search_path = pg_catalog, {{schema}}, pg_temp as $function$
declare
    parent text;
    options text;
    given record;
begin
    if name !~ '^[0-9]{8}(t[0-9]{6})?$' then
        raise exception using errcode = 'invalid_parameter_value', message = 'a partition is named after its first instant';
    end if;
    foreach parent in array array['attempt', 'task'] loop  -- as statements that write both begin
        options := case parent
            when 'task' then 'fillfactor = 50, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0'
            else 'fillfactor = 100'
        end;
        execute format(
            'create table {{schema}}.%I (like {{schema}}.%I including defaults including constraints) with (%s)',
            parent || '_' || name, parent, options
        );
        for given in
            select privilege_type as privilege, grantee::regrole as role
            from pg_class, aclexplode(relacl)
            where pg_class.oid = format('{{schema}}.%I', parent || '_rest')::regclass
                and grantee not in (0, relowner)
        loop
            execute format('grant %s on {{schema}}.%I to %s', given.privilege, parent || '_' || name, given.role);
        end loop;
        execute format('lock table {{schema}}.%I in access exclusive mode', parent || '_rest');
        execute format(
            'with moved as (delete from {{schema}}.%I where task_id >= %L and task_id < %L returning *)
                insert into {{schema}}.%I select * from moved',
            parent || '_rest', lowest, upper, parent || '_' || name
        );
        execute format(
            'alter table {{schema}}.%I attach partition {{schema}}.%I for values from (%L) to (%L)',
            parent, parent || '_' || name, lowest, upper
        );
    end loop;
end $function$;

create function {{schema}}.duly_drop_partition(name text, lowest uuid, upper uuid, survivors uuid[], most integer)
    returns integer language plpgsql security definer set search_path = pg_catalog, {{schema}}, pg_temp as $function$
declare
    ids uuid[];
begin
    if name !~ '^(first|[0-9]{8}(t[0-9]{6})?)$' then
        raise exception using errcode = 'invalid_parameter_value', message = 'there is no such partition';
    end if;
    -- the history first: it is what statements that write both begin with
    execute format('alter table {{schema}}.attempt detach partition {{schema}}.%I', 'attempt_' || name);
    execute format('alter table {{schema}}.task detach partition {{schema}}.%I', 'task_' || name);
    select array_agg(found.task_id) into ids
    from (
        select unnest(survivors) as task_id
        union
        (
            select assoc.task_id from {{schema}}.task_assoc as assoc
            where assoc.task_id >= lowest and assoc.task_id < upper
            limit most + 1
        )
    ) as found;
    if cardinality(ids) > most then
        return null;  -- whoever called rolls back
    end if;
    ids := coalesce(ids, array[]::uuid[]);
    execute format('insert into {{schema}}.task select * from {{schema}}.%I where task_id = any($1)', 'task_' || name)
        using ids;
    execute format('insert into {{schema}}.attempt select * from {{schema}}.%I where task_id = any($1)', 'attempt_' || name)
        using ids;
    -- what ended its time since the keys were looked through: without its task a key would be taken for ever
    delete from {{schema}}.idempotency_key as key
    where key.task_id >= lowest and key.task_id < upper and key.task_id not in (select unnest(ids));
    execute format('drop table {{schema}}.%I, {{schema}}.%I', 'task_' || name, 'attempt_' || name);
    return cardinality(ids);
end $function$;

create function {{schema}}.duly_forget_audit_events(before timestamptz, most integer)
    returns bigint language plpgsql security definer set search_path = pg_catalog, {{schema}}, pg_temp as $function$
declare
    forgotten bigint;
begin
    delete from {{schema}}.audit_event
    where event_id in (
        select oldest.event_id
        from (select event_id, at from {{schema}}.audit_event order by event_id limit most) as oldest
        where oldest.at < least(duly_forget_audit_events.before, {{schema}}.duly_now() - interval '1 day')
    );
    get diagnostics forgotten = row_count;
    return forgotten;
end $function$;

revoke execute on function {{schema}}.duly_add_partition, {{schema}}.duly_drop_partition,
    {{schema}}.duly_forget_audit_events from public;
