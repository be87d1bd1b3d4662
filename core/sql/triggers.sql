-- Written by `make sql` from core/duly_core/cells/triggers.sql. Edit that.

-- name: guarded_tables
select pg_class.relname
from pg_trigger join pg_class on pg_class.oid = tgrelid
where tgname = 'duly_cell_guard' and tgenabled = 'O'
    and relnamespace = (select home.relnamespace from pg_class as home where home.oid = 'task'::regclass);

-- name: fence_cell
select set_config('synchronous_commit', case current_setting('synchronous_commit') when 'off' then 'local' else current_setting('synchronous_commit') end, true),
    duly_cell_fence(%(tables)s::text[]);

-- name: unfence_cell
select duly_cell_unfence();
