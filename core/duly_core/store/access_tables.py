"""The tables of tokens, grants and the audit log as SQLAlchemy sees them; see tables.py."""

import sqlalchemy as sa

from duly_core.store.tables import metadata

audit_event = sa.Table(
    "audit_event",
    metadata,
    sa.Column("event_id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
    sa.Column("at", sa.TIMESTAMP(timezone=True), nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("peer", sa.Text, nullable=False),
    sa.Column("method", sa.Text, nullable=False),
    sa.Column("outcome", sa.Text, nullable=False),
    sa.Column("request", sa.Text, nullable=False),
    sa.Column("answer", sa.Text, nullable=False),
    sa.Index("audit_event_by_actor", "actor", "event_id"),
)

access_version = sa.Table("access_version", metadata, sa.Column("version", sa.BigInteger, nullable=False))

access_token = sa.Table(
    "access_token",
    metadata,
    sa.Column("digest", sa.LargeBinary, primary_key=True),
    sa.Column("token_id", sa.Text, nullable=False, unique=True),
    sa.Column("principal", sa.Text, nullable=False),
    sa.Column("note", sa.Text, nullable=False),
    sa.Column("created_at", sa.TIMESTAMP(timezone=True), nullable=False),
    sa.Column("created_by", sa.Text, nullable=False),
    sa.Column("expires_at", sa.TIMESTAMP(timezone=True)),
    sa.Column("revoked_at", sa.TIMESTAMP(timezone=True)),
)

role_grant = sa.Table(
    "role_grant",
    metadata,
    sa.Column("principal", sa.Text, primary_key=True),
    sa.Column("role", sa.Text, primary_key=True),
    sa.Column("pattern", sa.Text, primary_key=True),
    sa.Column("granted_at", sa.TIMESTAMP(timezone=True), nullable=False),
    sa.Column("granted_by", sa.Text, nullable=False),
)
