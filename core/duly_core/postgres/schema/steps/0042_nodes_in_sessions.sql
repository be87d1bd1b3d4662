-- Nodes of graphs enter sessions; the end of a task with both tells its graph.
-- step: expand
create function duly_enter_nodes(most integer) returns table (lambda text, due_in interval) language plpgsql strict rows 100 as $$
#variable_conflict use_column
declare
    released uuid[];
    keys text[];
    by_time text[];
begin
    select array_agg(found.task_id), array_agg(distinct found.parked_key) into released, keys
    from (
        select assoc.task_id, assoc.parked_key
        from task_assoc as assoc
        where assoc.parked_on = 'session:' and assoc.status = 'waiting'
        limit most
    ) as found;
    if released is null then
        return;
    end if;
    -- A session that is not there is made, without a task: two transactions could wait for each other's new rows as well. From here on
    -- nobody else puts these nodes into their sessions.
    insert into session (key, head, length, last_seq)
    select asked.key, released[1], 0, 0 from unnest(keys) as asked (key) order by asked.key collate "C"
    on conflict (key) do update set length = session.length;
    with entering as materialized (
        select assoc.task_id, assoc.parked_key as key, assoc.due_at, assoc.next_trigger_at as released_at,
            case when assoc.session_rank = 'infinity' then assoc.due_at else '-infinity' end as rank
        from unnest(released) as asked (task_id)
        join task_assoc as assoc on assoc.task_id = any (array[asked.task_id])
        where assoc.status::text = 'waiting' and assoc.parked_on = 'session:'
        order by assoc.task_id
        for update of assoc
    ), placed as materialized (
        select *, row_number() over (partition by key order by released_at, task_id) as place from entering
    ), line as (
        update session
        set length = session.length + added.number, last_seq = session.last_seq + added.number,
            head = case when session.length = 0 and session.blocked_by is null then added.first else session.head end
        from (
            select placed.key, count(*)::int4 as number, (array_agg(placed.task_id order by placed.rank, placed.place))[1] as first
            from placed
            group by placed.key
        ) as added
        where session.key = any (array[added.key])
        returning session.key, session.head, session.last_seq - added.number as before
    ), entered as (
        update task_assoc as assoc
        set status = case when placed.task_id = line.head then 'new' else 'waiting' end::task_status,
            next_trigger_at = case when placed.task_id = line.head then placed.due_at else coalesce(assoc.expires_at, 'infinity') end,
            session = placed.key, session_rank = placed.rank, session_seq = line.before + placed.place,
            parked_on = null, parked_key = null
        from placed join line on line.key = placed.key
        where assoc.task_id = any (array[placed.task_id]) and assoc.status::text = 'waiting' and assoc.parked_on = 'session:'
        returning assoc.session, assoc.session_rank
    )
    select array_agg(distinct entered.session) filter (where entered.session_rank > '-infinity') into by_time from entered;
    perform duly_put_earlier_first(by_time);
    -- those whose nodes were cancelled meanwhile
    delete from session where session.key = any (keys) and session.length = 0 and session.blocked_by is null;
    return query
    select assoc.lambda, min(assoc.due_at) - duly_now()
    from unnest(released) as asked (task_id) join task_assoc as assoc on assoc.task_id = any (array[asked.task_id])
    where assoc.status::text = 'new'
    group by assoc.lambda;
end $$;

create or replace function duly_advance_sessions(keys text[], task_ids uuid[], failures int2[], dooms int2[])
    returns table (lambda text, due_in interval) language plpgsql strict rows 100 as $$
#variable_conflict use_column
begin
    perform from session where key = any (keys) order by key for update;
    return query
    with line as (
        select session.key, session.head, session.length - count(*)::int4 as length,
            session.doomed - count(*) filter (where ended.doom = {{kind.session_failed}})::int4 as doomed, session.blocked_by, session.last_seq, session.fails_until,
            coalesce(bool_or(ended.task_id = session.head), false) as headless,
            max(ended.failure) filter (where ended.task_id = session.head) as failure,
            -- the tasks that were to fail with it are gone, and perhaps some that their graphs let not run
            session.fails_until is not null and session.doomed = count(*) filter (where ended.doom = {{kind.session_failed}}) as failed
        from unnest(keys, task_ids, failures, dooms) as ended (key, task_id, failure, doom)
        join session on session.key = any (array[ended.key])
        group by session.key
    ), condemned as (
        -- its order keeps it from being joined the other way round: a plan made while nothing waited would look at all
        -- that waits, for ever
        select line.key, waiting.task_id, coalesce(line.blocked_by, line.head) as failed_task
        from line cross join lateral (
            select assoc.task_id
            from task_assoc as assoc
            where assoc.session = line.key and assoc.status = 'waiting' and assoc.doom is null
                and assoc.session_seq <= case when line.headless then line.last_seq else line.fails_until end
            order by assoc.session, assoc.session_rank, assoc.session_seq
            -- an end must not outlast statement_timeout: when these are gone, the next are marked
            limit {{batch.doomed}}
        ) as waiting
        where line.headless and line.failure = {{session_policy.fail_rest}} or line.failed and line.head is null
    ), doomed as (
        update task_assoc as assoc
        set doom = {{kind.session_failed}}, next_trigger_at = (select duly_now()),
            events = duly_note(assoc.events, 'session_failed', (select duly_now()), null, condemned.failed_task::text)
        from condemned
        where assoc.task_id = any (array[condemned.task_id]) and assoc.status::text = 'waiting'
        returning condemned.key
    ), moved as (
        select line.*, next.task_id as next_head,
            (select count(*)::int4 from doomed where doomed.key = line.key) as more_doomed
        from line left join lateral (
            select assoc.task_id
            from task_assoc as assoc
            where assoc.session = line.key and assoc.status = 'waiting' and assoc.doom is null
                and line.length > 0
                and (
                    line.headless and coalesce(line.failure, {{session_policy.skip}}) = {{session_policy.skip}}
                    or line.failed and line.head is null and not exists (select from doomed where doomed.key = line.key)
                )
            order by assoc.session, assoc.session_rank, assoc.session_seq
            limit 1
        ) as next on true
    ), drained as (
        delete from session using moved
        where session.key = any (array[moved.key]) and moved.length = 0
            and (moved.headless and coalesce(moved.failure, {{session_policy.skip}}) <> {{session_policy.block}} or moved.failed and moved.head is null)
    ), updated as (
        update session
        set length = moved.length, doomed = moved.doomed + moved.more_doomed,
            head = coalesce(moved.next_head, case when not moved.headless then moved.head end),
            fails_until = case
                when moved.headless and moved.more_doomed > 0 then moved.last_seq
                -- all that is left are nodes whose graphs failed fast: the session goes on when they are gone
                when moved.headless and moved.next_head is null and coalesce(moved.failure, {{session_policy.skip}}) <> {{session_policy.block}} then 0
                when not moved.headless and moved.next_head is null then moved.fails_until
            end,
            blocked_by = case
                when moved.next_head is not null then null
                when moved.headless then moved.head
                else session.blocked_by
            end,
            blocked_at = case
                when moved.next_head is not null then null
                when moved.headless then (select duly_now())
                else session.blocked_at
            end
        from moved
        where session.key = any (array[moved.key]) and not (
            moved.length = 0
            and (moved.headless and coalesce(moved.failure, {{session_policy.skip}}) <> {{session_policy.block}} or moved.failed and moved.head is null)
        )
    ), promoted as (
        update task_assoc as assoc
        set status = 'new', next_trigger_at = greatest(assoc.due_at, (select duly_now())),
            due_at = greatest(assoc.due_at, (select duly_now())),
            events = duly_note(
                assoc.events, 'session_turn', (select duly_now()), greatest(assoc.due_at, (select duly_now())),
                coalesce(moved.head, moved.blocked_by)::text
            )
        from moved
        -- a graph that fails fast may doom it at this moment: then its end is the next one
        where assoc.task_id = any (array[moved.next_head]) and assoc.status::text = 'waiting' and assoc.doom is null
        returning assoc.lambda, assoc.due_at
    )
    select promoted.lambda, min(promoted.due_at) - (select duly_now()) from promoted group by promoted.lambda;
end $$;

create or replace function duly_unblock_session(asked text, asked_by text default null) returns boolean language plpgsql as $$
declare
    line record;
    next_head uuid;
begin
    select * into line from session where key = asked and blocked_by is not null and doomed = 0 and fails_until is null for update;
    if not found then
        return false;
    end if;
    select assoc.task_id into next_head
    from task_assoc as assoc
    where assoc.session = asked and assoc.status = 'waiting' and assoc.doom is null
    order by assoc.session, assoc.session_rank, assoc.session_seq
    limit 1;
    if next_head is null then
        delete from session where key = asked;
    else
        update session set head = next_head, blocked_by = null, blocked_at = null where key = asked;
        update task_assoc as assoc
        set status = 'new', next_trigger_at = greatest(assoc.due_at, duly_now()), due_at = greatest(assoc.due_at, duly_now()),
            events = duly_note(
                assoc.events, 'session_unblocked', duly_now(), greatest(assoc.due_at, duly_now()), line.blocked_by::text, asked_by
            )
        where assoc.task_id = next_head and assoc.status::text = 'waiting';
    end if;
    return true;
end $$;

create or replace function duly_put_earlier_first(keys text[]) returns void language plpgsql strict as $$
begin
    with earlier as (
        select session.key, first.task_id, head.task_id as head
        from unnest(keys) as asked (key)
        join session on session.key = any (array[asked.key])
        cross join lateral (
            select assoc.task_id, assoc.session_rank, assoc.session_seq
            from task_assoc as assoc
            where assoc.session = asked.key and assoc.status = 'waiting' and assoc.doom is null
            order by assoc.session, assoc.session_rank, assoc.session_seq
            limit 1
        ) as first
        cross join lateral (
            select assoc.task_id
            from task_assoc as assoc
            where assoc.task_id = session.head and assoc.status::text = 'new' and assoc.fence = 0
                -- one that is due may just have been released from a resource, whose units would be left to nobody
                and (assoc.resources is null or assoc.next_trigger_at > duly_now())
                and (assoc.session_rank, assoc.session_seq) > (first.session_rank, first.session_seq)
            for update skip locked
        ) as head
    ), demoted as (
        update task_assoc as assoc
        set status = 'waiting', next_trigger_at = coalesce(assoc.expires_at, 'infinity'),
            events = duly_note(assoc.events, 'session_overtaken', duly_now(), assoc.expires_at, earlier.task_id::text)
        from earlier
        where assoc.task_id = any (array[earlier.head])
    ), promoted as (
        update task_assoc as assoc
        set status = 'new', next_trigger_at = assoc.due_at,
            events = duly_note(assoc.events, 'session_turn', duly_now(), assoc.due_at, earlier.head::text)
        from earlier
        where assoc.task_id = any (array[earlier.task_id]) and assoc.doom is null
    )
    update session set head = earlier.task_id from earlier where session.key = any (array[earlier.key]);
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
