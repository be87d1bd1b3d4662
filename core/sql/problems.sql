-- Written by `make sql` from core/duly_core/problems/problems.sql. Edit that.

-- name: begin_board
update problem_board
set begun_at = duly_now(), begun_by = %(by)b::text
where is_only in (
    select board.is_only
    from problem_board as board
    where board.begun_at <= duly_now() - %(every)b::interval or board.begun_at > duly_now() + interval '1 second'
    for update skip locked
)
returning begun_at;

-- name: publish_board
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
select board.computed_at from board;

-- name: read_board
select duly_now(), board.computed_at, board.took, board.computed_by from problem_board as board;

-- name: open_problems
select problem.kind, problem.severity, problem.subject, problem.since_at, problem.facts
from problem
where problem.ended_at is null
order by problem.severity desc, problem.since_at
limit %(most)b::int8;

-- name: breakers_not_closed
select breaker.lambda, breaker.state, breaker.state_since
from breaker
where breaker.state <> 'closed'
order by breaker.state_since
limit %(most)b::int8;

-- name: parked_on_gates
select asked.name, parked.lambda, count(parked.lambda)
from unnest(%(gates)b::text[]) as asked (name)
cross join lateral (
    select assoc.lambda
    from task_assoc as assoc
    where assoc.parked_on = 'gate:' || asked.name and assoc.status = 'waiting'
    limit %(most)b::int8
) as parked
group by asked.name, parked.lambda;

-- name: hosts_astray
select count(*) filter (where astray.state = 'silent') over (), astray.state, astray.host_id, astray.name, astray.reported_at,
    astray.clock_ahead
from (
    select case when host.stopped then 'stopped'
    when host.reported_at <= duly_now() - 3 * host.report_interval then 'silent'
    when host.draining then 'draining'
    else 'alive' end as state, host.host_id, host.name, host.reported_at, host.clock_ahead
    from host
    where not host.stopped
    limit 10000
) as astray
where astray.state = 'silent'
    or astray.clock_ahead not between -%(largest_skew)b::interval and %(largest_skew)b::interval
order by astray.state = 'silent' desc, astray.reported_at desc
limit %(most)b::int8;

-- name: lambdas_of_hosts
select distinct served.lambda
from unnest(%(host_ids)b::text[]) as asked (host_id)
cross join lateral (
    select of_host.lambda from host_lambda as of_host where of_host.host_id = asked.host_id limit %(most)b::int8
) as served;
