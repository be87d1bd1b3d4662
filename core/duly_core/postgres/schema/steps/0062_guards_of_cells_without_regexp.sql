-- Guards of cells find the namespace without a regular expression, and its owner without a record.
-- step: expand
create or replace function {{schema}}.duly_cell_guard() returns trigger language plpgsql as $function$
declare
    least text;
    most text;
    first_namespace text;
    is_own boolean;
    namespaces text[];
    stranger record;
begin
    if tg_argv[0] = 'lambda' then
        select min(lambda collate "C"), max(lambda collate "C") into least, most from written;
    elsif tg_argv[0] = 'name' then
        select min(name collate "C"), max(name collate "C") into least, most from written;
    elsif tg_argv[0] = 'key' then
        select min(key collate "C"), max(key collate "C") into least, most from written;
    else
        select min(namespace) || '/', max(namespace) || '/' into least, most from written;
    end if;
    if least is null then
        return null;
    end if;
    if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
        perform from {{schema}}.cell_directory for key share;
        if not found then
            raise exception using errcode = 'serialization_failure', message = 'this store became a cell after the transaction began';
        end if;
    end if;
    first_namespace := split_part(least, '/', 1);
    if first_namespace = least or strpos(first_namespace, '@') > 0 then
        first_namespace := '';
    end if;
    if (least = most and tg_argv[0] <> 'key') or (first_namespace <> '' and starts_with(most, first_namespace || '/')) then
        select directory.own_cell = coalesce((
            select listed.cell from {{schema}}.cell_namespace as listed where listed.namespace = first_namespace
        ), directory.default_cell) into is_own
        from {{schema}}.cell_directory as directory;
        if is_own then
            return null;
        end if;
    end if;
    if tg_argv[0] = 'lambda' then
        select array_agg(distinct coalesce(substring(lambda from '^([^/@]*)/'), '')) into namespaces from written;
    elsif tg_argv[0] = 'name' then
        select array_agg(distinct coalesce(substring(name from '^([^/@]*)/'), '')) into namespaces from written;
    elsif tg_argv[0] = 'key' then
        select array_agg(distinct split_part(key, '/', 1)) into namespaces from written;
    else
        select array_agg(distinct namespace) into namespaces from written;
    end if;
    select each.namespace, coalesce(listed.cell, directory.default_cell) as owner, directory.own_cell, directory.version into stranger
    from unnest(namespaces) as each (namespace)
    cross join {{schema}}.cell_directory as directory
    left join {{schema}}.cell_namespace as listed on listed.namespace = each.namespace
    where coalesce(listed.cell, directory.default_cell) <> directory.own_cell
    limit 1;
    if found then
        raise exception using errcode = 'DU002', table = tg_table_name, message = format(
            'namespace %s lives in cell %s, and not in cell %s (version %s of the directory)',
            coalesce(nullif(stranger.namespace, ''), 'default'), stranger.owner, stranger.own_cell, stranger.version);
    end if;
    return null;
end $function$;
