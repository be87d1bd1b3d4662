-- What the breaker of a lambda did, for people.

-- name: breaker_moves
-- The newest 1,000 moves of all breakers are looked at, by the index on the actor.
select at, request from (
    select at, request from audit_event
    where actor = 'breaker' and method = 'GateService/Breaker'
    order by event_id desc
    limit 1000
) as moved
where at <= %(until)s and strpos(request, %(lambda)s) > 0
order by at desc
limit %(most)s
