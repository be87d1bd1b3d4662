-- Graphs, their nodes, edges and definitions.

-- Named and versioned graphs that are run with parameters: GraphDefinition of the wire.
create table graph_definition (
    name text not null check (octet_length(name) between 1 and 255),
    version integer not null check (version >= 1),
    definition bytea not null check (octet_length(definition) <= 8388608),
    -- Of its nodes: they decide who may see it, and a list reads no definitions.
    lambdas text[] not null,
    created_at timestamptz not null,
    primary key (name, version)
);

-- One row for each graph, kept as long as a finished task. Whoever changes a task of a graph that waits locks the row
-- of the graph first, in the order of the ids, and sessions before graphs.
create table graph (
    graph_id uuid primary key,
    name text not null check (octet_length(name) between 1 and 255),
    -- Of the request that made it: a repeat must say the same.
    digest bytea not null,
    -- The definition that it was made of, if any.
    definition text,
    version integer,
    -- As in task.
    scheduled_by text,
    created_at timestamptz not null,
    finished_at timestamptz,
    cancel_requested boolean not null default false,
    -- The first failure that it does not handle ends it.
    fail_fast boolean not null default false,
    -- Nodes, and of these those that have not ended, and those that ended so.
    total integer not null check (total >= 1),
    open integer not null check (open between 0 and total),
    succeeded integer not null default 0 check (succeeded >= 0),
    failed integer not null default 0 check (failed >= 0),
    skipped integer not null default 0 check (skipped >= 0),
    cancelled integer not null default 0 check (cancelled >= 0),
    -- Of the failed ones those whose failure the graph does not handle.
    unhandled integer not null default 0 check (unhandled between 0 and failed),
    constraint graph_counts_add_up check (open + succeeded + failed + skipped + cancelled = total),
    constraint graph_is_finished check ((open = 0) = (finished_at is not null)),
    constraint graph_definition_is_whole check ((definition is null) = (version is null))
) with (
    fillfactor = 60,
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0
);
create index graph_by_end on graph (finished_at) where finished_at is not null;

-- A task's place in its graph.
create table graph_node (
    graph_id uuid not null,
    label text not null check (octet_length(label) between 1 and 128),
    task_id uuid not null,
    -- The task's lambda: by it and the id the task is found.
    lambda text not null,
    -- As in the request, from 0.
    place integer not null check (place >= 0),
    any_of boolean not null,
    ignore_failure boolean not null,
    timeout_is_final boolean not null default false,
    -- Which of its failures do not make the graph a failed one: they are ignored, or a node waits for them. Bits, as of `fires_on`.
    handled smallint not null check (handled in (0, 2, 8, 10)),
    -- The tasks that it waits for; and how each is to end, as it was asked for: one of the conditions of the wire, as bits, the first
    -- is 1.
    waits_for uuid[] not null,
    conditions smallint[] not null check (cardinality(conditions) = cardinality(waits_for)),
    primary key (graph_id, label)
);
create index graph_node_by_task on graph_node (task_id);

-- Which task waits for which. It fires if the first ends in one of the ways that the bits of `fires_on` name:
-- 1 success, 2 fatal_failure, 4 cancelled, 8 a timeout that is final, 16 skipped.
create table graph_edge (
    from_task uuid not null,
    to_task uuid not null,
    fires_on smallint not null check (fires_on between 1 and 31),
    primary key (from_task, to_task)
);
