-- How sessions move on.

-- Sessions move on in these functions, and not in the statements that call them: a statement sees the rows as they were
-- before it waited for a lock, each statement of a function sees them as they are after. (transitions.sql has the moves.)

-- What the ends of these tasks do to their sessions; `failures` has the session_policy of those that ended as
-- fatal_failure, `dooms` why one that waited had to end. A session whose head ended has a new head, is blocked, or is gone.
-- move: waiting -> new
-- Returns the lambdas of new heads, and how far ahead these are due.
create function duly_advance_sessions(keys text[], task_ids uuid[], failures int2[], dooms int2[])
    returns table (lambda text, due_in interval) language plpgsql strict rows 100 as $$
#variable_conflict use_column
begin
    perform from session where key = any (keys) order by key for update;
    return query
    with line as (
        select session.key, session.head, session.length - count(*)::int4 as length,
            session.doomed - count(*) filter (where ended.doom = {{kind.session_failed}})::int4 as doomed, session.blocked_by, session.last_seq, session.fails_until,
            coalesce(bool_or(ended.task_id = session.head), false) as headless,
            max(ended.failure) filter (where ended.task_id = session.head) as failure,
            -- the tasks that were to fail with it are gone, and perhaps some that their graphs let not run
            session.fails_until is not null and session.doomed = count(*) filter (where ended.doom = {{kind.session_failed}}) as failed
        from unnest(keys, task_ids, failures, dooms) as ended (key, task_id, failure, doom)
        join session on session.key = any (array[ended.key])
        group by session.key
    ), condemned as (
        -- its order keeps it from being joined the other way round: a plan made while nothing waited would look at all
        -- that waits, for ever
        select line.key, waiting.task_id, coalesce(line.blocked_by, line.head) as failed_task
        from line cross join lateral (
            select assoc.task_id
            from task_assoc as assoc
            where assoc.session = line.key and assoc.status = 'waiting' and assoc.doom is null
                and assoc.session_seq <= case when line.headless then line.last_seq else line.fails_until end
            order by assoc.session, assoc.session_rank, assoc.session_seq
            -- an end must not outlast statement_timeout: when these are gone, the next are marked
            limit {{batch.doomed}}
        ) as waiting
        where line.headless and line.failure = {{session_policy.fail_rest}} or line.failed and line.head is null
    ), doomed as (
        update task_assoc as assoc
        set doom = {{kind.session_failed}}, next_trigger_at = (select duly_now()),
            events = duly_note(assoc.events, 'session_failed', (select duly_now()), null, condemned.failed_task::text)
        from condemned
        where assoc.task_id = any (array[condemned.task_id]) and assoc.status::text = 'waiting'
        returning condemned.key
    ), moved as (
        select line.*, next.task_id as next_head,
            (select count(*)::int4 from doomed where doomed.key = line.key) as more_doomed
        from line left join lateral (
            select assoc.task_id
            from task_assoc as assoc
            where assoc.session = line.key and assoc.status = 'waiting' and assoc.doom is null
                and line.length > 0
                and (
                    line.headless and coalesce(line.failure, {{session_policy.skip}}) = {{session_policy.skip}}
                    or line.failed and line.head is null and not exists (select from doomed where doomed.key = line.key)
                )
            order by assoc.session, assoc.session_rank, assoc.session_seq
            limit 1
        ) as next on true
    ), drained as (
        delete from session using moved
        where session.key = any (array[moved.key]) and moved.length = 0
            and (moved.headless and coalesce(moved.failure, {{session_policy.skip}}) <> {{session_policy.block}} or moved.failed and moved.head is null)
    ), updated as (
        update session
        set length = moved.length, doomed = moved.doomed + moved.more_doomed,
            head = coalesce(moved.next_head, case when not moved.headless then moved.head end),
            fails_until = case
                when moved.headless and moved.more_doomed > 0 then moved.last_seq
                -- all that is left are nodes whose graphs failed fast: the session goes on when they are gone
                when moved.headless and moved.next_head is null and coalesce(moved.failure, {{session_policy.skip}}) <> {{session_policy.block}} then 0
                when not moved.headless and moved.next_head is null then moved.fails_until
            end,
            blocked_by = case
                when moved.next_head is not null then null
                when moved.headless then moved.head
                else session.blocked_by
            end,
            blocked_at = case
                when moved.next_head is not null then null
                when moved.headless then (select duly_now())
                else session.blocked_at
            end
        from moved
        where session.key = any (array[moved.key]) and not (
            moved.length = 0
            and (moved.headless and coalesce(moved.failure, {{session_policy.skip}}) <> {{session_policy.block}} or moved.failed and moved.head is null)
        )
    ), promoted as (
        update task_assoc as assoc
        set status = 'new', next_trigger_at = greatest(assoc.due_at, (select duly_now())),
            due_at = greatest(assoc.due_at, (select duly_now())),
            events = duly_note(
                assoc.events, 'session_turn', (select duly_now()), greatest(assoc.due_at, (select duly_now())),
                coalesce(moved.head, moved.blocked_by)::text
            )
        from moved
        -- a graph that fails fast may doom it at this moment: then its end is the next one
        where assoc.task_id = any (array[moved.next_head]) and assoc.status::text = 'waiting' and assoc.doom is null
        returning assoc.lambda, assoc.due_at
    )
    select promoted.lambda, min(promoted.due_at) - (select duly_now()) from promoted group by promoted.lambda;
end $$;

-- Ends the block of a session: the next task runs, whatever became of the one that failed. False: it is not blocked.
-- `asked_by` is the principal that asked for it.
-- move: waiting -> new
create function duly_unblock_session(asked text, asked_by text default null) returns boolean language plpgsql as $$
declare
    line record;
    next_head uuid;
begin
    select * into line from session where key = asked and blocked_by is not null and doomed = 0 and fails_until is null for update;
    if not found then
        return false;
    end if;
    select assoc.task_id into next_head
    from task_assoc as assoc
    where assoc.session = asked and assoc.status = 'waiting' and assoc.doom is null
    order by assoc.session, assoc.session_rank, assoc.session_seq
    limit 1;
    if next_head is null then
        delete from session where key = asked;
    else
        update session set head = next_head, blocked_by = null, blocked_at = null where key = asked;
        update task_assoc as assoc
        set status = 'new', next_trigger_at = greatest(assoc.due_at, duly_now()), due_at = greatest(assoc.due_at, duly_now()),
            events = duly_note(
                assoc.events, 'session_unblocked', duly_now(), greatest(assoc.due_at, duly_now()), line.blocked_by::text, asked_by
            )
        where assoc.task_id = next_head and assoc.status::text = 'waiting';
    end if;
    return true;
end $$;

-- Where a task that waits is due before its session's head, which nobody has claimed yet, they change places. It is for
-- sessions whose rows the caller has locked; a head that somebody else works on stays.
-- move: new -> waiting
-- move: waiting -> new
create function duly_put_earlier_first(keys text[]) returns void language plpgsql strict as $$
begin
    with earlier as (
        select session.key, first.task_id, head.task_id as head
        from unnest(keys) as asked (key)
        join session on session.key = any (array[asked.key])
        cross join lateral (
            select assoc.task_id, assoc.session_rank, assoc.session_seq
            from task_assoc as assoc
            where assoc.session = asked.key and assoc.status = 'waiting' and assoc.doom is null
            order by assoc.session, assoc.session_rank, assoc.session_seq
            limit 1
        ) as first
        cross join lateral (
            select assoc.task_id
            from task_assoc as assoc
            where assoc.task_id = session.head and assoc.status::text = 'new' and assoc.fence = 0
                -- one that is due may just have been released from a resource, whose units would be left to nobody
                and (assoc.resources is null or assoc.next_trigger_at > duly_now())
                and (assoc.session_rank, assoc.session_seq) > (first.session_rank, first.session_seq)
            for update skip locked
        ) as head
    ), demoted as (
        update task_assoc as assoc
        set status = 'waiting', next_trigger_at = coalesce(assoc.expires_at, 'infinity'),
            events = duly_note(assoc.events, 'session_overtaken', duly_now(), assoc.expires_at, earlier.task_id::text)
        from earlier
        where assoc.task_id = any (array[earlier.head])
    ), promoted as (
        update task_assoc as assoc
        set status = 'new', next_trigger_at = assoc.due_at,
            events = duly_note(assoc.events, 'session_turn', duly_now(), assoc.due_at, earlier.head::text)
        from earlier
        where assoc.task_id = any (array[earlier.task_id]) and assoc.doom is null
    )
    update session set head = earlier.task_id from earlier where session.key = any (array[earlier.key]);
end $$;

-- Puts up to `most` nodes of graphs that may run into their sessions, at the end of each, in the order in which they were released.
-- Who releases a node holds its graph, and sessions are locked before graphs: so this has a transaction of its own.
-- move: waiting -> new|waiting
-- Returns the lambdas of new heads, and how far ahead these are due.
create function duly_enter_nodes(most integer) returns table (lambda text, due_in interval) language plpgsql strict rows 100 as $$
#variable_conflict use_column
declare
    released uuid[];
    keys text[];
    by_time text[];
begin
    select array_agg(found.task_id), array_agg(distinct found.parked_key) into released, keys
    from (
        select assoc.task_id, assoc.parked_key
        from task_assoc as assoc
        where assoc.parked_on = 'session:' and assoc.status = 'waiting'
        limit most
    ) as found;
    if released is null then
        return;
    end if;
    -- A session that is not there is made, without a task: two transactions could wait for each other's new rows as well. From here on
    -- nobody else puts these nodes into their sessions.
    insert into session (key, head, length, last_seq)
    select asked.key, released[1], 0, 0 from unnest(keys) as asked (key) order by asked.key collate "C"
    on conflict (key) do update set length = session.length;
    with entering as materialized (
        select assoc.task_id, assoc.parked_key as key, assoc.due_at, assoc.next_trigger_at as released_at,
            case when assoc.session_rank = 'infinity' then assoc.due_at else '-infinity' end as rank
        from unnest(released) as asked (task_id)
        join task_assoc as assoc on assoc.task_id = any (array[asked.task_id])
        where assoc.status::text = 'waiting' and assoc.parked_on = 'session:'
        order by assoc.task_id
        for update of assoc
    ), placed as materialized (
        select *, row_number() over (partition by key order by released_at, task_id) as place from entering
    ), line as (
        update session
        set length = session.length + added.number, last_seq = session.last_seq + added.number,
            head = case when session.length = 0 and session.blocked_by is null then added.first else session.head end
        from (
            select placed.key, count(*)::int4 as number, (array_agg(placed.task_id order by placed.rank, placed.place))[1] as first
            from placed
            group by placed.key
        ) as added
        where session.key = any (array[added.key])
        returning session.key, session.head, session.last_seq - added.number as before
    ), entered as (
        update task_assoc as assoc
        set status = case when placed.task_id = line.head then 'new' else 'waiting' end::task_status,
            next_trigger_at = case when placed.task_id = line.head then placed.due_at else coalesce(assoc.expires_at, 'infinity') end,
            session = placed.key, session_rank = placed.rank, session_seq = line.before + placed.place,
            parked_on = null, parked_key = null
        from placed join line on line.key = placed.key
        where assoc.task_id = any (array[placed.task_id]) and assoc.status::text = 'waiting' and assoc.parked_on = 'session:'
        returning assoc.session, assoc.session_rank
    )
    select array_agg(distinct entered.session) filter (where entered.session_rank > '-infinity') into by_time from entered;
    perform duly_put_earlier_first(by_time);
    -- those whose nodes were cancelled meanwhile
    delete from session where session.key = any (keys) and session.length = 0 and session.blocked_by is null;
    return query
    select assoc.lambda, min(assoc.due_at) - duly_now()
    from unnest(released) as asked (task_id) join task_assoc as assoc on assoc.task_id = any (array[asked.task_id])
    where assoc.status::text = 'new'
    group by assoc.lambda;
end $$;
