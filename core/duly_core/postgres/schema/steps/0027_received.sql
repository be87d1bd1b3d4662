-- A task keeps the events that its callback received.
-- step: expand
-- locks: task access exclusive
alter table task add column received jsonb;
