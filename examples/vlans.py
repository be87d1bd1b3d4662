"""Ordered work on many things at once: every change of a VLAN runs after the one before, VLANs do not wait for each other.

This is the example of Equinix Metal's Session Scheduler: one session for each VLAN.

    duly up examples.vlans:app
    python -m examples.vlans            # creates, attaches and deletes 20 VLANs, and checks what happened
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

import duly

app = duly.App(owner="network@example.org", version="1")

STEPS = ("create", "attach", "detach", "delete")


@dataclass
class Change:
    """One change of a VLAN; `log` stands for the switch that is told."""

    vlan: int
    step: str
    log: str


@app.callback("vlan.change")
def change_vlan(change: Change) -> None:
    """Tell the switch. Two changes of one VLAN at a time, or in another order, would break it."""
    with Path(change.log, str(change.vlan)).open("a", encoding="utf-8") as log:
        log.write(f"{change.step}\n")


def main(vlans: int = 20) -> int:
    """Schedule all changes in one call; return 0 if each VLAN saw its changes in their order."""
    log = mkdtemp(prefix="vlans-")
    changes = [
        duly.NewTask("vlan.change", Change(vlan, step, log), session=f"vlan-{vlan}")
        for step in STEPS
        for vlan in range(vlans)
    ]
    with duly.Client() as client:
        client.wait_many(client.schedule_many(changes), raise_on_failure=True)
    wrong = [
        vlan
        for vlan in range(vlans)
        if Path(log, str(vlan)).read_text(encoding="utf-8").split() != list(STEPS)
    ]
    print(f"{len(changes)} changes of {vlans} VLANs, {len(wrong)} VLANs out of order; see {log}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
