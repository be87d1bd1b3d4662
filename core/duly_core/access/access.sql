-- name: add_audit_events
insert into audit_event (at, actor, peer, method, outcome, request, answer)
select duly_now(), entry.*
from unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[])
    as entry (actor, peer, method, outcome, request, answer)

-- name: list_audit_events
select event_id, at, actor, peer, method, outcome, request, answer
from audit_event
where event_id < %(before)s
    and (%(actor)s = '' or actor = %(actor)s)
    and (%(method)s = '' or method like '%%' || %(method)s)
    and (%(mentions)s = '' or strpos(request, %(mentions)s) > 0)
    and (%(since)s::timestamptz is null or at >= %(since)s)
    and (not %(refused)s or outcome in ('PERMISSION_DENIED', 'UNAUTHENTICATED'))
order by event_id desc
limit %(limit)s

-- name: add_grants
insert into role_grant (principal, role, pattern, granted_at, granted_by)
select asked.principal, asked.role, asked.pattern, duly_now(), %s
from unnest(%s::text[], %s::text[], %s::text[]) as asked (principal, role, pattern)
on conflict do nothing
