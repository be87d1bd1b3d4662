-- Statements about gates and breakers that change no task. What gates do to tasks is in transitions.sql.

-- name: read_gates
-- The gates in force, if their version is not the known one; at least one row.
select known.version, duly_now() as read_at, {{gate_columns}}
from gate_version as known
left join gate on known.version <> %(version)b and (gate.expires_at is null or gate.expires_at > (select duly_now()))
order by gate.gate_id

-- name: list_gates
-- The gates in force, each with how many tasks are parked on it.
select {{gate_columns}}, (
    select count(*)
    from (
        select from task_assoc as assoc
        where assoc.parked_on = 'gate:' || gate.name and assoc.status = 'waiting'
        limit %(most)b
    ) as parked
)
from gate
where gate.expires_at is null or gate.expires_at > (select duly_now())
order by gate.name

-- name: lock_gates
-- Whoever changes gates or breakers locks this first, and then the rows of breakers and of gates: so none waits for another
-- that waits for it.
select version from gate_version for update

-- name: try_to_lock_gates
-- The same; no row: somebody changes them now.
select version from gate_version for update skip locked

-- name: raise_gate_version
-- Locks as lock_gates does.
update gate_version set version = version + 1 returning version

-- name: notify_gates_changed
select pg_notify(duly_channel('duly_gate'), '')

-- name: count_gates
-- Others than the named one: all, and those of an owner.
select count(*), count(*) filter (where owner = %(owner)b::text)
from gate
where name <> %(name)b::text and (expires_at is null or expires_at > (select duly_now()))

-- name: gates_named
-- Also those that have expired and are not removed yet.
select {{gate_columns}} from gate where name = any (%(names)b::text[])

-- name: gates_in_force
select gate_id
from gate
where name = any (%(names)b::text[]) and (expires_at is null or expires_at > (select duly_now()))

-- name: keep_gate
-- A gate that is set again as it was keeps its id: what it delayed is not delayed again, what it parked stays.
update gate
set owner = %(owner)b, reason = %(reason)b,
    expires_at = coalesce(%(expires_at)b::timestamptz, (select duly_now()) + %(duration)b::interval)
where name = %(name)b and kind = %(kind)b and lambda = %(pattern)b
    and collection is not distinct from %(collection)b::text and priority is not distinct from %(priority)b::int2
    and session is not distinct from %(session)b::text and delay is not distinct from %(delay)b::interval
    and (expires_at is null or expires_at > (select duly_now()))
returning {{gate_columns}}

-- name: insert_gate
insert into gate (name, kind, lambda, collection, priority, session, delay, owner, reason, created_at, expires_at)
select %(name)b, %(kind)b, %(pattern)b, %(collection)b::text, %(priority)b::int2, %(session)b::text,
    %(delay)b::interval, %(owner)b, %(reason)b, clock.now,
    coalesce(%(expires_at)b::timestamptz, clock.now + %(duration)b::interval)
from (select duly_now() as now) as clock
returning {{gate_columns}}

-- name: delete_gates
delete from gate where name = any (%(names)b::text[]) returning name

-- name: expire_gates
delete from gate where expires_at <= (select duly_now()) returning name

-- name: breaker_lambdas
select lambda from breaker

-- name: count_ends
-- Adds how these runs ended to the counts of the breakers of their lambdas.
with asked as (
    select * from unnest(%(task_ids)b::uuid[], %(failed)b::int2[]) as asked (task_id, failed)
), ended as (
    select breaker.lambda, count(*)::int4 as ended, sum(asked.failed)::int4 as failed
    from asked
    {{breaker_of_asked}}
    group by breaker.lambda
)
{{add_to_counts}}

-- name: count_silent
-- As count_ends, for the runs of these tasks whose holders fell silent: each is the last attempt of its task that is kept. One
-- that was claimed before the breaker opened or closed does not count: it tells nothing of probes, nor of what was repaired.
with asked as (
    select * from unnest(%(task_ids)b::uuid[]) as asked (task_id)
), ended as (
    select breaker.lambda, count(*)::int4 as ended, count(*)::int4 as failed
    from asked
    {{breaker_of_asked}}
    cross join lateral (
        select attempt.claimed_at
        from attempt
        where attempt.task_id = any (array[asked.task_id]) and attempt.task_id {{within_asked}} and attempt.outcome = 'silent'
        order by attempt.fence desc
        limit 1
    ) as run
    left join gate on gate.name = 'breaker:' || breaker.lambda
    where run.claimed_at >= coalesce(gate.created_at, breaker.state_since)
    group by breaker.lambda
)
{{add_to_counts}}

-- name: list_breakers
-- Each with the runs that ended within its window.
select breaker.lambda as lambda_name, breaker.failure_rate, breaker.minimum, breaker.count_window, breaker.pause,
    breaker.probes, breaker.owner, breaker.reason, breaker.changed_at, breaker.state, breaker.state_since, breaker.probed,
    duly_now() as read_at, counted.ended, counted.failed
from breaker cross join lateral (
    select coalesce(sum(count.ended), 0)::int4 as ended, coalesce(sum(count.failed), 0)::int4 as failed
    from breaker_count as count
    where count.lambda = breaker.lambda and count.second > (select duly_now()) - breaker.count_window
) as counted
where %(lambdas)b::text[] is null or breaker.lambda = any (%(lambdas)b::text[])
order by breaker.lambda

-- name: lock_breakers
-- Those that nobody else judges now; with the runs that ended within the window and in the state that it is in.
select breaker.lambda as lambda_name, breaker.failure_rate, breaker.minimum, breaker.count_window, breaker.pause,
    breaker.probes, breaker.owner, breaker.reason, breaker.changed_at, breaker.state, breaker.state_since, breaker.probed,
    duly_now() as read_at, (
        select coalesce(sum(count.ended), 0)::int4
        from breaker_count as count
        where count.lambda = breaker.lambda and case breaker.state
                when 'closed'
                    then count.second > greatest(breaker.state_since, (select duly_now()) - breaker.count_window)
                else count.second >= date_trunc('second', breaker.state_since)
            end
    ) as ended, (
        select coalesce(sum(count.failed), 0)::int4
        from breaker_count as count
        where count.lambda = breaker.lambda and case breaker.state
                when 'closed'
                    then count.second > greatest(breaker.state_since, (select duly_now()) - breaker.count_window)
                else count.second >= date_trunc('second', breaker.state_since)
            end
    ) as failed
from breaker
order by breaker.lambda
for update of breaker skip locked

-- name: put_breaker
insert into breaker (
    lambda, failure_rate, minimum, count_window, pause, probes, owner, reason, changed_at, state, state_since
)
select %(lambda)b, %(failure_rate)b::float8, %(minimum)b::int4, %(window)b::interval, %(pause)b::interval,
    %(probes)b::int4, %(owner)b, %(reason)b, clock.now, 'closed', clock.now
from (select duly_now() as now) as clock
on conflict (lambda) do update
set failure_rate = excluded.failure_rate, minimum = excluded.minimum, count_window = excluded.count_window,
    pause = excluded.pause, probes = excluded.probes, owner = excluded.owner, reason = excluded.reason,
    changed_at = excluded.changed_at
returning lambda

-- name: delete_breakers
delete from breaker where lambda = any (%(lambdas)b::text[]) returning lambda, state

-- name: move_breaker
update breaker
set state = %(state)b, state_since = (select duly_now()), probed = 0
where lambda = %(lambda)b
returning lambda

-- name: open_gate
-- Closes the queues of a lambda: its breaker opened, or opened again. The gate has another id than the one that let probes pass.
insert into gate (name, kind, lambda, owner, reason, created_at)
values (%(name)b, 'pause', %(lambda)b, 'breaker', %(reason)b, duly_now())
returning gate_id

-- name: probes_pass
-- The gate of a breaker lets pass what is due by then and was marked.
update gate
set probes_until = greatest(probes_until, %(until)b::timestamptz)
where name = %(name)b
returning gate_id

-- name: note_probes
update breaker set probed = probed + %(probed)b::int4 where lambda = %(lambda)b returning lambda

-- name: gate_named
select gate_id from gate where name = %(name)b

-- name: audit_breaker
insert into audit_event (at, actor, peer, method, outcome, request, answer)
values (duly_now(), 'breaker', '', 'GateService/Breaker', 'OK', %(request)b, '')

-- name: forget_counts
delete from breaker_count where second < (select duly_now()) - interval '2 hours' returning lambda
