-- Written by `make sql` from core/duly_core/upkeep/retention.sql. Edit that.

-- name: expired_dead_letters
delete from dead_letter
using (
    select task_id from dead_letter where finished_at <= %(dead_before)b order by finished_at limit %(limit)b
) as old
where dead_letter.task_id = old.task_id and dead_letter.finished_at <= %(dead_before)b
returning dead_letter.task_id;

-- name: abandoned_sessions
with abandoned as materialized (
    select session.key
    from session
    where session.blocked_at is not null and session.doomed = 0
        and not exists (select from dead_letter where dead_letter.task_id = session.blocked_by)
    order by session.key
    limit %(limit)b
)
select key from abandoned where duly_unblock_session(key);

-- name: idle_resource_keys
delete from resource_use as use
using (
    select resource, key
    from resource_use
    where key <> '' and used = 0 and skipped_at is null and coalesce(starts_until <= duly_now(), true) and not exists (
        select from task_assoc as assoc
        where assoc.parked_on = resource_use.resource and assoc.parked_key = resource_use.key and assoc.status = 'waiting'
    )
    limit %(limit)b
    for update skip locked
) as idle
where use.resource = idle.resource and use.key = idle.key
returning use.key;

-- name: expired_events
with old as materialized (
    select key, seq from event where expires_at <= duly_now() order by expires_at limit %(limit)b
), locked as materialized (
    select event_key.key
    from event_key
    where event_key.key = any (array(select key from old))
    order by event_key.key
    for update skip locked
), gone as (
    delete from event
    using old
    where event.key = old.key and event.seq = old.seq and old.key in (select key from locked)
    returning event.key
), counted as (
    update event_key
    set events = event_key.events - gone.number
    from (select key, count(*)::int4 as number from gone group by key) as gone
    where event_key.key = gone.key
)
select key from gone;

-- name: ended_event_waits
with page as (
    select wait.key, wait.task_id, wait.fence
    from event_wait as wait
    where wait.task_id > %(after)b
    order by wait.task_id
    limit %(limit)b
), gone as (
    delete from event_wait as wait
    using page
    where wait.key = any (array[page.key]) and wait.task_id = page.task_id and wait.fence = page.fence and not exists (
        select from task_assoc as assoc
        where assoc.task_id = page.task_id and assoc.fence = page.fence and assoc.parked_on = 'event:'
    )
)
select task_id from page order by task_id;

-- name: idle_event_keys
delete from event_key
using (
    select event_key.key
    from event_key
    where event_key.events = 0 and not exists (select from event_wait as wait where wait.key = event_key.key)
    limit %(limit)b
    for update skip locked
) as idle
where event_key.key = idle.key
    and not exists (select from event_wait as wait where wait.key = event_key.key)
returning event_key.key;

-- name: expired_graphs
with old as (
    select graph_id
    from (
        select graph_id, sum(total) over (order by finished_at, graph_id) as nodes, row_number() over (order by finished_at, graph_id) as place
        from (
            select graph_id, finished_at, total
            from graph
            where finished_at <= case when failed > 0 then %(dead_before)b else %(ended_before)b end
                and finished_at <= greatest(%(dead_before)b, %(ended_before)b)
            order by finished_at
            limit %(limit)b
        ) as candidate
    ) as counted
    where place = 1 or nodes <= 5000
), gone as (
    delete from graph_node as node using old where node.graph_id = old.graph_id returning node.task_id
), edges as (
    delete from graph_edge as edge using gone where edge.from_task = gone.task_id
)
delete from graph using old where graph.graph_id = old.graph_id returning graph.graph_id;

-- name: ended_hosts
with ended as (
    select host_id, row_number() over (order by reported_at desc) as place, reported_at
    from host
    where stopped or reported_at < duly_now() - 3 * report_interval
)
delete from host
using (
    select host_id from ended
    where reported_at < %(reported_before)b or place > 10000
    order by reported_at
    limit %(limit)b
) as old
where host.host_id = old.host_id and (host.stopped or host.reported_at < duly_now() - 3 * host.report_interval)
returning host.host_id;

-- name: ended_services
with ended as (
    select instance_id, row_number() over (order by reported_at desc) as place, reported_at
    from service_instance
    where stopped or reported_at < duly_now() - 3 * report_interval
)
delete from service_instance
using (
    select instance_id from ended
    where reported_at < %(reported_before)b or place > 10000
    order by reported_at
    limit %(limit)b
) as old
where service_instance.instance_id = old.instance_id
    and (service_instance.stopped or service_instance.reported_at < duly_now() - 3 * service_instance.report_interval)
returning service_instance.instance_id;

-- name: expired_keys
with page as (
    select key.task_id
    from idempotency_key as key
    where key.task_id > %(after)b and key.task_id < %(end)b
    order by key.task_id
    limit %(limit)b
), gone as (
    delete from idempotency_key as key
    using page left join lateral (
        select task.task_id, task.status, task.finished_at
        from task
        where task.task_id = any (array[page.task_id]) and task.task_id > %(after)b and task.task_id < %(end)b
        limit 1
    ) as task on true
    where key.task_id = page.task_id and (
        task.task_id is null
        or task.finished_at <= case when task.status = 'fatal_failure' then %(dead_before)b else %(ended_before)b end
    )
)
select task_id from page;

-- name: unique_keys_without_tasks
with page as (
    select unique_key.lambda, unique_key.key, unique_key.task_id
    from unique_key
    where unique_key.task_id > %(after)b and unique_key.task_id < duly_first_id(least(%(ended_before)b, %(dead_before)b))
    order by unique_key.task_id
    limit %(limit)b
), left_over as materialized (
    select taken.lambda, taken.key, taken.task_id
    from page join unique_key as taken on taken.task_id = any (array[page.task_id])
    where not exists (select from task where task.task_id = page.task_id)
    for update of taken skip locked
), gone as (
    delete from unique_key using left_over
    where unique_key.lambda = any (array[left_over.lambda]) and unique_key.key = left_over.key
        and unique_key.task_id = left_over.task_id
)
select task_id from page order by task_id;

-- name: attributes_without_tasks
with page as (
    select attribute.name, attribute.value, attribute.task_id
    from task_attribute as attribute
    where attribute.task_id > %(after)b and attribute.task_id < duly_first_id(greatest(%(ended_before)b, %(dead_before)b))
    order by attribute.task_id
    limit %(limit)b
), gone as (
    delete from task_attribute as attribute using page
    where attribute.name = any (array[page.name]) and attribute.value = page.value and attribute.task_id = page.task_id
        and not exists (select from task where task.task_id = page.task_id)
)
select task_id from page order by task_id;

-- name: old_merged_tasks
delete from merged_task
using (
    select task_id from merged_task where task_id < duly_first_id(duly_now() - interval '1 hour') order by task_id limit %(limit)b
) as old
where merged_task.task_id = old.task_id
returning merged_task.task_id;

-- name: settled_operator_changes
delete from operator_change
using (
    select kind, name
    from operator_change
    where kind <> 'settled' and changed_at <= (select changed_at from operator_change where kind = 'settled' and name = '')
    limit %(limit)b
) as old
where operator_change.kind = old.kind and operator_change.name = old.name
    and operator_change.changed_at <= (select changed_at from operator_change where kind = 'settled' and name = '')
returning operator_change.name;

-- name: survivors
select task_id,
    case
        when finished_at > case when status = 'fatal_failure' then %(dead_before)b else %(ended_before)b end
            or finished_at is null
        then octet_length(payload) + coalesce(octet_length(result), 0) + (
            select coalesce(sum(
                200 + coalesce(octet_length(failure_message), 0) + coalesce(octet_length(traceback), 0)
            ), 0)
            from {attempt} as attempt
            where attempt.task_id = task.task_id
        )
    end::int8 as size
from {task} as task
where task_id > %(after)b
order by task_id
limit %(limit)b;

-- name: thin
with page as (
    select task_id,
        finished_at <= case when status = 'fatal_failure' then %(dead_before)b else %(ended_before)b end as ended
    from {task}
    where task_id > %(after)b
    order by task_id
    limit %(limit)b
), gone as (
    delete from {task} as task
    using page
    where page.ended and task.task_id = page.task_id
        and task.finished_at <= case when task.status = 'fatal_failure' then %(dead_before)b else %(ended_before)b end
    returning task.task_id
), keys as (
    delete from idempotency_key as key using gone where key.task_id = gone.task_id
), attempts as (
    delete from {attempt} as attempt using gone where attempt.task_id = gone.task_id
), uses as (
    delete from attachment_use as used using gone where used.task_id = gone.task_id
)
select page.task_id, gone.task_id is not null from page left join gone using (task_id) order by page.task_id;
