-- What the end of a node does to its graph.

-- What becomes of a node of which `edges` were decided just now: true if it runs, false if it never can, null if it waits.
create function duly_judge_node(
    any_of boolean, open_edges integer, edges integer, one_fired boolean, all_fired boolean
) returns boolean language sql immutable parallel safe as '
    select case
        when any_of then case when one_fired then true when open_edges = edges then false end
        when not all_fired then false
        when open_edges = edges then true
    end';

-- What the ends of these tasks do to their graphs: edges are decided, each once. A task whose edges let it run is due; one
-- that can never run is doomed, which decides its own edges at once. `dooms` says which of the ended ones were doomed
-- before: their edges are decided already, unless the doom is negative (they came last in a long row of such). What is parked
-- may run, and waits for no edge any more. A node that may run and has a session is parked: it enters the session in a transaction of
-- its own (duly_enter_nodes), for sessions are locked before graphs. Of a graph that fails fast the first failure that it does not handle dooms all that has not
-- started; what somebody takes or changes at this moment runs.
-- move: waiting|new|retriable_failure -> new|waiting
-- Returns the lambdas of tasks that became due, and how far ahead these are: a day ago, if nodes are to enter their sessions.
create function duly_advance_graphs(graphs uuid[], task_ids uuid[], statuses text[], dooms int2[])
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
    where ended.doom is null or ended.doom < 0 or ended.doom = {{kind.session_failed}};
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
                    when duly_judge_node(assoc.any_of, assoc.open_edges, decided.edges, decided.one_fired, decided.all_fired) and assoc.parked_key is null then 'new'
                    else 'waiting'
                end::task_status,
                parked_on = case
                    when assoc.parked_key is not null and duly_judge_node(assoc.any_of, assoc.open_edges, decided.edges, decided.one_fired, decided.all_fired) then 'session:'
                end,
                -- what is left undecided here is decided when these end
                doom = case
                    when not duly_judge_node(assoc.any_of, assoc.open_edges, decided.edges, decided.one_fired, decided.all_fired) then case when steps < {{batch.graph_steps}} then {{kind.graph_skipped}} else -{{kind.graph_skipped}} end
                end,
                due_at = case
                    when duly_judge_node(assoc.any_of, assoc.open_edges, decided.edges, decided.one_fired, decided.all_fired) then greatest(assoc.due_at, now)
                    else assoc.due_at
                end,
                next_trigger_at = case duly_judge_node(assoc.any_of, assoc.open_edges, decided.edges, decided.one_fired, decided.all_fired)
                    when true then case when assoc.parked_key is null then greatest(assoc.due_at, now) else now end
                    when false then now
                    else assoc.next_trigger_at
                end,
                events = case duly_judge_node(assoc.any_of, assoc.open_edges, decided.edges, decided.one_fired, decided.all_fired)
                    when true then duly_note(assoc.events, 'graph_ready', now, greatest(assoc.due_at, now), sources[decided.ended]::text)
                    when false then duly_note(assoc.events, 'graph_skipped', now, now, sources[decided.ended]::text)
                    else assoc.events
                end
            from decided
            where assoc.task_id = any (array[decided.to_task]) and assoc.status::text = 'waiting' and assoc.doom is null and assoc.parked_on is null and assoc.session is null
            returning assoc.task_id, assoc.status, assoc.doom, assoc.lambda, case when assoc.parked_on is null then assoc.due_at else now - interval '1 day' end as due_at, assoc.parked_on
        )
        select array_agg(changed.task_id) filter (where changed.doom is not null),
            array_agg(changed.lambda) filter (where changed.status = 'new' or changed.parked_on is not null),
            array_agg(changed.due_at) filter (where changed.status = 'new' or changed.parked_on is not null)
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
