-- Written by `make sql` from core/duly_core/task_output/output.sql. Edit that.

-- name: live_claims
select asked.place, assoc.lambda, assoc.fence, assoc.token is not null as is_held, assoc.token is not distinct from asked.token as is_current
from unnest(%(task_ids)b::uuid[], %(tokens)b::uuid[]) with ordinality as asked (task_id, token, place)
join task_assoc as assoc on assoc.task_id = any (array[asked.task_id])
where asked.token in (assoc.token, assoc.last_token);

-- name: ended_claims
select asked.place, task.lambda, task.fence
from unnest(%(task_ids)b::uuid[], %(tokens)b::uuid[]) with ordinality as asked (task_id, token, place)
cross join lateral (
    select task.lambda, task.fence
    from task
    where task.task_id = any (array[asked.task_id]) and task.last_token = asked.token and task.finished_at > (select duly_now()) - %(late_for)b::interval
    limit 1
) as task;

-- name: append
insert into task_output (task_id, fence, number, position, size_bytes, is_encrypted, content, written_at)
select asked.task_id, asked.fence, asked.number, asked.position, asked.size_bytes, asked.is_encrypted, asked.content, (select duly_now())
from unnest(
    %(task_ids)b::uuid[], %(fences)b::int4[], %(numbers)b::int4[], %(positions)b::int8[], %(sizes)b::int4[], %(encrypted)b::bool[],
    %(contents)b::bytea[]
) as asked (task_id, fence, number, position, size_bytes, is_encrypted, content)
left join lateral (
    select written.number, written.position + written.size_bytes as ends_at
    from task_output as written
    where written.task_id = asked.task_id and written.fence = asked.fence
    order by written.number desc
    limit 1
) as last on true
where last.number is null or (asked.number > last.number and asked.position >= last.ends_at)
order by asked.task_id, asked.fence, asked.number
on conflict do nothing;

-- name: trim
with asked as (
    select task_id, fence
    from unnest(%(task_ids)b::uuid[], %(fences)b::int4[]) as asked (task_id, fence)
), old as (
    select written.task_id, written.fence, written.number
    from asked
    cross join lateral (
        select last.number, last.position + last.size_bytes as ends_at
        from task_output as last
        where last.task_id = asked.task_id and last.fence = asked.fence
        order by last.number desc
        limit 1
    ) as last
    join task_output as written on written.task_id = asked.task_id and written.fence = asked.fence
    where written.position < last.ends_at - %(most_bytes)b::int8 or written.number <= last.number - %(most_chunks)b::int4
    union all
    select written.task_id, written.fence, written.number
    from asked
    join task_output as written on written.task_id = asked.task_id and written.fence <= asked.fence - %(most_runs)b::int4
)
delete from task_output as written
using (select task_id, fence, number from old order by task_id, fence, number) as old
where written.task_id = old.task_id and written.fence = old.fence and written.number = old.number;

-- name: state
select
    case
        when assoc.task_id is null then task.finished_at is not null
        when %(fence)b::int4 = 0 then false
        else %(fence)b::int4 < assoc.fence or (%(fence)b::int4 = assoc.fence and assoc.token is null)
    end as is_over,
    (select duly_now()) - coalesce(ended.ended_at, task.finished_at) as over_for, task.created_at
from task
left join task_assoc as assoc on assoc.task_id = any (array[%(task_id)b::uuid])
left join lateral (
    select attempt.ended_at
    from attempt
    where attempt.task_id = any (array[%(task_id)b::uuid]) and attempt.fence = %(fence)b::int4
    limit 1
) as ended on true
where task.task_id = any (array[%(task_id)b::uuid])
limit 1;

-- name: last_run
select fence, position + size_bytes as ends_at
from task_output
where task_id = %(task_id)b::uuid and %(fence)b::int4 in (0, fence)
order by fence desc, number desc
limit 1;

-- name: place_of_tail
select max(number)
from task_output
where task_id = %(task_id)b::uuid and fence = %(fence)b::int4 and position + size_bytes <= %(from_position)b::int8;

-- name: read
select fence, number, position, size_bytes, is_encrypted, content, written_at
from (
    select fence, number, position, size_bytes, is_encrypted, content, written_at,
        sum(octet_length(content)) over (order by fence, number rows unbounded preceding) - octet_length(content) as bytes_before
    from (
        select *
        from task_output
        where task_id = %(task_id)b::uuid and (fence, number) > (%(after_fence)b::int4, %(after_number)b::int4)
            and %(fence)b::int4 in (0, fence) and written_at >= %(created_at)b::timestamptz
        order by fence, number
        limit %(limit)b::int8
    ) as page
) as counted
where bytes_before < %(most_bytes)b::int8
order by fence, number;

-- name: forget_gone
with recursive page (task_id, place) as (
    (select task_id, 1 from task_output where task_id > %(after)b::uuid order by task_id limit 1)
    union all
    select following.task_id, page.place + 1
    from page
    cross join lateral (select task_id from task_output where task_output.task_id > page.task_id order by task_id limit 1) as following
    where page.place < %(limit)b::int4
), gone as (
    delete from task_output as written
    using page
    where written.task_id = page.task_id and not exists (
        select from task where task.task_id = any (array[page.task_id])
    )
    returning written.task_id
)
select page.task_id, (select count(*) from gone where gone.task_id = page.task_id) as removed
from page
order by page.task_id;
