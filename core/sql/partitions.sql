-- Written by `make sql` from core/duly_core/upkeep/partitions.sql. Edit that.

-- name: list_partitions
select relname, pg_get_expr(relpartbound, pg_class.oid)
from pg_inherits join pg_class on pg_class.oid = inhrelid
where inhparent = 'task'::regclass;

-- name: count_strays
select count(*), coalesce(sum(size), 0)
from (
    select octet_length(payload) + coalesce(octet_length(result), 0) as size
    from task_rest
    where task_id >= %(lowest)s and task_id < %(end)s
    limit %(most)s
) as few;
