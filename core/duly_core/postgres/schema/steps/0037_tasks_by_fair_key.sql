-- Tasks that take turns are found by key.
-- step: index
-- locks: task_assoc share update exclusive
-- reads: task_assoc
create index concurrently task_assoc_fair on task_assoc (lambda, priority, fair_key, next_trigger_at)
    where status in ('new', 'retriable_failure') and fair_key is not null;
