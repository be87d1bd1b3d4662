-- Written by `make sql` from core/duly_core/cells/changes.sql. Edit that.

-- name: operator_changes
select kind, name, changed_at from operator_change;

-- name: next_change
select greatest(duly_now(), max(changed_at) + interval '1 microsecond') from operator_change;

-- name: note_changes
insert into operator_change (kind, name, changed_at)
select asked.kind, asked.name, asked.changed_at
from unnest(%(kinds)b::text[], %(names)b::text[], %(moments)b::timestamptz[]) as asked (kind, name, changed_at)
order by asked.kind, asked.name
on conflict (kind, name) do update set changed_at = excluded.changed_at
    where operator_change.changed_at < excluded.changed_at
returning kind, name;

-- name: settle_changes
insert into operator_change (kind, name, changed_at)
select 'settled', '', %(moment)b::timestamptz from cell_directory where version = %(version)b::int8
on conflict (kind, name) do update set changed_at = excluded.changed_at
    where operator_change.changed_at < excluded.changed_at
returning changed_at;

-- name: lock_operators_turn
select true from cell_directory for no key update;
