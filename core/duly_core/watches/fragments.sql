-- What the statements that end tasks and runs pay for watches: one look at a table that is mostly empty.

-- fragment: note_end
-- Whether a row of `ended` is to be written: always. If somebody watches this also notes the end.
case when (select exists (select from watch)) then duly_note_end(
    task_id, lambda, graph, session, status::text, fence, failure_kind::int2, ended_at
) else true end

-- fragment: note_end_unwatched
-- As `note_end`, where the caller knows that nobody watches.
true

-- fragment: note_run
-- As `note_end`, of a row of the history.
case when (select exists (select from watch)) then duly_note_run(
    task_id, outcome::text, fence, attempt_kind::int2, ended_at, next_at
) else true end
