-- A lambda says how many tasks one call of its callback takes.
-- step: expand
-- locks: lambda access exclusive
alter table lambda
    add column batch_size integer not null default 0 check (batch_size between 0 and 1000),
    add column batch_wait interval not null default interval '0' check (batch_wait between interval '0' and interval '1 minute');
