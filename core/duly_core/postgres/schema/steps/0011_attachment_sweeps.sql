-- A store of attachments knows its last sweeps: a copy of the database that sweeps it is found.
-- step: expand
-- locks: attachment_store access exclusive
alter table attachment_store add column turns uuid[] not null default '{}';
