"""The verdict on a run: a list of claims, each of which holds or not, with what the run has to show for it. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from duly_local.demo.checker import Findings
from duly_local.demo.executions import Execution
from duly_local.demo.figures import Account
from duly_local.demo.killing import Killing


@dataclass(frozen=True, slots=True)
class Claim:
    """One thing that the demo is to show."""

    name: str
    """Its key in `--json`."""
    holds: bool
    text: str
    """In words, with the figures."""
    faults: Sequence[str] = ()
    """What speaks against it, one by one."""


def claims_of(
    findings: Findings,
    account: Account,
    tasks: int,
    failures: tuple[int, int],
    unreadable: int,
) -> list[Claim]:
    """What holds for every run. `failures`: first attempts that were to fail, and those that did."""
    wanted, happened = failures
    compared = tasks - len(findings.changed)
    changed = f"; {len(findings.changed):,} files changed meanwhile" if findings.changed else ""
    lost, concurrent = len(findings.lost), len(findings.concurrent)
    ended = tasks - len(findings.lost) - len(findings.failed)
    faults = [*findings.unexplained, *([f"{unreadable} lines are no record"] if unreadable else [])]
    return [
        Claim("lost", not lost, f"{lost:,} tasks lost: each has an execution that ended", findings.lost),
        Claim(
            "concurrent",
            not concurrent,
            f"{concurrent:,} tasks ran twice at the same time",
            findings.concurrent,
        ),
        Claim(
            "succeeded",
            not findings.failed,
            f"{ended:,} of {tasks:,} tasks ended in SUCCESS",
            findings.failed,
        ),
        Claim(
            "results",
            not findings.wrong,
            f"{compared - len(findings.wrong):,} of {compared:,} results equal hashing the file directly{changed}",
            findings.wrong,
        ),
        Claim(
            "retried",
            bool(happened) or not wanted,
            f"{happened:,} of {wanted:,} planned first attempts failed, and were tried again",
        ),
        Claim(
            "explained",
            not faults,
            f"{account.total:,} executions: {account.succeeded:,} ended well, {account.failed:,} failed, "
            f"{account.cut_off:,} cut off by the kill, {account.repeated:,} repeated",
            faults,
        ),
    ]


def claim_of_killing(killing: Killing | None, executions: Collection[Execution]) -> Claim:
    """What holds where an Executor was to be killed."""
    if killing is None:
        return Claim("killed", holds=False, text="no Executor was killed: none was found running")
    pids = killing.callback_processes
    cut_off = sum(execution.ended_boot_ns is None and execution.pid in pids for execution in executions)
    if killing.gone_after_s is None:
        return Claim("killed", holds=False, text=f"Executor {killing.executor} survived kill -9")
    if killing.successor is None:
        return Claim("killed", holds=False, text=f"nothing took the place of Executor {killing.executor}")
    heirs = killing.successor_callback_processes
    ran = sum(execution.pid in heirs for execution in executions)
    return Claim(
        "killed",
        holds=True,
        text=f"Executor {killing.executor} was killed with {cut_off} callbacks running; "
        f"its successor {killing.successor} ran {ran:,}",
    )
