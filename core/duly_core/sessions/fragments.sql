-- What statements share about sessions.

-- fragment: session_of
-- What the store calls the session of a row (lambda, session) that TEXT names, of which only the key is known: SessionId in
-- session_id.py. Its namespace is that of its lambda, so no session has tasks of two namespaces. This is the one place that says so.
left({{}}.lambda, greatest(strpos({{}}.lambda, '/') - 1, 0)) || '/' || {{}}.session

-- fragment: session_key
-- The key in the session of the row that TEXT names.
substr({{}}.session, strpos({{}}.session, '/') + 1)

-- fragment: join_sessions
-- Writes the assocs of the tasks in the CTE that TEXT names, which all have a session, in their order. It has the
-- columns `fields.assoc_columns`, due_at, fence, last_token, session, session_order, session_policy. The first task of a new session is its head, and so is the one that blocked its session until now; the others wait.
-- A session of length 0 that nothing blocks is new, too: the transaction has locked it under its key (lock_child_sessions).
-- The statement selects from `joined` and `ordered`, which is last.
numbered as (
    select asked.*, row_number() over () as number,
        case when session_order = {{session_order.due}} then due_at else '-infinity' end as rank
    from {{}} as asked
), line as (
    insert into session (key, head, length, last_seq)
    select session, (array_agg(task_id order by rank, number))[1], count(*), max(number)
    from numbered
    group by session
    order by session collate "C"
    on conflict (key) do update
    set length = session.length + excluded.length, last_seq = session.last_seq + excluded.last_seq,
        head = case
            when session.blocked_by in (select task_id from numbered) then session.blocked_by
            when session.length = 0 and session.blocked_by is null then excluded.head
            else session.head
        end,
        blocked_by = case when session.blocked_by not in (select task_id from numbered) then session.blocked_by end,
        blocked_at = case when session.blocked_by not in (select task_id from numbered) then session.blocked_at end
    returning key, head, last_seq
), lines as materialized (
    -- one object, for a join of two CTEs would compare each row with each
    select jsonb_object_agg(key, jsonb_build_array(head, last_seq)) as by_key from line
), placed as (
    select *, (line -> 0) #>> '{}' as session_head, (line -> 1)::int8 - max(number) over (partition by session) + number as seq
    from (select *, (select by_key from lines) -> session as line from numbered) as each
), joined as (
    insert into task_assoc (
        {{fields.assoc_columns}}, status, next_trigger_at, due_at, fence, last_token, session, session_rank, session_seq,
        session_policy
    )
    select {{fields.assoc_columns}},
        (case when task_id::text = session_head then 'new' else 'waiting' end)::task_status,
        case when task_id::text = session_head then due_at else coalesce(expires_at, 'infinity') end,
        due_at, fence, last_token, session, rank, seq, session_policy
    from placed
    returning task_id, status, due_at, session, session_rank
), ordered as (
    select duly_put_earlier_first(array_agg(distinct session)) as done
    from joined
    where session_rank > '-infinity'
)
