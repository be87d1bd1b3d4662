-- Time tables say of which resources and session their tasks are.
-- step: expand
-- locks: time_table access exclusive
alter table time_table
    add column resources jsonb, add column session text, add column session_order smallint, add column session_policy smallint;
