-- Written by `make sql` from core/duly_core/counting/counting.sql. Edit that.

-- name: present_queues
with recursive present (lambda, priority) as (
    (
        select assoc.lambda, assoc.priority
        from task_assoc as assoc
        where assoc.status in ('new', 'retriable_failure')
        order by assoc.lambda, assoc.priority
        limit 1
    )
    union all
    select following.lambda, following.priority
    from present cross join lateral (
        select assoc.lambda, assoc.priority
        from task_assoc as assoc
        where assoc.status in ('new', 'retriable_failure')
            and (assoc.lambda, assoc.priority) > (present.lambda, present.priority)
        order by assoc.lambda, assoc.priority
        limit 1
    ) as following
)
select duly_now(), null::text, null::int2
union all
select null, lambda, priority from present;

-- name: pending_by_queue
select asked.lambda, asked.priority, pending.ready, pending.later - retries.number, retries.number, pending.oldest
from unnest(%(lambdas)b::text[], %(priorities)b::int2[]) as asked (lambda, priority)
cross join lateral (
    select count(*) filter (where first.next_trigger_at <= %(now)b::timestamptz) as ready,
        count(*) filter (where first.next_trigger_at > %(now)b::timestamptz) as later,
        min(first.next_trigger_at) filter (where first.next_trigger_at <= %(now)b::timestamptz) as oldest
    from (
        select assoc.next_trigger_at
        from task_assoc as assoc
        where assoc.lambda = asked.lambda and assoc.priority = asked.priority
            and assoc.status in ('new', 'retriable_failure')
        order by assoc.next_trigger_at
        limit %(most)b::int8
    ) as first
) as pending
cross join lateral (
    select count(*) filter (where following.status <> 'new') as number
    from (
        select assoc.status
        from task_assoc as assoc
        where assoc.lambda = asked.lambda and assoc.priority = asked.priority
            and assoc.status in ('new', 'retriable_failure') and assoc.next_trigger_at > %(now)b::timestamptz
            and pending.later > 0 and (%(tells_apart)b::bool or pending.ready + pending.later < %(most)b::int8)
        order by assoc.next_trigger_at
        limit pending.later
    ) as following
) as retries;

-- name: next_due_by_queue
select asked.lambda, asked.priority, following.due_at
from unnest(%(lambdas)b::text[], %(priorities)b::int2[]) as asked (lambda, priority)
cross join lateral (
    select assoc.next_trigger_at as due_at
    from task_assoc as assoc
    where assoc.lambda = asked.lambda and assoc.priority = asked.priority
        and assoc.status in ('new', 'retriable_failure') and assoc.next_trigger_at > %(now)b::timestamptz
    order by assoc.next_trigger_at
    limit 1
) as following;

-- name: taken_by_queue
select first.lambda, first.priority, first.status::text, count(*), min(first.claimed_at)
from (
    select assoc.lambda, assoc.priority, assoc.status, assoc.claimed_at
    from task_assoc as assoc
    where assoc.status in ('enqueued', 'claimed', 'processing')
    order by assoc.next_trigger_at
    limit %(most)b::int8
) as first
group by first.lambda, first.priority, first.status;

-- name: waiting_by_queue
select first.lambda, first.priority, 'waiting', count(*), null::timestamptz
from (
    select assoc.lambda, assoc.priority
    from task_assoc as assoc
    where assoc.status = 'waiting' and assoc.doom is null
    order by assoc.session, assoc.session_rank, assoc.session_seq
    limit %(most)b::int8
) as first
group by first.lambda, first.priority;

-- name: sample_of_queues
select sampled.lambda, sampled.priority, sampled.kind, count(sampled.lambda), size.factor
from (
    select greatest(1, pages / %(pages)b::float8) as factor
    from (
        select pg_relation_size('task_assoc') / current_setting('block_size')::float8 as pages
    ) as relation
) as size
left join lateral (
    select assoc.lambda, assoc.priority,
        case when assoc.status in ('enqueued', 'claimed', 'processing', 'waiting') then assoc.status::text
            when assoc.next_trigger_at <= %(now)b::timestamptz then 'ready'
            when assoc.status = 'new' then 'scheduled'
            else 'backing_off' end as kind
    from task_assoc as assoc tablesample system (100 / size.factor)
) as sampled on true
group by sampled.lambda, sampled.priority, sampled.kind, size.factor;

-- name: hosts_by_lambda
select asked.lambda, alive.number
from unnest(%(lambdas)b::text[]) as asked (lambda)
cross join lateral (
    select count(*) as number
    from (
        select distinct served.host_id
        from host_lambda as served join host on host.host_id = served.host_id
        where served.lambda = asked.lambda and not host.stopped
            and host.reported_at > %(now)b::timestamptz - 3 * host.report_interval
        limit 10000
    ) as found
) as alive;

-- name: slots_by_lambda
with asked as (
    select lambda, split_part(lambda, '@', 1) as base, nullif(split_part(lambda, '@', 2), '') as version
    from unnest(%(lambdas)b::text[]) as asked (lambda)
), slots as materialized (
    select host.host_id, executor.lambda_set, sum(executor.processes * executor.slots) as number
    from host
    cross join lateral jsonb_to_recordset(host.executors) as executor (processes int8, slots int8, lambda_set int4)
    where case when host.stopped then 'stopped'
    when host.reported_at <= duly_now() - 3 * host.report_interval then 'silent'
    when host.draining then 'draining'
    else 'alive' end = 'alive'
    group by host.host_id, executor.lambda_set
), serving as (
    select distinct asked.lambda, served.host_id, served.lambda_set
    from asked
    join host_lambda as served
        on served.lambda = asked.lambda or served.lambda = asked.base and served.version = asked.version
)
select asked.lambda, coalesce(sum(slots.number), 0)::int8
from asked
left join serving on serving.lambda = asked.lambda
left join slots on slots.host_id = serving.host_id and slots.lambda_set = serving.lambda_set
group by asked.lambda;

-- name: scheduled_since
select asked.lambda, first.priority, count(*)
from unnest(%(lambdas)b::text[]) as asked (lambda)
cross join lateral (
    select task.priority
    from task
    where task.lambda = asked.lambda and task.task_id >= %(first_id)b::uuid
    order by task.task_id
    limit %(most)b::int8
) as first
group by asked.lambda, first.priority;

-- name: count_ready
select queue.lambda, queue.priority, ready.count
from unnest(%(lambdas)b::text[], %(priorities)b::int2[]) as queue (lambda, priority)
cross join lateral (
    select count(*) as count
    from (
        select
        from task_assoc as assoc
        where assoc.lambda = queue.lambda and assoc.priority = queue.priority
            and assoc.status in ('new', 'retriable_failure') and assoc.next_trigger_at <= (select duly_now())
        order by assoc.next_trigger_at
        limit %(most)b::int8
    ) as first
) as ready;

-- name: activity
with lateness as (
    select claimed_at - due_at as late from (
        select claimed_at, due_at from task_assoc
        where status in ('claimed', 'processing') and session is null and graph is null and resources is null
        limit %(most)s
    ) as held
    union all
    select started_at - scheduled_at from (
        select started_at, scheduled_at, fence, session, graph, resources from task
        order by task_id desc
        limit %(most)s
    ) as latest
    where fence = 1 and started_at is not null and session is null and graph is null and resources is null
)
select duly_now(), pg_stat_get_tuples_inserted('task_assoc'::regclass), pg_stat_get_tuples_deleted('task_assoc'::regclass),
    count(*)::int4,
    percentile_cont(0.5) within group (order by greatest(late, interval '0')),
    percentile_cont(0.99) within group (order by greatest(late, interval '0'))
from lateness;
