"""Settings of the Controller."""

from datetime import timedelta
from typing import ClassVar

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from duly_core.addresses import OptionalListen, Peers
from duly_core.settings import Duration, Section


class ControllerSettings(Section):
    """`[controller]`."""

    SECTION: ClassVar[str] = "controller"

    listen: OptionalListen = ""
    """A unix socket, for NextWork never leaves the host; empty: one in $XDG_RUNTIME_DIR or the temporary folder."""
    health_listen: OptionalListen = ""
    """HOST:PORT of a second server that answers health checks only; empty: none."""
    executors: int = Field(default=1, ge=0, le=256)
    """`duly worker`: how many Executor processes the Controller starts for the application."""
    executor_metrics_port: int = Field(default=0, ge=0, le=65_000)
    """The metrics port of the first Executor it starts, the next has the next; 0: none."""
    frontend_address: Peers = "127.0.0.1:7401"
    """Where lambdas are registered."""
    hsc_address: Peers = "127.0.0.1:7402"
    """Where tasks are claimed; several IP:PORT may be given, separated by commas."""
    low_priority_share: float = Field(default=0.1, ge=0, le=0.5)
    """The part of starts that lower priorities get while higher ones wait, so that they never starve."""
    poll_timeout: Duration = timedelta(seconds=20)
    """How long one receive of a queue stays open."""
    dwell_margin: Duration = timedelta(seconds=10)
    """A reference that was buffered longer than the queue's visibility less this is left to come back."""


class DrainSettings(Section):
    """`[executor]`: what the Controller must know of the Executors that it starts."""

    SECTION: ClassVar[str] = "executor"
    model_config = SettingsConfigDict(extra="ignore")  # the rest of the section is the Executor's own

    drain_grace: Duration = timedelta(seconds=30)
    """As in the Executor's own settings, where all of the section is."""
    journal_folder: str = ""
    """The same."""
