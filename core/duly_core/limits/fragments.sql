-- What statements share about resources and quotas.

-- fragment: park
-- Of what the CTE `due` picked, gives units to those tasks that need resources, and parks those for which there are too
-- few. All are picked before the first is looked at. `due` has task_id and resources, quotas among them:
-- the statement writes them to what it takes, with what that took (`taken_by`). `parked` has what was parked, with `taken` null.
parked as materialized (
    select parked.task_id, parked.taken
    from (
        select array_agg(task_id) as task_ids, array_agg(resources) as needs
        from (
            -- two picks of a queue find one task twice if it is given back between them
            select distinct on (task_id) task_id, resources from due where resources is not null
        ) as once
    ) as asked
    cross join lateral duly_admit(asked.task_ids, asked.needs) as parked (task_id, taken)
)

-- fragment: taken_by
-- What a row of the CTE that TEXT names, which `parked` lets go, took of resources.
case
    when {{}}.resources is not null
        then coalesce((select parked.taken from parked where parked.task_id = {{}}.task_id), {{}}.resources)
end

-- fragment: quotas
-- What a task needs by each quota of a lambda, a namespace or a domain, by the name of the quota; and, by `needs:` and the name of a
-- lambda, what this declares for each of its tasks. Null: there is neither.
quotas as materialized (
    select jsonb_object_agg(name, needs) as by_name
    from (
        select name, jsonb_build_array(jsonb_build_object('name', name, 'key', '', 'weight', 1)) as needs
        from resource
        where name like 'lambda:%%' or name like 'namespace:%%' or name like 'domain:%%'
        union all
        select 'needs:' || name, needs::jsonb from lambda where needs is not null
    ) as known
)

-- fragment: quota_of
-- What a task of the queue that TEXT names needs by the quotas of its lambda, of its namespace and of its domain, and by what its lambda declares; null: nothing. The
-- queue of a version (NAME@VERSION) or of a domain (NAME@~DOMAIN) has those of its lambda.
case
    when (select by_name from quotas) is not null then nullif(
        coalesce((select by_name from quotas) -> concat('lambda:', split_part({{}}, '@', 1)), '[]')
            || coalesce((select by_name from quotas) -> concat(
                'namespace:', case when strpos({{}}, '/') > 0 then split_part({{}}, '/', 1) else 'default' end
            ), '[]')
            || coalesce((select by_name from quotas) -> concat('domain:', split_part(split_part({{}}, ':', 1), '~', 2)), '[]')
            || coalesce((select by_name from quotas) -> concat('needs:', split_part({{}}, '@', 1)), '[]'),
        '[]'
    )
end

-- fragment: needs
-- What `picked`, of `queue`, needs of resources: those that it names, and its quotas (`queue.quota`). An earlier pick may have
-- written those that were declared then.
case
    when queue.quota is null or picked.resources @> queue.quota then picked.resources
    when picked.resources is null then queue.quota
    else (
        -- both may name one: then the larger weight counts
        select jsonb_agg(jsonb_build_object('name', merged.name, 'key', merged.key, 'weight', merged.weight))
        from (
            select need.name, need.key, max(need.weight) as weight
            from jsonb_to_recordset(picked.resources || queue.quota) as need (name text, key text, weight int4)
            group by need.name, need.key
        ) as merged
    )
end

-- fragment: free
-- Frees what the tasks of the CTE that TEXT names took of resources: they stopped, or will not run. It has resources and
-- taken. The statement selects from `freed`. A statement that ends tasks has `end_task` instead.
freed as (
    select freed.lambda, freed.due_in
    from (
        select array_agg(resources) as resources, array_agg(taken) as taken from {{}} where resources is not null
    ) as stopped
    cross join lateral duly_free(stopped.resources, stopped.taken) as freed
)

-- fragment: lock_resources
-- Locks what the tasks of the CTE that TEXT names use, in the order of resource and key. It has `resources`.
locked_resources as materialized (
    select use.resource
    from (
        select distinct need.name, need.key
        from {{}} as waiting cross join lateral jsonb_to_recordset(waiting.resources) as need (name text, key text)
    ) as named
    join resource_use as use on use.resource = any (array[named.name]) and use.key = named.key
    order by use.resource, use.key
    for update of use
)
