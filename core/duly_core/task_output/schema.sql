-- The output of tasks: what callbacks and commands print and log while they run (decision 0079).

-- What a run wrote in a short time. Rows of a run are only added, in order, and the first ones are removed when there are too many. No
-- transaction of the task path writes here. Rows outlive their task for some minutes: a sweep removes them.
create table task_output (
    task_id uuid not null,
    fence integer not null check (fence >= 1),
    -- From 1; grows within a run.
    number integer not null check (number >= 1),
    -- How many bytes the run had written before these. More than the row before says: bytes were left out.
    position bigint not null check (position >= 0),
    size_bytes integer not null check (size_bytes >= 0),
    is_encrypted boolean not null,
    -- A serialized OutputPieces.
    content bytea not null check (octet_length(content) <= 65536),
    written_at timestamptz not null,
    primary key (task_id, fence, number)
);
