"""The columns that queries built with SQLAlchemy name; the migrations define the tables."""

import sqlalchemy as sa

_INSTANT = sa.TIMESTAMP(timezone=True)

task = sa.table(
    "task",
    sa.column("task_id", sa.Uuid),
    sa.column("lambda", sa.Text),
    sa.column("collection", sa.Text),
    sa.column("priority", sa.SmallInteger),
    sa.column("created_at", _INSTANT),
    sa.column("finished_at", _INSTANT),
    sa.column("status"),
    sa.column("failure_kind", sa.SmallInteger),
    sa.column("graph", sa.Uuid),
)

task_assoc = sa.table(
    "task_assoc",
    sa.column("task_id", sa.Uuid),
    sa.column("lambda", sa.Text),
    sa.column("collection", sa.Text),
    sa.column("priority", sa.SmallInteger),
    sa.column("status"),
)

dead_letter = sa.table(
    "dead_letter",
    sa.column("task_id", sa.Uuid),
    sa.column("lambda", sa.Text),
    sa.column("finished_at", _INSTANT),
)

lambda_ = sa.table("lambda", sa.column("name", sa.Text))

graph = sa.table("graph", sa.column("graph_id", sa.Uuid), sa.column("open", sa.Integer))
