"""The schema of the first release: the `.sql` files of the rooms (`duly_core.postgres.schema.definition`)."""

import sqlalchemy as sa
from alembic import op

from duly_core.postgres.schema.definition import drop_sql, schema_sql

revision = "0009"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    schema = op.get_bind().execute(sa.text("select quote_ident(current_schema())")).scalar_one()
    op.get_bind().exec_driver_sql(schema_sql(schema).replace("%", "%%"))


def downgrade() -> None:
    op.get_bind().exec_driver_sql(drop_sql())
