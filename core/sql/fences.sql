-- Written by `make sql` from core/duly_core/upkeep/fences.sql. Edit that.

-- name: void_tokens
with held as (
    select task_id from task_assoc where status in ('claimed', 'processing') order by task_id for update
)
update task_assoc as assoc
set token = gen_random_uuid()
from held
where assoc.task_id = held.task_id
returning assoc.task_id, assoc.token, case when assoc.status = 'processing' then assoc.claimed_at end;
