"""Finds what is surely wrong in a cron expression, where it is written. The Frontend, which has a parser, checks the rest."""

import re

_FIELDS = (
    ("minute", 0, 59, ""),
    ("hour", 0, 23, ""),
    ("day of the month", 1, 31, ""),
    ("month", 1, 12, "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC"),
    ("day of the week", 0, 7, "SUN MON TUE WED THU FRI SAT"),
)
_NUMBER = re.compile(r"[0-9]+")
_WORD = re.compile(r"[A-Za-z]{2,}")
_LETTERS = {"day of the month": "lw", "day of the week": "l"}
"""Letters that have a meaning of their own: L is the last."""


def cron_problem(expression: str) -> str:
    """Return why an expression cannot be one; empty: it may be one.

    >>> cron_problem("61 7 * * *")
    "'61 7 * * *' is no cron expression: 61 is no minute, which is 0 to 59"
    """
    if expression.strip().startswith("@"):
        return ""
    fields = expression.split()
    if len(fields) != len(_FIELDS):
        problem = f"it has {len(fields)} fields, and not five: minute hour day-of-month month day-of-week"
    else:
        problem = next(filter(None, map(_field_problem, fields, _FIELDS)), "")
    return f"{expression!r} is no cron expression: {problem}" if problem else ""


def _field_problem(text: str, field: tuple[str, int, int, str]) -> str:
    name, least, most, words = field
    for part in text.split(","):
        value = part.partition("/")[0].partition("#")[0]  # steps and "the n-th" have bounds of their own
        if not part:
            return f"an item of the {name} is empty"
        for number in _NUMBER.findall(value):
            if not least <= int(number) <= most:
                return f"{number} is no {name}, which is {least} to {most}"
        for word in _WORD.findall(value):
            if word.upper() not in words.split() and not set(word.lower()) <= set(_LETTERS.get(name, "")):
                return f"{word} is no {name}"
    return ""
