-- Written by `make sql` from core/duly_core/trends/trends.sql. Edit that.

-- name: add_runs
insert into trend_point as point (minutes, lambda, at, lateness, ended, failed_runs)
select 1, run.lambda, run.at, run.lateness, run.ended, run.failed_runs
from jsonb_to_recordset(%(runs)b::jsonb) as run (
    lambda text, at timestamptz, lateness bigint[], ended bigint, failed_runs bigint
)
order by run.lambda, run.at
on conflict (minutes, lambda, at) do update set
    lateness = (
        select array_agg(coalesce(part.old, 0) + coalesce(part.added, 0) order by part.place)
        from unnest(point.lateness, excluded.lateness) with ordinality as part (old, added, place)
    ),
    ended = point.ended + excluded.ended,
    failed_runs = point.failed_runs + excluded.failed_runs
returning true;

-- name: is_measured
select true from trend_point where minutes = 1 and lambda = '' and at = %(at)b::timestamptz and measured_at is not null;

-- name: add_measured
with told as materialized (
    select found.*
    from jsonb_to_recordset(%(found)b::jsonb) as found (
        lambda text, scheduled bigint, dead bigint, ready bigint, held bigint, oldest float8, slots bigint
    )
), taken as (
    insert into trend_point as point (
        minutes, lambda, at, scheduled, ended, dead, measured_at, ready, held, oldest, slots
    )
    select 1, '', %(at)b::timestamptz, told.scheduled, told.dead, told.dead, duly_now(), told.ready, told.held,
        told.oldest * interval '1 second', told.slots
    from told
    where told.lambda = ''
    on conflict (minutes, lambda, at) do update set
        scheduled = point.scheduled + excluded.scheduled, ended = point.ended + excluded.ended,
        dead = point.dead + excluded.dead, measured_at = excluded.measured_at, ready = excluded.ready,
        held = excluded.held, oldest = excluded.oldest, slots = excluded.slots
    where point.measured_at is null
    returning true
)
insert into trend_point as point (
    minutes, lambda, at, scheduled, ended, dead, measured_at, ready, held, oldest, slots
)
select 1, told.lambda, %(at)b::timestamptz, told.scheduled, told.dead, told.dead, duly_now(), told.ready, told.held,
    told.oldest * interval '1 second', told.slots
from told
where told.lambda <> '' and exists (select from taken)
order by told.lambda
on conflict (minutes, lambda, at) do update set
    scheduled = point.scheduled + excluded.scheduled, ended = point.ended + excluded.ended,
    dead = point.dead + excluded.dead, measured_at = excluded.measured_at, ready = excluded.ready,
    held = excluded.held, oldest = excluded.oldest, slots = excluded.slots
returning true;

-- name: scheduled_between
select asked.lambda, count(first.task_id), max(first.task_id::text)
from unnest(%(lambdas)b::text[]) as asked (lambda)
cross join lateral (
    select task.task_id
    from task
    where task.lambda = asked.lambda
        and task.task_id >= %(first_id)b::uuid and task.task_id < %(end_id)b::uuid
    order by task.task_id
    limit %(most)b::int8
) as first
group by asked.lambda;

-- name: dead_between
select first.lambda, count(*)
from (
    select dead.lambda
    from dead_letter as dead
    where dead.finished_at >= %(at)b::timestamptz and dead.finished_at < %(end_at)b::timestamptz
    order by dead.finished_at
    limit %(most)b::int8
) as first
group by first.lambda;

-- name: held_by_lambda
select first.lambda, count(*)
from (
    select assoc.lambda
    from task_assoc as assoc
    where assoc.status in ('claimed', 'processing')
    order by assoc.next_trigger_at
    limit %(most)b::int8
) as first
group by first.lambda;

-- name: slots_of_hosts
select coalesce(sum(executor.processes * executor.slots), 0)::int8
from host
cross join lateral jsonb_to_recordset(host.executors) as executor (processes int8, slots int8)
where case when host.stopped then 'stopped'
    when host.reported_at <= duly_now() - 3 * host.report_interval then 'silent'
    when host.draining then 'draining'
    else 'alive' end = 'alive';

-- name: lambdas_of_tasks
select task.task_id, task.lambda from task where task.task_id = any (%(task_ids)b::uuid[]);

-- name: sum_points
with summed as (
    select point.lambda, sum(point.scheduled)::int8 as scheduled, sum(point.ended)::int8 as ended, sum(point.dead)::int8 as dead,
        sum(point.failed_runs)::int8 as failed_runs, max(point.measured_at) as measured_at, max(point.ready) as ready,
        max(point.held) as held, max(point.oldest) as oldest, max(point.slots) as slots,
        sum(point.calls)::int8 as calls, sum(point.failed_calls)::int8 as failed_calls
    from trend_point as point
    where point.minutes = %(part)b::int2 and point.at >= %(at)b::timestamptz
        and point.at < %(at)b::timestamptz + %(minutes)b::int2 * interval '1 minute'
    group by point.lambda
    order by point.lambda = '' desc, sum(point.ended + point.failed_runs + point.scheduled) + max(point.ready) desc, point.lambda
    limit %(most)b::int8
)
insert into trend_point (
    minutes, lambda, at, scheduled, lateness, ended, dead, failed_runs, measured_at, ready, held, oldest, slots, calls, failed_calls
)
select %(minutes)b::int2, summed.lambda, %(at)b::timestamptz, summed.scheduled, late.numbers, summed.ended, summed.dead,
    summed.failed_runs, summed.measured_at, summed.ready, summed.held, summed.oldest, summed.slots, summed.calls,
    summed.failed_calls
from summed
cross join lateral (
    select coalesce(array_agg(bound.number order by bound.place), '{}') as numbers
    from (
        select part.place, sum(part.number)::int8 as number
        from trend_point as point
        cross join lateral unnest(point.lateness) with ordinality as part (number, place)
        where point.minutes = %(part)b::int2 and point.lambda = summed.lambda and point.at >= %(at)b::timestamptz
            and point.at < %(at)b::timestamptz + %(minutes)b::int2 * interval '1 minute'
        group by part.place
    ) as bound
) as late
order by summed.lambda
on conflict (minutes, lambda, at) do update set
    scheduled = excluded.scheduled,
    lateness = excluded.lateness,
    ended = excluded.ended,
    dead = excluded.dead,
    failed_runs = excluded.failed_runs,
    measured_at = excluded.measured_at,
    ready = excluded.ready,
    held = excluded.held,
    oldest = excluded.oldest,
    slots = excluded.slots,
    calls = excluded.calls,
    failed_calls = excluded.failed_calls
returning true;

-- name: newest_sum
select point.at
from trend_point as point
where point.minutes = %(minutes)b::int2 and point.lambda = ''
order by point.at desc
limit 1;

-- name: add_calls
with counted as materialized (
    select call.at, call.calls, call.failed_calls
    from jsonb_to_recordset(%(calls)b::jsonb) as call (at timestamptz, calls int8, failed_calls int8)
), wider as (
    update trend_point as point
    set calls = point.calls + late.calls, failed_calls = point.failed_calls + late.failed_calls
    from (
        select span.minutes, date_bin(span.minutes * interval '1 minute', counted.at, 'epoch'::timestamptz) as at,
            sum(counted.calls)::int8 as calls, sum(counted.failed_calls)::int8 as failed_calls
        from counted
        cross join (values (60::int2), (1440::int2)) as span (minutes)
        group by 1, 2
    ) as late
    where point.minutes = late.minutes and point.lambda = '' and point.at = late.at
    returning true
)
insert into trend_point as point (minutes, lambda, at, calls, failed_calls)
select 1, '', counted.at, counted.calls, counted.failed_calls
from counted
order by counted.at
on conflict (minutes, lambda, at) do update set
    calls = point.calls + excluded.calls, failed_calls = point.failed_calls + excluded.failed_calls
returning true;

-- name: sums_of_times
select point.lambda, span.place,
    min(point.at) filter (where 0 < any (point.lateness)), min(point.at) filter (where point.calls > 0),
    array[
        sum(point.lateness[1]), sum(point.lateness[2]), sum(point.lateness[3]), sum(point.lateness[4]), sum(point.lateness[5]),
        sum(point.lateness[6]), sum(point.lateness[7]), sum(point.lateness[8]), sum(point.lateness[9]), sum(point.lateness[10]),
        sum(point.lateness[11]), sum(point.lateness[12]), sum(point.lateness[13]), sum(point.lateness[14]), sum(point.lateness[15]),
        sum(point.lateness[16]), sum(point.lateness[17]), sum(point.lateness[18]), sum(point.lateness[19]), sum(point.lateness[20])
    ]::int8[],
    sum(point.calls)::int8, sum(point.failed_calls)::int8
from unnest(%(minutes)b::int2[], %(since)b::timestamptz[], %(until)b::timestamptz[])
    with ordinality as span (minutes, since, until, place)
join trend_point as point on point.minutes = span.minutes and point.at >= span.since and point.at < span.until
where cardinality(%(lambdas)b::text[]) = 0 or point.lambda = any (%(lambdas)b::text[])
group by point.lambda, span.place;

-- name: forget_points
delete from trend_point
using (
    select minutes, lambda, at
    from trend_point
    where minutes = %(minutes)b::int2 and at < %(before)b::timestamptz
    order by at
    limit %(limit)b::int8
) as old
where trend_point.minutes = old.minutes and trend_point.lambda = old.lambda and trend_point.at = old.at
returning true;

-- name: points
select point.at, point.scheduled, point.lateness, point.ended, point.dead, point.failed_runs, point.measured_at is not null,
    point.ready, point.held, point.oldest, point.slots
from trend_point as point
where point.minutes = %(minutes)b::int2 and point.lambda = %(lambda)b::text
    and point.at >= %(since)b::timestamptz and point.at < %(until)b::timestamptz
order by point.at
limit %(most)b::int8;

-- name: marks
select entry.at, entry.actor, entry.method, entry.request
from (
    select event.at, event.actor, event.method, event.request, event.outcome
    from audit_event as event
    order by event.event_id desc
    limit %(most_read)b::int8
) as entry
where entry.at >= %(since)b::timestamptz and entry.at < %(until)b::timestamptz
    and entry.method = any (%(methods)b::text[]) and entry.outcome in ('OK', 'PARTLY_DONE')
order by entry.at desc
limit %(most)b::int8;

-- name: version_marks
select declared.updated_at, declared.name, declared.version
from lambda_declaration as declared
where declared.updated_at >= %(since)b::timestamptz and declared.updated_at < %(until)b::timestamptz
    and (%(lambda)b::text = '' or declared.name = %(lambda)b::text) and strpos(declared.name, '@') = 0
order by declared.updated_at desc
limit %(most)b::int8;
