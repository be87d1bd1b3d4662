-- Written by `make sql` from core/duly_core/gates/breaker_history.sql. Edit that.

-- name: breaker_moves
select at, request from (
    select at, request from audit_event
    where actor = 'breaker' and method = 'GateService/Breaker'
    order by event_id desc
    limit 1000
) as moved
where at <= %(until)s and strpos(request, %(lambda)s) > 0
order by at desc
limit %(most)s;
