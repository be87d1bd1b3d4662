"""Settings of the Controller."""

import re
from datetime import timedelta
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field
from pydantic_settings import SettingsConfigDict

from duly_core.config.addresses import OptionalListen, Peers
from duly_core.config.live_sections import LiveControllerSettings
from duly_core.config.settings import Duration, Section

_POOL = re.compile(r"([a-z0-9][a-z0-9_.-]{0,62})?")


def _check_pool(name: str) -> str:
    if _POOL.fullmatch(name) is None:
        raise ValueError(
            "must be the name of a pool: 1 to 63 of a-z, 0-9, '_', '.', '-', the first a letter or a digit"
        )
    return name


PoolName = Annotated[str, AfterValidator(_check_pool)]


class ControllerSettings(LiveControllerSettings):
    """`[controller]`."""

    listen: OptionalListen = ""
    """The unix socket for Executors, as unix:PATH. Empty: one in $XDG_RUNTIME_DIR, else in the temporary folder."""
    health_listen: OptionalListen = ""
    """HOST:PORT of a second server that answers health checks only; empty: none."""
    executors: int = Field(default=1, ge=0, le=256)
    """How many Executor processes `duly worker` starts."""
    executor_metrics_port: int = Field(default=0, ge=0, le=65_000)
    """The metrics port of the first Executor; the next Executor has the next port. 0: no metrics of Executors."""
    frontend_address: Peers = "127.0.0.1:7401"
    """The Frontend, where lambdas are registered: HOST:PORT, several with commas between them, or dns:///NAME:PORT."""
    hsc_address: Peers = "127.0.0.1:7402"
    """The HSC, where tasks are claimed: HOST:PORT, several with commas between them, or dns:///NAME:PORT."""
    report_interval: Duration = Field(
        default=timedelta(seconds=10), ge=timedelta(seconds=1), le=timedelta(minutes=10)
    )
    """How often this host reports itself to the Frontend (`duly hosts`). After three missed reports it counts as silent."""
    pool: PoolName = ""
    """The pool of workers that this host belongs to (`duly pools`); empty: none. The autoscaler counts it, and may tell it to end."""
    exit_when_idle: Duration = timedelta()
    """This worker ends, with code 0, after so long without a task. 0s: never."""
    low_priority_share: float = Field(default=0.1, ge=0, le=0.5)
    """With SQS: the share of starts that lower priorities get while higher ones wait."""
    poll_timeout: Duration = timedelta(seconds=20)
    """With SQS: how long one receive of a queue stays open."""
    dwell_margin: Duration = timedelta(seconds=10)
    """With SQS: a reference is dropped when its message becomes visible to others within this time; the message comes back."""


class DrainSettings(Section):
    """`[executor]`: what the Controller must know of the Executors that it starts."""

    SECTION: ClassVar[str] = "executor"
    model_config = SettingsConfigDict(extra="ignore")  # the rest of the section is the Executor's own

    drain_grace: Duration = timedelta(seconds=30)
    """As in the Executor's own settings, where all of the section is."""
    journal_folder: str = ""
    """The same."""
