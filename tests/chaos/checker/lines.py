"""One line of evidence about anything in a history. Instants are seconds since the run started."""

from tests.chaos.history import Execution, Fault, FinalRow, Transition


class Lines:
    """Writes them, for one run."""

    def __init__(self, started_ns: int) -> None:
        self._started_ns = started_ns

    def at(self, instant_ns: int) -> str:
        return f"{(instant_ns - self._started_ns) / 1e9:+.6f} s"

    def execution(self, execution: Execution) -> str:
        until = (
            "no end" if execution.ended_ns is None else f"{self.at(execution.ended_ns)} {execution.outcome}"
        )
        return (
            f"execution {self.at(execution.started_ns)} .. {until}, fence {execution.fence}, attempt"
            f" {execution.attempt}, process {execution.process}{'' if execution.alone else ', not alone'}"
            f" ({execution.line})"
        )

    def transition(self, move: Transition) -> str:
        token = (
            f", token {_short(move.token_before)} -> {_short(move.token)}, shown {_short(move.last_token)}"
        )
        return (
            f"write {move.sequence} at {self.at(move.at_ns)}: {move.before or '(none)'} -> {move.after or '(none)'},"
            f" fence {move.fence_before} -> {move.fence}, failures {move.failures_before} -> {move.failures},"
            f" crashes {move.crashes_before} -> {move.crashes}{token}, by {move.application}, txid {move.txid}"
        )

    def final(self, row: FinalRow | None) -> str:
        if row is None:
            return "no row"
        return (
            f"row: status {row.status or '(none)'}, assoc {row.assoc_status or '(none)'}, fence {row.fence},"
            f" failures {row.failures}, crashes {row.crashes}, failure kind {row.failure_kind}"
        )

    def fault(self, fault: Fault) -> str:
        detail = f" ({fault.detail})" if fault.detail else ""
        return f"fault {fault.kind} on {fault.target}, {self.at(fault.from_ns)} .. {self.at(fault.until_ns)}{detail}"


def _short(token: str) -> str:
    return token[:8] or "(none)"
