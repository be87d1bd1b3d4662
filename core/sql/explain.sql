-- Written by `make sql` from core/duly_core/explain/explain.sql. Edit that.

-- name: serving_hosts
with serving as materialized (
    select host.name, host.reported_at, host.report_interval, case when host.stopped then 'stopped'
    when host.reported_at <= duly_now() - 3 * host.report_interval then 'silent'
    when host.draining then 'draining'
    else 'alive' end as state,
        host.reported_at > duly_now() - host.report_interval - %(late)s as is_punctual, slots.free
    from (
        select host_lambda.host_id, array_agg(host_lambda.lambda_set::int4) as sets
        from host_lambda
        where host_lambda.lambda = %(lambda)s
            or (host_lambda.lambda = %(base)s and host_lambda.version = %(version)s and %(version)s <> '')
        group by host_lambda.host_id
    ) as served
    join host on host.host_id = served.host_id
    cross join lateral (
        select sum(executor.processes * executor.slots - executor.busy_slots) as free
        from jsonb_to_recordset(host.executors)
            as executor (processes int8, slots int8, busy_slots int8, lambda_set int4)
        where executor.lambda_set = any (served.sets)
    ) as slots
)
select exists (select from host where case when host.stopped then 'stopped'
    when host.reported_at <= duly_now() - 3 * host.report_interval then 'silent'
    when host.draining then 'draining'
    else 'alive' end in ('alive', 'draining')) as any_alive, sound.alive, sound.free_slots,
    last.name, last.state, last.reported_at, last.report_interval
from (
    select count(*) as alive, coalesce(sum(serving.free), 0)::int8 as free_slots
    from serving
    where serving.state = 'alive' and serving.is_punctual
) as sound
left join lateral (
    select serving.name, serving.state, serving.reported_at, serving.report_interval
    from serving
    order by serving.reported_at desc
    limit 1
) as last on true;

-- name: labels_of_hosts
select host.name, array_agg(distinct label.name) filter (where label.name is not null) as labels
from host_lambda
join host on host.host_id = host_lambda.host_id
left join lateral jsonb_to_recordset(host.executors) as executor (lambda_set int4, labels jsonb)
    on executor.lambda_set = host_lambda.lambda_set
left join lateral jsonb_array_elements_text(executor.labels) as label (name) on true
where host_lambda.lambda = %(lambda)s and case when host.stopped then 'stopped'
    when host.reported_at <= duly_now() - 3 * host.report_interval then 'silent'
    when host.draining then 'draining'
    else 'alive' end = 'alive'
group by host.host_id, host.name
order by host.host_id
limit 1000;

-- name: session_of_task
select session.head, session.blocked_by, session.blocked_at, session.doomed, session.length,
    (
        select count(*)
        from (
            select from task_assoc as assoc
            where assoc.session = %(session)s and assoc.status = 'waiting' and assoc.doom is null
                and (assoc.session_rank, assoc.session_seq) < (%(rank)s::timestamptz, %(seq)s)
            limit %(most)s
        ) as first
    ) as before
from session
where session.key = %(session)s;

-- name: nodes_before
select source.task_id, source.label, source.lambda, task.scheduled_by, coalesce(assoc.status, task.status)::text as status,
    assoc.task_id is not null and assoc.doom is null as is_open
from (
    select node.graph_id, node.waits_for from graph_node as node where node.task_id = %(task_id)s limit 1
) as own
cross join lateral unnest(own.waits_for[1 : %(most)s]) as edge (from_task)
cross join lateral (
    select node.task_id, node.label, node.lambda from graph_node as node where node.task_id = edge.from_task limit 1
) as source
left join task_assoc as assoc on assoc.task_id = source.task_id
left join lateral (
    select task.status, task.scheduled_by from task where task.task_id = source.task_id limit 1
) as task on true
order by source.label;

-- name: resources_of_task
select need.name, need.key, least(need.weight, resource.capacity) as weight, resource.capacity, resource.rate,
    resource.period, resource.note, resource.changed_at, coalesce(use.used, 0) as used
from (
    select named.name, named.key, named.weight
    from jsonb_to_recordset(%(needs)s::jsonb) as named (name text, key text, weight int4)
    union
    select quota.name, '', 1 from unnest(%(quotas)s::text[]) as quota (name)
) as need
join resource on resource.name = need.name
left join resource_use as use on use.resource = need.name and use.key = need.key
order by need.name, need.key;

-- name: parked_before
select count(*) as count
from (
    select from task_assoc as assoc
    where assoc.parked_on = %(name)s and assoc.parked_key = %(key)s and assoc.lambda = %(lambda)s
        and assoc.priority = %(priority)s and assoc.due_at < %(due_at)s and assoc.status = 'waiting'
    limit %(most)s
) as first;

-- name: resource_holders
select held.task_id, held.lambda, held.status::text as status, held.held_since_at, held.units, task.scheduled_by
from (
    select held.task_id, held.lambda, held.status, coalesce(held.enqueued_at, held.claimed_at) as held_since_at,
        (
            select sum(need.weight)::int4
            from jsonb_to_recordset(held.taken) as need (name text, key text, weight int4)
            where need.name = %(name)s and need.key = %(key)s
        ) as units
    from (
        select assoc.task_id, assoc.lambda, assoc.status, assoc.taken, assoc.enqueued_at, assoc.claimed_at
        from task_assoc as assoc
        where assoc.status in ('enqueued', 'claimed', 'processing')
        limit %(most_held)s
    ) as held
    where held.taken @> jsonb_build_array(jsonb_build_object('name', %(name)s::text, 'key', %(key)s::text))
    order by held_since_at
    limit %(most)s
) as held
left join lateral (select task.scheduled_by from task where task.task_id = held.task_id limit 1) as task on true
order by held.held_since_at;

-- name: explained_task
select task.task_id, task.lambda, task.collection, task.priority, task.scheduled_by, task.fair_key, task.unique_key,
    coalesce(task_assoc.status, task.status)::text as status,
    task.created_at, task.scheduled_at, task.expires_at, task.finished_at,
    case when task_assoc.status in ('claimed', 'processing') then task_assoc.claimed_at else task.started_at end
        as started_at,
    task.failure_kind, task.failure_message, task.failed_at,
    coalesce(task_assoc.fence, task.fence) as fence,
    coalesce(task_assoc.failures, task.failures) as failures,
    coalesce(task_assoc.crashes, task.crashes) as crashes,
    nullif(task_assoc.next_trigger_at, 'infinity') as next_trigger_at, task_assoc.holder, task_assoc.cancel_requested,
    task_assoc.progress, task_assoc.progress_note, task_assoc.overdue_since_at, task_assoc.overdue_neighbours, task.redrives, task.session, task.session_order, task.session_policy,
    task.time_table,
    task.resources, task.attributes, task_assoc.parked_on, task_assoc.parked_key, task.graph, task.edits,
    coalesce(task_assoc.events, task.events) is not null as has_events, duly_now() as now, task_assoc.due_at, task_assoc.start_at, task_assoc.doom, task_assoc.open_edges,
    task_assoc.any_of, task_assoc.enqueued_at as sent_at, task_assoc.claimed_at, task_assoc.kill_requested, task_assoc.session_rank::text as session_rank,
    task_assoc.session_seq, task_assoc.passed_gates, coalesce(task_assoc.resources, task.resources) as needs,
    (select key.key from idempotency_key as key where key.task_id = task.task_id and task.time_table is not null limit 1) as tick_key,
    task.events, task_assoc.events as live_events, task.holder as run_holder, task.claimed_at as run_claimed_at,
    task.enqueued_at as run_enqueued_at, task.started_at as run_started_at,
    lambda.name is not null as is_registered, lambda.max_attempts, lambda.max_crashes, lambda.requires, gone.deleted_at, gone.deleted_by,
    exists (
        select from lambda_declaration as declared
        where (declared.name = split_part(task.lambda, '@', 1) and declared.version = split_part(split_part(split_part(task.lambda, ':', 1), '@', 2), '~', 1))
            or declared.name = split_part(split_part(task.lambda, ':', 1), '~', 1)
    ) as version_is_declared,
    case when ramp.to_version is not null then exists (select from idempotency_key as key where key.task_id = task.task_id) end as has_key,
    ramp.to_version as ramp_version, ramp.permille as ramp_permille,
    store_epoch.changed_at as store_changed_at
from task
left join task_assoc on task_assoc.task_id = task.task_id
left join lambda on lambda.name = task.lambda
left join deleted_lambda as gone on gone.name in (task.lambda, split_part(task.lambda, '@', 1))
left join lambda_ramp as ramp on ramp.lambda = split_part(task.lambda, '@', 1)
left join store_epoch on true
where task.task_id = %(task_id)s
order by gone.deleted_at
limit 1;

-- name: tasks_before
select (select count(*) from (select from task_assoc as assoc
where assoc.lambda = %(lambda)s and assoc.priority = %(priority)s
    and assoc.status in ('new', 'retriable_failure') and assoc.next_trigger_at < %(before)s limit %(most)s + 1) as first) as ahead,
    (
        select coalesce(sum(one.count), 0)::int8
        from generate_series(1, %(priority)s - 1) as higher (priority) cross join lateral (
            select count(*) as count
            from (
                select from task_assoc as assoc
                where assoc.lambda = %(lambda)s and assoc.priority = higher.priority
    and assoc.status in ('new', 'retriable_failure') and assoc.next_trigger_at <= %(now)s
                limit %(most)s
            ) as first
        ) as one
    ) as higher,
    (select assoc.task_id from task_assoc as assoc
where assoc.lambda = %(lambda)s and assoc.priority = %(priority)s
    and assoc.status in ('new', 'retriable_failure') and assoc.next_trigger_at < %(before)s order by assoc.next_trigger_at limit 1) as head,
    (select assoc.next_trigger_at from task_assoc as assoc
where assoc.lambda = %(lambda)s and assoc.priority = %(priority)s
    and assoc.status in ('new', 'retriable_failure') and assoc.next_trigger_at < %(before)s order by assoc.next_trigger_at limit 1) as head_due_at;

-- name: turns_before
with recursive walk as (
    (
        select assoc.fair_key, assoc.next_trigger_at, 1 as place
        from task_assoc as assoc
        where assoc.lambda = %(lambda)s and assoc.priority = %(priority)s
    and assoc.status in ('new', 'retriable_failure') and assoc.fair_key is not null
        order by assoc.fair_key, assoc.next_trigger_at
        limit 1
    )
    union all
    select next.fair_key, next.next_trigger_at, walk.place + 1
    from walk cross join lateral (
        select assoc.fair_key, assoc.next_trigger_at
        from task_assoc as assoc
        where assoc.lambda = %(lambda)s and assoc.priority = %(priority)s
    and assoc.status in ('new', 'retriable_failure') and assoc.fair_key > walk.fair_key
        order by assoc.fair_key, assoc.next_trigger_at
        limit 1
    ) as next
    where walk.place < %(most_keys)s
)
select keys.others, keys.has_more, (
        select count(*)
        from (
            select from task_assoc as assoc
            where assoc.lambda = %(lambda)s and assoc.priority = %(priority)s
    and assoc.status in ('new', 'retriable_failure') and assoc.fair_key >= %(key)s and assoc.fair_key <= %(key)s
                and assoc.next_trigger_at < %(before)s
            order by assoc.fair_key, assoc.next_trigger_at
            limit %(most)s + 1
        ) as first
    ) as ahead,
    coalesce((
        select fair_weight.weight
        from fair_weight
        where fair_weight.lambda = split_part(%(lambda)s, '@', 1) and fair_weight.fair_key = %(key)s
    ), 1) as weight
from fair_lambda as fair
cross join lateral (
    select count(*) filter (where walk.fair_key <> %(key)s and walk.next_trigger_at <= %(now)s) as others,
        count(*) >= %(most_keys)s as has_more
    from walk
) as keys
where fair.name = %(lambda)s;

-- name: held_of_lambda
select count(*) filter (where held.status <> 'enqueued') as running,
    count(*) filter (where held.status = 'enqueued' and held.priority = %(priority)s and held.enqueued_at < %(sent_at)s) as sent,
    (array_agg(held.claimed_at order by held.claimed_at desc) filter (
        where held.status <> 'enqueued' and held.priority = %(priority)s and held.claimed_at is not null
    ))[1 : %(most)s] as claims
from (
    select assoc.status, assoc.priority, assoc.claimed_at, assoc.enqueued_at, assoc.lambda
    from task_assoc as assoc
    where assoc.status in ('enqueued', 'claimed', 'processing')
    limit %(most_held)s
) as held
where held.lambda = %(lambda)s;

-- name: recent_claims
select recent.claimed_at
from (
    select task.claimed_at, task.priority
    from task
    where task.lambda = %(lambda)s and task.task_id < %(head)s and task.task_id > %(oldest)s
    order by task.task_id desc
    limit %(most)s
) as recent
where recent.priority = %(priority)s and recent.claimed_at > %(since)s;

-- name: related_tasks
select task.task_id, task.lambda, task.scheduled_by, coalesce(assoc.status, task.status)::text as status
from task left join task_assoc as assoc on assoc.task_id = task.task_id
where task.task_id = any(%(task_ids)s::uuid[]);

-- name: executors_of_lambda
with executor as materialized (
    select distinct each ->> 'executor_id' as executor_id,
        (each ->> 'processes')::int8 * (each ->> 'slots')::int8 as slots
    from host_lambda as served join host on host.host_id = served.host_id
    cross join lateral jsonb_array_elements(host.executors) as each
    where (
            served.lambda = %(lambda)s
            or (served.lambda = %(base)s and served.version = %(version)s and %(version)s <> '')
        )
        and (each ->> 'lambda_set')::int4 = served.lambda_set and case when host.stopped then 'stopped'
    when host.reported_at <= duly_now() - 3 * host.report_interval then 'silent'
    when host.draining then 'draining'
    else 'alive' end = 'alive'
)
select executor.executor_id, executor.slots, count(held.holder) as held
from executor
left join (
    select assoc.holder
    from task_assoc as assoc
    where assoc.status in ('claimed', 'processing')
    limit %(most_held)s
) as held on held.holder = executor.executor_id
group by executor.executor_id, executor.slots;

-- name: held_by_executors
select held.task_id, held.lambda, held.status::text as status, held.claimed_at as held_since_at, held.holder, held.kill_requested,
    task.scheduled_by
from (
    select first.*
    from (
        select assoc.task_id, assoc.lambda, assoc.status, assoc.claimed_at, assoc.holder, assoc.kill_requested
        from task_assoc as assoc
        where assoc.status in ('claimed', 'processing')
        limit %(most_held)s
    ) as first
    where first.holder = any(%(holders)s::text[])
    order by first.claimed_at, first.task_id
    limit %(most)s
) as held
left join lateral (select task.scheduled_by from task where task.task_id = held.task_id limit 1) as task on true
order by held.claimed_at, held.task_id;
