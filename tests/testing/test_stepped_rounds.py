"""Whatever a service does by itself in production, a stepped server does when it is told to, or leaves it out for a reason."""

import re
from pathlib import Path

import pytest

import duly_frontend
import duly_hsc
import duly_store_consumer

STEPPED = {
    "store consumer": "Rounds.settle: timeouts",
    "time tables": "Rounds.settle: ticks",
    "gates": "Rounds.settle",
    "breakers": "Rounds.settle",
    "run counts": "Rounds.settle",
    "turns": "Rounds.read",
    "wait nodes": "SteppedServer.settle",
    "live settings": "SteppedServer.refresh",
}
LEFT_OUT = {  # and what only shows people what there is: `_watch` of the Store Consumer
    "problem board": "it shows people what there is",
    "notifications": "it tells people what there is",
    "retention": "a test sees what it did, however far it steps",
    "output sweep": "the same",
    "event address sweep": "the same",
    "watch sweep": "the same",
    "trends": "it only shows people what there is",
    "backlog watch": "the same",
    "accepted calls": "the same",
}


@pytest.mark.parametrize(
    "service", [duly_frontend, duly_hsc, duly_store_consumer], ids=lambda each: each.__name__
)
def test_each_loop_of_a_service_is_stepped_or_left_out_for_a_reason(service) -> None:
    folder = Path(service.__file__).parent
    main = "".join(
        (folder / name).read_text(encoding="utf-8")
        for name in ("__main__.py", "unit.py")
        if (folder / name).exists()
    )

    loops = set(
        re.findall(r'repeat\(\s*"([^"]+)"', main) + re.findall(r'\(\s*"([a-z ]+)",\s*[A-Z]\w*\(', main)
    )

    assert loops
    assert loops <= STEPPED.keys() | LEFT_OUT.keys(), (
        "call it in duly_server/stepped/rounds.py, put its next instant into the statement of clock.py, and name it here"
    )
