-- How far an event was given to the tasks that wait for it.
-- step: expand
-- locks: event_key access exclusive
alter table event_key add column given_to uuid;
create index event_key_unfinished on event_key (key) where given_to is not null;
