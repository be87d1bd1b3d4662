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

-- name: raise_gate_version
-- Of two changes one waits for the other here.
update gate_version set version = version + 1 returning version

-- name: tell_gates
select pg_notify('duly_gate', '')

-- name: count_gates
-- Others than the named one.
select count(*) from gate where name <> %(name)b and (expires_at is null or expires_at > (select duly_now()))

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

-- name: gate_hits
-- Live tasks of a scope by status, counted up to a limit.
select found.status, count(*)
from (
    select assoc.status::text
    from task_assoc as assoc
    where (
            assoc.lambda = any (%(lambdas)b::text[])
            or right(%(pattern)b::text, 1) = '*' and starts_with(assoc.lambda, left(%(pattern)b::text, -1))
        )
        and (%(collection)b::text is null or assoc.collection = %(collection)b::text)
        and (%(priority)b::int2 is null or assoc.priority = %(priority)b::int2)
        and (%(session)b::text is null or assoc.session = %(session)b::text)
    limit %(most)b
) as found
group by found.status

-- name: versions_of
-- The queues of versions of a lambda.
select name from lambda where starts_with(name, %(name)b::text || '@')
