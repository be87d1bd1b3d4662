"""Settings of the autoscaler."""

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, ClassVar, Self

from pydantic import BeforeValidator, Field, model_validator

from duly_autoscaler.drivers.keda import KEDA
from duly_autoscaler.drivers.specs import DriverSpec, parse_drivers
from duly_core.config.addresses import Listen, OptionalListen
from duly_core.config.settings import Duration, Section


def _as_text(said: object) -> object:
    """Return the text of a table of drivers; a text is let pass if it is one.

    Raises:
        ValueError: it is no table of drivers.
    """
    if isinstance(said, Mapping):
        said = json.dumps(said)
    if isinstance(said, str):
        parse_drivers(said)
    return said


DriversText = Annotated[str, BeforeValidator(_as_text)]


class AutoscalerSettings(Section):
    """`[autoscaler]`: of each autoscaler. Two or more may run: one leads."""

    SECTION: ClassVar[str] = "autoscaler"

    listen: Listen = "127.0.0.1:7404"
    """HOST:PORT for health checks and reflection."""
    keda_address: OptionalListen = ""
    """HOST:PORT where KEDA asks how many workers a pool is to have (docs/elastic-workers.md#keda). Pools of the driver `keda`
    leave it to KEDA to start and end workers. Empty: not served."""
    drivers: DriversText = ""
    """What starts and ends workers, by the name that pools give (docs/elastic-workers.md): tables such as
    [autoscaler.drivers.local] in the file, or JSON in the environment. Empty: none."""
    driver_timeout: Duration = Field(
        default=timedelta(seconds=20), ge=timedelta(seconds=1), le=timedelta(minutes=10)
    )
    """How long one call of a driver may take. A pool whose driver fails or takes longer is marked; the others go on."""
    interval: Duration = Field(
        default=timedelta(seconds=2), ge=timedelta(milliseconds=200), le=timedelta(minutes=1)
    )
    """How often it plans."""
    lease: Duration = Field(default=timedelta(seconds=6), ge=timedelta(seconds=2), le=timedelta(minutes=2))
    """How long it leads without a word from Postgres. After it another one takes over. It renews the lease three times as often."""
    drain_timeout: Duration = timedelta(seconds=60)
    """Of local workers: how long one that was told to end may take before it is killed."""

    @model_validator(mode="after")
    def _keda_is_one_driver(self) -> Self:
        if self.keda_address and KEDA in self.driver_specs:
            raise ValueError(
                f"autoscaler.drivers.{KEDA} and autoscaler.keda_address make two drivers of one name: rename the former"
            )
        return self

    @property
    def driver_specs(self) -> Mapping[str, DriverSpec]:
        """The drivers by name."""
        return parse_drivers(self.drivers)
