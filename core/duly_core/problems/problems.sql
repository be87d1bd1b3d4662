-- What is wrong now: who looks, what was found, and the reads that find it. Each stops at a number of rows.

-- name: begin_board
-- No row: another Frontend looks, or looked a moment ago. An instant ahead is that of a clock before a failover.
-- A round that was not published is left to its Frontend for a time, and then taken to be abandoned.
update problem_board
set begun_at = duly_now(), begun_by = %(by)b::text
where is_only in (
    select board.is_only
    from problem_board as board
    where board.begun_at <= duly_now() - %(every)b::interval
        and (
            board.computed_at >= board.begun_at
            or board.begun_at = %(own)b::timestamptz
            or board.begun_at <= duly_now() - %(abandoned_after)b::interval
        )
        or board.begun_at > duly_now() + interval '1 second'
    for update skip locked
)
returning begun_at

-- name: publish_board
-- Nothing, if another round was begun meanwhile. Rows of problems that stand as they stood are not written.
-- Kinds that could not be read do not end.
with board as (
    update problem_board
    set computed_at = duly_now(), took = duly_now() - begun_at, computed_by = begun_by
    where begun_at = %(begun_at)b::timestamptz
    returning computed_at
), found (fingerprint, kind, severity, subject, since_at, facts) as materialized (
    select each.fingerprint, each.kind, each.severity, each.subject, each.since_at, each.facts::jsonb
    from unnest(
        %(fingerprints)b::text[], %(kinds)b::int2[], %(severities)b::int2[], %(subjects)b::text[], %(since)b::timestamptz[],
        %(facts)b::text[]
    ) as each (fingerprint, kind, severity, subject, since_at, facts)
    where exists (select from board)
), ended as (
    update problem
    set ended_at = board.computed_at
    from board
    where problem.ended_at is null and problem.fingerprint not in (select found.fingerprint from found)
        and problem.kind <> all(%(unread)b::int2[])
), changed as (
    update problem
    set severity = found.severity, since_at = least(problem.since_at, found.since_at), facts = found.facts
    from found
    where problem.ended_at is null and problem.fingerprint = found.fingerprint
        and (problem.severity <> found.severity or problem.facts <> found.facts or found.since_at < problem.since_at)
), forgotten as (
    delete from problem
    where problem.problem_id in (
        select old.problem_id
        from problem as old
        where old.ended_at < duly_now() - %(kept_for)b::interval
        order by old.ended_at
        limit 1000
    )
), added as (
    insert into problem (fingerprint, kind, severity, subject, since_at, facts)
    select found.fingerprint, found.kind, found.severity, found.subject, found.since_at, found.facts
    from found
    where not exists (
        select from problem as open where open.fingerprint = found.fingerprint and open.ended_at is null
    )
)
select board.computed_at from board

-- name: publish_clear_board
-- The same where nothing was found, and no problem is open or kept for long enough.
update problem_board
set computed_at = duly_now(), took = duly_now() - begun_at, computed_by = begun_by
where begun_at = %(begun_at)b::timestamptz
    and not exists (select from problem where problem.ended_at is null)
    and not exists (select from problem where problem.ended_at < (select duly_now()) - %(kept_for)b::interval)
returning computed_at

-- name: problem_signs
-- Of what there may be problems: a round makes no other of these reads. A quiet store has nothing of it.
select
    exists (select from breaker where breaker.state <> 'closed'),
    exists (select from host where not host.stopped),
    exists (
        select from task_assoc as assoc
        where assoc.status = 'waiting' and assoc.parked_on is not null
        order by assoc.parked_on
        limit 1
    ),
    exists (select from dead_letter as dead order by dead.finished_at limit 1),
    exists (select from session where session.blocked_at is not null),
    exists (select from pool_plan as plan where plan.failure is not null),
    exists (
        select from access_token as token
        where token.revoked_at is null
            and token.expires_at between duly_now() - interval '1 day' and duly_now() + %(tokens_within)b::interval
    ),
    exists (select from notification_target as target where target.failures > 0),
    exists (select from problem where problem.ended_at is null)
        or exists (select from problem where problem.ended_at < (select duly_now()) - %(kept_for)b::interval),
    -- no sign of trouble: from when on a queue may be late
    (select min(objective.start_within) from start_objective as objective)

-- name: read_board
select duly_now(), board.computed_at, board.took, board.computed_by from problem_board as board

-- name: open_problems
select problem.kind, problem.severity, problem.subject, problem.since_at, problem.facts
from problem
where problem.ended_at is null
order by problem.severity desc, problem.since_at
limit %(most)b::int8

-- name: breakers_not_closed
select breaker.lambda, breaker.state, breaker.state_since
from breaker
where breaker.state <> 'closed'
order by breaker.state_since
limit %(most)b::int8

-- name: parked_on_gates
-- Of each gate some of the tasks that are parked on it.
select asked.name, parked.lambda, count(parked.lambda)
from unnest(%(gates)b::text[]) as asked (name)
cross join lateral (
    select assoc.lambda
    from task_assoc as assoc
    where assoc.parked_on = 'gate:' || asked.name and assoc.status = 'waiting'
    limit %(most)b::int8
) as parked
group by asked.name, parked.lambda

-- name: hosts_astray
-- Hosts that fell silent, and others whose clocks differ; some of each. The first column counts the silent ones. Those are left out
-- that were replaced: of each lambda that a silent worker served, each worker that was started later on its machine makes up
-- for one that fell silent, the last one first. One that fell silent itself counts, too: it was the next in a row of crashes.
-- `spare`: later starts less silences, from now back to a silence. No start makes up for a silence with a `spare` below all earlier ones.
with present as materialized (
    select {{host_state}} as state, host.host_id, host.name, host.first_reported_at, host.reported_at, host.clock_ahead
    from host
    where not host.stopped
    limit 10000
), machine as materialized (
    select present.name, max(present.first_reported_at) as last_start_at,
        min(present.reported_at) filter (where present.state = 'silent') as first_silence_at
    from present
    where present.state in ('alive', 'silent')
    group by present.name
    having max(present.first_reported_at) > min(present.reported_at) filter (where present.state = 'silent')
), worker as materialized (
    select present.state, present.host_id, present.name, present.first_reported_at, present.reported_at
    from present
    join machine on machine.name = present.name
    where present.state = 'silent' or present.state = 'alive' and present.first_reported_at > machine.first_silence_at
    order by present.reported_at desc
    limit 1000
), served as materialized (
    select distinct worker.*, some_of.lambda
    from worker
    cross join lateral (
        select of_host.lambda
        from host_lambda as of_host
        where of_host.host_id = worker.host_id
        order by of_host.lambda
        limit %(most_lambdas)b::int8
    ) as some_of
), event as (
    select served.name, served.lambda, served.host_id, served.reported_at as at, true as is_silence
    from served
    where served.state = 'silent'
    union all
    select served.name, served.lambda, served.host_id, served.first_reported_at, false
    from served
), balance as (
    select event.*, count(*) filter (where not event.is_silence) over back - count(*) filter (where event.is_silence) over back as spare
    from event
    window back as (
        partition by event.name, event.lambda
        order by event.at desc, event.is_silence desc, event.host_id
        rows unbounded preceding
    )
), made_up as (
    select balance.host_id, balance.is_silence, balance.spare >= least(
        0,
        min(balance.spare) filter (where balance.is_silence) over (
            partition by balance.name, balance.lambda
            order by balance.at desc, balance.is_silence desc, balance.host_id
            rows between unbounded preceding and 1 preceding
        )
    ) as is_made_up
    from balance
), silent as (
    select count(*) over () as number, present.*
    from present
    left join machine on machine.name = present.name
    where present.state = 'silent'
        and present.host_id <> all(%(explained)b::text[])
        and (
            machine.last_start_at is null
            or machine.last_start_at <= present.reported_at
            or present.host_id not in (select worker.host_id from worker)
            or present.host_id in (
                select made_up.host_id from made_up where made_up.is_silence and not made_up.is_made_up
            )
        )
    order by present.reported_at desc
    limit %(most)b::int8
), skewed as (
    select 0::int8 as number, present.*
    from present
    where present.state <> 'silent'
        and present.clock_ahead not between -%(largest_skew)b::interval and %(largest_skew)b::interval
    order by present.reported_at desc
    limit %(most)b::int8
)
select silent.number, silent.state, silent.host_id, silent.name, silent.reported_at, silent.clock_ahead from silent
union all
select skewed.number, skewed.state, skewed.host_id, skewed.name, skewed.reported_at, skewed.clock_ahead from skewed

-- name: lambdas_of_hosts
-- The lambdas that these hosts said they serve; some of each.
select distinct served.lambda
from unnest(%(host_ids)b::text[]) as asked (host_id)
cross join lateral (
    select of_host.lambda from host_lambda as of_host where of_host.host_id = asked.host_id limit %(most)b::int8
) as served

-- name: late_queues
-- The oldest task of each queue, a step down the index for each; of these the queues whose oldest has been due for so long:
-- the shortest time after which one may be late, whatever is promised of its lambda.
with recursive present (lambda, priority, due_at) as (
    (
        select assoc.lambda, assoc.priority, assoc.next_trigger_at
        from task_assoc as assoc
        where assoc.status in ('new', 'retriable_failure')
        order by assoc.lambda, assoc.priority, assoc.next_trigger_at
        limit 1
    )
    union all
    select following.lambda, following.priority, following.next_trigger_at
    from present cross join lateral (
        select assoc.lambda, assoc.priority, assoc.next_trigger_at
        from task_assoc as assoc
        where assoc.status in ('new', 'retriable_failure')
            and (assoc.lambda, assoc.priority) > (present.lambda, present.priority)
        order by assoc.lambda, assoc.priority, assoc.next_trigger_at
        limit 1
    ) as following
)
select first.lambda, first.priority, first.due_at
from (select * from present limit %(most_looked_at)b::int8) as first
where first.due_at < duly_now() - %(due_for)b::interval
order by first.due_at
limit %(most)b::int8

-- name: unclaimed_references
-- Queues whose references in SQS nobody has claimed for so long, with the task that waits there the longest: of what is on
-- its way or runs, those rows whose silence becomes suspicious first. A gate, a resource or a retry may have kept a due
-- task from its queue: the wait for a host begins when the reference is sent.
select watched.lambda, watched.priority, min(watched.waits_since), count(*),
    (array_agg(watched.task_id order by watched.waits_since))[1]
from (
    select assoc.task_id, assoc.lambda, assoc.priority, greatest(assoc.due_at, assoc.enqueued_at) as waits_since, assoc.status
    from task_assoc as assoc
    where assoc.status in ('enqueued', 'claimed', 'processing')
    order by assoc.next_trigger_at
    limit %(most)b::int8
) as watched
where watched.status = 'enqueued' and watched.waits_since < duly_now() - %(due_for)b::interval
group by watched.lambda, watched.priority

-- name: unregistered_queues
select asked.lambda
from unnest(%(lambdas)b::text[]) as asked (lambda)
where not exists (select from lambda where lambda.name = asked.lambda)

-- name: serving_hosts_of_lambdas
-- Of each lambda the first live hosts that serve it: enough to tell who has the same.
with alive as materialized (
    select array_agg(host.host_id) as ids
    from host
    where {{host_state}} = 'alive' and host.reported_at > duly_now() - host.report_interval - %(late)b::interval
)
select asked.lambda, array(
        select served.host_id
        from host_lambda as served
        where served.lambda = asked.lambda and served.host_id = any (alive.ids)
        order by served.host_id
        limit %(most)b::int8
    ) || array(
        select served.host_id
        from host_lambda as served
        where served.lambda = asked.base and served.version = asked.version and asked.version <> ''
            and served.host_id = any (alive.ids)
        order by served.host_id
        limit %(most)b::int8
    )
from alive cross join unnest(%(lambdas)b::text[], %(bases)b::text[], %(versions)b::text[]) as asked (lambda, base, version)

-- name: last_hosts_of_lambdas
-- The host that reported last that it serves a lambda.
select asked.lambda, last.host_id, last.name, last.reported_at, last.state
from unnest(%(lambdas)b::text[], %(bases)b::text[], %(versions)b::text[]) as asked (lambda, base, version)
cross join lateral (
    select host.host_id, host.name, host.reported_at, {{host_state}} as state
    from (
        select served.host_id
        from host_lambda as served
        where served.lambda = asked.lambda or served.lambda = asked.base and served.version = asked.version and asked.version <> ''
        limit 100
    ) as served
    join host on host.host_id = served.host_id
    order by host.reported_at desc
    limit 1
) as last

-- name: held_lambdas
-- The lambdas of tasks that hosts hold.
select distinct held.lambda
from (
    select assoc.lambda, assoc.status
    from task_assoc as assoc
    where assoc.status in ('enqueued', 'claimed', 'processing')
    order by assoc.next_trigger_at
    limit %(most)b::int8
) as held
where held.status <> 'enqueued'

-- name: first_tasks
-- The oldest task of each of these queues.
select asked.lambda, asked.priority, first.task_id
from unnest(%(lambdas)b::text[], %(priorities)b::int2[]) as asked (lambda, priority)
cross join lateral (
    select assoc.task_id
    from task_assoc as assoc
    where assoc.lambda = asked.lambda and assoc.priority = asked.priority
        and assoc.status in ('new', 'retriable_failure')
    order by assoc.next_trigger_at
    limit 1
) as first

-- name: parked_by_resource
-- What tasks wait for units of, a step down the index for each, and some of the tasks.
with recursive present (parked_on) as (
    (
        select assoc.parked_on
        from task_assoc as assoc
        where assoc.status = 'waiting' and assoc.parked_on is not null
        order by assoc.parked_on
        limit 1
    )
    union all
    select following.parked_on
    from present cross join lateral (
        select assoc.parked_on
        from task_assoc as assoc
        where assoc.status = 'waiting' and assoc.parked_on is not null and assoc.parked_on > present.parked_on
        order by assoc.parked_on
        limit 1
    ) as following
)
select resource.name, resource.capacity, resource.note, resource.changed_at, parked.parked_key, parked.lambda,
    count(*), min(parked.due_at)
from (select * from present limit %(most_looked_at)b::int8) as first
join resource on resource.name = first.parked_on
cross join lateral (
    select assoc.parked_key, assoc.lambda, assoc.due_at
    from task_assoc as assoc
    where assoc.parked_on = first.parked_on and assoc.status = 'waiting'
    limit %(most)b::int8
) as parked
group by resource.name, resource.capacity, resource.note, resource.changed_at, parked.parked_key, parked.lambda

-- name: newest_dead_letters
select dead.task_id, dead.lambda, dead.finished_at
from dead_letter as dead
order by dead.finished_at desc, dead.task_id desc
limit %(most)b::int8

-- name: blocked_sessions
select blocked.key, blocked.blocked_at, blocked.blocked_by, blocked.length, task.lambda
from (
    select session.key, session.blocked_at, session.blocked_by, session.length
    from session
    where session.blocked_at is not null
    order by session.key
    limit %(most)b::int8
) as blocked
left join lateral (select task.lambda from task where task.task_id = blocked.blocked_by limit 1) as task on true

-- name: services_seen
-- Of each service the process that reported last, and those whose clocks differ.
select each.service, each.instance_id, each.host_name, {{instance_state}}, each.reported_at, each.clock_ahead
from (select *, false as draining from service_instance order by reported_at desc limit 1000) as each
order by each.reported_at desc

-- name: failing_pools
select plan.pool, plan.failure, plan.failed_since, pool.lambdas
from pool_plan as plan join worker_pool as pool on pool.name = plan.pool
where plan.failure is not null
order by plan.failed_since
limit %(most)b::int8

-- name: expiring_tokens
select token.token_id, token.principal, token.note, token.expires_at
from access_token as token
where token.revoked_at is null
    and token.expires_at between duly_now() - interval '1 day' and duly_now() + %(within)b::interval
order by token.expires_at
limit %(most)b::int8
