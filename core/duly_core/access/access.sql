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

-- name: token_rows
select digest, token_id, principal, note, created_at, created_by, expires_at, revoked_at from access_token order by digest

-- name: grant_rows
select principal, role, pattern, granted_at, granted_by from role_grant order by 1, 2, 3

-- name: copy_tokens
-- One that is revoked stays so.
insert into access_token (digest, token_id, principal, note, created_at, created_by, expires_at, revoked_at)
select asked.*
from unnest(
    %s::bytea[], %s::text[], %s::text[], %s::text[], %s::timestamptz[], %s::text[], %s::timestamptz[], %s::timestamptz[]
) as asked
on conflict (digest) do update set revoked_at = excluded.revoked_at
    where access_token.revoked_at is null and excluded.revoked_at is not null

-- name: copy_grants
insert into role_grant (principal, role, pattern, granted_at, granted_by)
select asked.* from unnest(%s::text[], %s::text[], %s::text[], %s::timestamptz[], %s::text[]) as asked
on conflict do nothing

-- name: remove_other_tokens
delete from access_token where digest <> all (%s::bytea[])

-- name: remove_other_grants
delete from role_grant
where not exists (
    select from unnest(%s::text[], %s::text[], %s::text[]) as kept (principal, role, pattern)
    where kept.principal = role_grant.principal and kept.role = role_grant.role and kept.pattern = role_grant.pattern
)
