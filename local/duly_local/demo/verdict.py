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
    """What was found, with the figures, so that it is true whether the claim holds or not."""
    remark: str = ""
    """What the text means."""
    faults: Sequence[str] = ()
    """What speaks against it, one by one."""


def claims_of(
    findings: Findings, account: Account, tasks: int, retries: tuple[int, int], unreadable: int
) -> list[Claim]:
    """What is to hold for every run.

    `retries`: first attempts that were to fail, and those that did, and whose tasks succeeded later;
    `unreadable`: lines of the log that are no record.
    """
    wanted, retried = retries
    lost, concurrent = len(findings.lost), len(findings.concurrent)
    others = tasks - findings.succeeded - lost - len(findings.failed)
    gone = f"; the files of {others:,} others were changed or gone" if others else ""
    equal = findings.compared - len(findings.wrong)
    changed = f"; {len(findings.changed):,} files changed meanwhile" if findings.changed else ""
    return [
        Claim(
            "succeeded",
            not findings.failed and not lost,
            f"{findings.succeeded:,} of {tasks:,} tasks ended in SUCCESS{gone}",
            faults=findings.failed,
        ),
        Claim(
            "results",
            not findings.wrong and findings.compared > 0,
            f"{equal:,} of {findings.compared:,} results equal hashing the file directly{changed}",
            faults=findings.wrong,
        ),
        Claim(
            "lost",
            not lost,
            f"{lost:,} tasks lost",
            "lost: never ended, or SUCCESS without an execution in the log that ended well",
            findings.lost,
        ),
        Claim(
            "concurrent",
            not concurrent,
            f"{concurrent:,} tasks ran twice at the same time",
            "by the instants in the log, and by a kernel lock that each execution holds",
            findings.concurrent,
        ),
        Claim(
            "retried",
            bool(retried) or not wanted,
            f"{retried:,} of {wanted:,} first attempts that were to fail did, and were retried",
        ),
        _claim_of_log(findings, account, unreadable),
    ]


def claim_of_killing(killing: Killing | None, executions: Collection[Execution]) -> Claim:
    """What is to hold where an Executor was to be killed."""
    if killing is None:
        return Claim("killed", holds=False, text="no Executor was killed: none was found running")
    if killing.gone_after_s is None:
        return Claim("killed", holds=False, text=f"Executor {killing.executor} survived kill -9")
    if killing.successor is None:
        return Claim("killed", holds=False, text=f"nothing took the place of Executor {killing.executor}")
    killed, heirs = killing.callback_processes, killing.successor_callback_processes
    victims = [execution for execution in executions if execution.pid in killed]
    cut_off = sum(execution.ended_boot_ns is None for execution in victims)
    # Its callback process outlives it by milliseconds, in which short callbacks may end.
    ending = f"{cut_off:,} never ended" if cut_off else "none was cut off"
    ran = sum(execution.pid in heirs for execution in executions)
    return Claim(
        "killed",
        holds=True,
        text=f"Executor {killing.executor} was killed with -9 while it ran {killing.running:,} callbacks; "
        + ending,
        remark=f"Executor {killing.successor} took its place, and ran {ran:,}",
    )


def _claim_of_log(findings: Findings, account: Account, unreadable: int) -> Claim:
    faults = list(findings.unexplained)
    if unreadable:
        faults.append(f"{unreadable:,} lines of the log are no record")
    text = (
        f"{account.total:,} executions = {account.succeeded:,} done + {account.failed:,} failed "
        f"+ {account.cut_off:,} cut off + {account.repeated:,} repeated"
    )
    remark = "repeated: it had been done, but its result was not stored yet when its Executor died"
    return Claim("log", not faults, text, remark if account.repeated else "", faults)
