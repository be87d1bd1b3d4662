-- What operators changed while a cell was away, as a cell knows of it.

-- name: operator_changes
select kind, name, changed_at from operator_change

-- name: next_change
-- The moment of a change that is made now: after all that the cell knows.
select greatest(duly_now(), max(changed_at) + interval '1 microsecond') from operator_change

-- name: note_changes
insert into operator_change (kind, name, changed_at)
select asked.kind, asked.name, asked.changed_at
from unnest(%(kinds)b::text[], %(names)b::text[], %(moments)b::timestamptz[]) as asked (kind, name, changed_at)
order by asked.kind, asked.name
on conflict (kind, name) do update set changed_at = excluded.changed_at
    where operator_change.changed_at < excluded.changed_at
returning kind, name

-- name: settle_changes
-- Says that all cells have each change up to this moment. A newer directory may have a cell that does not: then nothing is said.
insert into operator_change (kind, name, changed_at)
select 'settled', '', %(moment)b::timestamptz from cell_directory where version = %(version)b::int8
on conflict (kind, name) do update set changed_at = excluded.changed_at
    where operator_change.changed_at < excluded.changed_at
returning changed_at

-- name: lock_operators_turn
-- Who changes what operators own holds this row. Guards lock it weaker, so tasks do not wait; a fence and a newer directory do, for a moment.
select true from cell_directory for no key update
