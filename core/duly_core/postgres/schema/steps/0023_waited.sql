-- An attempt may end because its callback waits for an event. A transaction cannot use a value that it added.
-- step: expand
alter type attempt_outcome add value 'waited';
