"""The process that makes cells: `python -m duly_local.cells JSON`, with the store in its environment.

A process of its own: what reaches Postgres would stay in the memory of `duly up`. Each line that it prints is JSON.
"""

import json
import os
import sys

from duly_core.errors import DulyError, SettingsError
from duly_core.postgres.settings import StoreSettings
from duly_core.process.parent import die_with_parent
from duly_local.cells.making import CellMaker


def main() -> None:
    """Make the cells; exit 78 if what is wanted is wrong, and 1 if it could not be done."""
    die_with_parent()
    asked = json.loads(sys.argv[1])
    try:
        maker = CellMaker(StoreSettings.load(), lambda text: _tell(say=text))
        directory = maker.run(asked["wanted"], asked["former"])
    except DulyError as error:
        _tell(error=str(error))
        sys.exit(os.EX_CONFIG if isinstance(error, SettingsError) else 1)
    if directory is not None:
        _tell(cells=sorted(directory.cells), default=directory.default_cell)


def _tell(**what: object) -> None:
    print(json.dumps(what), flush=True)  # noqa: T201 (for `duly up`)


if __name__ == "__main__":
    main()
