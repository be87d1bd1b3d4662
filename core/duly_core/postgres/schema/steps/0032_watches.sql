-- Watches: who watches, and what there is to tell; the end of a graph is told, too.
-- step: expand
create table watch (
    watch_id uuid primary key,
    principal text not null,
    filter text not null check (octet_length(filter) <= 65536),
    source text not null,
    began_xid xid8 not null,
    began_seq bigint not null,
    began_at timestamptz not null,
    keep_for interval not null check (keep_for > interval '0'),
    until_at timestamptz not null
);

create table watch_key (
    key text collate "C" not null,
    watch_id uuid not null references watch on delete cascade,
    primary key (key, watch_id)
);
create index watch_key_by_watch on watch_key (watch_id);

create table task_event (
    xid xid8 not null default pg_current_xact_id(),
    seq bigint generated always as identity,
    kind smallint not null,
    at timestamptz not null,
    lambda text,
    task_id uuid,
    graph uuid,
    session text collate "C",
    status text,
    run integer,
    failure_kind smallint,
    next_at timestamptz,
    primary key (xid, kind, seq)
);

create table task_event_sweep (
    is_only boolean primary key default true check (is_only),
    xid xid8 not null,
    kind smallint not null,
    seq bigint not null
);
insert into task_event_sweep (xid, kind, seq) values ('0', 0, 0);

create function duly_event_source() returns text language plpgsql as $$
declare
    cluster text := '-';
begin
    begin
        cluster := (select system_identifier::text from pg_control_system());
    exception when undefined_function or insufficient_privilege or feature_not_supported then null;
    end;
    return cluster || '/' || split_part(duly_server(), '/', 1);
end $$;

create function duly_is_watched(lambda text, graph uuid, session text) returns boolean language sql stable as $$
    select exists (
        select from watch_key
        where key = any (array['*', 'lambda:' || lambda, 'lambda:' || split_part(lambda, '@', 1), 'graph:' || graph, 'session:' || session])
    ) or exists (
        select from watch_key
        where starts_with(key, 'prefix:') and starts_with(lambda, substr(key, 8))
            and strpos(substr(lambda, length(key) - 6), '/') = 0
    )
$$;

create function duly_note_end(
    task_id uuid, lambda text, graph uuid, session text, status text, run integer, failure_kind int2, at timestamptz
) returns boolean language plpgsql as $$
begin
    if duly_is_watched(lambda, graph, session) then
        insert into task_event (kind, at, lambda, task_id, graph, session, status, run, failure_kind)
        values ({{watched.task}}, at, lambda, task_id, graph, session, status, run, failure_kind);
    end if;
    return true;
end $$;

create function duly_note_run(
    of_task uuid, outcome text, run integer, failure_kind int2, at timestamptz, next_at timestamptz
) returns boolean language plpgsql as $$
begin
    insert into task_event (kind, at, lambda, task_id, graph, session, status, run, failure_kind, next_at)
    select {{watched.run}}, at, assoc.lambda, assoc.task_id, assoc.graph, assoc.session, outcome, run, failure_kind, next_at
    from task_assoc as assoc
    where assoc.task_id = any (array[of_task]) and duly_is_watched(assoc.lambda, assoc.graph, assoc.session);
    return true;
end $$;

create function duly_note_graph(graph_id uuid, status text, at timestamptz) returns boolean language plpgsql as $$
begin
    if exists (select from watch_key where key = any (array['*', 'graphs', 'graph:' || graph_id])) then
        insert into task_event (kind, at, graph, status) values ({{watched.graph}}, at, graph_id, status);
    end if;
    return true;
end $$;

create or replace function duly_advance_graphs(graphs uuid[], task_ids uuid[], statuses text[], dooms int2[])
    returns table (lambda text, due_in interval) language plpgsql strict rows 100 as $$
#variable_conflict use_column
declare
    now timestamptz := duly_now();
    sources uuid[];
    outcomes int4[];
    doomed uuid[];
    lambdas text[];
    dues timestamptz[];
    failing uuid[];
    steps integer := 0;
begin
    perform from graph where graph_id = any (graphs) order by graph_id for update;
    select array_agg(ended.task_id),
        array_agg(case ended.status when 'success' then {{edge.succeeded}} when 'fatal_failure' then {{edge.failed}} when 'timed_out' then {{edge.timed_out}} when 'cancelled' then {{edge.cancelled}} else {{edge.skipped}} end)
    into sources, outcomes
    from unnest(task_ids, statuses, dooms) as ended (task_id, status, doom)
    where ended.doom is null or ended.doom < 0;
    while cardinality(sources) > 0 loop
        steps := steps + 1;
        with decided as (
            select edge.to_task, count(*)::int4 as edges, min(source.place) as ended, bool_or(edge.fires_on & source.outcome > 0) as one_fired,
                bool_and(edge.fires_on & source.outcome > 0) as all_fired
            from unnest(sources, outcomes) with ordinality as source (task_id, outcome, place)
            cross join lateral (
                select edge.to_task, edge.fires_on
                from graph_edge as edge
                where edge.from_task = any (array[source.task_id])
            ) as edge
            group by edge.to_task
        ), changed as (
            update task_assoc as assoc
            set open_edges = assoc.open_edges - decided.edges,
                status = case
                    when duly_judge_node(assoc.any_of, assoc.open_edges, decided.edges, decided.one_fired, decided.all_fired) then 'new'
                    else 'waiting'
                end::task_status,
                -- what is left undecided here is decided when these end
                doom = case
                    when not duly_judge_node(assoc.any_of, assoc.open_edges, decided.edges, decided.one_fired, decided.all_fired) then case when steps < {{batch.graph_steps}} then {{kind.graph_skipped}} else -{{kind.graph_skipped}} end
                end,
                due_at = case
                    when duly_judge_node(assoc.any_of, assoc.open_edges, decided.edges, decided.one_fired, decided.all_fired) then greatest(assoc.due_at, now)
                    else assoc.due_at
                end,
                next_trigger_at = case duly_judge_node(assoc.any_of, assoc.open_edges, decided.edges, decided.one_fired, decided.all_fired)
                    when true then greatest(assoc.due_at, now)
                    when false then now
                    else assoc.next_trigger_at
                end,
                events = case duly_judge_node(assoc.any_of, assoc.open_edges, decided.edges, decided.one_fired, decided.all_fired)
                    when true then duly_note(assoc.events, 'graph_ready', now, greatest(assoc.due_at, now), sources[decided.ended]::text)
                    when false then duly_note(assoc.events, 'graph_skipped', now, now, sources[decided.ended]::text)
                    else assoc.events
                end
            from decided
            where assoc.task_id = any (array[decided.to_task]) and assoc.status::text = 'waiting' and assoc.doom is null and assoc.parked_on is null
            returning assoc.task_id, assoc.status, assoc.doom, assoc.lambda, assoc.due_at
        )
        select array_agg(changed.task_id) filter (where changed.doom is not null),
            array_agg(changed.lambda) filter (where changed.status = 'new'),
            array_agg(changed.due_at) filter (where changed.status = 'new')
        into doomed, lambdas, dues
        from changed;
        if lambdas is not null then
            return query
            select due.lambda, min(due.due_at) - now
            from unnest(lambdas, dues) as due (lambda, due_at)
            group by due.lambda;
        end if;
        exit when doomed is null or steps >= {{batch.graph_steps}};
        -- where all edges are needed a skip spreads along each: in one statement, however long the way is
        with recursive skipped (task_id) as (
            select doomed.task_id from unnest(doomed) as doomed (task_id)
            union
            select assoc.task_id
            from skipped
            cross join lateral (
                select edge.to_task
                from graph_edge as edge
                where edge.from_task = any (array[skipped.task_id]) and edge.fires_on & {{edge.skipped}} = 0
            ) as edge
            join task_assoc as assoc on assoc.task_id = any (array[edge.to_task])
            where assoc.status::text = 'waiting' and assoc.doom is null and assoc.parked_on is null and not assoc.any_of
        ), changed as (
            update task_assoc as assoc
            set doom = {{kind.graph_skipped}}, next_trigger_at = now, events = duly_note(assoc.events, 'graph_skipped', now, now)
            from skipped
            where assoc.task_id = any (array[skipped.task_id]) and assoc.status::text = 'waiting' and assoc.doom is null and assoc.parked_on is null
        )
        select array_agg(skipped.task_id), array_agg({{edge.skipped}}) into sources, outcomes from skipped;
    end loop;
    with counted as (
        update graph
        set open = graph.open - ended.number, succeeded = graph.succeeded + ended.succeeded, failed = graph.failed + ended.failed,
            skipped = graph.skipped + ended.skipped, cancelled = graph.cancelled + ended.cancelled,
            unhandled = graph.unhandled + ended.unhandled,
            finished_at = case when graph.open = ended.number then now end
        from (
            select ended.graph_id, count(*)::int4 as number,
                count(*) filter (where ended.status = 'success')::int4 as succeeded,
                count(*) filter (where ended.status in ('fatal_failure', 'timed_out'))::int4 as failed,
                count(*) filter (where ended.status = 'dropped')::int4 as skipped,
                count(*) filter (where ended.status = 'cancelled')::int4 as cancelled,
                count(*) filter (where ended.status in ('fatal_failure', 'timed_out') and (
                    select node.handled from graph_node as node where node.task_id = any (array[ended.task_id]) limit 1
                ) & case ended.status when 'timed_out' then {{edge.timed_out}} else {{edge.failed}} end = 0)::int4 as unhandled
            from unnest(graphs, task_ids, statuses) as ended (graph_id, task_id, status)
            group by ended.graph_id
        ) as ended
        where graph.graph_id = any (array[ended.graph_id])
        returning graph.graph_id, graph.fail_fast and graph.unhandled > 0 and graph.open > 0 as fails_now,
            case when graph.open = 0 and exists (select from watch) then duly_note_graph(graph.graph_id, case
                when graph.cancel_requested then 'cancelled'
                when graph.unhandled > 0 then 'failed'
                when graph.cancelled > 0 then 'cancelled'
                else 'succeeded'
            end, now) end as noted
    )
    select array_agg(counted.graph_id) into failing from counted where counted.fails_now;
    if failing is null then
        return;
    end if;
    with stopped as (
        select assoc.task_id
        from graph_node as node join task_assoc as assoc on assoc.task_id = any (array[node.task_id])
        where node.graph_id = any (failing) and assoc.graph = node.graph_id
            and assoc.status::text in ('waiting', 'new', 'retriable_failure') and coalesce(assoc.doom, -1) < 0
        order by assoc.task_id
        for update of assoc skip locked
    )
    update task_assoc as assoc
    set status = 'waiting', doom = {{kind.graph_failed}}, parked_on = null, parked_key = null, start_at = null, next_trigger_at = now,
        events = duly_note(assoc.events, 'graph_failed', now, now)
    from stopped
    where assoc.task_id = any (array[stopped.task_id])
        and assoc.status::text in ('waiting', 'new', 'retriable_failure') and coalesce(assoc.doom, -1) < 0;
end $$;
