"""Says which labels that a task requires are missing on the hosts that serve its lambda."""

from collections.abc import Sequence

from duly_core.tasks.store import TaskRow
from duly_frontend.explain.hosts import required_labels
from duly_frontend.explain.text import command, number, reason
from duly_wire.queue_names import QueueName
from duly_wire.v1 import explain_pb2


def label_reasons(row: TaskRow, hosts: Sequence[tuple[str, frozenset[str]]]) -> list[explain_pb2.Reason]:
    """Say it of a task that no host serves; nothing if no live host serves its lambda without these labels either."""
    if not hosts:
        return []
    required = required_labels(row)
    queue = QueueName.parse(row["lambda"]).base
    nearest, has = max(hosts, key=lambda host: len(required & host[1]))
    if required <= has:
        return [
            reason(
                explain_pb2.REASON_KIND_NO_HOST,
                f"it is the first task of {queue} for some time that requires {_listed(required)}: {nearest}, which has them, takes it "
                "when it next reports itself",
                holder=nearest,
            )
        ]
    nobodys = required - frozenset[str]().union(*(labels for _, labels in hosts))
    start = " ".join(f"--label {label}" for label in sorted(required))
    action = f"start a worker with {start} where that is true; the labels of hosts: {command('hosts')}"
    live = number(len(hosts), "live host")
    if nobodys:
        text = f"no host has {_listed(nobodys)}: {live} {'serves' if len(hosts) == 1 else 'serve'} {queue}, without it"
    else:
        text = f"no host has {_listed(required)} together: of {live} that serve {queue}, {nearest} lacks {_listed(required - has)}"
    return [reason(explain_pb2.REASON_KIND_NO_HOST, text, action, holder=nearest)]


def _listed(labels: frozenset[str]) -> str:
    return " and ".join(sorted(labels))
