"""What an operator is told of a value that a setting cannot have: pydantic's words are for programmers."""

import re
from datetime import timedelta

from pydantic_core import ErrorDetails

from duly_core.config.durations import format_duration

_KINDS = {
    "string": "text in quotes",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "time_delta": "a duration in quotes, such as 250ms, 2s or 1m30s",
}
_WORDS = (
    ("Input should be ", "must be "),
    ("greater than or equal to", "at least"),
    ("less than or equal to", "at most"),
    ("greater than", "more than"),
)
NO_JSON = 'must be JSON: a list, such as ["a", "b"], or an object, such as {"a": {"b": 1}}'
_SHORT = 40
_LONGEST_KEY = 80
_MICROSECONDS = re.compile(r"\b(\d+) microseconds\b")
"""As pydantic writes 10 ms."""


def in_plain_words(problem: ErrorDetails) -> str:
    """Say what the value must be, and what it is unless that is long or has a shape of its own."""
    for name, meaning in _KINDS.items():
        if problem["type"].startswith(f"{name}_"):
            return f"must be {meaning}{_shown(problem['input'])}"
    text = problem["msg"]
    if problem["type"] == "value_error":  # our own words
        return text.removeprefix("Value error, ")
    for theirs, ours in _WORDS:
        text = text.replace(theirs, ours)
    text = _MICROSECONDS.sub(lambda found: format_duration(timedelta(microseconds=int(found[1]))), text)
    return f"{text}{_shown(problem['input'])}"


def shown_key(key: int | str) -> str:
    """Return a key of a table: short, and without a path, for a URL in the wrong place may be a secret."""
    begin, is_path, _ = str(key).partition("/")
    return f"{begin[:_SHORT]}/***" if is_path else str(key)[:_LONGEST_KEY]


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return f", not {str(value).lower()}"
    if isinstance(value, int | float) or (isinstance(value, str) and len(value) <= _SHORT):
        return f", not {value!r}"
    return ""
