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
