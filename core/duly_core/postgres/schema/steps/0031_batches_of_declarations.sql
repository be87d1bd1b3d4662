-- The same, of each version that was declared.
-- step: expand
-- locks: lambda_declaration access exclusive
alter table lambda_declaration
    add column batch_size integer not null default 0, add column batch_wait interval not null default interval '0';
