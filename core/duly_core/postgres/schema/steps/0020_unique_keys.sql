-- Unique keys: which task has one, and whose payload other tasks got.
-- step: expand
-- locks: task access exclusive
alter table task add column unique_key text;
create table unique_key (
    lambda text not null,
    key text not null check (octet_length(key) between 1 and 255),
    task_id uuid not null,
    taken_at timestamptz not null,
    primary key (lambda, key)
);
create index unique_key_by_task on unique_key (task_id);
create table merged_task (
    task_id uuid primary key,
    holder uuid not null
);
