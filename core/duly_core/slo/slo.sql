-- Statements on objectives of lambdas.

-- name: list_objectives
select objective.lambda, objective.share, objective.start_within, objective.changed_at
from start_objective as objective
order by objective.lambda

-- name: owner_of_objective
-- The cell of a namespace, if it is another one: a caller that writes here went by an older directory. No row in a sole store.
select directory.own_cell, owner.cell, directory.version
from cell_directory as directory
cross join lateral (
    select coalesce(
        (select listed.cell from cell_namespace as listed where listed.namespace = %(namespace)s::text), directory.default_cell
    ) as cell
) as owner
where owner.cell <> directory.own_cell

-- name: put_objective
insert into start_objective as objective (lambda, share, start_within, changed_at)
values (%(pattern)b::text, %(share)b::float8, %(start_within)b::interval, duly_now())
on conflict (lambda) do update set
    share = excluded.share, start_within = excluded.start_within, changed_at = excluded.changed_at
returning objective.lambda, objective.share, objective.start_within, objective.changed_at

-- name: delete_objectives
delete from start_objective where lambda = any (%(patterns)b::text[]) returning lambda
