"""Makes two walks look alike: their ids, times, addresses and host names become the same."""

import re
import socket
from datetime import datetime, timedelta

_BEGIN = datetime.fromisoformat("2026-11-23T03:00:00+00:00")
"""When the good version was deployed, on the page."""
_ID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_DATE = re.compile(r"\b20\d\d-\d\d-\d\d(?!\d)")
_TIME = re.compile(r"(?<![\d:])(\d\d):(\d\d):(\d\d)(?!\d)")
_ADDRESS = re.compile(r"\b127\.0\.0\.1:\d+")
_HOST = re.compile(rf"\b{re.escape(socket.gethostname())}:\d+:([0-9a-f]{{8}})")
_FOLDER = re.compile(r'"/[^"]*/mailer\.py"')


class Normalizer:
    """Remembers which id of the page stands for which id of the walk; texts keep their length but for hosts and files."""

    def __init__(self) -> None:
        """Start without any."""
        self._began_at = datetime.now().astimezone()
        self._ids: dict[str, str] = {}
        self._hosts: dict[str, str] = {}

    @property
    def distance(self) -> timedelta:
        """How far times are moved, but for the day."""
        return _BEGIN - self._began_at.replace(microsecond=0)

    def __call__(self, text: str) -> str:
        """Return a text as the page has it."""
        text = _ID.sub(self._id, text)
        text = _HOST.sub(self._host, text)
        text = _DATE.sub(f"{_BEGIN:%Y-%m-%d}", text)
        text = _TIME.sub(self._time, text)
        text = _FOLDER.sub('"/srv/mailer/mailer.py"', text)
        return _ADDRESS.sub("127.0.0.1:7401", text)

    def _id(self, found: re.Match[str]) -> str:
        number = len(self._ids) + 1
        return self._ids.setdefault(found[0], f"01a20653-0000-7000-8000-{number:012x}")

    def _host(self, found: re.Match[str]) -> str:
        number = len(self._hosts) + 1
        return self._hosts.setdefault(found[0], f"mail1:41{number}0:0000000{number}")

    def _time(self, found: re.Match[str]) -> str:
        clock = timedelta(hours=int(found[1]), minutes=int(found[2]), seconds=int(found[3]))
        midnight = self._began_at.astimezone(_BEGIN.tzinfo).replace(hour=0, minute=0, second=0, microsecond=0)
        since = (midnight + clock - self._began_at.replace(microsecond=0)) % timedelta(days=1)
        return f"{_BEGIN + since:%H:%M:%S}"
