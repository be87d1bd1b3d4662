"""What the installed `duly` runs: while the command is still being loaded, Ctrl-C ends it without a word."""

import signal
import sys


def main() -> None:
    """Load the command, and run it."""
    handler = signal.signal(signal.SIGINT, signal.SIG_DFL)
    from duly_cli.startup import light_start  # only here: loading it takes a while, too

    light_start.run(sys.argv[1:])
    from duly_cli.__main__ import main as run

    run(on_loaded=lambda: signal.signal(signal.SIGINT, handler))
