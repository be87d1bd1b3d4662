-- Resources that applications declare; who set each.
-- step: expand
-- locks: resource access exclusive
alter table resource
    add column declared_by text,
    add column declared_version text,
    add column set_by text not null default '';
create or replace function duly_put_resource(
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
