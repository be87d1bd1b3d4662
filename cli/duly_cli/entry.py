"""What the installed `duly` runs: while the command is still being loaded, Ctrl-C ends it without a word."""

import signal


def main() -> None:
    """Load the command, and run it."""
    handler = signal.signal(signal.SIGINT, signal.SIG_DFL)
    from duly_cli.__main__ import main as run

    signal.signal(signal.SIGINT, handler)
    run()
