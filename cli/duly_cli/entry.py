"""What the installed `duly` runs: while the command is still being loaded, Ctrl-C ends it without a word."""

import signal
import sys

from duly_cli import light_start


def main() -> None:
    """Load the command, and run it."""
    handler = signal.signal(signal.SIGINT, signal.SIG_DFL)
    light_start.run(sys.argv[1:])
    from duly_cli.__main__ import main as run

    signal.signal(signal.SIGINT, handler)
    run()
