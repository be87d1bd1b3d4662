-- Triggers that write down every change of a task's state. Logged, like the tasks themselves: what was committed
-- of the one was committed of the other, whatever happened to the server meanwhile.

create table chaos_audit (
    -- Taken under the lock of the task's row: in the order in which its writes took effect.
    sequence bigint generated always as identity primary key,
    task_id uuid not null,
    entity boolean not null,  -- the row of task, else that of task_assoc
    store_at timestamptz not null default duly_now(),  -- what the store takes for the time
    -- Taken last: a move of the store's clock that `store_at` has seen came before it.
    at timestamptz not null default clock_timestamp(),
    txid bigint not null default txid_current(),
    backend integer not null default pg_backend_pid(),
    application text not null default current_setting('application_name'),
    status_before text not null default '',
    status text not null default '',
    token_before uuid, token uuid, last_token uuid,
    fence_before integer, fence integer,
    failures_before integer, failures integer,
    crashes_before integer, crashes integer,
    trigger_before_at timestamptz, trigger_at timestamptz, due_at timestamptz,
    cancel_before boolean, cancel boolean,
    session text, session_seq bigint, session_policy smallint,
    priority smallint, open_edges_before integer, open_edges integer, doom smallint,
    resources jsonb, parked_on text, line text
);

create function chaos_audit_assoc() returns trigger language plpgsql security definer as $$
begin
    insert into chaos_audit (
        task_id, entity, status_before, status, token_before, token, last_token, fence_before, fence,
        failures_before, failures, crashes_before, crashes, trigger_before_at, trigger_at, due_at,
        cancel_before, cancel, session, session_seq, session_policy, priority, open_edges_before, open_edges, doom, resources, parked_on, line
    ) values (
        coalesce(new.task_id, old.task_id), false, coalesce(old.status::text, ''), coalesce(new.status::text, ''),
        old.token, new.token, new.last_token, old.fence, new.fence,
        old.failures, new.failures, old.crashes, new.crashes, old.next_trigger_at, new.next_trigger_at, new.due_at,
        old.cancel_requested, new.cancel_requested, coalesce(new.session, old.session),
        coalesce(new.session_seq, old.session_seq), coalesce(new.session_policy, old.session_policy),
        coalesce(new.priority, old.priority), old.open_edges, new.open_edges, coalesce(new.doom, old.doom),
        coalesce(new.resources, old.resources), new.parked_on || '/' || new.parked_key,
        coalesce(new.lambda, old.lambda) || '/' || coalesce(new.priority, old.priority)
    );
    return null;
end
$$;

create function chaos_audit_entity() returns trigger language plpgsql security definer as $$
begin
    insert into chaos_audit (
        task_id, entity, status_before, status, last_token, fence_before, fence,
        failures_before, failures, crashes_before, crashes
    ) values (
        new.task_id, true, coalesce(old.status::text, ''), coalesce(new.status::text, ''),
        new.last_token, old.fence, new.fence, old.failures, new.failures, old.crashes, new.crashes
    );
    return null;
end
$$;

create trigger chaos_audit_assoc after insert or update or delete on task_assoc
    for each row execute function chaos_audit_assoc();

-- A live entity is written for notes only (the last failure): its status says nothing then.
create trigger chaos_audit_entity_update after update on task
    for each row when (old.status is not null or new.status is not null) execute function chaos_audit_entity();
create trigger chaos_audit_entity_insert after insert on task
    for each row when (new.status is not null) execute function chaos_audit_entity();

create index on chaos_audit (task_id) where not entity;

-- Since when a parked task that fits waits for who locked it, and that it does no more (resource_use.skipped_at). In one
-- order with the writes of tasks: whoever writes either has locked the row of the resource's use.
create table chaos_passed_over (
    sequence bigint primary key default nextval(pg_get_serial_sequence('chaos_audit', 'sequence')),
    txid bigint not null default txid_current(),
    name text not null,
    waits boolean not null
);

create function chaos_passed_over() returns trigger language plpgsql security definer as $$
begin
    insert into chaos_passed_over (name, waits) values (new.resource || '/' || new.key, new.skipped_at is not null);
    return null;
end
$$;

create trigger chaos_passed_over after update on resource_use
    for each row when ((old.skipped_at is null) <> (new.skipped_at is null)) execute function chaos_passed_over();

-- What came of calls with tokens whose claims were over (`replay.py`): nothing may. Of an HSC that has no other callers
-- each write is one. At the HSCs of all callers a heartbeat tells by its note.
create table chaos_stale (
    number bigint generated always as identity primary key,
    at timestamptz not null default clock_timestamp(),
    written text not null,
    before jsonb,
    after jsonb
);

create function chaos_stale() returns trigger language plpgsql security definer as $$
begin
    insert into chaos_stale (written, before, after)
    values (
        lower(tg_op) || ' ' || tg_argv[0], case when tg_op <> 'INSERT' then to_jsonb(old) end,
        case when tg_op <> 'DELETE' then to_jsonb(new) end
    );
    return null;
end
$$;

do $$
declare
    written text;
begin
    foreach written in array array[
        'task', 'task_assoc', 'attempt', 'dead_letter', 'idempotency_key', 'session', 'graph', 'graph_node', 'graph_edge',
        'resource', 'resource_use', 'time_table', 'lambda'
    ] loop
        execute format(
            'create trigger chaos_stale after insert or update or delete on %I for each row '
            'when (session_user = ''chaos_stale'') execute function chaos_stale(%L)', written, written
        );
    end loop;
end
$$;

create trigger chaos_stale_note after update on task_assoc
    for each row when (new.progress_note like 'stale %' and old.progress_note is distinct from new.progress_note)
    execute function chaos_stale('task_assoc');
