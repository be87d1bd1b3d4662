"""Which processes and hosts have read the live settings, and when: they report it with themselves."""

from dataclasses import dataclass
from datetime import datetime

from duly_core.fleet.statements import FLEET
from duly_core.postgres.pool import Store

HOST = "host"


@dataclass(frozen=True, slots=True)
class SettingUser:
    """A process of a service, or a host with its workers."""

    service: str
    """`frontend`, `hsc`, `store-consumer`; HOST: a Controller with its Executors."""
    name: str
    read_at: datetime | None
    """What it has was read from the store then, at the earliest; None: it has read nothing yet."""


_USERS = FLEET["setting_users"]


async def setting_users(store: Store) -> list[SettingUser]:
    """Return up to 10,000 processes and hosts that report themselves.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    return [SettingUser(*row) for row in await store.run(_USERS, {})]
