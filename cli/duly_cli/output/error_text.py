"""The SDK's errors as the command line says them: they name its options, not the wire's fields."""

import re

import duly
from duly.callbacks.lambda_of import ScheduleOptions

_OPTIONS = {name: f"--{name.replace('_', '-')}" for name in sorted(ScheduleOptions.__optional_keys__)} | {
    "scheduled_at": "--at",
    "statuses": "--status",
    "priorities": "--priority",
    "failure_kinds": "--kind",
    "finished_after": "--since",
    "finished_before": "--until",
    "rate": "--rate",
    "limit": "--limit",
}
# Words of English are replaced only where they head the message.
_FIELD = re.compile("|".join(rf"\b{name}\b" if "_" in name else rf"\b{name}(?=: )" for name in _OPTIONS))


def error_text(error: Exception) -> str:
    """Return the message of an error that a command ends with."""
    text = str(error)
    cause: object = error
    if isinstance(error, duly.ScheduleManyError):
        cause = next((each for each in error.results if isinstance(each, duly.DulyError)), error)
    if getattr(cause, "field", "") not in _OPTIONS:
        return text
    return _FIELD.sub(lambda found: _OPTIONS[found[0]], text)
