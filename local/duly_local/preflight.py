"""Checks what the processes of a stack will be told, before any of them starts: settings and applications.

In a process of its own (`python -m duly_local.preflight MODULE:APP ...`): an application is foreign code.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import timedelta

from duly_core.errors import DulyError, SettingsError
from duly_core.process.parent import PARENT_PID, die_with_parent

_WITHIN = timedelta(seconds=60)
"""An application that takes longer to import is left to its worker, which has a limit of its own."""


def check(apps: Sequence[str]) -> None:
    """Return if the settings are usable and the applications can be imported, as far as can be told.

    Raises:
        SettingsError: a setting or an application is unusable; has a line for each problem, and what to do.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-m", "duly_local.preflight", *apps],
            env=os.environ | {PARENT_PID: str(os.getpid())},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=_WITHIN.total_seconds(),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return
    if done.returncode == os.EX_CONFIG:
        raise SettingsError(done.stdout.decode(errors="replace").strip())


def problems(apps: Sequence[str]) -> list[str]:
    """Return what is wrong with the settings of all processes, and with the applications."""
    from duly.callbacks.loading import load_app
    from duly.errors import AppImportError
    from duly_executor.settings import ExecutorSettings
    from duly_executor.slots.reservations import Reservation, check_served
    from duly_local.all_settings import sections
    from duly_local.declarations import declaration_problem

    found = []
    reservations: Sequence[Reservation] = ()
    for section in sections():
        try:
            settings = section.load()
        except DulyError as error:
            found.append(str(error))
        else:
            reservations = settings.reservations if isinstance(settings, ExecutorSettings) else reservations
    for app in apps:
        try:
            loaded = load_app(app)
            check_served(reservations, loaded.callbacks, app)
            if problem := declaration_problem(loaded):
                found.append(f"{app}: {problem}")
        except (AppImportError, SettingsError) as error:
            found.append(str(error))
    return list(dict.fromkeys(found))


def main() -> None:
    """Print the problems, and nothing that an application prints; exit 78 if there are any."""
    die_with_parent()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out, open(os.devnull, "wb") as nothing:  # noqa: PTH123
        os.dup2(nothing.fileno(), 1)
        os.dup2(nothing.fileno(), 2)
        found = problems(sys.argv[1:])
        out.write("\n".join(found))
    os._exit(os.EX_CONFIG if found else 0)  # an application may have started threads that nobody ends


if __name__ == "__main__":
    main()
