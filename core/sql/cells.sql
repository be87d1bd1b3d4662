-- Written by `make sql` from core/duly_core/cells/cells.sql. Edit that.

-- name: read_directory
select installation::text, version, own_cell, default_cell, state = 'fenced',
    array(select name from cell order by name),
    array(select address from cell order by name),
    array(select schema_name from cell order by name),
    array(select namespace from cell_namespace order by namespace),
    array(select cell from cell_namespace order by namespace)
from cell_directory;

-- name: signs_of_a_cell
with trusted as (
    select pg_roles.oid
    from pg_roles
    where rolsuper or rolname in (current_user, 'pg_database_owner') or pg_roles.oid = (select datdba from pg_database where datname = current_database())
)
select
    exists (
        select
        from pg_trigger join pg_class on pg_class.oid = tgrelid
        where tgname = 'duly_cell_guard'
            and relnamespace = (select home.relnamespace from pg_class as home where home.oid = to_regclass('task'))
    ),
    array(
        select nspname::text
        from pg_class join pg_namespace on pg_namespace.oid = relnamespace
        where relname = 'cell_directory' and relkind = 'r'
            and relowner in (select trusted.oid from trusted) and nspowner in (select trusted.oid from trusted)
            and has_schema_privilege(pg_namespace.oid, 'usage') and has_table_privilege(pg_class.oid, 'select')
        order by nspname
        limit 100
    );

-- name: look_into_schema
select set_config('search_path', quote_ident(%(schema)s::text), true);

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
