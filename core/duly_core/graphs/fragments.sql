-- What statements share about graphs.

-- fragment: edges
-- What a node waits for, and the conditions: its part of the arrays of all edges, which are in the order of the nodes.
(%(edges_from)b::uuid[])[first_edge : first_edge + waits_for - 1],
    (%(conditions)b::int2[])[first_edge : first_edge + waits_for - 1]

-- fragment: node_session_columns
-- Columns of the assoc of a node for the session that it is to enter, until it does.
parked_on, parked_key, session_rank, session_policy

-- fragment: node_session
-- Their values, of what is `asked`; TEXT: it may run.
case when {{}} and asked.session is not null then 'session:' end,
        case when asked.session is not null then {{session_of: asked}} end,
        case when asked.session is not null then case when asked.session_order = {{session_order.due}} then 'infinity' else '-infinity' end::timestamptz end,
        case when asked.session is not null then asked.session_policy end

-- fragment: session_as_locked
-- `assoc` has not entered a session since the caller's transaction locked what it waits in: that session is not locked.
(assoc.session is null or assoc.task_id <> all (%(without_session)b::uuid[]))
