-- Live tasks have their fair keys, by which the tasks of a lambda take turns.
-- step: expand
-- locks: task_assoc access exclusive
alter table task_assoc add column fair_key text collate "C";
