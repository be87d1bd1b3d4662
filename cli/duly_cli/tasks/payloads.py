"""Payloads as a command line gives them."""

import json
import sys
from typing import Annotated, Any

import typer

import duly
from duly.attachments.attachment import KEY, from_form

Payload = Annotated[
    str,
    typer.Argument(metavar="PAYLOAD", help="What the callback is given: JSON, or - for standard input."),
]
Raw = Annotated[bool, typer.Option("--raw", help="Send PAYLOAD as bytes, for a callback with raw=True.")]


def read_payload(text: str, *, raw: bool) -> Any:
    """Return the value of a PAYLOAD argument; `-` reads standard input."""
    if raw:
        return sys.stdin.buffer.read() if text == "-" else text.encode()
    return parse_json(sys.stdin.read() if text == "-" else text)


def read_lines(text: str) -> list[Any]:
    """Return the values of a PAYLOAD argument with a JSON text a line; `-` reads standard input."""
    source = sys.stdin.read() if text == "-" else text
    lines = enumerate(source.splitlines(), start=1)
    return [parse_json(line, f" in line {number}") for number, line in lines if line.strip()]


def parse_json(text: str, where: str = "") -> Any:
    """Return the value of a JSON text; `where` says in an error which one it is."""
    try:
        if KEY in text:  # such as a result that is given on
            return json.loads(text, object_hook=_with_attachments)
        return json.loads(text)
    except duly.PayloadError as error:
        raise typer.BadParameter(f"the payload{where} {error.problem}") from error
    except json.JSONDecodeError as error:
        fault = f"{error.msg}: column {error.colno}" if where else str(error)
        message = f"the payload{where} is invalid JSON: {fault} (a string needs its own quotes: '\"text\"')"
        raise typer.BadParameter(message) from error
    except ValueError:  # Python reads no integer of more than 4,300 digits
        raise typer.BadParameter(f"the payload{where} has an integer with too many digits") from None
    except RecursionError:
        raise typer.BadParameter(f"the payload{where} is nested too deeply") from None


def _with_attachments(found: dict[str, Any]) -> Any:
    return from_form(found[KEY], None) if len(found) == 1 and KEY in found else found
