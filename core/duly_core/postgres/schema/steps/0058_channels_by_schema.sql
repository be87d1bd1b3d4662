-- NOTIFY in a schema of its own does not wake others of the database.
-- step: expand
create function {{schema}}.duly_channel(name text) returns text language sql immutable parallel safe
    as $$ select case '.{{schema}}' when '.public' then name else left(name || '_{{schema}}', 63) end $$;

create or replace function duly_tell(lambdas text[]) returns void language sql strict as $$
    select pg_notify(duly_channel('duly_due'), '0' || case when cardinality(lambdas) <= 25 then ' ' || array_to_string(lambdas, ',') else '' end)
$$;

create or replace function {{schema}}.duly_add_label_queues(names text[])
    returns void language plpgsql security definer set search_path = pg_catalog, {{schema}}, pg_temp as $function$
declare
    asked text;
    added boolean := false;
begin
    perform from turn where name = 'registry' for update;
    foreach asked in array names loop
        insert into {{schema}}.lambda
        select (jsonb_populate_record(
            base,
            jsonb_build_object('name', asked, 'revision', 1, 'registered_at', {{schema}}.duly_now(), 'updated_at', {{schema}}.duly_now())
        )).*
        from {{schema}}.lambda as base
        where base.name = rtrim(split_part(asked, ':', 1), '@') and strpos(asked, ':') > 0
            and (
                select count(*) from {{schema}}.lambda as other
                where starts_with(other.name, split_part(asked, ':', 1) || ':')
            ) < {{lambdas.most_label_queues}}
        on conflict (name) do nothing;
        continue when not found;
        added := true;
        delete from {{schema}}.deleted_lambda where name = asked;  -- it went with its lambda, which is back
    end loop;
    if added then
        perform pg_notify({{schema}}.duly_channel('duly_lambda'), '');
    end if;
end
$function$;

create or replace function {{schema}}.duly_schedule(
    lambda text, payload json default null, raw_payload bytea default null, priority integer default 3,
    collection text default '', scheduled_at timestamptz default null, delay interval default null,
    expires_at timestamptz default null, idempotency_key text default null, task_id uuid default null,
    fair_key text default null, resources json default null, session text default null, on_failure integer default 1,
    attributes json default null
) returns uuid language plpgsql security definer set search_path = pg_catalog, pg_temp as $function$
#variable_conflict use_variable
declare  -- columns are written with their table: a new one must not take the place of a variable
    asked_at timestamptz := {{schema}}.duly_now();
    asked_ms bigint := floor(extract(epoch from asked_at) * 1000);
    day_ms constant bigint := 86400000;
    data bytea := coalesce(duly_schedule.raw_payload, convert_to(duly_schedule.payload::text, 'UTF8'), '');
    encoding smallint := case when duly_schedule.raw_payload is null then 1 else 2 end;
    due_at timestamptz;
    most integer;
    id uuid := duly_schedule.task_id;
    first_task uuid;
    is_same boolean;
    tries integer := 0;
    stamp text;
    problem text;
    field text;
    -- the whole name of the session, whose namespace is that of the lambda
    line text := left(duly_schedule.lambda, greatest(strpos(duly_schedule.lambda, '/') - 1, 0)) || '/' || duly_schedule.session;
    session_order constant integer := 1;
    needs jsonb;
    unknown text;
    found_by jsonb;
begin
    select least(known.payload_limit, 1048576) into most
    from {{schema}}.lambda as known where known.name = duly_schedule.lambda;
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
    elsif octet_length(duly_schedule.fair_key) not between 1 and 128 then
        field := 'fair_key'; problem := 'must be 1 to 128 bytes of UTF-8';
    elsif starts_with(duly_schedule.idempotency_key, 'time-table:') then
        field := 'idempotency_key'; problem := 'must not begin with ''time-table:'': the keys of ticks do';
    elsif duly_schedule.idempotency_key is not null and id is not null then
        field := 'task_id'; problem := 'say either task_id or idempotency_key: each alone makes a repeat safe';
    elsif id is not null and id::text !~ '^.{14}7.{4}[89ab]' then
        field := 'task_id'; problem := 'must be a UUID of version 7, or be left out';
    elsif octet_length(duly_schedule.session) not between 1 and 255 then
        field := 'session'; problem := 'must be 1 to 255 bytes of UTF-8: use a hash of a longer key';
    elsif duly_schedule.on_failure is null or duly_schedule.on_failure not between 1 and 3 then
        field := 'on_failure'; problem := 'must be 1 (skip), 2 (block) or 3 (fail the rest)';
    elsif duly_schedule.resources is not null then
        select found.field, found.problem, found.needs, found.unknown into field, problem, needs, unknown
        from {{schema}}.duly_read_needs(duly_schedule.resources, duly_schedule.lambda) as found;
        if unknown is not null then
            raise exception using errcode = 'DY005', column = 'resources', message = format(
                'resources: no resource %L is declared for this lambda: fix the name (`duly resources list` shows them), or let an '
                'operator declare it (`duly resources set NAME CAPACITY`)', left(unknown, 128));
        end if;
    end if;
    if problem is null and duly_schedule.attributes is not null then
        field := 'attributes';
        select read.attributes, read.problem into found_by, problem
        from {{schema}}.duly_read_attributes(duly_schedule.attributes) as read;
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
        stamp := lpad(to_hex(asked_ms), 12, '0');
        id := overlay(gen_random_uuid()::text placing left(stamp, 8) || '-' || right(stamp, 4) || '-7' from 1)::uuid;
    elsif abs(('x' || left(id::text, 8) || substr(id::text, 10, 4))::bit(48)::bigint - asked_ms) > day_ms then
        field := 'task_id';
        problem := 'its time is more than a day from now, and there is no such task: leave it out';
    end if;
    if duly_schedule.expires_at <= asked_at then
        field := 'expires_at'; problem := 'is in the past: the task could never run';
    end if;
    loop
        -- Written first, and looked for only if it is there: repeats are rare. A repeat is answered whatever the time is; what
        -- is new has to be of now.
        if problem is null then
            if duly_schedule.idempotency_key is not null then
                insert into {{schema}}.idempotency_key (lambda, key, task_id, created_at)
                values (duly_schedule.lambda, duly_schedule.idempotency_key, id, asked_at)
                on conflict do nothing;  -- which waits for another transaction that has written the key
            end if;
            if duly_schedule.idempotency_key is null or found then
                insert into {{schema}}.task ({{fields.client_columns}}, created_at, scheduled_at)
                values ({{fields.client_values}}, asked_at, due_at)
                on conflict do nothing;
                exit when found;
            end if;
        end if;
        first_task := null;
        if duly_schedule.idempotency_key is not null then
            select key.task_id into first_task from {{schema}}.idempotency_key as key
            where key.lambda = duly_schedule.lambda and key.key = duly_schedule.idempotency_key;
        elsif duly_schedule.task_id is not null then
            select task.task_id into first_task from {{schema}}.task where task.task_id = id;
        end if;
        if first_task is not null then
            select
                {{fields.same_as_client}} and case
                    when task.scheduled_as is not null then task.scheduled_as = sha256(
                        data || int2send(encoding) || int2send(duly_schedule.priority::smallint))
                    else task.payload = data and task.payload_encoding = encoding
                        and task.priority = duly_schedule.priority
                end into is_same
            from {{schema}}.task where task.task_id = first_task;
            if is_same then
                return first_task;
            end if;
            tries := tries + 1;
            continue when is_same is null and tries < 10;  -- purged between the two reads: so is its key
            raise exception using errcode = 'DY004', column = 'idempotency_key', message = format(
                'idempotency_key: task %s has this key or id, with another lambda, payload, priority, collection, session, resources '
                'or attributes: use another key for another task', first_task);
        elsif problem is not null then
            raise exception using errcode = 'DY001', column = field, message = field || ': ' || problem;
        end if;
    end loop;
    if found_by is not null then
        insert into {{schema}}.task_attribute (name, value, task_id)
        select each.key, each.value, id from jsonb_each_text(found_by) as each;
    end if;
    if line is null then
        insert into {{schema}}.task_assoc ({{fields.assoc_columns}}, status, next_trigger_at, due_at)
        values ({{fields.client_assoc_values}}, 'new', due_at, due_at);
    else  -- the commit puts it into its session
        insert into {{schema}}.session_entry (task_id) values (id);
    end if;
    -- told when this transaction commits; whoever looks then learns when exactly it is due
    if due_at <= asked_at + interval '2 minutes' then
        perform pg_notify({{schema}}.duly_channel('duly_due'), '0 ' || duly_schedule.lambda);
    end if;
    return id;
end
$function$;
