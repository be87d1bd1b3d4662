-- Written by `make sql` from core/duly_core/cells/cells.sql. Edit that.

-- name: read_directory
select installation::text, version, own_cell, default_cell, state = 'fenced',
    array(select name from cell order by name),
    array(select address from cell order by name),
    array(select schema_name from cell order by name),
    array(select namespace from cell_namespace order by namespace),
    array(select cell from cell_namespace order by namespace)
from cell_directory;

-- name: lock_directory
select installation::text, version, own_cell from cell_directory for update;

-- name: begin_directory
insert into cell_directory (installation, version, own_cell, default_cell, written_at)
values (%(installation)s::uuid, %(version)s, %(own_cell)s, %(default_cell)s, duly_now());

-- name: write_directory
with head as (
    update cell_directory set version = %(version)s, default_cell = %(default_cell)s, written_at = duly_now()
), gone_cell as (
    delete from cell where name <> all(%(names)s::text[])
), cells as (
    insert into cell (name, address, schema_name)
    select * from unnest(%(names)s::text[], %(addresses)s::text[], %(schemas)s::text[])
    on conflict (name) do update set address = excluded.address, schema_name = excluded.schema_name
), gone_namespace as (
    delete from cell_namespace where namespace <> all(%(namespaces)s::text[])
)
insert into cell_namespace (namespace, cell)
select * from unnest(%(namespaces)s::text[], %(namespace_cells)s::text[])
on conflict (namespace) do update set cell = excluded.cell;
