-- Units and rates of resources: who gets them, who is parked, who is released.

-- As sessions do, resources move tasks in functions, for the same reason. A weight above the capacity counts as the whole
-- capacity. A resource that is not declared any more limits nothing.

-- Releases parked tasks of these use rows, which the caller has locked: of each lambda and priority the first ones that
-- fit into what is free, up to {{batch.unparked}}. They compete at the pick, so a lambda without workers keeps nothing from the others.
-- It never waits for a parked task. A statement that looked at the task before it was parked may have locked it, and may wait
-- for these use rows. The use row of a task that was passed over keeps that.
-- move: waiting -> new
create function duly_unpark(names text[], keys text[]) returns table (lambda text, number integer) language plpgsql strict rows 10 as $$
#variable_conflict use_column
declare
    place record;
    line record;
    fitting integer;
begin
    for place in
        select use.resource, use.key, coalesce(resource.capacity, {{units.unlimited}}) as capacity,
            coalesce(resource.capacity, {{units.unlimited}}) - use.used as free
        from unnest(names, keys) as asked (name, key)
        cross join lateral (
            select * from resource_use where resource = asked.name and key = asked.key limit 1
        ) as use
        left join resource on resource.name = any (array[use.resource])
        where use.used < coalesce(resource.capacity, {{units.unlimited}})
    loop
        select ''::text as lambda, 0::int2 as priority into line;
        loop
            select assoc.lambda, assoc.priority into line
            from task_assoc as assoc
            where assoc.parked_on = place.resource and assoc.parked_key = place.key and assoc.status = 'waiting'
                and (assoc.lambda, assoc.priority) > (line.lambda, line.priority)
            order by assoc.parked_on, assoc.parked_key, assoc.lambda, assoc.priority
            limit 1;
            exit when not found;
            with first as (
                select assoc.task_id, assoc.due_at, assoc.resources
                from task_assoc as assoc
                where assoc.parked_on = place.resource and assoc.parked_key = place.key and assoc.status = 'waiting'
                    and assoc.lambda = line.lambda and assoc.priority = line.priority
                order by assoc.parked_on, assoc.parked_key, assoc.lambda, assoc.priority, assoc.due_at
                limit least(place.free, {{batch.unparked}})
            ), counted as (
                select first.task_id,
                    sum(least(need.weight, place.capacity)) over (order by first.due_at, first.task_id) as total
                from first cross join lateral jsonb_to_recordset(first.resources) as need (name text, key text, weight int4)
                where need.name = place.resource and need.key = place.key
            ), fitting as materialized (
                select counted.task_id from counted where counted.total <= place.free
            ), locked as materialized (
                select assoc.task_id
                from fitting join task_assoc as assoc on assoc.task_id = any (array[fitting.task_id])
                where assoc.status::text = 'waiting' and assoc.parked_on is not null
                for update of assoc skip locked
            ), released as (
                update task_assoc as assoc
                set status = 'new', parked_on = null, parked_key = null,
                    next_trigger_at = greatest(assoc.due_at, (select duly_now())),
                    events = duly_note(
                        assoc.events, 'unparked', (select duly_now()), greatest(assoc.due_at, (select duly_now())),
                        concat_ws('/', assoc.parked_on, nullif(assoc.parked_key, ''))
                    )
                from locked
                where assoc.task_id = any (array[locked.task_id])
                    and assoc.status::text = 'waiting' and assoc.parked_on is not null
                returning assoc.task_id
            )
            select (select count(*) from fitting), (select count(*) from released) into fitting, number;
            if number > 0 then
                lambda := line.lambda;
                return next;
            end if;
            if number < fitting then
                update resource_use as use
                set skipped_at = duly_now()
                where use.resource = place.resource and use.key = place.key and use.skipped_at is null;
            end if;
        end loop;
    end loop;
end $$;

-- The arithmetic of rates is GCRA, the generic cell rate algorithm; limits/rates.py has the same for quotas of scheduling, and both
-- have the same cases in tests. All are seconds, counted from now: `ahead` until all start times that were given are over, `pace`
-- for each unit (null: no rate). So many units as `burst` may start at once; a heavier task counts as the burst.

-- How long until `weight` units may start; not above 0: now.
create function duly_rate_wait(ahead float8, pace float8, burst integer, weight integer) returns float8
    language sql immutable parallel safe as 'select ahead - pace * (burst - least(weight, burst))';

-- The new `ahead` once `weight` units have a start time, `start_in` from now.
create function duly_rate_ahead(ahead float8, start_in float8, pace float8, burst integer, weight integer) returns float8
    language sql immutable parallel safe as 'select greatest(ahead, start_in) + pace * least(weight, burst)';

-- Takes all units that these tasks need, whether there are so many or not: mostly there are, and each row is written once.
-- `all_fit`: there are, no rate has a say, and nobody is parked on them.
create function duly_take(needs jsonb[], out names text[], out keys text[], out all_fit boolean) language plpgsql strict as $$
declare
    used int4[];
begin
    with locked as (
        insert into resource_use as use (resource, key, used)
        select need.name, need.key, least(sum(need.weight), {{batch.units}})::int4
        from unnest(needs) as asked (needs)
        cross join lateral jsonb_to_recordset(asked.needs) as need (name text, key text, weight int4)
        group by need.name, need.key
        order by need.name, need.key
        on conflict (resource, key) do update set used = use.used + excluded.used
        returning use.resource, use.key, use.used
    )
    select array_agg(locked.resource), array_agg(locked.key), array_agg(locked.used) into names, keys, used from locked;

    select bool_and(
        place.used <= coalesce(resource.capacity, {{units.unlimited}}) and resource.rate is null and not exists (
            select from task_assoc as other
            where other.parked_on = place.name and other.parked_key = place.key and other.status = 'waiting'
        )
    ) into all_fit
    from unnest(names, keys, used) as place (name, key, used)
    left join resource on resource.name = any (array[place.name]);
end $$;

-- Puts tasks off to the start times that rates give them. `needs` has those of all `picked`.
create function duly_put_off(
    picked uuid[], needs jsonb[], late uuid[], next_at timestamptz[], start_times timestamptz[], asked_at timestamptz
) returns void language sql strict as $$
    update task_assoc as assoc
    set next_trigger_at = put_off.next_at, start_at = put_off.start_at, resources = asked.needs,
        events = duly_note(assoc.events, 'put_off', asked_at, put_off.next_at)
    from unnest(late, next_at, start_times) as put_off (task_id, next_at, start_at)
    join unnest(picked, needs) as asked (task_id, needs) on asked.task_id = put_off.task_id
    where assoc.task_id = any (array[put_off.task_id]) and assoc.status::text in ('new', 'retriable_failure')
$$;

-- Parks tasks, each on the resource and key that has too little left for it.
-- move: new|retriable_failure -> waiting
create function duly_park(
    picked uuid[], needs jsonb[], parked uuid[], names text[], keys text[], asked_at timestamptz
) returns void language sql strict as $$
    update task_assoc as assoc
    set status = 'waiting', next_trigger_at = coalesce(assoc.expires_at, 'infinity'),
        parked_on = refused.resource, parked_key = refused.key, resources = asked.needs,
        events = duly_note(
            assoc.events, 'parked', asked_at, assoc.expires_at, concat_ws('/', refused.resource, nullif(refused.key, ''))
        )
    from unnest(parked, names, keys) as refused (task_id, resource, key)
    join unnest(picked, needs) as asked (task_id, needs) on asked.task_id = refused.task_id
    where assoc.task_id = any (array[refused.task_id]) and assoc.status::text in ('new', 'retriable_failure')
$$;

-- Gives units to those of the picked tasks, all of which need resources, for which there are enough, by due time, and
-- parks the others; returns the parked ones. The caller has locked them. A task does not overtake a parked one of its
-- lambda and priority that was due before it. What would get units, and is too early by the rate of a resource, is put off
-- to its start time, and returned, too. Those that get units are not written: the caller does that. They took what they need;
-- one that takes less, for it needs more than there is in all, is returned with what it took. The parts: duly_take, the rates
-- (duly_rate_wait, duly_rate_ahead), duly_put_off and duly_park.
create function duly_admit(picked uuid[], needs jsonb[]) returns table (task_id uuid, taken jsonb)
    language plpgsql strict rows 10 as $$
#variable_conflict use_column
declare
    names text[];
    keys text[];
    capacities int4[];
    free int4[];
    all_fit boolean;
    -- by place: seconds for each unit, null without a rate; how many units at once; seconds until all start times that were given
    -- are over, and those of what did start
    paces float8[];
    bursts int4[];
    ahead float8[];
    started float8[];
    task record;
    place int4;
    parked_at int4;
    asked_at timestamptz := duly_now();
    start_in float8;
    start_from float8;
    behind text[] := '{}';
    granted uuid[] := '{}';
    parked uuid[] := '{}';
    parked_names text[] := '{}';
    parked_keys text[] := '{}';
    late uuid[] := '{}';
    late_at timestamptz[] := '{}';
    start_times timestamptz[] := '{}';
begin
    select took.names, took.keys, took.all_fit into names, keys, all_fit from duly_take(needs) as took;
    if all_fit then
        return;
    end if;

    select array_agg(named.name order by named.name, named.key), array_agg(named.key order by named.name, named.key),
        array_agg(coalesce(resource.capacity, {{units.unlimited}}) order by named.name, named.key),
        array_agg(coalesce(resource.capacity, {{units.unlimited}}) - use.used + named.weight order by named.name, named.key),
        array_agg(extract(epoch from resource.period) / resource.rate order by named.name, named.key),
        array_agg(resource.burst order by named.name, named.key),
        array_agg(extract(epoch from use.starts_until - asked_at) order by named.name, named.key),
        array_agg(extract(epoch from use.started_until - asked_at) order by named.name, named.key)
    into names, keys, capacities, free, paces, bursts, ahead, started
    from (
        select need.name, need.key, least(sum(need.weight), {{batch.units}})::int4 as weight
        from unnest(needs) as asked (needs)
        cross join lateral jsonb_to_recordset(asked.needs) as need (name text, key text, weight int4)
        group by need.name, need.key
    ) as named
    cross join lateral (
        select used, starts_until, started_until from resource_use where resource = named.name and key = named.key limit 1
    ) as use
    left join resource on resource.name = any (array[named.name]);

    for task in
        select need.task_id, need.lambda, need.priority, need.expires_at, need.start_at,
            array_agg(need.place order by need.place) as places,
            array_agg(need.weight order by need.place) as weights, array_agg(need.is_behind order by need.place) as is_behind
        from (
            select assoc.task_id, assoc.lambda, assoc.priority, assoc.due_at, assoc.expires_at, assoc.start_at, need.weight,
                dense_rank() over (order by need.name, need.key)::int4 as place,
                exists (
                    select from task_assoc as other
                    where other.parked_on = need.name and other.parked_key = need.key and other.status = 'waiting'
                        and other.lambda = assoc.lambda and other.priority = assoc.priority and other.due_at < assoc.due_at
                ) as is_behind
            from unnest(picked, needs) as asked (task_id, needs)
            join task_assoc as assoc on assoc.task_id = any (array[asked.task_id])
            cross join lateral jsonb_to_recordset(asked.needs) as need (name text, key text, weight int4)
        ) as need
        group by need.task_id, need.lambda, need.priority, need.due_at, need.expires_at, need.start_at
        order by need.due_at, need.task_id
    loop
        parked_at := null;
        for number in 1 .. cardinality(task.places) loop
            if task.is_behind[number]
                or least(task.weights[number], capacities[task.places[number]]) > free[task.places[number]]
                or capacities[task.places[number]] = 0
                or concat(task.places[number], '/', task.priority, '/', task.lambda) = any (behind)
            then
                parked_at := task.places[number];
                exit;
            end if;
        end loop;
        -- it starts when all its resources let it. No start time is given twice, and one that was missed is kept: the task
        -- starts unless more would start than the burst allows. A start counts from its start time, but at most a second ago:
        -- workers that come a little late lose nothing, and those that were away do not catch up
        start_in := extract(epoch from task.start_at - asked_at);
        start_from := greatest(least(start_in, 0), -1);
        if parked_at is null and start_in <= 0 then
            for number in 1 .. cardinality(task.places) loop
                -- a millisecond: the times are rounded
                place := task.places[number];
                if duly_rate_wait(started[place], paces[place], bursts[place], task.weights[number]) > 0.001 then
                    start_in := null;
                    exit;
                end if;
            end loop;
        end if;
        if parked_at is null and start_in is null then
            start_in := 0;
            start_from := 0;
            for number in 1 .. cardinality(task.places) loop
                place := task.places[number];
                start_in := greatest(
                    start_in, duly_rate_wait(ahead[place], paces[place], bursts[place], task.weights[number])
                );
            end loop;
            if start_in <= 0 or coalesce(task.expires_at > asked_at + start_in * interval '1 s', true) then
                for number in 1 .. cardinality(task.places) loop
                    place := task.places[number];
                    ahead[place] := duly_rate_ahead(ahead[place], start_in, paces[place], bursts[place], task.weights[number]);
                end loop;
            end if;
        end if;
        if parked_at is null and start_in <= 0 then
            for number in 1 .. cardinality(task.places) loop
                place := task.places[number];
                started[place] := duly_rate_ahead(started[place], start_from, paces[place], bursts[place], task.weights[number]);
                ahead[place] := greatest(ahead[place], started[place]);
            end loop;
        end if;
        if parked_at is null and start_in > 0 then
            late := late || task.task_id;
            late_at := late_at || least(task.expires_at, asked_at + start_in * interval '1 s');
            start_times := start_times || asked_at + start_in * interval '1 s';
        elsif parked_at is null then
            for number in 1 .. cardinality(task.places) loop
                free[task.places[number]] := free[task.places[number]]
                    - least(task.weights[number], capacities[task.places[number]]);
            end loop;
            granted := granted || task.task_id;
        else
            parked := parked || task.task_id;
            parked_names := parked_names || names[parked_at];
            parked_keys := parked_keys || keys[parked_at];
            behind := behind || concat(parked_at, '/', task.priority, '/', task.lambda);
        end if;
    end loop;

    update resource_use as use
    set used = place.capacity - place.free
    from unnest(names, keys, capacities, free) as place (name, key, capacity, free)
    where use.resource = any (array[place.name]) and use.key = place.key
        and use.used <> place.capacity - place.free;
    if exists (select from unnest(paces) as pace where pace is not null) then
        update resource_use as use
        set starts_until = asked_at + place.ahead * interval '1 s',
            started_until = asked_at + place.started * interval '1 s'
        from unnest(names, keys, paces, ahead, started) as place (name, key, pace, ahead, started)
        where use.resource = any (array[place.name]) and use.key = place.key and place.pace is not null
            and (use.starts_until, use.started_until) is distinct from
                (asked_at + place.ahead * interval '1 s', asked_at + place.started * interval '1 s');
    end if;
    if late <> '{}' then
        perform duly_put_off(picked, needs, late, late_at, start_times, asked_at);
        return query select put_off.task_id, null::jsonb from unnest(late) as put_off (task_id);
    end if;
    if parked <> '{}' then
        perform duly_park(picked, needs, parked, parked_names, parked_keys, asked_at);
        return query select refused.task_id, null::jsonb from unnest(parked) as refused (task_id);
    end if;
    return query
    select asked.task_id, jsonb_agg(jsonb_build_object(
        'name', need.name, 'key', need.key, 'weight', least(need.weight, coalesce(resource.capacity, {{units.unlimited}}))
    ))
    from unnest(picked, needs) as asked (task_id, needs)
    cross join lateral jsonb_to_recordset(asked.needs) as need (name text, key text, weight int4)
    left join resource on resource.name = any (array[need.name])
    where asked.task_id = any (granted)
    group by asked.task_id
    having bool_or(need.weight > coalesce(resource.capacity, {{units.unlimited}}));
    if parked <> '{}' or late <> '{}' then
        -- what they may have been released for, and leave; it may be of other lambdas than who picks looks for
        perform duly_tell(array_agg(distinct unparked.lambda)) from duly_unpark(names, keys) as unparked;
    end if;
end $$;

-- Frees what these tasks took, which stopped or will not run (null: nothing), and releases tasks that are parked on what they
-- need. Returns the lambdas of what was released. Rows of keys that nobody uses any more are left to retention.
create function duly_free(needs jsonb[], taken jsonb[]) returns table (lambda text, due_in interval)
    language plpgsql strict rows 10 as $$
#variable_conflict use_column
declare
    names text[];
    keys text[];
begin
    with freed as (
        update resource_use as use
        set used = use.used - stopped.weight
        from (
            select need.name, need.key, coalesce(sum(need.weight) filter (where stopped.taken is not null), 0)::int4 as weight
            from unnest(needs, taken) as stopped (needs, taken)
            cross join lateral jsonb_to_recordset(coalesce(stopped.taken, stopped.needs))
                as need (name text, key text, weight int4)
            group by need.name, need.key
            order by need.name, need.key
        ) as stopped
        where use.resource = any (array[stopped.name]) and use.key = stopped.key
        returning use.resource, use.key
    )
    select array_agg(freed.resource), array_agg(freed.key) into names, keys from freed;

    select array_agg(place.name), array_agg(place.key) into names, keys
    from unnest(names, keys) as place (name, key)
    where exists (
        select from task_assoc as assoc
        where assoc.parked_on = place.name and assoc.parked_key = place.key and assoc.status = 'waiting'
    );
    if names is not null then
        return query
        select unparked.lambda, interval '0' from duly_unpark(names, keys) as unparked group by unparked.lambda;
    end if;
end $$;

-- Declares a resource, or changes it: only the columns in `named`. What is not named stays, or is the default of a new resource.
-- Nobody takes or frees meanwhile: whoever parks by what it was has done so before, and the caller releases that afterwards, in
-- statements of their own (duly_release_parked). `rate_is_new`: what was put off is to be due, too (duly_forget_starts,
-- duly_end_delays). A null capacity is none: only the rate limits it.
-- is_done is false if it is in use, and cannot be given another per_key; if it is not as the caller read it (is_expected): it was
-- not changed last at `expected_at`, nor is it what is asked already; or if it would contradict itself, in the column `wrong`.
-- put_at is when it was changed last: a call that changes nothing keeps it. `changed` has the columns that this call changed.
create function duly_put_resource(
    asked text, named text[], asked_capacity int4, asked_per_key boolean, asked_note text, asked_rate int4,
    asked_period interval, asked_burst int4, expected_at timestamptz, out is_done boolean, out is_expected boolean,
    out wrong text, out put_at timestamptz, out rate_is_new boolean, out is_created boolean, out changed text[],
    out new_capacity int4, out new_per_key boolean, out new_note text, out new_rate int4, out new_period interval,
    out new_burst int4
) language plpgsql as $$
#variable_conflict use_column
declare
    kept resource;
begin
    lock table resource_use in exclusive mode;
    select * into kept from resource as declared where declared.name = asked for update;
    is_created := not found;
    put_at := kept.changed_at;
    -- that of a resource which only its rate limits is stored as the largest one
    new_capacity := case
        when 'capacity' = any (named) then asked_capacity
        when kept.rate is null or kept.capacity < {{units.unlimited}} then kept.capacity
    end;
    new_per_key := case when 'per_key' = any (named) then asked_per_key else coalesce(kept.per_key, false) end;
    new_note := case when 'note' = any (named) then asked_note else coalesce(kept.note, '') end;
    new_rate := case when 'rate.units' = any (named) then asked_rate else kept.rate end;
    new_period := case when 'rate.period' = any (named) then asked_period else kept.period end;
    new_burst := case when 'rate.burst' = any (named) then asked_burst else kept.burst end;
    wrong := case
        when new_rate is null and (new_period is not null or new_burst is not null) then 'rate.units'
        when new_rate is not null and new_period is null then 'rate.period'
        when new_rate is null and new_capacity is null then 'capacity'
    end;
    new_burst := case when new_rate is not null then coalesce(new_burst, 1) end;
    new_capacity := coalesce(new_capacity, {{units.unlimited}});
    changed := array_remove(array[
        case when kept.capacity is distinct from new_capacity then 'capacity' end,
        case when coalesce(kept.per_key, false) <> new_per_key then 'per_key' end,
        case when coalesce(kept.note, '') <> new_note then 'note' end,
        case when kept.rate is distinct from new_rate then 'rate.units' end,
        case when kept.period is distinct from new_period then 'rate.period' end,
        case when kept.burst is distinct from new_burst then 'rate.burst' end
    ], null);
    is_expected := expected_at is null or not is_created and (kept.changed_at = expected_at or changed = '{}');
    is_done := is_expected and wrong is null and not (
        kept.per_key is distinct from new_per_key and (
            exists (select from resource_use as use where use.resource = asked and use.used > 0)
            or exists (select from task_assoc as assoc where assoc.status = 'waiting' and assoc.parked_on = asked)
        ) and not is_created
    );
    if is_done then
        insert into resource as declared (name, capacity, per_key, note, changed_at, rate, period, burst, rate_is_new)
        values (
            asked, new_capacity, new_per_key, new_note, duly_now(), new_rate, new_period, new_burst, new_rate is not null
        )
        on conflict (name) do update
        set capacity = excluded.capacity, per_key = excluded.per_key, note = excluded.note,
            changed_at = case when changed = '{}' then declared.changed_at else excluded.changed_at end,
            rate = excluded.rate, period = excluded.period, burst = excluded.burst,
            rate_is_new = declared.rate_is_new or changed && array['rate.units', 'rate.period', 'rate.burst'],
            -- an operator's from now on; duly_set_resource says whose
            declared_by = null, declared_version = null, set_by = ''
        returning declared.changed_at, declared.rate_is_new into put_at, rate_is_new;
    end if;
end $$;

-- The same, with who does it. With an owner it is a declaration of an application: what an operator, or another owner's application
-- set stays (is_kept).
create function duly_set_resource(
    asked text, named text[], asked_capacity int4, asked_per_key boolean, asked_note text, asked_rate int4,
    asked_period interval, asked_burst int4, expected_at timestamptz, asked_by text, asked_owner text, asked_version text,
    out is_done boolean, out is_expected boolean, out wrong text, out put_at timestamptz, out rate_is_new boolean,
    out is_created boolean, out changed text[], out new_capacity int4, out new_per_key boolean, out new_note text,
    out new_rate int4, out new_period interval, out new_burst int4, out is_kept boolean
) language plpgsql as $$
#variable_conflict use_column
begin
    lock table resource_use in exclusive mode;
    is_kept := asked_owner is not null and exists (
        select from resource as known
        where known.name = asked and (known.declared_by is null or known.declared_by not in ('', asked_owner))
    );
    if is_kept then
        is_done := false;
        return;
    end if;
    select put.is_done, put.is_expected, put.wrong, put.put_at, put.rate_is_new, put.is_created, put.changed, put.new_capacity,
        put.new_per_key, put.new_note, put.new_rate, put.new_period, put.new_burst
    into is_done, is_expected, wrong, put_at, rate_is_new, is_created, changed, new_capacity, new_per_key, new_note, new_rate,
        new_period, new_burst
    from duly_put_resource(
        asked, named, asked_capacity, asked_per_key, asked_note, asked_rate, asked_period, asked_burst, expected_at
    ) as put;
    if is_done then
        update resource as known
        set declared_by = asked_owner, declared_version = asked_version, set_by = asked_by
        where known.name = asked;
    end if;
end $$;

-- Releases tasks that are parked on a resource, from a key on; its capacity may have grown. Returns their lambdas, the key to
-- go on from (null: that was all), and whether more of the same keys may be released.
create function duly_release_parked(asked text, from_key text, out lambdas text[], out next_key text, out has_more boolean)
    language plpgsql as $$
declare
    keys text[];
begin
    select array_agg(parked.key order by parked.key) into keys
    from (
        select distinct assoc.parked_key as key
        from task_assoc as assoc
        where assoc.parked_on = asked and assoc.status = 'waiting' and assoc.parked_key >= from_key
        order by assoc.parked_key
        limit {{batch.parked_keys}}
    ) as parked;
    keys := coalesce(keys, '{}');
    next_key := keys[{{batch.parked_keys}}];
    insert into resource_use as use (resource, key)
    select asked, parked.key from unnest(keys) as parked (key) order by parked.key
    on conflict (resource, key) do update set used = use.used;
    select coalesce(array_agg(distinct unparked.lambda), '{}'), coalesce(bool_or(unparked.number >= {{batch.unparked}}), false)
    into lambdas, has_more
    from duly_unpark(array_fill(asked, array[cardinality(keys)]), keys) as unparked;
end $$;

-- Releases parked tasks that were passed over while somebody else had locked them, of some use rows. A use row that somebody
-- else works on is left to the next call.
create function duly_release_skipped(most integer) returns setof text language plpgsql as $$
declare
    names text[];
    keys text[];
begin
    select array_agg(page.resource), array_agg(page.key) into names, keys
    from (
        select use.resource, use.key
        from resource_use as use
        where use.skipped_at is not null
        order by use.skipped_at
        limit most
        for update skip locked
    ) as page;
    update resource_use as use
    set skipped_at = null
    from unnest(names, keys) as page (resource, key)
    where use.resource = any (array[page.resource]) and use.key = page.key;
    return query select distinct unparked.lambda from duly_unpark(names, keys) as unparked;
end $$;

-- Forgets which start times a resource gave, from a key on. Returns the key to go on from; null: that was all.
create function duly_forget_starts(asked text, from_key text) returns text language plpgsql as $$
declare
    keys text[];
begin
    select array_agg(page.key order by page.key) into keys
    from (
        select use.key from resource_use as use where use.resource = asked and use.key >= from_key
        order by use.key limit {{batch.use_rows}} for update
    ) as page;
    update resource_use as use
    set starts_until = null, started_until = null
    from unnest(keys) as page (key)
    where use.resource = asked and use.key = page.key and use.starts_until is not null;
    return keys[{{batch.use_rows}}];
end $$;

-- Makes due what is put off to a start time of these resources, of some tasks from an id on. Returns their lambdas, and the id to
-- go on from; null: that was all.
create function duly_end_delays(asked text[], after_id uuid, out lambdas text[], out next_id uuid) language plpgsql as $$
declare
    ids uuid[];
    needs jsonb[] := array(select jsonb_build_array(jsonb_build_object('name', each.name)) from unnest(asked) as each (name));
begin
    select array_agg(page.task_id order by page.task_id) into ids
    from (
        select assoc.task_id from task_assoc as assoc where assoc.task_id > after_id order by assoc.task_id limit {{batch.put_off}}
    ) as page;
    next_id := ids[{{batch.put_off}}];
    with put_off as (
        select assoc.task_id
        from task_assoc as assoc
        where assoc.task_id between ids[1] and ids[cardinality(ids)] and assoc.start_at > duly_now()
            and assoc.status::text in ('new', 'retriable_failure')
            and assoc.resources @> any (needs)
        order by assoc.task_id
        for update
    ), due as (
        update task_assoc as assoc
        set next_trigger_at = greatest(assoc.due_at, (select duly_now())), start_at = null,
            events = duly_note(assoc.events, 'rate_lifted', (select duly_now()), greatest(assoc.due_at, (select duly_now())))
        from put_off
        where assoc.task_id = any (array[put_off.task_id])
        returning assoc.lambda
    )
    select coalesce(array_agg(distinct due.lambda), '{}') into lambdas from due;
end $$;

-- Removes a resource that nobody holds or waits for. What was put off by its rate is for the caller to make due
-- (duly_end_delays). Null: there is none; false: it is in use.
create function duly_delete_resource(asked text) returns boolean language plpgsql as $$
begin
    lock table resource_use in exclusive mode;
    if not exists (select from resource where name = asked) then
        return null;
    end if;
    if exists (select from resource_use as use where use.resource = asked and use.used > 0)
        or exists (select from task_assoc as assoc where assoc.status = 'waiting' and assoc.parked_on = asked)
    then
        return false;
    end if;
    -- there may be many keys: these are removed as others that nobody uses
    delete from resource_use where resource = asked and key = '';
    delete from resource where name = asked;
    return true;
end $$;
