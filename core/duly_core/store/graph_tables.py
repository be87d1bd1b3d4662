"""The tables of graphs as SQLAlchemy sees them; see tables.py."""

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as pg

from duly_core.store.tables import metadata

graph = sa.Table(
    "graph",
    metadata,
    sa.Column("graph_id", sa.Uuid, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("digest", sa.LargeBinary, nullable=False),
    sa.Column("definition", sa.Text),
    sa.Column("version", sa.Integer),
    sa.Column("created_at", sa.TIMESTAMP(timezone=True), nullable=False),
    sa.Column("finished_at", sa.TIMESTAMP(timezone=True)),
    sa.Column("cancel_requested", sa.Boolean, nullable=False, server_default=sa.text("false")),
    sa.Column("total", sa.Integer, nullable=False),
    sa.Column("open", sa.Integer, nullable=False),
    sa.Column("succeeded", sa.Integer, nullable=False, server_default=sa.text("0")),
    sa.Column("failed", sa.Integer, nullable=False, server_default=sa.text("0")),
    sa.Column("skipped", sa.Integer, nullable=False, server_default=sa.text("0")),
    sa.Column("cancelled", sa.Integer, nullable=False, server_default=sa.text("0")),
    sa.Column("unhandled", sa.Integer, nullable=False, server_default=sa.text("0")),
    sa.Index("graph_by_end", "finished_at", postgresql_where=sa.text("finished_at is not null")),
)

graph_node = sa.Table(
    "graph_node",
    metadata,
    sa.Column("graph_id", sa.Uuid, primary_key=True),
    sa.Column("label", sa.Text, primary_key=True),
    sa.Column("task_id", sa.Uuid, nullable=False),
    sa.Column("lambda", sa.Text, nullable=False),
    sa.Column("place", sa.Integer, nullable=False),
    sa.Column("any_of", sa.Boolean, nullable=False),
    sa.Column("ignore_failure", sa.Boolean, nullable=False),
    sa.Column("handled", sa.Boolean, nullable=False),
    sa.Column("waits_for", pg.ARRAY(sa.Uuid), nullable=False),
    sa.Column("conditions", pg.ARRAY(sa.SmallInteger), nullable=False),
    sa.Index("graph_node_by_task", "task_id"),
)

graph_edge = sa.Table(
    "graph_edge",
    metadata,
    sa.Column("from_task", sa.Uuid, primary_key=True),
    sa.Column("to_task", sa.Uuid, primary_key=True),
    sa.Column("fires_on", sa.SmallInteger, nullable=False),
)

graph_definition = sa.Table(
    "graph_definition",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("definition", sa.LargeBinary, nullable=False),
    sa.Column("created_at", sa.TIMESTAMP(timezone=True), nullable=False),
)
