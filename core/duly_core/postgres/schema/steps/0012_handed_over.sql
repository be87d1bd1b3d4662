-- An attempt may end with a task that somebody else completes. A transaction cannot use a value that it added.
-- step: expand
alter type attempt_outcome add value 'handed_over';
