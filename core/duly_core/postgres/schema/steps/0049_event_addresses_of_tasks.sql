-- The task whose callback made an address: of its addresses for one key one is used.
-- step: expand
-- locks: event_address access exclusive
alter table event_address add column task_id uuid;
