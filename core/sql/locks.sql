-- Written by `make sql` from core/duly_core/tasks/locks.sql. Edit that.

-- name: lock_waiting
with quotas as materialized (
    select jsonb_object_agg(name, needs) as by_name
    from (
        select name, jsonb_build_array(jsonb_build_object('name', name, 'key', '', 'weight', 1)) as needs
        from resource
        where name like 'lambda:%%' or name like 'namespace:%%' or name like 'domain:%%'
        union all
        select 'needs:' || name, needs::jsonb from lambda where needs is not null
    ) as known
), waiting as materialized (
    select assoc.task_id, assoc.session, assoc.graph,
        coalesce(assoc.resources, '[]') || coalesce(case
    when (select by_name from quotas) is not null then nullif(
        coalesce((select by_name from quotas) -> concat('lambda:', split_part(assoc.lambda, '@', 1)), '[]')
            || coalesce((select by_name from quotas) -> concat(
                'namespace:', case when strpos(assoc.lambda, '/') > 0 then split_part(assoc.lambda, '/', 1) else 'default' end
            ), '[]')
            || coalesce((select by_name from quotas) -> concat('domain:', split_part(split_part(assoc.lambda, ':', 1), '~', 2)), '[]')
            || coalesce((select by_name from quotas) -> concat('needs:', split_part(assoc.lambda, '@', 1)), '[]'),
        '[]'
    )
end, '[]') as resources
    from unnest(%(task_ids)b::uuid[]) as asked (task_id)
    join task_assoc as assoc on assoc.task_id = any (array[asked.task_id])
    where assoc.status::text = 'waiting'
), locked as materialized (
    select key from session where key = any (array(select session from waiting)) order by key for update
), locked_graphs as materialized (
    select graph_id
    from graph
    where (select count(*) from locked) >= 0 and graph_id = any (array(select graph from waiting))
    order by graph_id
    for update
), found as materialized (
    select task_id, session, graph, resources
    from waiting
    where (session is null or session in (select key from locked))
        and (graph is null or graph in (select graph_id from locked_graphs)) and (select count(*) from locked_graphs) >= 0
), locked_resources as materialized (
    select use.resource
    from (
        select distinct need.name, need.key
        from found as waiting cross join lateral jsonb_to_recordset(waiting.resources) as need (name text, key text)
    ) as named
    join resource_use as use on use.resource = any (array[named.name]) and use.key = named.key
    order by use.resource, use.key
    for update of use
)
select task_id, graph is not null and session is null from found where (select count(*) from locked_resources) >= 0;

-- name: lock_over
with quotas as materialized (
    select jsonb_object_agg(name, needs) as by_name
    from (
        select name, jsonb_build_array(jsonb_build_object('name', name, 'key', '', 'weight', 1)) as needs
        from resource
        where name like 'lambda:%%' or name like 'namespace:%%' or name like 'domain:%%'
        union all
        select 'needs:' || name, needs::jsonb from lambda where needs is not null
    ) as known
), over as materialized (
    select task_id, session, graph,
        coalesce(resources, '[]') || coalesce(case
    when (select by_name from quotas) is not null then nullif(
        coalesce((select by_name from quotas) -> concat('lambda:', split_part(lambda, '@', 1)), '[]')
            || coalesce((select by_name from quotas) -> concat(
                'namespace:', case when strpos(lambda, '/') > 0 then split_part(lambda, '/', 1) else 'default' end
            ), '[]')
            || coalesce((select by_name from quotas) -> concat('domain:', split_part(split_part(lambda, ':', 1), '~', 2)), '[]')
            || coalesce((select by_name from quotas) -> concat('needs:', split_part(lambda, '@', 1)), '[]'),
        '[]'
    )
end, '[]') as resources
    from task_assoc
    where status = 'waiting' and next_trigger_at < 'infinity' and next_trigger_at <= (select duly_now())
        and coalesce(parked_on, '') not in ('completion:', 'event:', 'session:')
    order by next_trigger_at
    limit %(limit)b
), locked as materialized (
    select key from session where key = any (array(select session from over)) order by key for update skip locked
), locked_graphs as materialized (
    select graph_id
    from graph
    where (select count(*) from locked) >= 0 and graph_id = any (array(select graph from over))
    order by graph_id
    for update skip locked
), found as materialized (
    select *
    from over
    where (session is null or session in (select key from locked))
        and (graph is null or graph in (select graph_id from locked_graphs)) and (select count(*) from locked_graphs) >= 0
), locked_resources as materialized (
    select use.resource
    from (
        select distinct need.name, need.key
        from found as waiting cross join lateral jsonb_to_recordset(waiting.resources) as need (name text, key text)
    ) as named
    join resource_use as use on use.resource = any (array[named.name]) and use.key = named.key
    order by use.resource, use.key
    for update of use
)
select task_id, graph is not null and session is null from found where (select count(*) from locked_resources) >= 0;

-- name: lock_uncompleted
with quotas as materialized (
    select jsonb_object_agg(name, needs) as by_name
    from (
        select name, jsonb_build_array(jsonb_build_object('name', name, 'key', '', 'weight', 1)) as needs
        from resource
        where name like 'lambda:%%' or name like 'namespace:%%' or name like 'domain:%%'
        union all
        select 'needs:' || name, needs::jsonb from lambda where needs is not null
    ) as known
), over as materialized (
    select task_id, session, graph, parked_key as hash,
        coalesce(resources, '[]') || coalesce(case
    when (select by_name from quotas) is not null then nullif(
        coalesce((select by_name from quotas) -> concat('lambda:', split_part(lambda, '@', 1)), '[]')
            || coalesce((select by_name from quotas) -> concat(
                'namespace:', case when strpos(lambda, '/') > 0 then split_part(lambda, '/', 1) else 'default' end
            ), '[]')
            || coalesce((select by_name from quotas) -> concat('domain:', split_part(split_part(lambda, ':', 1), '~', 2)), '[]')
            || coalesce((select by_name from quotas) -> concat('needs:', split_part(lambda, '@', 1)), '[]'),
        '[]'
    )
end, '[]') as resources
    from task_assoc
    where status = 'waiting' and next_trigger_at < 'infinity' and next_trigger_at <= (select duly_now())
        and parked_on = 'completion:'
    order by next_trigger_at
    limit %(limit)b
), locked as materialized (
    select key from session where key = any (array(select session from over)) order by key for update skip locked
), locked_graphs as materialized (
    select graph_id
    from graph
    where (select count(*) from locked) >= 0 and graph_id = any (array(select graph from over))
    order by graph_id
    for update skip locked
), found as materialized (
    select *
    from over
    where (session is null or session in (select key from locked))
        and (graph is null or graph in (select graph_id from locked_graphs)) and (select count(*) from locked_graphs) >= 0
), locked_resources as materialized (
    select use.resource
    from (
        select distinct need.name, need.key
        from found as waiting cross join lateral jsonb_to_recordset(waiting.resources) as need (name text, key text)
    ) as named
    join resource_use as use on use.resource = any (array[named.name]) and use.key = named.key
    order by use.resource, use.key
    for update of use
)
select task_id, hash from found where (select count(*) from locked_resources) >= 0;

-- name: lock_cancelled
with held as materialized (
    select assoc.session, assoc.graph, assoc.cancel_requested
    from unnest(%(task_ids)b::uuid[], %(tokens)b::uuid[]) as asked (task_id, token)
    join task_assoc as assoc on assoc.task_id = any (array[asked.task_id])
    where assoc.token = asked.token and assoc.status::text in ('claimed', 'processing')
    for update of assoc
), locked as materialized (
    select key from session where key = any (array(select session from held where cancel_requested)) order by key for update
)
select graph_id
from graph
where (select count(*) from locked) >= 0 and graph_id = any (array(select graph from held where cancel_requested))
order by graph_id
for update;

-- name: lock_nodes
with quotas as materialized (
    select jsonb_object_agg(name, needs) as by_name
    from (
        select name, jsonb_build_array(jsonb_build_object('name', name, 'key', '', 'weight', 1)) as needs
        from resource
        where name like 'lambda:%%' or name like 'namespace:%%' or name like 'domain:%%'
        union all
        select 'needs:' || name, needs::jsonb from lambda where needs is not null
    ) as known
), waiting as materialized (
    select assoc.task_id,
        coalesce(assoc.resources, '[]') || coalesce(case
    when (select by_name from quotas) is not null then nullif(
        coalesce((select by_name from quotas) -> concat('lambda:', split_part(assoc.lambda, '@', 1)), '[]')
            || coalesce((select by_name from quotas) -> concat(
                'namespace:', case when strpos(assoc.lambda, '/') > 0 then split_part(assoc.lambda, '/', 1) else 'default' end
            ), '[]')
            || coalesce((select by_name from quotas) -> concat('domain:', split_part(split_part(assoc.lambda, ':', 1), '~', 2)), '[]')
            || coalesce((select by_name from quotas) -> concat('needs:', split_part(assoc.lambda, '@', 1)), '[]'),
        '[]'
    )
end, '[]') as resources
    from graph_node as node join task_assoc as assoc on assoc.task_id = any (array[node.task_id])
    where node.graph_id = %(graph_id)b::uuid and assoc.status::text = 'waiting' and assoc.doom is null and assoc.session is null
), locked_resources as materialized (
    select use.resource
    from (
        select distinct need.name, need.key
        from waiting as waiting cross join lateral jsonb_to_recordset(waiting.resources) as need (name text, key text)
    ) as named
    join resource_use as use on use.resource = any (array[named.name]) and use.key = named.key
    order by use.resource, use.key
    for update of use
)
select task_id from waiting where (select count(*) from locked_resources) >= 0 order by task_id;

-- name: lock_graph_of
select graph.graph_id
from graph
where graph.graph_id = (select node.graph_id from graph_node as node where node.task_id = %(task_id)b::uuid limit 1)
for update;

-- name: lock_blocked
select session.key
from unnest(%(keys)b::text[], %(blocked_by)b::uuid[]) as asked (key, blocked_by)
join session on session.key = any (array[asked.key])
where asked.blocked_by in (session.blocked_by, '00000000-0000-0000-0000-000000000000')
order by session.key
for update of session;

-- name: lock_event_waits
with page as materialized (
    select asked.key, waiting.task_id
    from unnest(%(keys)b::text[], %(after)b::uuid[]) as asked (key, after)
    cross join lateral (
        select wait.task_id
        from event_wait as wait
        where wait.key = asked.key and wait.task_id > asked.after
        order by wait.key, wait.task_id
        limit %(limit)b
    ) as waiting
    limit %(limit)b
), locked as materialized (
    select assoc.task_id
    from (select distinct task_id from page) as waiting
    join task_assoc as assoc on assoc.task_id = any (array[waiting.task_id])
    where assoc.status::text = 'waiting' and assoc.parked_on = 'event:'
    order by waiting.task_id
    for update of assoc
)
select page.key, page.task_id, locked.task_id is not null
from page left join locked on locked.task_id = page.task_id;
