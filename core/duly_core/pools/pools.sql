-- name: list_pools
select name, lambdas, labels, minimum, maximum, slots, target_age, idle_time, budget, driver, driver_settings, note, changed_at
from worker_pool
where name > %(after)b::text and (%(names)b::text[] is null or name = any (%(names)b::text[]))
order by name
limit %(limit)b::int8

-- name: pool_to_change
select name, lambdas, labels, minimum, maximum, slots, target_age, idle_time, budget, driver, driver_settings, note, changed_at
from worker_pool
where name = %(name)b::text
for update

-- name: put_pool
insert into worker_pool (
    name, lambdas, labels, minimum, maximum, slots, target_age, idle_time, budget, driver, driver_settings, note, changed_at
)
values (
    %(name)b::text, %(lambdas)b::text[], %(labels)b::text[], %(minimum)b::int4, %(maximum)b::int4, %(slots)b::int4,
    %(target_age)b::interval, %(idle_time)b::interval, %(budget)b::interval, %(driver)b::text, %(driver_settings)b::jsonb,
    %(note)b::text, duly_now()
)
on conflict (name) do update
set lambdas = excluded.lambdas, labels = excluded.labels, minimum = excluded.minimum, maximum = excluded.maximum,
    slots = excluded.slots, target_age = excluded.target_age, idle_time = excluded.idle_time, budget = excluded.budget,
    driver = excluded.driver, driver_settings = excluded.driver_settings, note = excluded.note, changed_at = excluded.changed_at
returning changed_at

-- name: count_pools
select count(*) from worker_pool

-- name: delete_pools
delete from worker_pool where name = any (%(names)b::text[]) returning name

-- name: list_plans
select pool, desired, reasons, planned_at, desired_since, memory, announced, failure, failed_since
from pool_plan
where pool = any (%(pools)b::text[])

-- name: desired_workers
-- Of each pool, and how long ago they were planned; of one that nobody planned for, null.
select pool.name, plan.desired, duly_now() - plan.planned_at
from worker_pool as pool
left join pool_plan as plan on plan.pool = pool.name

-- name: workers_of_pools
-- Hosts that say they are workers of these pools. Those of a pool count only if they serve a lambda that the pool is for.
select host.pool, host.host_id, {{host_state}}, host.first_reported_at, coalesce(slots.number, 0)::int8, slots.busy,
    host.drain_requested_at is not null
from host
cross join lateral (
    select sum(executor.processes * executor.slots) as number, sum(coalesce(executor.busy_slots, 0))::int8 as busy
    from jsonb_to_recordset(host.executors) as executor (processes int8, slots int8, busy_slots int8)
) as slots
where host.pool = any (%(pools)b::text[]) and not host.stopped
    and host.reported_at > duly_now() - {{hosts.missed_reports}} * host.report_interval
    and exists (
        select from host_lambda as served
        where served.host_id = host.host_id and served.lambda ~ (%(patterns)b::text[])[array_position(%(pools)b::text[], host.pool)]
    )
order by host.host_id
limit 20000

-- name: load_of_queues
-- What is due now (step 0) and later, in steps of equal length, of each queue; the first rows by time, up to a limit.
select asked.lambda, asked.priority, first.step::int4, count(*), min(first.next_trigger_at)
from unnest(%(lambdas)b::text[], %(priorities)b::int2[]) as asked (lambda, priority)
cross join lateral (
    select near.next_trigger_at,
        greatest(0, ceil(extract(epoch from near.next_trigger_at - %(now)b::timestamptz) / extract(epoch from %(step)b::interval))) as step
    from (
        select assoc.next_trigger_at
        from task_assoc as assoc
        where assoc.lambda = asked.lambda and assoc.priority = asked.priority
            and assoc.status in ('new', 'retriable_failure')
            and assoc.next_trigger_at <= %(now)b::timestamptz + %(ahead)b::interval
        order by assoc.next_trigger_at
        limit %(most)b::int8
    ) as near
) as first
group by asked.lambda, asked.priority, first.step

-- name: arrivals
-- Of the newest tasks of each lambda: how many were scheduled for at once, and over how long, at most the window.
select asked.lambda, count(*) filter (where newest.scheduled_at <= newest.created_at + interval '1 s'),
    count(*), min(newest.created_at)
from unnest(%(lambdas)b::text[]) as asked (lambda)
cross join lateral (
    select task.scheduled_at, task.created_at
    from task
    where task.lambda = asked.lambda and task.task_id >= %(first_id)b::uuid
    order by task.task_id desc
    limit %(most)b::int8
) as newest
group by asked.lambda

-- name: run_times
-- Of tasks that were scheduled before some instants: what was scheduled lately may not have run yet.
select asked.lambda, count(*),
    extract(epoch from avg(ended.took))::float8,
    percentile_cont(array[0.5, 0.95]) within group (order by extract(epoch from ended.took)::float8)
from unnest(%(lambdas)b::text[]) as asked (lambda)
cross join lateral (
    select distinct on (sampled.task_id) sampled.finished_at - sampled.started_at as took
    from unnest(%(before)b::uuid[]) as starts (first_id)
    cross join lateral (
        select task.task_id, task.started_at, task.finished_at
        from task
        where task.lambda = asked.lambda and task.task_id < starts.first_id and task.task_id >= %(oldest)b::uuid
        order by task.task_id desc
        limit %(most)b::int8
    ) as sampled
    where sampled.started_at is not null and sampled.finished_at is not null
) as ended
group by asked.lambda

-- name: take_lease
-- By who holds it under this fence, or by anybody once it is over.
update autoscaler_lease as lease
set holder = %(holder)b::text, until_at = duly_now() + %(lease)b::interval,
    fence = lease.fence + case when lease.holder = %(holder)b::text and lease.fence = %(fence)b::int8 and lease.until_at > duly_now() then 0 else 1 end
where lease.holder = %(holder)b::text and lease.fence = %(fence)b::int8 and lease.until_at > duly_now()
    or lease.until_at <= duly_now()
returning lease.fence

-- name: give_lease_up
update autoscaler_lease set until_at = duly_now()
where holder = %(holder)b::text and fence = %(fence)b::int8 and until_at > duly_now()
returning fence

-- name: read_lease
select holder, fence, until_at, until_at > duly_now() from autoscaler_lease

-- name: write_plans
-- Nothing, if the autoscaler does not lead any more.
with leader as materialized ({{leads}}), asked as materialized (
    select plan.*
    from leader
    cross join jsonb_to_recordset(%(plans)b::jsonb) as plan (
        pool text, desired int4, reasons text[], memory jsonb, announced jsonb, failure text, failed_since timestamptz
    )
    join worker_pool on worker_pool.name = plan.pool
), written as (
    insert into pool_plan as known (
        pool, fence, desired, reasons, planned_at, desired_since, memory, announced, failure, failed_since
    )
    select asked.pool, %(fence)b::int8, asked.desired, asked.reasons, %(now)b::timestamptz, %(now)b::timestamptz, asked.memory,
        asked.announced, asked.failure, asked.failed_since
    from asked
    order by asked.pool
    on conflict (pool) do update
    set fence = excluded.fence, desired = excluded.desired, reasons = excluded.reasons, planned_at = excluded.planned_at,
        desired_since = case when known.desired = excluded.desired then known.desired_since else excluded.desired_since end,
        memory = excluded.memory, announced = excluded.announced, failure = excluded.failure, failed_since = excluded.failed_since
    returning known.pool
), changes as (
    insert into audit_event (at, actor, peer, method, outcome, request, answer)
    select duly_now(), 'autoscaler', %(holder)b::text, 'Autoscaler/Scale', 'OK', change.request, ''
    from leader cross join unnest(%(changes)b::text[]) as change (request)
)
select (select count(*) from leader), coalesce(array_agg(written.pool), '{}') from written

-- name: request_drain
-- Workers that are to take no more tasks and end. They are told in the answer to their next report.
with leader as materialized ({{leads}})
update host set drain_requested_at = duly_now()
from leader
where host.host_id = any (%(host_ids)b::text[]) and host.pool = %(pool)b::text and host.drain_requested_at is null
returning host.host_id
