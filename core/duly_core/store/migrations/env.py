"""Alembic's entry: runs the migrations on the connection that `migrate` hands over."""

from alembic import context

from duly_core.store import access_tables, graph_tables  # noqa: F401 (they add their tables)
from duly_core.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transaction_per_migration=True,
)
with context.begin_transaction():
    context.run_migrations()
