-- What the statements that end tasks and runs write while somebody watches. They call these only if there is a watch.

-- Which Postgres this is: its cluster, and the timeline. A restart changes neither; a restored backup or a promoted standby is another one.
create function duly_event_source() returns text language plpgsql as $$
declare
    cluster text := '-';
begin
    begin
        cluster := (select system_identifier::text from pg_control_system());
    exception when undefined_function or insufficient_privilege or feature_not_supported then null;
    end;
    return cluster || '/' || split_part(duly_server(), '/', 1);
end $$;

-- Whether a watch is to be told of a task of this lambda, graph and session.
create function duly_is_watched(lambda text, graph uuid, session text) returns boolean language sql stable as $$
    select exists (
        select from watch_key
        where key = any (array['*', 'lambda:' || lambda, 'lambda:' || split_part(lambda, '@', 1), 'graph:' || graph, 'session:' || session])
    ) or exists (
        select from watch_key
        where starts_with(key, 'prefix:') and starts_with(lambda, substr(key, 8))
            and strpos(substr(lambda, length(key) - 6), '/') = 0
    )
$$;

-- A task ended. Returns true: it stands in a condition that holds.
create function duly_note_end(
    task_id uuid, lambda text, graph uuid, session text, status text, run integer, failure_kind int2, at timestamptz
) returns boolean language plpgsql as $$
begin
    if duly_is_watched(lambda, graph, session) then
        insert into task_event (kind, at, lambda, task_id, graph, session, status, run, failure_kind)
        values ({{watched.task}}, at, lambda, task_id, graph, session, status, run, failure_kind);
    end if;
    return true;
end $$;

-- A run ended. If its task ended with it the end says all: the assoc is gone already.
create function duly_note_run(
    of_task uuid, outcome text, run integer, failure_kind int2, at timestamptz, next_at timestamptz
) returns boolean language plpgsql as $$
begin
    insert into task_event (kind, at, lambda, task_id, graph, session, status, run, failure_kind, next_at)
    select {{watched.run}}, at, assoc.lambda, assoc.task_id, assoc.graph, assoc.session, outcome, run, failure_kind, next_at
    from task_assoc as assoc
    where assoc.task_id = any (array[of_task]) and duly_is_watched(assoc.lambda, assoc.graph, assoc.session);
    return true;
end $$;

-- A graph finished. It is told after its nodes: the number of this transaction may be lower than that of another one, which ended a node, and for whose
-- commit this one waited. So the row gets the highest number that may be of such a one. While this transaction is under way nobody reads up to there.
create function duly_note_graph(graph_id uuid, status text, at timestamptz) returns boolean language plpgsql as $$
begin
    if exists (select from watch_key where key = any (array['*', 'graphs', 'graph:' || graph_id])) then
        insert into task_event (xid, kind, at, graph, status)
        select greatest(pg_current_xact_id(), (pg_snapshot_xmax(pg_current_snapshot())::text::int8 - 1)::text::xid8),
            {{watched.graph}}, at, graph_id, status;
    end if;
    return true;
end $$;
