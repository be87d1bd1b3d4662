"""The protocol as built holds what it promises, and each of its guards is needed (`duly.pml` says what is modelled)."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.models.spin_checker import EXHAUSTIVE, TIME_S, check, needs_spin

MODEL = Path(__file__).with_name("duly.pml")

pytestmark = [
    pytest.mark.long,  # each compiles a checker, and runs it for up to minutes
    needs_spin,
]


@dataclass(frozen=True)
class Run:
    """One configuration: the switches of the model, and what is asked of it."""

    switches: str
    fresh: bool = False
    """Ask that no stale write is accepted, instead of that no two run at once."""
    ends: bool = False
    """Ask that nothing is stuck before the task is final: no bound on claims but that on faults."""
    slow: bool = False
    """Minutes: `make models` only."""


HOLDS = {
    "all guards, one slow tick": Run("-DF=1 -DS=1"),
    "all guards, nothing is stuck": Run("-DF=1 -DS=1 -DCLAIMS=9", ends=True),
    "all guards, no stale write": Run("-DF=1 -DS=1", fresh=True),
    "all guards": Run("-DF=1 -DS=3", slow=True),
    "all guards, two faults": Run("-DF=2 -DS=3", slow=True),
    "stopped processes": Run("-DF=1 -DS=3 -DPAUSES", slow=True),
    "a cancel at any time": Run("-DF=1 -DS=2 -DCANCEL", slow=True),
    "a lossy failover, then a failover grace period": Run("-DF=1 -DS=3 -DLOSSY -DQUIET", slow=True),
    "a reclaim keeps the token, the status is compared": Run(
        "-DF=1 -DS=3 -DKEEP_TOKEN", fresh=True, slow=True
    ),
}
FAILS = {
    "no age check at the start": Run("-DF=0 -DS=3 -DNO_AGE_CHECK"),
    "no deadline": Run("-DF=0 -DS=3 -DNO_DEADLINE"),
    "the deadline counts from the ack": Run("-DF=0 -DS=3 -DFROM_THE_ACK"),
    "the deadline is as long as the lease": Run("-DF=0 -DS=3 -DD=3"),
    "a callback process outlives its Executor": Run("-DF=1 -DS=3 -DNO_PDEATHSIG"),
    "a crash is reported before the process is dead": Run("-DF=1 -DS=0 -DUNPROVEN"),
    "a thread watches the deadline of a stopped process": Run("-DF=1 -DS=3 -DPAUSES -DTHREAD_WATCHDOG"),
    "a lossy failover, no failover grace period": Run("-DF=0 -DS=3 -DLOSSY"),
    "a failover loses a claim": Run("-DF=0 -DS=0 -DLOSE_CLAIM"),
    "no fence": Run("-DF=1 -DS=3 -DNO_FENCE", fresh=True),
    "a reclaim keeps the token, and no status is compared": Run(
        "-DF=1 -DS=3 -DKEEP_TOKEN -DNO_STATUS", fresh=True
    ),
}


def check_run(run: Run, folder: Path) -> str:
    """Check one configuration; return what the checker says."""
    switches = f"{run.switches} -DFRESH_WRITES" if run.fresh else run.switches
    return check(MODEL, switches, folder, ends=run.ends)


def cases(runs: dict[str, Run]) -> list[object]:
    return [
        pytest.param(
            run,
            id=name,
            marks=[pytest.mark.skipif(run.slow and not EXHAUSTIVE, reason="takes minutes: make models")],
        )
        for name, run in runs.items()
    ]


@pytest.mark.parametrize("run", cases(HOLDS))
@pytest.mark.timeout(TIME_S + 60)
def test_the_protocol_holds(run, tmp_path):
    assert "errors: 0" in check_run(run, tmp_path)


@pytest.mark.parametrize("run", cases(FAILS))
@pytest.mark.timeout(TIME_S + 60)
def test_without_its_guard_the_protocol_fails(run, tmp_path):
    said = check_run(run, tmp_path)

    assert "errors: 1" in said
    assert ("!(stale)" if run.fresh else "(running<=1)") in said.replace(" ", "")
