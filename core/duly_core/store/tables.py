"""The tables as SQLAlchemy sees them: for reading, and held against the migrations by a test."""

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as pg

from duly_core.lifecycle import Status
from duly_core.task import AttemptOutcome

metadata = sa.MetaData()

task_status = pg.ENUM(*(status.value for status in Status), name="task_status", metadata=metadata)
attempt_outcome = pg.ENUM(
    *(outcome.value for outcome in AttemptOutcome), name="attempt_outcome", metadata=metadata
)

lambda_ = sa.Table(
    "lambda",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("version", sa.Text, nullable=False),
    sa.Column("max_attempts", sa.Integer, nullable=False),
    sa.Column("max_crashes", sa.Integer, nullable=False),
    sa.Column("max_runtime", pg.INTERVAL, nullable=False),
    sa.Column("backoff_initial", pg.INTERVAL, nullable=False),
    sa.Column("backoff_factor", sa.Float, nullable=False),
    sa.Column("backoff_max", pg.INTERVAL, nullable=False),
    sa.Column("payload_limit", sa.Integer, nullable=False),
    sa.Column("registered_at", sa.TIMESTAMP(timezone=True), nullable=False),
    sa.Column("updated_at", sa.TIMESTAMP(timezone=True), nullable=False),
    sa.Column("crash_window", pg.INTERVAL, nullable=False, server_default=sa.text("interval '3 days'")),
)

task = sa.Table(
    "task",
    metadata,
    sa.Column("task_id", sa.Uuid, primary_key=True),
    sa.Column("lambda", sa.Text, nullable=False),
    sa.Column("collection", sa.Text, nullable=False),
    sa.Column("priority", sa.SmallInteger, nullable=False),
    sa.Column("payload_encoding", sa.SmallInteger, nullable=False),
    sa.Column("payload", sa.LargeBinary, nullable=False),
    sa.Column("created_at", sa.TIMESTAMP(timezone=True), nullable=False),
    sa.Column("scheduled_at", sa.TIMESTAMP(timezone=True), nullable=False),
    sa.Column("expires_at", sa.TIMESTAMP(timezone=True)),
    sa.Column("status", task_status),
    sa.Column("started_at", sa.TIMESTAMP(timezone=True)),
    sa.Column("finished_at", sa.TIMESTAMP(timezone=True)),
    sa.Column("fence", sa.Integer),
    sa.Column("failures", sa.Integer),
    sa.Column("crashes", sa.Integer),
    sa.Column("last_token", sa.Uuid),
    sa.Column("result_encoding", sa.SmallInteger),
    sa.Column("result", sa.LargeBinary),
    sa.Column("failure_kind", sa.SmallInteger),
    sa.Column("failure_message", sa.Text),
    sa.Column("failed_at", sa.TIMESTAMP(timezone=True)),
    sa.Column("redrives", sa.Integer, nullable=False, server_default=sa.text("0")),
    sa.Column("session", sa.Text),
    sa.Column("session_order", sa.SmallInteger),
    sa.Column("session_policy", sa.SmallInteger),
    sa.Column("resources", pg.JSONB),
    sa.Column("time_table", sa.Text),
    sa.Column("graph", sa.Uuid),
    sa.Column("max_runtime", pg.INTERVAL),
    sa.Column("edits", sa.Integer, nullable=False, server_default=sa.text("0")),
    sa.Column("checkpoint_count", sa.Integer, nullable=False, server_default=sa.text("0")),
    sa.Column("scheduled_as", sa.LargeBinary),
    sa.Column("checkpoint", sa.LargeBinary),
    sa.Index("task_by_lambda", "lambda", "task_id"),
    sa.Index("task_by_collection", "collection", "task_id", postgresql_where=sa.text("collection <> ''")),
    postgresql_partition_by="RANGE (task_id)",
)

dead_letter = sa.Table(
    "dead_letter",
    metadata,
    sa.Column("task_id", sa.Uuid, primary_key=True),
    sa.Column("lambda", sa.Text, nullable=False),
    sa.Column("finished_at", sa.TIMESTAMP(timezone=True), nullable=False),
    sa.Index("dead_letter_by_lambda", "lambda", "finished_at", "task_id"),
    sa.Index("dead_letter_by_end", "finished_at", "task_id"),
)

task_assoc = sa.Table(
    "task_assoc",
    metadata,
    sa.Column("task_id", sa.Uuid, primary_key=True),
    sa.Column("lambda", sa.Text, nullable=False),
    sa.Column("collection", sa.Text, nullable=False),
    sa.Column("priority", sa.SmallInteger, nullable=False),
    sa.Column("status", task_status, nullable=False),
    sa.Column("next_trigger_at", sa.TIMESTAMP(timezone=True), nullable=False),
    sa.Column("due_at", sa.TIMESTAMP(timezone=True), nullable=False),
    sa.Column("expires_at", sa.TIMESTAMP(timezone=True)),
    sa.Column("fence", sa.Integer, nullable=False),
    sa.Column("failures", sa.Integer, nullable=False),
    sa.Column("crashes", sa.Integer, nullable=False),
    sa.Column("token", sa.Uuid),
    sa.Column("last_token", sa.Uuid),
    sa.Column("holder", sa.Text),
    sa.Column("cancel_requested", sa.Boolean, nullable=False),
    sa.Column("progress", sa.REAL),
    sa.Column("progress_note", sa.Text),
    sa.Column("crashed_at", pg.ARRAY(sa.TIMESTAMP(timezone=True))),
    sa.Column("claimed_at", sa.TIMESTAMP(timezone=True)),
    sa.Column("session", sa.Text),
    sa.Column("session_rank", sa.TIMESTAMP(timezone=True)),
    sa.Column("session_seq", sa.BigInteger),
    sa.Column("session_policy", sa.SmallInteger),
    sa.Column("graph", sa.Uuid),
    sa.Column("open_edges", sa.Integer),
    sa.Column("any_of", sa.Boolean),
    sa.Column("doom", sa.SmallInteger),
    sa.Column("resources", pg.JSONB),
    sa.Column("taken", pg.JSONB),
    sa.Column("parked_on", sa.Text),
    sa.Column("parked_key", sa.Text),
    sa.Column("start_at", sa.TIMESTAMP(timezone=True)),
    sa.Column("edits", sa.Integer, nullable=False, server_default=sa.text("0")),
    sa.Index(
        "task_assoc_ready",
        "lambda",
        "priority",
        "next_trigger_at",
        postgresql_where=sa.text("status in ('new', 'retriable_failure')"),
    ),
    sa.Index(
        "task_assoc_watched",
        "next_trigger_at",
        postgresql_where=sa.text("status in ('enqueued', 'claimed', 'processing')"),
    ),
    sa.Index(
        "task_assoc_expiring",
        "expires_at",
        postgresql_where=sa.text(
            "status in ('new', 'retriable_failure', 'enqueued') and expires_at is not null"
        ),
    ),
    sa.Index(
        "task_assoc_in_session",
        "session",
        "session_rank",
        "session_seq",
        postgresql_where=sa.text("status = 'waiting' and doom is null"),
    ),
    sa.Index(
        "task_assoc_waiting_until",
        "next_trigger_at",
        postgresql_where=sa.text("status = 'waiting' and next_trigger_at < 'infinity'"),
    ),
    sa.Index(
        "task_assoc_parked",
        "parked_on",
        "parked_key",
        "lambda",
        "priority",
        "due_at",
        postgresql_where=sa.text("status = 'waiting' and parked_on is not null"),
    ),
)

session = sa.Table(
    "session",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("head", sa.Uuid),
    sa.Column("length", sa.Integer, nullable=False),
    sa.Column("doomed", sa.Integer, nullable=False, server_default=sa.text("0")),
    sa.Column("last_seq", sa.BigInteger, nullable=False),
    sa.Column("blocked_by", sa.Uuid),
    sa.Column("blocked_at", sa.TIMESTAMP(timezone=True)),
    sa.Column("fails_until", sa.BigInteger),
    sa.Index("session_blocked", "key", postgresql_where=sa.text("blocked_at is not null")),
)

resource = sa.Table(
    "resource",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("capacity", sa.Integer, nullable=False),
    sa.Column("per_key", sa.Boolean, nullable=False),
    sa.Column("note", sa.Text, nullable=False),
    sa.Column("changed_at", sa.TIMESTAMP(timezone=True), nullable=False),
    sa.Column("rate", sa.Integer),
    sa.Column("period", pg.INTERVAL),
    sa.Column("burst", sa.Integer),
    sa.Column("rate_is_new", sa.Boolean, nullable=False, server_default=sa.text("false")),
    sa.Index("resource_quotas", "name", postgresql_where=sa.text("name like 'lambda:%'")),
    sa.Index("resource_scheduling_quotas", "name", postgresql_where=sa.text("name like 'schedule:%'")),
)

resource_use = sa.Table(
    "resource_use",
    metadata,
    sa.Column("resource", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("used", sa.Integer, nullable=False, server_default=sa.text("0")),
    sa.Column("starts_until", sa.TIMESTAMP(timezone=True)),
    sa.Column("started_until", sa.TIMESTAMP(timezone=True)),
)

store_epoch = sa.Table(
    "store_epoch",
    metadata,
    sa.Column("one", sa.Boolean, primary_key=True, server_default=sa.text("true")),
    sa.Column("server", sa.Text, nullable=False),
    sa.Column("changed_at", sa.TIMESTAMP(timezone=True)),
)

attempt = sa.Table(
    "attempt",
    metadata,
    sa.Column("task_id", sa.Uuid, primary_key=True),
    sa.Column("fence", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("outcome", attempt_outcome, nullable=False),
    sa.Column("holder", sa.Text, nullable=False),
    sa.Column("started_at", sa.TIMESTAMP(timezone=True)),
    sa.Column("ended_at", sa.TIMESTAMP(timezone=True), nullable=False),
    sa.Column("failure_kind", sa.SmallInteger),
    sa.Column("failure_message", sa.Text),
    sa.Column("traceback", sa.Text),
    postgresql_partition_by="RANGE (task_id)",
)

idempotency_key = sa.Table(
    "idempotency_key",
    metadata,
    sa.Column("lambda", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("task_id", sa.Uuid, nullable=False),
    sa.Column("created_at", sa.TIMESTAMP(timezone=True), nullable=False),
    sa.Index("idempotency_key_by_task", "task_id"),
)

setting, own_setting = (
    sa.Table(
        name,
        metadata,
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
        sa.Column("changed_at", sa.TIMESTAMP(timezone=True), nullable=False),
    )
    for name in ("setting", "own_setting")
)

time_table = sa.Table(
    "time_table",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("lambda", sa.Text, nullable=False),
    sa.Column("collection", sa.Text, nullable=False),
    sa.Column("priority", sa.SmallInteger, nullable=False),
    sa.Column("payload_encoding", sa.SmallInteger, nullable=False),
    sa.Column("payload", sa.LargeBinary, nullable=False),
    sa.Column("cron", sa.Text),
    sa.Column("every", pg.INTERVAL),
    sa.Column("every_offset", pg.INTERVAL, nullable=False),
    sa.Column("zone", sa.Text, nullable=False),
    sa.Column("catch_up", sa.SmallInteger, nullable=False),
    sa.Column("catch_up_window", pg.INTERVAL, nullable=False),
    sa.Column("overlap", sa.SmallInteger, nullable=False),
    sa.Column("jitter", pg.INTERVAL, nullable=False),
    sa.Column("declared", sa.Boolean, nullable=False),
    sa.Column("revision", sa.BigInteger, nullable=False),
    sa.Column("created_at", sa.TIMESTAMP(timezone=True), nullable=False),
    sa.Column("updated_at", sa.TIMESTAMP(timezone=True), nullable=False),
    sa.Column("paused_at", sa.TIMESTAMP(timezone=True)),
    sa.Column("pause_note", sa.Text),
    sa.Column("next_tick_at", sa.TIMESTAMP(timezone=True)),
    sa.Column("next_fire_at", sa.TIMESTAMP(timezone=True)),
    sa.Column("buffered_tick_at", sa.TIMESTAMP(timezone=True)),
    sa.Column("last_tick_at", sa.TIMESTAMP(timezone=True)),
    sa.Column("last_task_id", sa.Uuid),
    sa.Column("problem", sa.Text),
    sa.Index(
        "time_table_due",
        "next_fire_at",
        postgresql_where=sa.text("paused_at is null and next_fire_at is not null"),
    ),
    sa.Index(
        "time_table_buffered",
        "name",
        postgresql_where=sa.text("paused_at is null and buffered_tick_at is not null"),
    ),
)
