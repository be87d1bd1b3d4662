-- All attempts are as the new check says.
-- step: expand
-- locks: attempt share update exclusive
-- reads: attempt
alter table attempt validate constraint attempt_failure_has_a_reason;
