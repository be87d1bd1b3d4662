"""The protocol as built holds what it promises, and each of its guards is needed (`duly.pml` says what is modelled)."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

MODEL = Path(__file__).with_name("duly.pml")
TOOLS = ("spin", "gcc")
MISSING = [tool for tool in TOOLS if shutil.which(tool) is None]
EXHAUSTIVE = bool(os.environ.get("DULY_MODEL_EXHAUSTIVE"))
MEMORY_MB = 1500
TIME_S = 3600 if EXHAUSTIVE else 300

pytestmark = [
    pytest.mark.long,  # each compiles a checker, and runs it for up to minutes
    pytest.mark.skipif(
        bool(MISSING), reason=f"{' and '.join(MISSING)} not installed: the protocol is not checked"
    ),
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


def check(run: Run, folder: Path) -> str:
    """Make the checker and run it; what it says."""
    switches = [*run.switches.split(), *(["-DFRESH_WRITES"] if run.fresh else [])]
    subprocess.run(
        ["spin", "-a", *switches, str(MODEL)], cwd=folder, check=True, timeout=60, capture_output=True
    )
    # states are kept as hashes of 64 bits and more (HC4): one in 10^9 might be taken for another
    compile_it = [
        "gcc",
        "-O2" if EXHAUSTIVE else "-O1",
        f"-DMEMLIM={MEMORY_MB}",
        "-DSAFETY",
        "-DHC4",
        "-o",
        "pan",
        "pan.c",
    ]
    subprocess.run(compile_it, cwd=folder, check=True, timeout=120, capture_output=True)
    arguments = ["./pan", "-m200000", "-w24", *([] if run.ends else ["-E"])]
    ran = subprocess.run(arguments, cwd=folder, check=False, timeout=TIME_S, capture_output=True, text=True)
    assert "max search depth too small" not in ran.stdout, "the search was cut short"
    assert "out of memory" not in ran.stdout, "the search was cut short"
    return ran.stdout


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
    assert "errors: 0" in check(run, tmp_path)


@pytest.mark.parametrize("run", cases(FAILS))
@pytest.mark.timeout(TIME_S + 60)
def test_without_its_guard_the_protocol_fails(run, tmp_path):
    said = check(run, tmp_path)

    assert "errors: 1" in said
    assert ("!(stale)" if run.fresh else "(running<=1)") in said.replace(" ", "")
