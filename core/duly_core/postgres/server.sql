-- name: look_at_server
-- Duly_server(): timeline and start of the server that answers. On a standby it is an error, as it should be.
-- A change that is said to lie ahead comes from a clock that was set back since: it would hold for ever.
with server as materialized (
    select duly_server() as name, (select duly_now()) as at
), written as (
    update store_epoch set server = server.name, changed_at = server.at
    from server
    where store_epoch.server <> server.name or store_epoch.changed_at > server.at
    returning true
)
select server.at, server.name, before.server, server.at - before.changed_at, exists (select from written)
from server left join store_epoch as before on true

-- name: server_changed
insert into store_epoch (server, changed_at) select duly_server(), duly_now()
on conflict (one) do update set server = excluded.server, changed_at = excluded.changed_at
returning true
