-- The triggers of a cell: guards and the fence.

-- name: guarded_tables
select pg_class.relname
from pg_trigger join pg_class on pg_class.oid = tgrelid
where tgname = 'duly_cell_guard' and tgenabled = 'O'
    and relnamespace = (select home.relnamespace from pg_class as home where home.oid = 'task'::regclass)

-- name: fence_cell
-- Its commit brings all that was committed before to the disk, also without synchronous_commit: what a move waits for is in the WAL that is sent.
-- A setting that waits for a standby stays: the fence must not be lost in a failover.
select set_config('synchronous_commit', case current_setting('synchronous_commit') when 'off' then 'local' else current_setting('synchronous_commit') end, true),
    duly_cell_fence(%(tables)s::text[])

-- name: unfence_cell
select duly_cell_unfence()
