"""What is reported of tasks that did not come to an end of their own."""

from duly.v1 import hsc_pb2, task_pb2


def cancelled(task: hsc_pb2.ClaimedTask) -> hsc_pb2.TaskResult:
    """What is reported of a task that was stopped because somebody asked for it."""
    return hsc_pb2.TaskResult(claim=task.claim, outcome=hsc_pb2.OUTCOME_CANCELLED)


def ending_of(code: int) -> str:
    """How a process ended, by its exit code."""
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"


def crash(task: hsc_pb2.ClaimedTask, ending: str, suspects: int) -> hsc_pb2.TaskResult:
    """What is reported of a task whose process died while it ran that many."""
    company = "" if suspects == 1 else f" while it ran {suspects} tasks, any of which may be the cause"
    return hsc_pb2.TaskResult(
        claim=task.claim,
        outcome=hsc_pb2.OUTCOME_CRASHED,
        failure_kind=task_pb2.FAILURE_KIND_CRASH,
        failure_message=f"the callback's process {ending}{company}",
    )
