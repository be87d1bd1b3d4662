"""`duly logs`: what a task prints and logs while it runs."""

import codecs
import json
from typing import Annotated

import typer

import duly
from duly_cli.output.safe_text import say, say_part
from duly_cli.startup.option_values import parse_member
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, AsJson, add_to_tasks, connected


def add_commands(app: typer.Typer) -> None:
    """Add `logs`."""
    add_to_tasks(app, logs)


def logs(
    task_id: Annotated[str, typer.Argument(metavar="TASK_ID", help="The task.")],
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on, through later runs, until the task ends.")
    ] = False,
    stream: Annotated[
        str | None, typer.Option(help="Only this stream: stdout, stderr, log.", show_default=False)
    ] = None,
    run: Annotated[
        int | None,
        typer.Option(
            help="Only this run, by its number (fence). Without it: the last one that wrote something.",
            min=1,
            show_default=False,
        ),
    ] = None,
    tail_bytes: Annotated[
        int,
        typer.Option(
            "--tail", metavar="BYTES", help="Only about so many bytes at the end. 0: all that is kept.", min=0
        ),
    ] = 0,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show what a task printed and logged.

    Control characters are shown, not obeyed. What is not output of the task, such as how much was left out, goes to stderr.
    """
    wanted = None if stream is None else parse_member("--stream", stream, duly.OutputStream, "a stream")
    printer = _Printer()
    with connected(address) as client:
        for piece in client.output(task_id, follow=follow, run=run, tail_bytes=tail_bytes):
            if as_json:
                _print_json(piece, wanted)
            else:
                printer.show(piece, wanted)
    if not as_json:
        printer.end()
        if not printer.has_shown:
            say("[it has written nothing that is kept]", err=True)


def _print_json(piece: duly.OutputPiece, wanted: duly.OutputStream | None) -> None:
    if wanted not in (None, piece.stream):
        return
    said = {
        "run": piece.run,
        "stream": piece.stream.name.lower(),
        "written_at": piece.written_at.isoformat(),
        "left_out_bytes": piece.left_out_bytes,
        "text": piece.data.decode("utf-8", "replace"),
    }
    say(json.dumps(said))


class _Printer:
    """Prints pieces as they come; each stream has lines, and characters, of its own."""

    def __init__(self) -> None:
        self._run = 0
        self.has_shown = False
        """Whether there was any output, of whatever stream."""
        self._last: duly.OutputStream | None = None
        self._line_is_open = False
        self._decoders: dict[duly.OutputStream, codecs.IncrementalDecoder] = {}

    def show(self, piece: duly.OutputPiece, wanted: duly.OutputStream | None) -> None:
        """Print a piece, unless another stream is wanted."""
        self.has_shown = True
        if piece.run != self._run:
            self.end()
            if self._run or piece.run > 1:
                self._note(f"run {piece.run}")
            self._run = piece.run
        if piece.left_out_bytes:
            self._note(f"{piece.left_out_bytes:,} bytes left out")
            self._decoders.clear()
        if wanted not in (None, piece.stream):
            return
        if piece.stream is not self._last:
            self._end_line()
        self._last = piece.stream
        self._print(self._decoder(piece.stream).decode(piece.data))

    def end(self) -> None:
        """Print what is begun of a character, and end the line: the run is over."""
        for decoder in self._decoders.values():
            self._print(decoder.decode(b"", final=True))
        self._decoders.clear()
        self._end_line()

    def _decoder(self, stream: duly.OutputStream) -> codecs.IncrementalDecoder:
        if stream not in self._decoders:
            self._decoders[stream] = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        return self._decoders[stream]

    def _print(self, text: str) -> None:
        if text:
            self._line_is_open = not text.endswith("\n")
            say_part(text)

    def _end_line(self) -> None:
        if self._line_is_open:
            say_part("\n")
            self._line_is_open = False

    def _note(self, text: str) -> None:
        self._end_line()
        say(f"[{text}]", err=True)
