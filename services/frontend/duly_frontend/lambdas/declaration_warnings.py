"""Says what a host's log should say about a declaration that did not simply take the place of the one before."""

import shlex

from duly_core.lambdas.declarations import Verdict
from duly_core.lambdas.names import base_name
from duly_core.lambdas.policy import LambdaPolicy
from duly_core.lambdas.store import Registered
from duly_core.rpc.requests.problem import Problem
from duly_wire.v1 import task_pb2


def warning(declared: LambdaPolicy, registered: Registered) -> str:
    """Return what its owner should know of a declaration that was not refused; empty: nothing."""
    before = registered.before
    name, version = declared.name, declared.version
    if registered.verdict is Verdict.OLDER and before is not None:
        return (
            f"version {version!r} is older than {before.version!r}, which is in force and stays so: this host's tasks run "
            f"under its policy. To go back: duly lambdas rollback {name} {shlex.quote(version)}"
        )
    if registered.verdict is Verdict.DELETED:
        return (
            f"the lambda was deleted, and version {version!r} does not bring it back: remove the callback, declare a new "
            f"version, or let an operator run `duly lambdas restore {base_name(name)}` and restart this worker"
        )
    if registered.verdict is Verdict.CHANGED and before is not None and before.version == version:
        if before.owner != declared.owner:
            return ""
        return (
            f"another policy under the same version {version!r}: the worker that starts last holds, "
            "so give each build its own version"
        )
    return ""


def refusal(declared: LambdaPolicy, registered: Registered) -> Problem | None:
    """Return why a declaration is refused; None: it is not."""
    if registered.verdict is Verdict.NOT_OWNER:
        owned_by = f" by {registered.before.owner!r}" if registered.before and registered.before.owner else ""
        return Problem(
            "owner",
            f"the lambda is owned{owned_by}, and {declared.owner or 'nobody'!r} declares it: use another name, or let an "
            f"operator run `duly lambdas transfer {base_name(declared.name)} --to OWNER`",
            task_pb2.ERROR_CODE_NOT_OWNER,
        )
    if registered.verdict is Verdict.NO_LAMBDA:
        return Problem("name", f"declare the lambda {base_name(declared.name)!r} before its versions")
    return None
