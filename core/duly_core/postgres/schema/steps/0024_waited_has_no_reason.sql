-- Such an attempt is no failure. Older rows are checked by the next step, under a lighter lock.
-- step: expand
-- locks: attempt access exclusive
alter table attempt
    drop constraint attempt_failure_has_a_reason,
    add constraint attempt_failure_has_a_reason check (
        (outcome in ('snoozed', 'released', 'cancelled', 'handed_over', 'waited')) = (failure_kind is null)
    ) not valid;
