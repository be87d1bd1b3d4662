"""Payloads of the command line that cannot be read: wrong use, without a traceback."""

import pytest
import typer

from duly_cli.tasks.payloads import read_lines, read_payload


def test_an_integer_that_python_does_not_read_is_refused() -> None:
    with pytest.raises(typer.BadParameter, match="the payload has an integer with too many digits"):
        read_payload("1" * 5_000, raw=False)
    with pytest.raises(typer.BadParameter, match="the payload in line 2 has an integer with too many digits"):
        read_lines("1\n" + "1" * 5_000)
