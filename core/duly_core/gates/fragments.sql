-- What statements share that leave out, or move, what gates hold.

-- fragment: eligible_gated
-- As `eligible`, of a queue some of whose tasks gates hold. Reads the first `window` rows of the queue, and `behind`: tasks that
-- an earlier read (behind_gated) found behind those that gates hold. So what is held in front costs no more than `window` rows.
select assoc.task_id, assoc.resources
from ({{gates_of: queue}}) as gates
cross join lateral (
    select coalesce(array_agg(first.task_id order by first.next_trigger_at) filter (where not {{held: first}}), '{}') as ids
    from (
        select assoc.task_id, assoc.next_trigger_at, assoc.collection, assoc.session, assoc.passed_gates
        from task_assoc as assoc
        where assoc.lambda = queue.lambda and assoc.priority = queue.priority
            and assoc.status in ('new', 'retriable_failure')
            and assoc.next_trigger_at <= least((select now from clock), gates.probes_until)
        order by assoc.next_trigger_at
        limit %(window)b::int4
    ) as first
) as head
cross join lateral unnest(head.ids || array(
    select behind.task_id
    from unnest(%(behind)b::uuid[], %(behind_lambdas)b::text[], %(behind_priorities)b::int2[])
        as behind (task_id, lambda, priority)
    where behind.lambda = queue.lambda and behind.priority = queue.priority and behind.task_id <> all (head.ids)
)) with ordinality as found (task_id, place)
join task_assoc as assoc on assoc.task_id = any (array[found.task_id])
where assoc.lambda = queue.lambda and assoc.priority = queue.priority
    and assoc.status::text in ('new', 'retriable_failure')
    and assoc.next_trigger_at <= least((select now from clock), gates.probes_until)
    and (assoc.expires_at is null or assoc.expires_at > (select now from clock)) and not {{held: assoc}}
order by found.place
limit queue.size offset queue.skip
for update of assoc skip locked

-- fragment: judged_by_gated
-- As `judged_by`, of tasks that gates may hold: what they are judged by.
, assoc.lambda, assoc.priority, assoc.collection, assoc.session, assoc.passed_gates

-- fragment: gates_of
-- The gates that hold some tasks of the lambda of the row that TEXT names (lambda, priority), of those in the parameters: one
-- row; without ids if it has none. Each lambda has a set of gates by number, each set a part of the arrays of gates. Of a lambda
-- whose breaker lets probes through, none is due after `probes_until`: so no read goes through what waits behind them.
-- Without `offset 0` Postgres would look the set up and cut its part out again for each row that is judged.
select (%(gate_ids)b::int8[])[part.first:part.last] as ids,
    (%(gate_priorities)b::int2[])[part.first:part.last] as priorities,
    (%(gate_collections)b::text[])[part.first:part.last] as collections,
    (%(gate_sessions)b::text[])[part.first:part.last] as sessions, coalesce(part.probes_until, 'infinity') as probes_until,
    {{}}.priority
from (
    select (%(set_firsts)b::int4[])[number] as first, (%(set_lasts)b::int4[])[number] as last,
        (%(set_probes_until)b::timestamptz[])[number] as probes_until
    from (
        select ((select jsonb_object(%(gated_lambdas)b::text[], %(gate_sets)b::text[])) ->> {{}}.lambda)::int4 as number
    ) as gate_set
    offset 0
) as part
offset 0

-- fragment: held
-- Whether one of `gates` (gates_of) holds the row that TEXT names. What is null holds any.
exists (
    select
    from unnest(gates.ids, gates.priorities, gates.collections, gates.sessions)
        as gate (gate_id, priority, collection, session)
    where (gate.priority is null or gate.priority = gates.priority)
        and (gate.collection is null or gate.collection = {{}}.collection)
        -- a key, in the namespace of the row's lambda: which lambdas a gate has was judged before
        and (gate.session is null or gate.session = {{session_key: {{}}}})
        and gate.gate_id <> all (coalesce({{}}.passed_gates, array[]::int8[]))
)

-- fragment: gated
-- Whether a gate holds `assoc`.
exists (select from ({{gates_of: assoc}}) as gates where {{held: assoc}})

-- fragment: gate_columns
-- What a Gate is made of.
gate.gate_id, gate.name, gate.kind, gate.lambda, gate.collection, gate.priority::int4, gate.session, gate.delay, gate.owner,
    gate.reason, gate.created_at, gate.expires_at, gate.probes_until

-- fragment: breaker_of_asked
-- Joins the breaker of the lambda of each task that is `asked`. Runs of all versions of a lambda count for its breaker.
cross join lateral (
    select task.lambda
    from task
    where task.task_id = any (array[asked.task_id]) and task.task_id {{within_asked}}
    limit 1
) as entity
join breaker on breaker.lambda = any (array[entity.lambda, split_part(entity.lambda, '@', 1)])

-- fragment: add_to_counts
-- Adds what `ended` (lambda, ended, failed) has to the counts of this second. Ordered by lambda: no two statements deadlock.
insert into breaker_count as known (lambda, second, ended, failed)
select lambda, date_trunc('second', (select duly_now())), ended, failed from ended order by lambda
on conflict (lambda, second) do update set ended = known.ended + excluded.ended, failed = known.failed + excluded.failed
returning lambda

-- fragment: gate_in_force
-- The gate of a sweep, locked so that it is not removed meanwhile: whoever removes it then sees what it parked.
gate as materialized (
    select gate_id, name, reason, delay, created_at
    from gate
    where gate_id = %(gate_id)b::int8 and (expires_at is null or expires_at > (select duly_now()))
    for share
)

-- fragment: hit_by_gate
-- The due tasks that the gate of a sweep hits, from a due time on, and TEXT.
picked as (
    select picked.task_id
    from gate
    cross join unnest(%(lambdas)b::text[], %(priorities)b::int2[]) as queue (lambda, priority)
    cross join lateral (
        select assoc.task_id
        from task_assoc as assoc
        where assoc.lambda = queue.lambda and assoc.priority = queue.priority
            and assoc.status in ('new', 'retriable_failure')
            and assoc.next_trigger_at <= (select duly_now())
            and assoc.next_trigger_at >= coalesce(%(since)b::timestamptz, '-infinity')
            and (%(collection)b::text is null or assoc.collection = %(collection)b::text)
            and (%(session)b::text is null or {{session_key: assoc}} = %(session)b::text)
            {{}}
        order by assoc.next_trigger_at
        limit %(limit)b
        for update skip locked
    ) as picked
    limit %(limit)b
)
