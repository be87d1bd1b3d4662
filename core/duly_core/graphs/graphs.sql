-- name: put_definition
with newest as (
    select version, definition from graph_definition where name = %(name)s order by version desc limit 1
), made as (
    insert into graph_definition (name, version, definition, lambdas, created_at)
    select %(name)s, coalesce((select version from newest), 0) + 1, %(definition)s, %(lambdas)s, duly_now()
    where not exists (select from newest where definition = %(definition)s)
        and coalesce((select version from newest), 0) = coalesce(%(replaces)s, (select version from newest), 0)
    on conflict do nothing
    returning version
)
select version, true as created from made
union all
select version, false from newest where definition = %(definition)s

-- name: get_definition
select name, version, created_at, definition, lambdas
from graph_definition
where name = %(name)s and (version = %(version)s or %(version)s = 0)
order by version desc
limit 1

-- name: list_definitions
select distinct on (name) name, version, created_at, ''::bytea as definition, lambdas
from graph_definition
where name > %(after)s
order by name, version desc
limit %(limit)s offset %(skipped)s

-- name: nodes_of_graph
select node.label, node.task_id, node.any_of, node.ignore_failure, node.timeout_is_final, task.lambda,
    coalesce(assoc.status, task.status)::text as status,
    assoc.status is null and task.status = 'fatal_failure' and task.failure_kind = {{kind.max_runtime}} as timed_out,
    array(
        select source.label
        from unnest(node.waits_for) with ordinality as edge (from_task, number) cross join lateral (
            select source.label from graph_node as source where source.task_id = edge.from_task limit 1
        ) as source
        order by edge.number
    ) as sources,
    node.conditions::int4[] as conditions,
    case when {{waits_for_event}} then assoc.parked_key end as awaited_events,
    case when {{waits_for_event}} then (
        select max('1970-01-01Z'::timestamptz + (each ->> 'at')::int8 * interval '1 microsecond')
        from jsonb_array_elements(assoc.events) as each
        where each ->> 'kind' = 'event_awaited'
    ) end as awaited_since_at,
    case when {{waits_for_event}} then assoc.next_trigger_at end as awaited_until_at,
    task.created_at, coalesce(assoc.due_at, task.scheduled_at) as due_at, coalesce(assoc.fence, task.fence, 0) as runs,
    least(
        case
            -- the first run succeeded, or none ended: there are no other attempts
            when coalesce(assoc.fence, task.fence, 0) > case when assoc.status is null and task.status = 'success' then 1 else 0 end
            then (
                select min(coalesce(attempt.started_at, attempt.claimed_at))
                from attempt
                where attempt.task_id = node.task_id
            )
        end,
        case when assoc.status in ('claimed', 'processing') then assoc.claimed_at else coalesce(task.started_at, task.claimed_at) end
    ) as started_at,
    case when assoc.status is null then task.finished_at end as ended_at,
    (select duly_now()) as read_at
from graph_node as node
left join task_assoc as assoc on assoc.task_id = node.task_id
left join lateral (
    select task.lambda, task.status, task.failure_kind, task.created_at, task.scheduled_at, task.claimed_at,
        task.started_at, task.finished_at, task.fence
    from task
    where task.task_id = node.task_id
    limit 1
) as task on true
where node.graph_id = %(graph_id)s
order by node.place

-- name: request_graph_cancel
update graph set cancel_requested = true where graph_id = %(graph_id)s and open > 0
