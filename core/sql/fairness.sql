-- Written by `make sql` from core/duly_core/fairness/fairness.sql. Edit that.

-- name: note_fair_lambdas
with recursive walk as (
    (
        select assoc.lambda
        from task_assoc as assoc
        where assoc.status in ('new', 'retriable_failure') and assoc.fair_key is not null
        order by assoc.lambda
        limit 1
    )
    union all
    select next.lambda
    from walk cross join lateral (
        select assoc.lambda
        from task_assoc as assoc
        where assoc.status in ('new', 'retriable_failure') and assoc.fair_key is not null and assoc.lambda > walk.lambda
        order by assoc.lambda
        limit 1
    ) as next
)
insert into fair_lambda (name, since_at)
select walk.lambda, (select duly_now())
from walk
where not exists (select from fair_lambda as known where known.name = any (array[walk.lambda]))
order by walk.lambda
on conflict do nothing
returning name;

-- name: fair_lambdas
select fair.name, exists (select from fair_weight where fair_weight.lambda = split_part(fair.name, '@', 1)) as is_weighted
from fair_lambda as fair;

-- name: put_fair_weights
with known as (
    select name from lambda where name = any (array[%(lambda)b::text]) for share
), put as (
    insert into fair_weight (lambda, fair_key, weight, changed_at)
    select known.name, asked.fair_key, asked.weight, (select duly_now())
    from known cross join unnest(%(keys)b::text[], %(weights)b::int4[]) as asked (fair_key, weight)
    order by asked.fair_key
    on conflict (lambda, fair_key) do update set weight = excluded.weight, changed_at = excluded.changed_at
), removed as (
    delete from fair_weight as gone
    using known
    where gone.lambda = known.name and gone.fair_key = any (%(removed)b::text[])
)
select name from known;

-- name: fair_weights
select fair_key, weight from fair_weight where lambda = %(lambda)b::text order by fair_key limit %(most)b;

-- name: waiting_by_key
with recursive walk as (
    select priority.number::int2 as priority, first.fair_key, 1 as place
    from generate_series(1, 4) as priority (number) cross join lateral (
        select assoc.fair_key
        from task_assoc as assoc
        where assoc.lambda = %(queue)b::text and assoc.priority = priority.number::int2
            and assoc.status in ('new', 'retriable_failure') and assoc.fair_key >= %(from_key)b::text
        order by assoc.fair_key
        limit 1
    ) as first
    union all
    select walk.priority, next.fair_key, walk.place + 1
    from walk cross join lateral (
        select assoc.fair_key
        from task_assoc as assoc
        where assoc.lambda = %(queue)b::text and assoc.priority = walk.priority
            and assoc.status in ('new', 'retriable_failure') and assoc.fair_key > walk.fair_key
        order by assoc.fair_key
        limit 1
    ) as next
    where walk.place < %(most)b
)
select walk.fair_key, sum(counted.tasks)::int8 as waiting, bool_or(counted.tasks >= %(most_tasks)b) as has_more,
    min(counted.first_at) as first_at
from walk cross join lateral (
    select count(*) as tasks, min(one.next_trigger_at) as first_at
    from (
        select assoc.next_trigger_at
        from task_assoc as assoc
        where assoc.lambda = %(queue)b::text and assoc.priority = walk.priority
            and assoc.status in ('new', 'retriable_failure')
            and assoc.fair_key >= walk.fair_key and assoc.fair_key <= walk.fair_key
        order by assoc.fair_key, assoc.next_trigger_at
        limit %(most_tasks)b
    ) as one
) as counted
group by walk.fair_key
order by walk.fair_key
limit %(most)b;
