"""What the functions and reads of graphs cost: pages by the rows that they find, not by the size of the tables."""

from uuid import UUID

import psycopg
import pytest

from duly_core.graphs import predecessors as graph_places
from duly_core.postgres.pool import Store, connect_arguments
from duly_core.postgres.settings import StoreSettings
from duly_wire.enums import EdgeCondition
from duly_wire.ids import new_task_id
from tests.fixtures.graph_states import claim_work, end, write_graph

SUCCEEDED = EdgeCondition.SUCCEEDED
ADVANCE = "select count(*) from duly_advance_graphs(%s::uuid[], %s::uuid[], %s::text[], %s::int2[])"
MOST_PAGES = 60
"""Of one end with one successor; a walk through any of the full tables touches hundreds."""
FILL = """
insert into graph_node (graph_id, label, task_id, lambda, place, any_of, ignore_failure, handled, waits_for, conditions)
    select gen_random_uuid(), number::text, gen_random_uuid(), 'a', 0, false, false, 0, '{}', '{}'
    from generate_series(1, 20000) as number;
insert into graph_edge (from_task, to_task, fires_on)
    select gen_random_uuid(), gen_random_uuid(), 1 from generate_series(1, 20000);
insert into graph (graph_id, name, digest, created_at, total, open)
    select gen_random_uuid(), 'other', '', now(), 1, 1 from generate_series(1, 20000);
"""


def pages(connection):
    """The pages of all tables of graphs, and of the assocs, that this transaction touched, with those of their indexes."""
    tables = ("graph", "graph_node", "graph_edge", "task_assoc")
    query = """select coalesce(sum(pg_stat_get_xact_blocks_fetched(relation.oid)), 0)
        from pg_class as relation left join pg_index as own on own.indexrelid = relation.oid
        where relation.oid = any (%s::regclass[]) or own.indrelid = any (%s::regclass[])"""
    ((fetched,),) = connection.execute(query, [list(tables), list(tables)]).fetchall()
    return int(fetched)


@pytest.fixture
async def registered(store: Store, task_states) -> Store:
    await task_states.register()
    return store


async def test_an_end_touches_few_pages_by_a_plan_that_was_made_on_empty_tables(registered, dsn):
    with psycopg.connect(**connect_arguments(StoreSettings(dsn=dsn)), autocommit=True) as connection:
        ask = [[new_task_id()], [new_task_id()], ["success"], [None]]
        connection.execute(ADVANCE, ask)  # plans are kept for the connection
        with psycopg.connect(dsn, autocommit=True) as other:
            other.execute(FILL)
        graph = await write_graph(registered, {"b": {"a": SUCCEEDED}})
        ids = {label: UUID(bytes=task_id) for label, task_id in graph.ids.items()}
        graph_id = UUID(bytes=graph.new.graph_id)

        connection.execute("begin")
        connection.execute(ADVANCE, [[graph_id], [ids["a"]], ["success"], [None]])
        touched = pages(connection)
        connection.execute("rollback")

    assert touched <= MOST_PAGES


async def test_a_claim_of_a_node_reads_its_own_predecessors_only(registered, dsn):
    with psycopg.connect(dsn, autocommit=True) as other:
        other.execute(FILL)
    graph = await write_graph(registered, {"b": {"a": SUCCEEDED}})
    await end(registered, list((await graph.claim()).values()), result=b"7")

    (claimed,) = await claim_work(registered)
    place = (await graph_places.graph_places(registered, [claimed.task_id]))[claimed.task_id]

    assert place.label == "b"
    assert [(before.label, before.result) for before in place.predecessors] == [("a", b"7")]
