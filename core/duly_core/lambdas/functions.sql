-- The queues of tasks that require labels of their hosts (decision 0074).

-- Adds queues that the first tasks with such labels need. Each has the policy of the queue without labels, which must be there; of one
-- there are so many at most. With its owner's rights: the HSC adds some for callbacks, and may change nothing else of lambdas.
create function {{schema}}.duly_add_label_queues(names text[])
    returns void language plpgsql security definer set search_path = pg_catalog, {{schema}}, pg_temp as $function$
declare
    asked text;
    added boolean := false;
begin
    perform from turn where name = 'registry' for update;
    foreach asked in array names loop
        insert into {{schema}}.lambda
        select (jsonb_populate_record(
            base,
            jsonb_build_object('name', asked, 'revision', 1, 'registered_at', {{schema}}.duly_now(), 'updated_at', {{schema}}.duly_now())
        )).*
        from {{schema}}.lambda as base
        where base.name = rtrim(split_part(asked, ':', 1), '@') and strpos(asked, ':') > 0
            and (
                select count(*) from {{schema}}.lambda as other
                where starts_with(other.name, split_part(asked, ':', 1) || ':')
            ) < {{lambdas.most_label_queues}}
        on conflict (name) do nothing;
        continue when not found;
        added := true;
        delete from {{schema}}.deleted_lambda where name = asked;  -- it went with its lambda, which is back
    end loop;
    if added then
        perform pg_notify({{schema}}.duly_channel('duly_lambda'), '');
    end if;
end
$function$;
