"""Tasks that wait are released, once and in time, and each guard of that is needed (the .pml files say what is modelled)."""

from pathlib import Path

import pytest

from tests.models.spin_checker import EXHAUSTIVE, TIME_S, check, needs_spin

FOLDER = Path(__file__).parent

pytestmark = [
    pytest.mark.long,  # each compiles a checker; some run it for half a minute
    needs_spin,
]

HOLDS = {
    "sessions: a holder falls silent": ("sessions", "-DF=1"),
    "sessions: the next task is due before the head": ("sessions", "-DBY_TIME"),
    "sessions: a failure blocks, dead letters run again": ("sessions", "-DPOLICY=2 -DREDRIVES -DF=0"),
    "sessions: a failure ends the rest, dead letters run again": ("sessions", "-DPOLICY=3 -DREDRIVES -DF=0"),
    "limits: a holder falls silent": ("limits", ""),
    "limits: a released task is moved": ("limits", "-DMOVE=1"),
    "limits: a task needs all units": ("limits", "-DHEAVY -DCAPACITY=2 -DMOVE=1"),
    "limits: keys in use": ("limits", "-DKEYED -DMOVE=1 -DCANCEL=9"),
    "limits: an operator adds a unit": ("limits", "-DRAISE -DCAPACITY=0"),
    "limits: tasks of a session": ("limits", "-DSESSION"),
    "limits: a pick keeps the lock of a row that was parked": ("limits", "-DSTALE -DCANCEL=9 -DF=0"),
    "limits: a cancel keeps the lock of a row that was parked": ("limits", "-DBATCH -DF=0"),
    "limits: a cancel waits for the row of a key that is gone": ("limits", "-DKEYED -DCANCEL=0 -DF=0"),
    "graphs: a holder falls silent": ("graphs", "-DF=1"),
    "graphs: one edge is enough": ("graphs", "-DANY -DF=1"),
    "graphs: a long skip": ("graphs", "-DFEW_STEPS -DF=1"),
    "graphs: a long skip, one edge is enough": ("graphs", "-DFEW_STEPS -DANY -DF=1"),
    "graphs: a cancel at any time": ("graphs", "-DCANCEL -DF=1"),
    "graphs: a cancel at any time, one edge is enough": ("graphs", "-DCANCEL -DANY -DF=1"),
    "graphs: a cancel and a long skip": ("graphs", "-DCANCEL -DFEW_STEPS -DANY"),
}
LONG = {
    "sessions: claims while tasks are scheduled": ("sessions", "-DEARLY"),
    "sessions: claims while earlier tasks are scheduled": ("sessions", "-DBY_TIME -DEARLY"),
    "sessions: a block and a silent holder": ("sessions", "-DPOLICY=2 -DREDRIVES -DF=1"),
    "sessions: two tasks, all at once": ("sessions", "-DN=2 -DPOLICY=3 -DREDRIVES -DEARLY"),
}
FAILS = {
    "sessions: an end reads before it waits for the session": ("sessions", "-DONE_STATEMENT -DEARLY"),
    "sessions: an end does not lock the session": ("sessions", "-DNO_LOCK -DEARLY"),
    "sessions: a cancel reads before it waits for the session": ("sessions", "-DCANCEL_IN_ONE -DF=0"),
    "sessions: a result does not compare the token": ("sessions", "-DNO_TOKEN"),
    "sessions: a scheduler waits for the head": ("sessions", "-DWAIT_FOR_HEAD -DBY_TIME -DEARLY -DF=0"),
    "sessions: a running head is put back": ("sessions", "-DANY_HEAD -DBY_TIME -DEARLY -DF=0"),
    "sessions: an earlier task is not put first": ("sessions", "-DNO_ORDER -DBY_TIME -DF=0"),
    "sessions: a session is gone with its last eligible task": (
        "sessions",
        "-DDRAIN_BY_NEXT -DPOLICY=3 -DREDRIVES -DMARK=2 -DF=0",
    ),
    "sessions: only the first tasks are marked": ("sessions", "-DFAIL_ONCE -DPOLICY=3 -DF=0"),
    "sessions: an unblock while tasks are to fail": ("sessions", "-DUNBLOCK_DOOMED -DPOLICY=3 -DF=0"),
    "sessions: an unblock reads before it waits": (
        "sessions",
        "-DUNBLOCK_UNSEEN -DPOLICY=2 -DREDRIVES -DF=0",
    ),
    "limits: a pick reads before it waits for the resource": ("limits", "-DADMIT_ONE"),
    "limits: a pick does not lock the resource": ("limits", "-DADMIT_UNLOCKED"),
    "limits: an end reads before it waits for the resource": ("limits", "-DFREE_ONE"),
    "limits: a cancel of a released task releases nobody": ("limits", "-DCANCEL_KEEPS -DF=0"),
    "limits: a move of a released task releases nobody": ("limits", "-DMOVE_KEEPS -DMOVE=1 -DCANCEL=9 -DF=0"),
    "limits: a reclaim frees nothing": ("limits", "-DRECLAIM_KEEPS"),
    "limits: an end frees what it does not hold": ("limits", "-DBLIND_FREE -DF=0"),
    "limits: a change of the capacity does not wait": ("limits", "-DCAPACITY_ONE -DRAISE -DCAPACITY=0 -DF=0"),
    "limits: a cancel reads before it waits for the resource": ("limits", "-DCANCEL_IN_ONE -DF=0"),
    "limits: an end locks the resource before the session": ("limits", "-DRESOURCE_FIRST -DSESSION -DF=0"),
    "limits: an end waits for a row that a pick keeps locked": (
        "limits",
        "-DWAIT_FOR_PARKED -DSTALE -DCANCEL=9 -DF=0",
    ),
    "limits: an end waits for a row that a cancel keeps locked": (
        "limits",
        "-DWAIT_FOR_PARKED -DBATCH -DF=0",
    ),
    "limits: an end waits for a row whose cancel found the key gone": (
        "limits",
        "-DWAIT_FOR_PARKED -DKEYED -DCANCEL=0 -DF=0",
    ),
    "limits: a row that a pick keeps locked is forgotten": ("limits", "-DUNNOTED -DSTALE -DCANCEL=9 -DF=0"),
    "limits: a row that a cancel keeps locked is forgotten": ("limits", "-DUNNOTED -DBATCH -DF=0"),
    "graphs: an end reads before it waits for the graph": ("graphs", "-DONE_STATEMENT"),
    "graphs: an end does not lock the graph": ("graphs", "-DNO_LOCK"),
    "graphs: the end of a doomed node decides again": ("graphs", "-DDOOM_TWICE -DANY"),
    "graphs: a doomed node is judged again": ("graphs", "-DREVIVE"),
    "graphs: a cancel reads before it waits for the graph": ("graphs", "-DCANCEL_IN_ONE -DCANCEL"),
    "graphs: a cancel does not lock the graph": ("graphs", "-DCANCEL_FREES -DCANCEL"),
    "graphs: a result does not compare": ("graphs", "-DUNCOMPARED -DCANCEL -DF=1"),
}


def said(run: tuple[str, str], folder: Path) -> str:
    model, switches = run
    return check((FOLDER / model).with_suffix(".pml"), switches, folder, ends=True)


@pytest.mark.parametrize("run", HOLDS.values(), ids=HOLDS)
@pytest.mark.timeout(TIME_S + 60)
def test_what_waits_is_released(run, tmp_path):
    assert "errors: 0" in said(run, tmp_path)


@pytest.mark.skipif(not EXHAUSTIVE, reason="takes minutes together: make models")
@pytest.mark.parametrize("run", LONG.values(), ids=LONG)
@pytest.mark.timeout(TIME_S + 60)
def test_what_waits_is_released_in_larger_models(run, tmp_path):
    assert "errors: 0" in said(run, tmp_path)


@pytest.mark.parametrize("run", FAILS.values(), ids=FAILS)
@pytest.mark.timeout(TIME_S + 60)
def test_without_its_guard_a_release_fails(run, tmp_path):
    assert "errors: 1" in said(run, tmp_path)
