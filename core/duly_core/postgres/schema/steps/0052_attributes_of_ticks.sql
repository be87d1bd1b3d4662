-- The tasks of a time table have its attributes.
-- step: expand
-- locks: time_table access exclusive
alter table time_table add column attributes jsonb;
