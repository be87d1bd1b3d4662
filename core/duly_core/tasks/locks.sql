-- Statements that lock the sessions and graphs in which tasks wait, and the resources that they name. A statement sees rows as
-- they were before it waited for a lock: what is done to the tasks is for the next one, in the same transaction. A task keeps
-- its session, its graph and what it names; quotas come to that when it is picked, so they are locked as well.

-- name: lock_waiting
-- Locks what these tasks wait in; returns those that wait, and whether each is a node that is in no session yet.
with {{quotas}}, waiting as materialized (
    select assoc.task_id, assoc.session, assoc.graph,
        coalesce(assoc.resources, '[]') || coalesce({{quota_of: assoc.lambda}}, '[]') as resources
    from unnest(%(task_ids)b::uuid[]) as asked (task_id)
    join task_assoc as assoc on assoc.task_id = any (array[asked.task_id])
    where assoc.status::text = 'waiting'
), locked as materialized (
    select key from session where key = any (array(select session from waiting)) order by key for update
), locked_graphs as materialized (
    select graph_id
    from graph
    where (select count(*) from locked) >= 0 and graph_id = any (array(select graph from waiting))
    order by graph_id
    for update
), found as materialized (
    select task_id, session, graph, resources
    from waiting
    where (session is null or session in (select key from locked))
        and (graph is null or graph in (select graph_id from locked_graphs)) and (select count(*) from locked_graphs) >= 0
), {{lock_resources: found}}
select task_id, graph is not null and session is null from found where (select count(*) from locked_resources) >= 0

-- name: lock_over
-- As lock_waiting, of the tasks that wait and are to end without a run, the longest due first. A session or graph that
-- somebody else works on is left to the next round.
with {{quotas}}, over as materialized (
    select task_id, session, graph,
        coalesce(resources, '[]') || coalesce({{quota_of: lambda}}, '[]') as resources
    from task_assoc
    where status = 'waiting' and next_trigger_at < 'infinity' and next_trigger_at <= (select duly_now())
        and coalesce(parked_on, '') not in ('completion:', 'event:', 'session:')
    order by next_trigger_at
    limit %(limit)b
), {{locked_over}}
select task_id, graph is not null and session is null from found where (select count(*) from locked_resources) >= 0

-- name: lock_uncompleted
-- As lock_over, of the tasks that were handed over, and that nobody completed in time.
with {{quotas}}, over as materialized (
    select task_id, session, graph, parked_key as hash,
        coalesce(resources, '[]') || coalesce({{quota_of: lambda}}, '[]') as resources
    from task_assoc
    where status = 'waiting' and next_trigger_at < 'infinity' and next_trigger_at <= (select duly_now())
        and parked_on = 'completion:'
    order by next_trigger_at
    limit %(limit)b
), {{locked_over}}
select task_id, hash from found where (select count(*) from locked_resources) >= 0

-- name: lock_cancelled
-- Locks the sessions and graphs of claims that are about to stop after a cancel was asked for: these tasks end in the same
-- transaction, which has locked the resources that they name by then. Nobody asks for a cancel of the others meanwhile.
with held as materialized (
    select assoc.session, assoc.graph, assoc.cancel_requested
    from unnest(%(task_ids)b::uuid[], %(tokens)b::uuid[]) as asked (task_id, token)
    join task_assoc as assoc on assoc.task_id = any (array[asked.task_id])
    where assoc.token = asked.token and assoc.status::text in ('claimed', 'processing')
    for update of assoc
), locked as materialized (
    select key from session where key = any (array(select session from held where cancel_requested)) order by key for update
)
select graph_id
from graph
where (select count(*) from locked) >= 0 and graph_id = any (array(select graph from held where cancel_requested))
order by graph_id
for update

-- name: lock_nodes
-- Locks the resources of nodes that wait in a graph, which the caller's transaction has locked; returns these nodes. Those that wait in
-- a session are left out: it would have to be locked before the graph.
with {{quotas}}, waiting as materialized (
    select assoc.task_id,
        coalesce(assoc.resources, '[]') || coalesce({{quota_of: assoc.lambda}}, '[]') as resources
    from graph_node as node join task_assoc as assoc on assoc.task_id = any (array[node.task_id])
    where node.graph_id = %(graph_id)b::uuid and assoc.status::text = 'waiting' and assoc.doom is null and assoc.session is null
), {{lock_resources: waiting}}
select task_id from waiting where (select count(*) from locked_resources) >= 0 order by task_id

-- name: lock_graph_of
-- Locks the graph of a task.
select graph.graph_id
from graph
where graph.graph_id = (select node.graph_id from graph_node as node where node.task_id = %(task_id)b::uuid limit 1)
for update

-- name: lock_blocked
-- Locks the sessions that these tasks block; zeros: whichever task does.
select session.key
from unnest(%(keys)b::text[], %(blocked_by)b::uuid[]) as asked (key, blocked_by)
join session on session.key = any (array[asked.key])
where asked.blocked_by in (session.blocked_by, '00000000-0000-0000-0000-000000000000')
order by session.key
for update of session

-- name: lock_event_waits
-- Locks the tasks of a page of the waits for these keys, behind a task of each. The caller's transaction has locked the keys: nobody else
-- ends these waits meanwhile. Answers with the page, and whether a task still waits.
with page as materialized (
    select asked.key, waiting.task_id
    from unnest(%(keys)b::text[], %(after)b::uuid[]) as asked (key, after)
    cross join lateral (
        select wait.task_id
        from event_wait as wait
        where wait.key = asked.key and wait.task_id > asked.after
        order by wait.key, wait.task_id
        limit %(limit)b
    ) as waiting
    limit %(limit)b
), locked as materialized (
    select assoc.task_id
    from (select distinct task_id from page) as waiting
    join task_assoc as assoc on assoc.task_id = any (array[waiting.task_id])
    where {{waits_for_event}}
    order by waiting.task_id
    for update of assoc
)
select page.key, page.task_id, locked.task_id is not null
from page left join locked on locked.task_id = page.task_id
