-- Services report the newest schema that they know: contract steps wait for processes that do not know them.
-- step: expand
-- locks: service_instance access exclusive
alter table service_instance add column schema_version text;
