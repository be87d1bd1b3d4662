-- What Postgres knows of the schema: for `duly migrate`, which compares it.

-- name: describe_schema
-- Tables with their columns, constraints, indexes and triggers; functions and types. Partitions are left out: retention
-- makes and drops them. Names are looked up in the search path, so that definitions do not name the schema where they need not.
with home as (
    select oid from pg_namespace where nspname = %(schema)s
), made as (
    select pg_class.oid, relname::text as name, relkind, relpersistence, reloptions, relpartbound
    from pg_class join home on relnamespace = home.oid
    where relname = any (%(tables)s::text[]) and relkind in ('r', 'p') and not relispartition
)
select 'table' as kind, name, concat_ws(' ', relkind, relpersistence, reloptions::text, pg_get_partkeydef(oid)) as definition
from made
union all
select 'column', made.name || '.' || attname, concat_ws(' ',
    format_type(atttypid, atttypmod), case when attnotnull then 'not null' end, attstorage,
    'identity ' || nullif(attidentity::text, ''), 'generated ' || nullif(attgenerated::text, ''),
    (select collname from pg_collation where pg_collation.oid = attcollation), pg_get_expr(adbin, adrelid)
)
from made
join pg_attribute on attrelid = made.oid and attnum > 0 and not attisdropped
left join pg_attrdef on adrelid = attrelid and adnum = attnum
union all
-- Postgres 18 keeps `not null` as a constraint; older ones, and this list, as a part of the column
select 'constraint', made.name || '.' || conname, concat_ws(' ', pg_get_constraintdef(pg_constraint.oid), convalidated)
from made join pg_constraint on conrelid = made.oid and contype in ('c', 'f', 'p', 'u', 'x')
union all
select case when indisunique then 'unique index' else 'index' end, made.name || '.' || index.relname, concat_ws(' ', pg_get_indexdef(indexrelid), indisvalid)
from made
join pg_index on indrelid = made.oid
join pg_class as index on index.oid = indexrelid
union all
select 'trigger', made.name || '.' || tgname, concat_ws(' ', pg_get_triggerdef(pg_trigger.oid), tgenabled)
from made join pg_trigger on tgrelid = made.oid and not tgisinternal and not starts_with(tgname, 'duly_cell_')  -- a cell's own
union all
select 'function', proname || '(' || pg_get_function_identity_arguments(pg_proc.oid) || ')', pg_get_functiondef(pg_proc.oid)
from pg_proc join home on pronamespace = home.oid
where proname = any (%(functions)s::text[]) and prokind = 'f'
union all
select 'type', typname, (
    select string_agg(enumlabel, ', ' order by enumsortorder) from pg_enum where enumtypid = pg_type.oid
)
from pg_type join home on typnamespace = home.oid
where typname = any (%(types)s::text[]) and typtype = 'e'
union all
select 'type', typname, (
    select string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' order by attnum)
    from pg_attribute where attrelid = typrelid and attnum > 0 and not attisdropped
)
from pg_type join home on typnamespace = home.oid
where typname = any (%(types)s::text[]) and typtype = 'c'

-- name: older_processes
-- Processes that report themselves, and do not know a version of the schema; workers, by the release that they say.
-- A process that ended without a word counts until it has missed some reports.
select service || ' on ' || host_name || coalesce(nullif(' (release ' || version || ')', ' (release )'), '') as process
from service_instance
where not stopped and reported_at > duly_now() - {{hosts.missed_reports}} * report_interval
    and coalesce(to_jsonb(service_instance) ->> 'schema_version', '') < %(version)s::text  -- older schemas have no such column
union all
select 'worker on ' || name || ' (release ' || version || ')'
from host
where not stopped and reported_at > duly_now() - {{hosts.missed_reports}} * report_interval
    and version <> %(release)s::text
order by 1

-- name: oldest_transactions
-- Who may hold what a step waits for.
select format('pid %%s (%%s, %%s) since %%s', pid, coalesce(nullif(application_name, ''), usename::text), state,
    date_trunc('second', xact_start))
from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and xact_start is not null
order by xact_start
limit 3

-- name: partitions_of_index
-- Each partition of a table, and whether it has its part of an index.
select leaf.relid::regclass::text, attached.inhrelid is not null
from pg_partition_tree(%(table)s::text::regclass) as leaf
left join (
    pg_inherits as attached join pg_index on indexrelid = attached.inhrelid
) on indrelid = leaf.relid and attached.inhparent = to_regclass(%(name)s::text)
where leaf.isleaf and leaf.level > 0
order by 2 desc, 1

-- name: try_to_lock_schema
-- One process migrates a schema at a time; that of `public` is locked as by older releases.
select case schema.name
    when 'public' then pg_try_advisory_lock(%(lock)s::int8)
    else pg_try_advisory_lock(%(lock)s::int4, hashtext(schema.name))
end
from (select coalesce(current_schema(), current_setting('search_path')) as name) as schema
