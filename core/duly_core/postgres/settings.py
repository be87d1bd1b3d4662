"""Settings of the store's connections."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import Field, field_validator, model_validator

from duly_core.config.live_sections import LiveStoreSettings
from duly_core.config.settings import Duration

SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,39}")
"""Needs no quotes in SQL."""

DEFAULT_DSN = "postgresql://duly@127.0.0.1:5432/duly"


class StoreSettings(LiveStoreSettings):
    """`[store]`: where Postgres is and how long it may take."""

    SECTION: ClassVar[str] = "store"

    dsn: str = DEFAULT_DSN
    """A libpq connection string or URI."""
    dsn_file: str = ""
    """File with the connection string, instead of `dsn`: read when the process starts."""
    schema_name: str = ""
    """The schema with Duly's tables. Empty: the first of the user's search path, as a rule `public`. With `pooled`: also set it as the
    search path of the users (`alter role ... in database ... set search_path = ...`)."""
    password_file: str = ""
    """File with the password, read for each new connection. It takes the place of one in `dsn`."""
    password_command: tuple[str, ...] = ()
    """Program and arguments that print the password, run for each new connection (`["vault", "read", "..."]`)."""
    password_timeout: Duration = Field(default=timedelta(seconds=10), gt=timedelta(0))
    """How long `password_command` may take."""
    migrate: bool = False
    """Whether a service that starts brings the schema up to date. False: only `duly migrate` does."""
    connections: int = 8
    """Connections for writes of a Frontend, and of a Store Consumer. The HSC has settings of its own."""
    connect_timeout: Duration = timedelta(seconds=5)
    """How long a new connection to Postgres may take."""
    statement_timeout: Duration = timedelta(seconds=8)
    """The longest time of a statement."""
    acquire_timeout: Duration = timedelta(seconds=5)
    """How long a statement may wait for a free connection."""
    unhealthy_after: Duration = Field(default=timedelta(seconds=5), ge=timedelta(seconds=1))
    """A process reports NOT_SERVING when Postgres has not answered for this long."""
    pooled: bool = False
    """True behind pgbouncer in transaction mode: Duly sets nothing on sessions."""
    direct_dsn: str = ""
    """With `pooled`: the address of Postgres itself, for migrations and notifications."""
    audit_retention: Duration = Field(default=timedelta(days=365), ge=timedelta(days=1))
    """How long the audit log keeps who changed what."""
    watch_retention: Duration = Field(
        default=timedelta(days=1), ge=timedelta(minutes=10), le=timedelta(days=30)
    )
    """How long what watches are told is kept, and the longest time that a watch is kept without a call."""
    partition_span: Duration = Field(
        default=timedelta(days=1), ge=timedelta(minutes=1), le=timedelta(days=366)
    )
    """Tasks made within one such span are in one partition, and are removed together."""

    @model_validator(mode="before")
    @classmethod
    def _read_dsn_file(cls, said: dict[str, Any]) -> dict[str, Any]:
        path = said.get("dsn_file")
        if not path:
            return said
        if said.get("dsn"):
            raise ValueError("give either dsn or dsn_file, not both")
        try:
            return said | {"dsn": Path(path).read_text(encoding="utf-8").strip()}
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8"
            raise ValueError(f"dsn_file: {path} cannot be read: {reason}") from error

    @field_validator("schema_name")
    @classmethod
    def _check_schema_name(cls, name: str) -> str:
        if name and not SCHEMA_NAME.fullmatch(name):
            raise ValueError("write 1 to 40 of a-z, 0-9 and _, the first a letter or _")
        return name

    @model_validator(mode="after")
    def _check_one_password(self) -> Self:
        if self.password_file and self.password_command:
            raise ValueError("give either password_file or password_command, not both")
        return self


def direct(settings: StoreSettings) -> StoreSettings:
    """The same store past the pooler, if there is one and its address is known."""
    if not (settings.pooled and settings.direct_dsn):
        return settings
    return settings.model_copy(update={"dsn": settings.direct_dsn, "pooled": False})
