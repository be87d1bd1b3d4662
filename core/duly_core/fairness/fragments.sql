-- What statements share that pick from lambdas whose keys take turns. A fragment NAME_fair stands in place of NAME in them.

-- fragment: eligible_fair
-- As `eligible`, also of queues whose keys take turns (queue.takes_turns): those whose turn it is come first (`turns`), then what is
-- left, oldest first. So the room is filled whatever the turns find. Locks only what is taken.
select found.task_id, found.resources, found.turn_key, found.turn_used, found.turn_place
from ({{turns}}) as turn
cross join lateral (
    select *
    from (
        select assoc.task_id, assoc.resources, listed.turn_key, listed.turn_used, listed.turn_place
        from unnest(turn.ids, turn.keys, turn.used) with ordinality as listed (task_id, turn_key, turn_used, turn_place)
        join task_assoc as assoc on assoc.task_id = any (array[listed.task_id])
        where assoc.lambda = queue.lambda and assoc.priority = queue.priority
            and assoc.status::text in ('new', 'retriable_failure')
            and assoc.next_trigger_at <= (select now from clock)
            and (assoc.expires_at is null or assoc.expires_at > (select now from clock))
        order by listed.turn_place
        for update of assoc skip locked
    ) as of_turns
    union all
    select *
    from (
        select assoc.task_id, assoc.resources, turn.end_key, 0, {{turns.last_place}}
        from task_assoc as assoc
        where assoc.lambda = queue.lambda and assoc.priority = queue.priority
            and assoc.status in ('new', 'retriable_failure')
            and assoc.next_trigger_at <= (select now from clock)
            and (assoc.expires_at is null or assoc.expires_at > (select now from clock))
            and assoc.task_id <> all (turn.ids)
        order by assoc.next_trigger_at
        limit queue.size + queue.skip
        for update skip locked
    ) as rest
) as found
limit queue.size offset queue.skip

-- fragment: eligible_gated_fair
-- As `eligible_gated` and `eligible_fair` at once.
select found.task_id, found.resources, found.turn_key, found.turn_used, found.turn_place
from ({{gates_of: queue}}) as gates
cross join lateral ({{turns}}) as turn
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
cross join lateral (
    select assoc.task_id, assoc.resources, listed.turn_key, listed.turn_used, listed.turn_place
    from (
        select * from unnest(turn.ids, turn.keys, turn.used) with ordinality as listed (task_id, turn_key, turn_used, turn_place)
        union all
        select rest.task_id, turn.end_key, 0, {{turns.last_place}} + rest.place
        from unnest(head.ids || array(
            select behind.task_id
            from unnest(%(behind)b::uuid[], %(behind_lambdas)b::text[], %(behind_priorities)b::int2[])
                as behind (task_id, lambda, priority)
            where behind.lambda = queue.lambda and behind.priority = queue.priority and behind.task_id <> all (head.ids)
        )) with ordinality as rest (task_id, place)
        where rest.task_id <> all (turn.ids)
    ) as listed
    join task_assoc as assoc on assoc.task_id = any (array[listed.task_id])
    where assoc.lambda = queue.lambda and assoc.priority = queue.priority
        and assoc.status::text in ('new', 'retriable_failure')
        and assoc.next_trigger_at <= least((select now from clock), gates.probes_until)
        and (assoc.expires_at is null or assoc.expires_at > (select now from clock)) and not {{held: assoc}}
    order by listed.turn_place
    limit queue.size + queue.skip
    for update of assoc skip locked
) as found
limit queue.size offset queue.skip

-- fragment: turns
-- The tasks of a `queue` whose turn it is, in order: one row. From the key on whose turn was last (from_key, of whose turn `from_used`
-- tasks were taken) each key that has something due has a turn: as many tasks, oldest first, as its weight says. Ends where
-- the room is full. If a round of all keys does not fill it the keys have further turns: of few keys as many as
-- it takes, of many up to twice their part of `reach`, which is the room of all picks of the queue. Reads at most {{turns.probes}} keys and twice the room; `end_key` is the last one if
-- that was too few. The key of tasks without one is ''.
select coalesce(array_agg(listed.task_id) filter (where listed.task_id is not null), '{}') as ids,
    array_agg(listed.key) as keys, array_agg(listed.used) as used, (array_agg(listed.end_key))[1] as end_key
from (select (select now from clock) as now offset 0) as moment cross join lateral (
    with recursive walk as (
        -- what is left of the last turn
        select 0 as probes, start.key, false as is_wrapped, start.weight, queue.from_used as used_before,
            0 as passed, start.ids, cardinality(start.ids) as total, cardinality(start.ids) as first_taken
        from (
            select entry.key, entry.weight, array({{of_key}}) as ids
            from (
                select queue.from_key collate "C" as key, weighed.weight, 0 as passed,
                    case when queue.from_used > 0 then greatest(weighed.weight - queue.from_used, 0) else 0 end as most
                from (select {{weight_of: queue.from_key}} as weight offset 0) as weighed
                offset 0
            ) as entry
            offset 0
        ) as start
        where queue.takes_turns
        union all
        select walk.probes + 1, entry.key, entry.is_wrapped, entry.most, 0, entry.passed, taken.ids,
            walk.total + cardinality(taken.ids), walk.first_taken
        from walk
        cross join lateral (
            (
                select later.*, walk.is_wrapped
                from ({{first_of_key: and assoc.fair_key > walk.key}}) as later
                where not walk.is_wrapped or later.key <= queue.from_key
            )
            union all
            (
                select first.*, true
                from ({{first_of_key}}) as first
                where not walk.is_wrapped and first.key <= queue.from_key
            )
            limit 1
        ) as head
        cross join lateral (
            -- the key that began the round ends it, too
            select head.key, head.is_wrapped, {{weight_of: head.key}} as most,
                case when head.key = queue.from_key then walk.first_taken else 0 end as passed
            -- else Postgres would write the weight's subquery into each place that uses it
            offset 0
        ) as entry
        cross join lateral (
            select case
                when head.next_trigger_at > moment.now then '{}'
                when entry.most = 1 and entry.passed = 0 and {{is_head}} then array[head.task_id]
                else array({{of_key}})
            end as ids
            -- else of_key would be written twice, too
            offset 0
        ) as taken
        where walk.total < queue.size + queue.skip and walk.probes < {{turns.probes}} + 2 * (queue.size + queue.skip)
    ), round as (
        select max(total) as total, count(*) as keys, greatest(sum(weight) filter (where probes > 0 and cardinality(ids) > 0), 1) as weights,
            case
                when max(total) < queue.size + queue.skip and max(probes) >= {{turns.probes}} + 2 * (queue.size + queue.skip)
                    then (array_agg(key order by probes desc))[1]
            end as end_key
        from walk
    ), further as (
        -- of each key its part twice: that is enough unless many keys have little
        select walk.probes, walk.key, walk.weight, walk.passed, of_each.most, one.task_id, one.place
        from round
        join walk on round.total < queue.size + queue.skip and walk.probes > 0 and cardinality(walk.ids) = walk.weight
        cross join lateral (
            select least(2 * walk.weight * ceil(queue.reach / round.weights), queue.reach)::int4 as most offset 0
        ) as of_each
        cross join lateral (
            select of_key.task_id, walk.weight + row_number() over () as place
            from (select walk.key, walk.passed + walk.weight as passed, of_each.most) as entry
            cross join lateral ({{of_key}}) as of_key
        ) as one
    )
    select taken.task_id, coalesce(round.end_key, taken.key) as key,
        case when round.end_key is null then taken.used else 0 end as used, round.end_key
    from round left join (
        select 0 as number, walk.probes, one.place, walk.key, walk.used_before + one.place as used, one.task_id
        from walk cross join lateral unnest(walk.ids) with ordinality as one (task_id, place)
        union all
        select (one.place - 1) / one.weight, one.probes, one.place, one.key, 1 + (one.place - 1) %% one.weight, one.task_id
        from (
            select further.probes, further.key, further.weight, further.place, further.task_id
            from further
            union all
            select further.probes, further.key, further.weight, deeper.place, deeper.task_id
            from round
            join further on round.total + (select count(*) from further) < queue.size + queue.skip
                and further.place = further.weight + further.most
            cross join lateral (
                select of_key.task_id, further.place + row_number() over () as place
                from (
                    select further.key, further.passed + further.place as passed,
                        least({{turns.further}} / round.keys, queue.reach)::int4 - further.most as most
                    where least({{turns.further}} / round.keys, queue.reach) > further.most
                ) as entry
                cross join lateral ({{of_key}}) as of_key
            ) as deeper
        ) as one
    ) as taken on true
    order by taken.number, taken.probes, taken.place
    limit queue.size + queue.skip
) as listed

-- fragment: first_of_key
-- The first row of the first key of a `queue` for which TEXT holds.
select assoc.fair_key as key, assoc.task_id, assoc.next_trigger_at, assoc.expires_at, assoc.collection, assoc.session,
    assoc.passed_gates
from task_assoc as assoc
where assoc.lambda = queue.lambda and assoc.priority = queue.priority and assoc.status in ('new', 'retriable_failure')
    and assoc.fair_key is not null {{}}
order by assoc.fair_key, assoc.next_trigger_at
limit 1

-- fragment: of_key
-- The due tasks of the key of `entry` (key, most, passed) in a `queue`, those left out that were passed. The key is compared by two
-- bounds, and the order has it, so that no other index fits.
select assoc.task_id
from task_assoc as assoc
where assoc.lambda = queue.lambda and assoc.priority = queue.priority and assoc.status in ('new', 'retriable_failure')
    and assoc.fair_key >= entry.key and assoc.fair_key <= entry.key
    and assoc.next_trigger_at <= moment.now
    and (assoc.expires_at is null or assoc.expires_at > moment.now)
order by assoc.fair_key, assoc.next_trigger_at
limit entry.most offset entry.passed

-- fragment: of_key_gated
-- As `of_key`, of a queue some of whose tasks gates hold. Reads {{turns.probes}} rows more than it is to find.
select first.task_id
from (
    select assoc.task_id, assoc.next_trigger_at, assoc.collection, assoc.session, assoc.passed_gates
    from task_assoc as assoc
    where assoc.lambda = queue.lambda and assoc.priority = queue.priority and assoc.status in ('new', 'retriable_failure')
        and assoc.fair_key >= entry.key and assoc.fair_key <= entry.key
        and assoc.next_trigger_at <= least(moment.now, gates.probes_until)
        and (assoc.expires_at is null or assoc.expires_at > moment.now)
    order by assoc.fair_key, assoc.next_trigger_at
    limit case when entry.most > 0 then {{turns.probes}} + entry.passed + entry.most else 0 end
) as first
where not {{held: first}}
limit entry.most offset entry.passed

-- fragment: is_head
-- Whether the first row of a key, `head`, which is due, is the one that its turn begins with.
(head.expires_at is null or head.expires_at > moment.now)

-- fragment: is_head_gated
-- As `is_head`, of a queue some of whose tasks gates hold.
(
    (head.expires_at is null or head.expires_at > moment.now) and head.next_trigger_at <= gates.probes_until
    and not {{held: head}}
)

-- fragment: weight_of
-- How many tasks of the key TEXT start in its turn.
case
    when queue.is_weighted then coalesce((
        select fair_weight.weight
        from fair_weight
        where fair_weight.lambda = split_part(queue.lambda, '@', 1) and fair_weight.fair_key = {{}}
    ), 1)
    else 1
end

-- fragment: turn_arrays
-- Further arrays of a statement's queues: none. Statements that know of turns have `turn_arrays_fair` in its place.

-- fragment: turn_arrays_fair
, %(takes_turns)b::bool[], %(from_keys)b::text[], %(from_used)b::int4[], %(is_weighted)b::bool[], %(reaches)b::int4[]

-- fragment: turn_names
-- Their names: none.

-- fragment: turn_names_fair
, takes_turns, from_key, from_used, is_weighted, reach

-- fragment: turn_of_picked
-- What `due` has of the turns of its tasks: nothing.

-- fragment: turn_of_picked_fair
, queue.lambda, queue.priority, picked.turn_key, picked.turn_used, picked.turn_place

-- fragment: turn_of_due
-- What the answer to `enqueue` has of the turn of each task: nothing.

-- fragment: turn_of_due_fair
, due.turn_key, due.turn_used, due.turn_place

-- fragment: turn_columns
-- What the answer to `claim_work` has of turns: nothing.

-- fragment: turn_columns_fair
, turn.turn_lambda, turn.turn_priority, turn.turn_key, turn.turn_used

-- fragment: and_turns
-- To the rows of `claim_work` adds where the turns of each queue ended: nothing.

-- fragment: and_turns_fair
full join (
    select distinct on (due.lambda, due.priority) due.lambda as turn_lambda, due.priority as turn_priority, due.turn_key, due.turn_used
    from due
    where due.turn_key is not null
    order by due.lambda, due.priority, due.turn_place desc
) as turn on false
