"""What the alert rules find in the metrics of real situations, as Prometheus's own `promtool` evaluates them."""

import shutil
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from prometheus_client import REGISTRY

import duly
from duly_core.gates.cache import GateCache
from duly_core.lambdas.names import QueueKey
from duly_core.problems.kinds import Kind, Severity
from duly_store_consumer.counting.backlog_watch import BacklogWatch
from duly_store_consumer.gate_loop import GateLoop
from duly_wire.enums import Priority
from tests.fixtures.task_states import LAMBDA

RULES = Path(__file__).parents[2] / "deploy/prometheus/duly.rules.yaml"
PROMTOOL = shutil.which("promtool")
MINUTE = timedelta(minutes=1)
QUEUES = [QueueKey(LAMBDA, priority) for priority in Priority]
GAUGES = (
    "duly_oldest_ready_seconds",
    "duly_backlog_tasks",
    "duly_gated_backlog_tasks",
    "duly_serving_slots",
    "duly_problems",
    "duly_lambda_problems",
)
NORMAL = f'{{lambda="{LAMBDA}",priority="normal"}}'
SOUND = {
    'up{job="duly"}': "1x600",
    "duly_last_round_timestamp_seconds": "0+600x600",
    "duly_problem_board_timestamp_seconds": "0+600x600",
    'duly_executors{instance="w"}': "2x600",
}
"""What a sound installation shows, each minute for ten hours."""

pytestmark = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed: install prometheus")


def shown():
    """What this process shows of the backlog."""
    found = {}
    for metric in REGISTRY.collect():
        for sample in metric.samples if metric.name in GAUGES else ():
            labels = ",".join(f'{name}="{value}"' for name, value in sample.labels.items())
            found[f"{sample.name}{{{labels}}}"] = sample.value
    return found


def lasting(metrics):
    """The same values for two hours."""
    return {name: f"{value}x120" for name, value in metrics.items()}


def starts(late, step):
    """The histogram of an Executor: so many runs between two samples, and the share of them that began later than 5 s."""
    series = {"5.0": step * (1 - late), "+Inf": step}
    named = {
        f'duly_start_lateness_seconds_bucket{{le="{le}",lambda="{LAMBDA}"}}': f"0+{each}x600"
        for le, each in series.items()
    }
    return named | {f'duly_start_lateness_seconds_count{{lambda="{LAMBDA}"}}': f"0+{step}x600"}


def firing(tmp_path, series, alerts, at="90m", interval="1m"):
    """Evaluate the rules on these series; the alerts that fire must be these, by name and further labels."""
    samples = [
        {"labels": f'ALERTS{{alertname="{name}",alertstate="firing",{labels}}}', "value": 1}
        for name, labels in alerts
    ]
    of_one_test = {
        "interval": interval,
        "input_series": [{"series": name, "values": each} for name, each in (SOUND | series).items()],
        "promql_expr_test": [
            {"expr": 'ALERTS{alertstate="firing"}', "eval_time": at, "exp_samples": samples}
        ],
    }
    path = tmp_path / "test.yaml"
    path.write_text(
        yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": interval, "tests": [of_one_test]})
    )
    return promtool("test", "rules", path)


def promtool(*arguments):
    """What it complains about."""
    done = subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, timeout=120, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_promtool_finds_the_rules_correct():
    assert promtool("check", "rules", RULES) == ""


@pytest.fixture
def look(store, task_states, board):
    """Returns what is shown of the backlog and of problems, once gates, backlog and board were looked at."""
    gates = GateCache(store)
    watch = BacklogWatch(store, lambda: QUEUES, gates)
    loop = GateLoop(store, gates, lambda: [LAMBDA], lambda *_: None, has_queues=False)

    async def looked():
        await gates.run_once()
        await loop.run_once()
        await watch.run_once()
        await board.run_once()
        return shown()

    return looked


async def test_what_is_held_on_purpose_raises_no_alert_and_what_nobody_serves_does(
    look, task_states, client, clock, tmp_path
):
    await client.put_resource("zero", 0)
    await client.put_gate("spring", duly.GateKind.PAUSE, LAMBDA, collection="spring")
    for fields in ({"resources": ["zero"]}, {"session": "s"}, {"session": "s"}, {"collection": "spring"}):
        await client.schedule(LAMBDA, **fields)
    await look()  # parks what the gate holds
    await task_states.take_of(LAMBDA)  # the head of the session; parks what has no units
    await clock.tick(10 * MINUTE)
    held = await look()
    await client.put_gate("black-friday", duly.GateKind.PAUSE, LAMBDA)
    await client.schedule(LAMBDA)
    await clock.tick(10 * MINUTE)
    paused = await look()
    await client.delete_gate("black-friday")
    released = await look()
    await clock.tick(2 * MINUTE)
    unserved = await look()

    assert firing(tmp_path, lasting(held), []) == ""
    assert firing(tmp_path, lasting(paused), []) == ""
    assert paused[f"duly_gated_backlog_tasks{NORMAL}"] == 1
    # time under the gate is no time that it waited for a worker
    assert released[f"duly_oldest_ready_seconds{NORMAL}"] < MINUTE.total_seconds()
    alerts = [
        ("TasksWait", f'lambda="{LAMBDA}",severity="page"'),
        ("BacklogExceedsSlots", f'lambda="{LAMBDA}",severity="ticket"'),
    ]
    assert firing(tmp_path, lasting(unserved), alerts) == ""


FAST, SLOW = ("StartsBurnFast", 'severity="page"'), ("StartsBurnSlowly", 'severity="ticket"')


@pytest.mark.parametrize(
    ("late", "step", "at", "interval", "alerts"),
    [
        pytest.param(0.04, 80, "8h", "4m", [], id="within the budget"),
        pytest.param(0.10, 80, "8h", "4m", [SLOW], id="beyond it for days"),
        pytest.param(0.80, 20, "90m", "1m", [FAST, SLOW], id="most of them"),
        pytest.param(0.80, 0.2, "90m", "1m", [], id="few runs"),
    ],
)
def test_the_objective_alerts_by_how_fast_its_budget_goes(tmp_path, late, step, at, interval, alerts):
    assert firing(tmp_path, starts(late, step), alerts, at, interval) == ""


def test_a_lambda_with_an_objective_of_its_own_is_left_to_the_board(tmp_path):
    late = starts(0.8, 20) | {
        f'duly_start_lateness_seconds_bucket{{le="60.0",lambda="{LAMBDA}"}}': "0+20x600"
    }
    # two Frontends show it
    own = {f'duly_start_objective_seconds{{lambda="{LAMBDA}",instance="{n}"}}': "600x600" for n in "ab"}

    assert firing(tmp_path, late | own, [], "90m", "1m") == ""
    others = {'duly_start_objective_seconds{lambda="another"}': "1x600"}
    tasks_late = ("TasksLate", f'lambda="{LAMBDA}",severity="page"')
    assert firing(tmp_path, late | others, [FAST, SLOW, tasks_late], "90m", "1m") == ""


def calls(failed, step):
    """Counters of Frontends: so many calls between two samples, and the share of them that failed; most others are refused."""
    by_verdict = {"accepted": step * (1 - failed), "failed": step * failed, "refused": 100 * step}
    return {
        f'duly_schedule_calls_total{{verdict="{verdict}"}}': f"0+{each}x600"
        for verdict, each in by_verdict.items()
    }


CALLS_FAST, CALLS_SLOW = ("CallsBurnFast", 'severity="page"'), ("CallsBurnSlowly", 'severity="ticket"')


@pytest.mark.parametrize(
    ("failed", "step", "at", "interval", "alerts"),
    [
        pytest.param(0.0005, 10_000, "8h", "4m", [], id="within the budget"),
        pytest.param(0.002, 10_000, "8h", "4m", [CALLS_SLOW], id="beyond it for days"),
        pytest.param(0.5, 100, "90m", "1m", [CALLS_FAST, CALLS_SLOW], id="half of them"),
        pytest.param(0.5, 0.05, "90m", "1m", [], id="few calls"),
    ],
)
def test_calls_that_fail_alert_by_how_fast_their_budget_goes(tmp_path, failed, step, at, interval, alerts):
    assert firing(tmp_path, calls(failed, step), alerts, at, interval) == ""


def on_board(kind, severity):
    """What a Frontend shows of a problem of a lambda."""
    labels = f'kind="{kind.name.lower()}",severity="{severity.name.lower()}"'
    return {f"duly_problems{{{labels}}}": 1, f'duly_lambda_problems{{lambda="{LAMBDA}",{labels}}}': 1}


OF_LAMBDA = f'lambda="{LAMBDA}",'
PAGES = {
    Kind.NO_HOST: ("TasksWait", OF_LAMBDA),
    Kind.SLOTS_HELD: ("TasksWait", OF_LAMBDA),
    Kind.LATE: ("TasksWait", OF_LAMBDA),
    Kind.BREAKER_OPEN: ("BreakerOpen", OF_LAMBDA),
    Kind.BUDGET_BURNS: ("BudgetBurns", OF_LAMBDA),
    Kind.SERVICE_AWAY: ("ServiceAway", ""),
    Kind.CELL_AWAY: ("CellAway", ""),
}
"""Of what is critical."""
TICKETS = {
    Kind.DEAD_LETTERS: ("DeadLetters", OF_LAMBDA),
    Kind.SESSIONS_BLOCKED: ("SessionsBlocked", ""),
    Kind.CLOCKS_APART: ("ClocksDiffer", ""),
    Kind.POOL_DRIVER_FAILS: ("PoolDriverFails", ""),
    Kind.CERTIFICATE_EXPIRES: ("CertificateExpires", ""),
} | {
    kind: ("BoardProblem", f'kind="{kind.name.lower()}",')
    for kind in (
        Kind.BUDGET_BURNS,
        Kind.LATE,
        Kind.LAMBDA_GONE,
        Kind.NOTIFICATIONS_FAIL,
        Kind.RESOURCE_FULL,
        Kind.SILENT_HOSTS,
        Kind.STORE_SLOW,
        Kind.TOKEN_EXPIRES,
    )
}
"""Of what is a warning."""


@pytest.mark.parametrize("kind", [*Kind], ids=lambda kind: kind.name)
def test_each_problem_of_the_board_has_its_alert_and_information_has_none(tmp_path, kind):
    assert firing(tmp_path, lasting(on_board(kind, Severity.INFORMATION)), []) == ""
    for severity, of_kinds, how in (
        (Severity.CRITICAL, PAGES, 'severity="page"'),
        (Severity.WARNING, TICKETS, 'severity="ticket"'),
    ):
        if kind in of_kinds:
            name, labels = of_kinds[kind]
            assert firing(tmp_path, lasting(on_board(kind, severity)), [(name, labels + how)]) == ""


def test_a_budget_that_is_of_no_lambda_pages_too(tmp_path):
    """Of calls, or of the starts of all lambdas together."""
    labels = 'kind="budget_burns",severity="critical"'

    assert (
        firing(tmp_path, lasting({f"duly_problems{{{labels}}}": 1}), [("BudgetBurns", 'severity="page"')])
        == ""
    )


def test_only_what_somebody_wants_or_a_board_cannot_keep_has_no_alert():
    assert {*Kind} - {*PAGES, *TICKETS} == {Kind.PAUSED, Kind.STORE_AWAY}


def test_a_board_that_nobody_computes_is_told(tmp_path):
    stopped = {"duly_problem_board_timestamp_seconds": "0x600"}

    assert firing(tmp_path, stopped, [("BoardStale", 'severity="ticket"')]) == ""
