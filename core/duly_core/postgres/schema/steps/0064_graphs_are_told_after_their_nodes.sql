-- A graph is told after its nodes, also if the transaction that ends one of them has the higher number.
-- step: expand
create or replace function duly_note_graph(graph_id uuid, status text, at timestamptz) returns boolean language plpgsql as $$
begin
    if exists (select from watch_key where key = any (array['*', 'graphs', 'graph:' || graph_id])) then
        insert into task_event (xid, kind, at, graph, status)
        select greatest(pg_current_xact_id(), (pg_snapshot_xmax(pg_current_snapshot())::text::int8 - 1)::text::xid8),
            3, at, graph_id, status;
    end if;
    return true;
end $$;
