-- Attributes of tasks, and what they are found by.
-- step: expand
-- locks: task access exclusive
alter table task add column attributes jsonb;
create table task_attribute (
    name text collate "C" not null check (octet_length(name) between 1 and 64),
    value text collate "C" not null check (octet_length(value) between 1 and 256),
    task_id uuid not null,
    primary key (name, value, task_id)
);
create index task_attribute_by_task on task_attribute (task_id);
