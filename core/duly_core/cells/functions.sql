-- The guards and the fence of a cell. A sole store has these functions, and no trigger that calls them.

-- Refuses every write to a table of a cell that is fenced.
create function {{schema}}.duly_cell_refuse() returns trigger language plpgsql as $function$
begin
    raise exception using errcode = 'DU001', message = format('cell %s is fenced: it moves to another place',
        coalesce((select own_cell from {{schema}}.cell_directory), '?'));
end $function$;

-- Refuses rows of a namespace that another cell owns. Its argument is the column that says so: `lambda` or `name` of a lambda, `key`
-- of an event, `namespace`. It runs after each statement that inserts, and sees what was committed until then. Mostly all rows are of one
-- namespace, and the first and the last tell: what lies between two texts with a common begin begins so, too. A statement with one lambda
-- tells its namespace even if it has none: `''`.
-- A transaction with one snapshot would read the directory as it was when it began: it locks the row, which is a serialization failure
-- if there is a newer version. A version that gives a namespace away waits for all who have written, so no other lock is needed.
create function {{schema}}.duly_cell_guard() returns trigger language plpgsql as $function$
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

-- Has all writes to these tables, and to their partitions, refused from the end of this transaction. Waits for writers, so that nothing is
-- written after it; the caller bounds the waits (lock_timeout).
create function {{schema}}.duly_cell_fence(tables text[]) returns void language plpgsql as $function$
declare
    each record;
begin
    update {{schema}}.cell_directory set state = 'fenced';
    if not found then
        raise exception using errcode = 'invalid_parameter_value', message = 'this store is no cell: it has no directory';
    end if;
    for each in
        select known.oid::regclass as name, exists (
            select from pg_trigger as there where there.tgrelid = known.oid and there.tgname = 'duly_cell_fenced'
        ) as is_fenced
        from pg_class as known
        where known.relnamespace = (select home.relnamespace from pg_class as home where home.oid = '{{schema}}.task'::regclass)
            and known.relkind in ('r', 'p')
            and (
                known.relname = any(tables)
                or known.oid in (
                    select inhrelid from pg_inherits
                    where inhparent in ('{{schema}}.task'::regclass, '{{schema}}.attempt'::regclass)
                )
            )
        order by known.relname
    loop
        continue when each.is_fenced;
        execute format(
            'create trigger duly_cell_fenced before insert or update or delete or truncate on %s
                for each statement execute function {{schema}}.duly_cell_refuse()',
            each.name
        );
    end loop;
end $function$;

-- Lets the store be written to again.
create function {{schema}}.duly_cell_unfence() returns void language plpgsql as $function$
declare
    each record;
begin
    for each in
        select known.tgrelid::regclass as name
        from pg_trigger as known join pg_class as fenced on fenced.oid = known.tgrelid
        where known.tgname = 'duly_cell_fenced'
            and fenced.relnamespace = (select home.relnamespace from pg_class as home where home.oid = '{{schema}}.task'::regclass)
        order by fenced.relname
    loop
        execute format('drop trigger duly_cell_fenced on %s', each.name);
    end loop;
    update {{schema}}.cell_directory set state = 'active';
end $function$;
