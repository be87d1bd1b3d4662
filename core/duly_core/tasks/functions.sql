-- Functions and triggers of tasks.

-- Full jitter: a random part of min(longest, initial * factor^failures_before).
create function duly_backoff(initial interval, factor double precision, longest interval, before integer)
    returns interval language sql volatile parallel safe
    as 'select least(extract(epoch from longest)::double precision,
                     extract(epoch from initial)::double precision * power(factor, least(before, 60)))
               * random() * interval ''1 second''';

-- The instants after `since`: what is left of a list of crashes once the older ones are forgotten.
create function duly_recent(instants timestamptz[], since timestamptz) returns timestamptz[]
    language sql immutable parallel safe
    as 'select coalesce(array_agg(instant order by instant), ''{}'') from unnest(instants) as instant where instant > since';

-- At most {{events.most}} events: the first {{events.first}}, the newest ones, and between them one that counts those that were left out.
-- In plpgsql, for mostly there is nothing to do: to start a function in SQL costs ten times as much as this comparison.
create function duly_bound_events(events jsonb) returns jsonb language plpgsql immutable parallel safe as $$
begin
    if jsonb_array_length(events) <= {{events.most}} then
        return events;
    end if;
    return (
        select jsonb_agg(
            case
                when place = {{events.first}} + 1 then jsonb_build_object('kind', 'left_out', 'at', event -> 'at', 'about', (
                    select sum(case when gone.event ->> 'kind' = 'left_out' then (gone.event ->> 'about')::int8 else 1 end)
                    from jsonb_array_elements(events) with ordinality as gone (event, place)
                    where gone.place between {{events.first}} + 1 and jsonb_array_length(events) - ({{events.most}} - {{events.first}} - 1)
                )::text)
                else event
            end order by place
        )
        from jsonb_array_elements(events) with ordinality as kept (event, place)
        where place <= {{events.first}} + 1 or place > jsonb_array_length(events) - ({{events.most}} - {{events.first}} - 1)
    );
end $$;

-- Adds an event. `about` is what it has to do with: a resource, a task, what was changed. `by` is the principal that asked.
create function duly_note(
    events jsonb, kind text, at timestamptz, next_at timestamptz default null, about text default null, by text default null
) returns jsonb language sql stable parallel safe as $$
    select duly_bound_events(coalesce(events, '[]') || jsonb_strip_nulls(jsonb_build_object(
        'kind', kind, 'at', (extract(epoch from at) * 1000000)::int8,
        'next', case when isfinite(next_at) then (extract(epoch from next_at) * 1000000)::int8 end,
        'about', left(about, 400), 'by', by
    )))
$$;

-- Tells those who look for work that tasks of these lambdas are due (notifications.py).
create function duly_tell(lambdas text[]) returns void language sql strict as $$
    select pg_notify(duly_channel('duly_due'), '0' || case when cardinality(lambdas) <= 25 then ' ' || array_to_string(lambdas, ',') else '' end)
$$;

-- What the ends of these tasks do to what waits for them; the arrays have an element for each. Statements that end tasks
-- call it if one of these has a session, a graph or resources (fragment end_task). The status of a timeout that is final is
-- 'timed_out' here. Sessions are locked before graphs, and these
-- before resources.
create function duly_release(
    sessions text[], policies int2[], graphs uuid[], task_ids uuid[], statuses text[], dooms int2[], resources jsonb[],
    taken jsonb[]
) returns table (lambda text, due_in interval) language plpgsql strict rows 100 as $$
#variable_conflict use_column
begin
    if array_remove(sessions, null) <> '{}' then
        return query
        select released.lambda, released.due_in
        from (
            select array_agg(session) as keys, array_agg(task_id) as ids, array_agg(doom) as reasons,
                array_agg(case when status in ('fatal_failure', 'timed_out') then policy end) as failures
            from unnest(sessions, policies, task_ids, statuses, dooms) as ended (session, policy, task_id, status, doom)
            where session is not null
        ) as linked cross join lateral duly_advance_sessions(linked.keys, linked.ids, linked.failures, linked.reasons) as released;
    end if;
    if array_remove(graphs, null) <> '{}' then
        return query
        select released.lambda, released.due_in
        from (
            select array_agg(graph) as ids_of_graphs, array_agg(task_id) as ids, array_agg(status) as ends, array_agg(doom) as reasons
            from unnest(graphs, task_ids, statuses, dooms) as ended (graph, task_id, status, doom)
            where graph is not null
        ) as linked cross join lateral duly_advance_graphs(linked.ids_of_graphs, linked.ids, linked.ends, linked.reasons)
            as released;
    end if;
    if array_remove(resources, null) <> '{}' then
        return query
        select released.lambda, released.due_in
        from (
            select array_agg(needs) as needs, array_agg(held) as held
            from unnest(resources, taken) as stopped (needs, held)
            where needs is not null
        ) as linked cross join lateral duly_free(linked.needs, linked.held) as released;
    end if;
end $$;

-- An end that found no entity is not to become one. (Nobody but an operator's own hand removes a live task's entity.)
create function duly_drop_stray() returns trigger language plpgsql as '
begin
    delete from task where task_id = new.task_id;
    delete from dead_letter where task_id = new.task_id;
    return null;
end';

create trigger task_is_no_stray after insert on task
    for each row when (new.lambda = '') execute function duly_drop_stray();

-- At most 100 rows a task: those that were charged and those that were not are bounded apart, so that a task that
-- snoozes for ever keeps its failures. Looked after at each tenth claim of a task.
create function duly_bound_attempts() returns trigger language plpgsql as '
begin
    delete from attempt
    using (
        select fence, failure_kind is null as free,
            row_number() over (partition by failure_kind is null order by fence desc) as place
        from attempt
        where task_id = new.task_id
    ) as ranked
    where attempt.task_id = new.task_id and attempt.fence = ranked.fence
        and ranked.place > case when ranked.free then 30 else 60 end;
    return null;
end';

create trigger attempt_is_bounded after insert on attempt
    for each row when (new.fence % 10 = 0 and new.fence > 30) execute function duly_bound_attempts();

-- A redrive deletes the row itself.
create function duly_keep_dead_letter() returns trigger language plpgsql as '
begin
    insert into dead_letter (task_id, lambda, finished_at) values (new.task_id, new.lambda, new.finished_at)
    on conflict (task_id) do update set finished_at = excluded.finished_at;
    return null;
end';

create trigger task_is_a_dead_letter after insert or update of status on task
    for each row when (new.status = 'fatal_failure') execute function duly_keep_dead_letter();
