"""Links to attachments: only the person who was shown one can use it, for some minutes."""

import json
from dataclasses import dataclass
from datetime import timedelta

from cryptography.fernet import InvalidToken, MultiFernet

LIFETIME = timedelta(minutes=5)
"""Of a link: to show the page again makes another one."""


@dataclass(frozen=True, slots=True)
class Linked:
    """What a link leads to."""

    task_id: str
    hash: bytes
    name: str


class AttachmentLinks:
    """Writes and reads links with the keys of the session cookies. Nobody without a key can read or make one."""

    def __init__(self, keys: MultiFernet) -> None:
        self._keys = keys

    def write(self, linked: Linked, principal: str, session: str, root: str = "attachments") -> str:
        """Return the path, below `root`, of an attachment for a person, and for one session of this person."""
        said = {"t": linked.task_id, "h": linked.hash.hex(), "n": linked.name, "p": principal, "s": session}
        return f"/{root}/{self._keys.encrypt(json.dumps(said).encode()).decode()}"

    def read(self, ticket: str, principal: str, session: str) -> Linked | None:
        """Return where a link leads; None: it has expired, is somebody else's, or is none of ours."""
        try:
            said = json.loads(self._keys.decrypt(ticket.encode(), ttl=int(LIFETIME.total_seconds())))
            linked = Linked(said["t"], bytes.fromhex(said["h"]), said["n"])
        except (InvalidToken, UnicodeEncodeError, KeyError):  # KeyError: it is a cookie
            return None
        return linked if (said["p"], said["s"]) == (principal, session) else None
