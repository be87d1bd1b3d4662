-- A host says which pool it is of, and is told to end. There are few hosts, and no task waits for this table.
-- step: expand
-- locks: host access exclusive
-- reads: host
alter table host
    add column pool text not null default '' check (octet_length(pool) <= 63),
    add column drain_requested_at timestamptz;
