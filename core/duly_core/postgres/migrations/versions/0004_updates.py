"""Changes of tasks, checkpoints, and the function by which callers schedule in their own transactions."""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

UPGRADE = """
-- How often the task was changed before it ran; the assoc counts with the entity. A claim whose snapshot has another
-- count than the row that it locked reads the entity again.
alter table task add column edits integer not null default 0;
-- With the edits of the entity this makes the edits of the assoc.
alter table task add column checkpoint_count integer not null default 0;
alter table task_assoc add column edits integer not null default 0;

-- Of a task whose payload or priority was changed: a digest of those that it was scheduled with, for repeats of the
-- Schedule.
alter table task add column scheduled_as bytea;

-- What a callback kept for its next attempt, as JSON.
alter table task add column checkpoint bytea;
"""

# The rules are those of duly_core.rpc.requests.new_tasks; a test holds the two against each other. Names are written with their
# schema, and search_path is fixed: the function has its owner's rights, and nothing of the caller's may be found first.
SCHEDULE = """
create function {schema}.duly_schedule(
    lambda text, payload json default null, raw_payload bytea default null, priority integer default 3,
    collection text default '', scheduled_at timestamptz default null, delay interval default null,
    expires_at timestamptz default null, idempotency_key text default null, task_id uuid default null
) returns uuid language plpgsql security definer set search_path = pg_catalog, pg_temp as $function$
#variable_conflict use_variable
declare  -- columns are written with their table: a new one must not take the place of a variable
    asked_at timestamptz := {schema}.duly_now();
    data bytea := coalesce(duly_schedule.raw_payload, convert_to(duly_schedule.payload::text, 'UTF8'), '');
    encoding smallint := case when duly_schedule.raw_payload is null then 1 else 2 end;
    due_at timestamptz;
    most integer;
    id uuid := duly_schedule.task_id;
    first_task uuid;
    is_same boolean;
    tries integer := 0;
    problem text;
    field text;
begin
    select least(known.payload_limit, 1048576) into most
    from {schema}.lambda as known where known.name = duly_schedule.lambda;
    if most is null then
        raise exception using errcode = 'DY002', column = 'lambda', message = format(
            'no lambda %L is registered: start a worker that declares it (duly worker MODULE:APP), or fix the name',
            left(duly_schedule.lambda, 128));
    end if;
    if duly_schedule.raw_payload is not null and duly_schedule.payload is not null then
        field := 'raw_payload'; problem := 'give either payload or raw_payload, not both';
    elsif duly_schedule.priority is null or duly_schedule.priority not between 1 and 4 then
        field := 'priority'; problem := 'must be 1 (urgent), 2 (high), 3 (normal) or 4 (low)';
    elsif duly_schedule.collection is null or duly_schedule.collection !~ '^([a-z0-9][a-z0-9_.-]{0,127})?$' then
        field := 'collection';
        problem := 'must be 1 to 128 of the characters a-z, 0-9, ''_'', ''.'', ''-'', beginning with a letter or a '
            'digit, or empty';
    elsif duly_schedule.scheduled_at is not null and duly_schedule.delay is not null then
        field := 'delay'; problem := 'give either scheduled_at or delay, not both';
    elsif not isfinite(coalesce(duly_schedule.scheduled_at, asked_at)) then
        field := 'scheduled_at'; problem := 'must be an instant';
    elsif not isfinite(coalesce(duly_schedule.expires_at, asked_at)) then
        field := 'expires_at'; problem := 'must be an instant';
    elsif duly_schedule.delay < interval '0' then
        field := 'delay'; problem := 'must not be negative: leave it out to run the task now';
    elsif duly_schedule.delay > interval '365 days' or duly_schedule.scheduled_at > asked_at + interval '365 days' then
        field := case when duly_schedule.delay is null then 'scheduled_at' else 'delay' end;
        problem := 'may be at most 365 days ahead: schedule it when that time is nearer';
    elsif octet_length(duly_schedule.idempotency_key) not between 1 and 255 then
        field := 'idempotency_key'; problem := 'must be 1 to 255 bytes of UTF-8';
    elsif starts_with(duly_schedule.idempotency_key, 'time-table:') then
        field := 'idempotency_key'; problem := 'must not begin with ''time-table:'': the keys of ticks do';
    elsif duly_schedule.idempotency_key is not null and id is not null then
        field := 'task_id'; problem := 'say either task_id or idempotency_key: each alone makes a repeat safe';
    elsif id is not null and id::text !~ '^.{14}7.{4}[89ab]' then
        field := 'task_id'; problem := 'must be a UUID of version 7, or be left out';
    end if;
    if problem is not null then
        raise exception using errcode = 'DY001', column = field, message = field || ': ' || problem;
    end if;
    if octet_length(data) > most then
        raise exception using errcode = 'DY003', column = 'payload', message = format(
            'payload: %s bytes exceed the %s that %s takes: put large data elsewhere and send its address, or raise the '
            'lambda''s payload_limit', octet_length(data), most, duly_schedule.lambda);
    end if;
    due_at := greatest(asked_at, coalesce(duly_schedule.scheduled_at, asked_at + duly_schedule.delay, asked_at));
    if id is null then  -- UUIDv7: 48 bits of milliseconds, then a random UUID's, with the version changed
        id := overlay(gen_random_uuid()::text placing (
            select left(stamp, 8) || '-' || right(stamp, 4) || '-7'
            from lpad(to_hex(floor(extract(epoch from asked_at) * 1000)::bigint), 12, '0') as stamp
        ) from 1)::uuid;
    end if;
    loop
        first_task := null;
        if duly_schedule.idempotency_key is not null then
            select key.task_id into first_task from {schema}.idempotency_key as key
            where key.lambda = duly_schedule.lambda and key.key = duly_schedule.idempotency_key;
        elsif duly_schedule.task_id is not null then
            select task.task_id into first_task from {schema}.task where task.task_id = id;
        end if;
        if first_task is not null then
            select
                task.lambda = duly_schedule.lambda and task.collection = duly_schedule.collection
                    and task.session is null and case
                    when task.scheduled_as is not null then task.scheduled_as = sha256(
                        data || int2send(encoding) || int2send(duly_schedule.priority::smallint))
                    else task.payload = data and task.payload_encoding = encoding
                        and task.priority = duly_schedule.priority
                end into is_same
            from {schema}.task where task.task_id = first_task;
            if is_same then
                return first_task;
            end if;
            tries := tries + 1;
            continue when is_same is null and tries < 10;  -- purged between the two reads: so is its key
            raise exception using errcode = 'DY004', column = 'idempotency_key', message = format(
                'idempotency_key: task %s has this key or id, with another lambda, payload, priority or collection: use '
                'another key for another task', first_task);
        end if;
        -- a repeat is answered whatever the time is: what is new has to be of now
        if duly_schedule.expires_at <= asked_at then
            raise exception using errcode = 'DY001', column = 'expires_at',
                message = 'expires_at: is in the past: the task could never run';
        end if;
        if id not between {schema}.duly_first_id(asked_at - interval '1 day')
                and {schema}.duly_first_id(asked_at + interval '1 day') then
            raise exception using errcode = 'DY001', column = 'task_id', message =
                'task_id: its time is more than a day from now, and there is no such task: leave it out';
        end if;
        if duly_schedule.idempotency_key is not null then
            insert into {schema}.idempotency_key (lambda, key, task_id, created_at)
            values (duly_schedule.lambda, duly_schedule.idempotency_key, id, asked_at)
            on conflict do nothing;
            continue when not found;  -- somebody else's transaction was first: it has committed by now
        end if;
        insert into {schema}.task (
            task_id, lambda, collection, priority, payload_encoding, payload, created_at, scheduled_at, expires_at,
            scheduled_by
        )
        values (
            id, duly_schedule.lambda, duly_schedule.collection, duly_schedule.priority, encoding, data, asked_at, due_at,
            duly_schedule.expires_at, session_user
        )
        on conflict do nothing;
        continue when not found;
        exit;
    end loop;
    insert into {schema}.task_assoc (
        task_id, lambda, collection, priority, status, next_trigger_at, due_at, expires_at
    )
    values (
        id, duly_schedule.lambda, duly_schedule.collection, duly_schedule.priority, 'new', due_at, due_at,
        duly_schedule.expires_at
    );
    -- told when this transaction commits; whoever looks then learns when exactly it is due
    if due_at <= asked_at + interval '2 minutes' then
        perform pg_notify('duly_due', '0 ' || duly_schedule.lambda);
    end if;
    return id;
end
$function$;

-- Nobody may call it but who is granted it (duly db grant).
revoke execute on function {schema}.duly_schedule from public;
"""


# What retention does that only the tables' owner may. Names are written with their schema; search_path is fixed, and has
# the schema for the triggers of the tables. A partition's name is checked, for it becomes a part of a statement.
PARTITIONS = """
create function {schema}.duly_add_partition(name text, lowest uuid, upper uuid)
    returns void language plpgsql security definer set search_path = pg_catalog, {schema}, pg_temp as $function$
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
            'create table {schema}.%I (like {schema}.%I including defaults including constraints) with (%s)',
            parent || '_' || name, parent, options
        );
        for given in
            select privilege_type as privilege, grantee::regrole as role
            from pg_class, aclexplode(relacl)
            where pg_class.oid = format('{schema}.%I', parent || '_rest')::regclass
                and grantee not in (0, relowner)
        loop
            execute format('grant %s on {schema}.%I to %s', given.privilege, parent || '_' || name, given.role);
        end loop;
        execute format('lock table {schema}.%I in access exclusive mode', parent || '_rest');
        execute format(
            'with moved as (delete from {schema}.%I where task_id >= %L and task_id < %L returning *)
                insert into {schema}.%I select * from moved',
            parent || '_rest', lowest, upper, parent || '_' || name
        );
        execute format(
            'alter table {schema}.%I attach partition {schema}.%I for values from (%L) to (%L)',
            parent, parent || '_' || name, lowest, upper
        );
    end loop;
end $function$;

create function {schema}.duly_drop_partition(name text, lowest uuid, upper uuid, survivors uuid[], most integer)
    returns integer language plpgsql security definer set search_path = pg_catalog, {schema}, pg_temp as $function$
declare
    ids uuid[];
begin
    if name !~ '^(first|[0-9]{8}(t[0-9]{6})?)$' then
        raise exception using errcode = 'invalid_parameter_value', message = 'there is no such partition';
    end if;
    -- the history first: it is what statements that write both begin with
    execute format('alter table {schema}.attempt detach partition {schema}.%I', 'attempt_' || name);
    execute format('alter table {schema}.task detach partition {schema}.%I', 'task_' || name);
    select array_agg(found.task_id) into ids
    from (
        select unnest(survivors) as task_id
        union
        (
            select assoc.task_id from {schema}.task_assoc as assoc
            where assoc.task_id >= lowest and assoc.task_id < upper
            limit most + 1
        )
    ) as found;
    if cardinality(ids) > most then
        return null;  -- whoever called rolls back
    end if;
    ids := coalesce(ids, array[]::uuid[]);
    execute format('insert into {schema}.task select * from {schema}.%I where task_id = any($1)', 'task_' || name)
        using ids;
    execute format('insert into {schema}.attempt select * from {schema}.%I where task_id = any($1)', 'attempt_' || name)
        using ids;
    -- what ended its time since the keys were looked through: without its task a key would be taken for ever
    delete from {schema}.idempotency_key as key
    where key.task_id >= lowest and key.task_id < upper and key.task_id not in (select unnest(ids));
    execute format('drop table {schema}.%I, {schema}.%I', 'task_' || name, 'attempt_' || name);
    return cardinality(ids);
end $function$;

create function {schema}.duly_forget_audit_events(before timestamptz, most integer)
    returns bigint language plpgsql security definer set search_path = pg_catalog, {schema}, pg_temp as $function$
declare
    forgotten bigint;
begin
    delete from {schema}.audit_event
    where event_id in (
        select oldest.event_id
        from (select event_id, at from {schema}.audit_event order by event_id limit most) as oldest
        where oldest.at < least(duly_forget_audit_events.before, {schema}.duly_now() - interval '1 day')
    );
    get diagnostics forgotten = row_count;
    return forgotten;
end $function$;

revoke execute on function {schema}.duly_add_partition, {schema}.duly_drop_partition,
    {schema}.duly_forget_audit_events from public;
"""


def upgrade() -> None:
    op.execute(UPGRADE)
    schema = op.get_bind().exec_driver_sql("select quote_ident(current_schema())").scalar_one()
    for functions in (SCHEDULE, PARTITIONS):
        op.get_bind().exec_driver_sql(functions.replace("{schema}", schema).replace("%", "%%"))


def downgrade() -> None:
    op.execute(
        "drop function duly_schedule, duly_add_partition, duly_drop_partition, duly_forget_audit_events"
    )
    op.execute(
        "alter table task drop column edits, drop column scheduled_as, drop column checkpoint, drop column checkpoint_count;"
        "alter table task_assoc drop column edits;"
    )
