-- What the statements of Explain share.

-- fragment: explained_queue
-- What may run of the lambda, with the priority TEXT.
assoc.lambda = %(lambda)s and assoc.priority = {{}}
    and assoc.status in ('new', 'retriable_failure')

-- fragment: tasks_ahead
-- What may run before the task.
from task_assoc as assoc
where {{explained_queue: %(priority)s}} and assoc.next_trigger_at < %(before)s
