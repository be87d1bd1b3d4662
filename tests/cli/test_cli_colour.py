"""Colours are seen on a terminal, and nowhere else; what others wrote makes none."""

import sys
from datetime import timedelta

import pytest
import typer

from duly_cli.output.colour import painted, status_style
from duly_cli.output.table import columns
from duly_cli.output.watching import parse_interval

ROWS = [("a", "fatal_failure", "\x1b[32mevil"), ("b", "new", "")]


@pytest.fixture
def lines(monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return list(columns(("TASK", "STATUS", "WHY"), ROWS, 80, styles={"STATUS": status_style}))


def test_a_terminal_sees_the_status_of_a_task_in_its_colour(lines):
    shown = painted(lines).split("\n")

    assert shown[1] == r"a     " + "\x1b[31mfatal_failure\x1b[0m" + r"  \x1b[32mevil"
    assert shown[2] == "b     new"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_who_wants_no_colours_sees_none(lines, monkeypatch, name, value):
    monkeypatch.setenv(name, value)

    assert painted(lines) == "\n".join(lines)
    assert "\x1b" not in painted(lines)


def test_a_pipe_gets_no_colours(lines, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)

    assert "\x1b" not in painted(lines)


def test_an_interval_may_be_a_number_of_seconds():
    assert parse_interval("2", "--watch") == parse_interval("2s", "--watch") == timedelta(seconds=2)
    assert parse_interval("0.5", "--watch") == timedelta(milliseconds=500)
    with pytest.raises(typer.BadParameter, match=r"at least 0\.2s"):
        parse_interval("0", "--watch")
