-- The tasks of a time table have its fair key.
-- step: expand
-- locks: time_table access exclusive
alter table time_table add column fair_key text check (octet_length(fair_key) between 1 and 128);
