"""The directory: which cells there are, and which namespace lives in which of them. No I/O."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from duly_core.errors import DulyError
from duly_core.lambdas.names import LAMBDA_NAME, NAMESPACE_MARK, namespace_of
from duly_core.postgres.settings import SCHEMA_NAME

CELL_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")


class DirectoryError(DulyError):
    """Directories contradict each other, or a change of the directory is not possible. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One store: an address of Postgres and a schema in it."""

    name: str
    address: str
    """A libpq connection string or URI, without a password."""
    schema: str
    """The schema in that database that has Duly's tables."""


@dataclass(frozen=True, slots=True)
class Directory:
    """All cells and namespaces of an installation, as of one version. Each cell keeps a copy."""

    installation: UUID
    """Tells installations apart: a directory of another one is never followed."""
    version: int
    """Grows by one with each change."""
    cells: Mapping[str, Cell]
    """By name."""
    namespaces: Mapping[str, str]
    """The name of the cell by namespace; a namespace that is not listed lives in the default cell."""
    default_cell: str
    """The name of the cell of all namespaces that are not listed, and of lambdas without a namespace."""

    def cell_of(self, namespace: str) -> str:
        """Return the name of the cell in which a namespace lives; empty: the default namespace."""
        return self.namespaces.get(namespace, self.default_cell)

    def cell_of_lambda(self, name: str) -> str:
        """Return the name of the cell in which a lambda lives; the name may be that of a queue."""
        return self.cell_of(namespace_of(name.partition("@")[0]))

    def digest(self) -> str:
        """Return what differs between two directories of one version that contradict each other."""
        text = json.dumps(
            [
                self.version,
                sorted((cell.name, cell.address, cell.schema) for cell in self.cells.values()),
                sorted(self.namespaces.items()),
                self.default_cell,
            ]
        )
        return hashlib.sha256(text.encode()).hexdigest()

    def with_cell(self, cell: Cell) -> "Directory":
        """Return the next version, in which a cell is added, or has another address or schema.

        Raises:
            DirectoryError: another cell has this address and schema, or a name is invalid.
        """
        if not CELL_NAME.fullmatch(cell.name):
            raise DirectoryError(f"cell {cell.name!r}: a name has 1 to 32 of a-z, 0-9, _ and -")
        if not SCHEMA_NAME.fullmatch(cell.schema):
            raise DirectoryError(
                f"schema {cell.schema!r}: a name has 1 to 40 of a-z, 0-9 and _, and begins with a letter or _"
            )
        for other in self.cells.values():
            if other.name != cell.name and (other.address, other.schema) == (cell.address, cell.schema):
                raise DirectoryError(f"cell {other.name} has this address and schema already")
        return replace(self, version=self.version + 1, cells={**self.cells, cell.name: cell})

    def without_cell(self, name: str) -> "Directory":
        """Return the next version, in which a cell is gone.

        Raises:
            DirectoryError: there is no such cell, it is the default cell, or namespaces live in it.
        """
        self._check_cell(name)
        if name == self.default_cell:
            raise DirectoryError(
                f"cell {name} is the default cell: it has all namespaces that are not listed"
            )
        living = sorted(namespace for namespace, cell in self.namespaces.items() if cell == name)
        if living:
            raise DirectoryError(f"cell {name} has namespaces: {', '.join(living[:5])}")
        return replace(
            self,
            version=self.version + 1,
            cells={each.name: each for each in self.cells.values() if each.name != name},
        )

    def with_namespace(self, namespace: str, cell: str) -> "Directory":
        """Return the next version, in which a namespace lives in a cell.

        Raises:
            DirectoryError: there is no such cell, it is the default namespace, or no lambda can be in it.
        """
        self._check_cell(cell)
        if not namespace:
            raise DirectoryError(f"the default namespace lives in the default cell, {self.default_cell}")
        if not LAMBDA_NAME.fullmatch(f"{namespace}{NAMESPACE_MARK}a"):
            raise DirectoryError(
                f"no lambda can be in {namespace!r}: a namespace is what stands before '/' in names of lambdas, such as mail of mail/send"
            )
        return replace(self, version=self.version + 1, namespaces={**self.namespaces, namespace: cell})

    def _check_cell(self, name: str) -> None:
        if name not in self.cells:
            raise DirectoryError(f"there is no cell {name}: there are {', '.join(sorted(self.cells))}")


def newest(found: Iterable[Directory], known: Directory | None = None) -> Directory | None:
    """Return the newest of what cells say and what is known; None: none of them has a directory.

    Raises:
        DirectoryError: two are of different installations, or of one version and not the same. Nothing is chosen.
    """
    best = known
    for each in found:
        if best is None:
            best = each
            continue
        if each.installation != best.installation:
            raise DirectoryError(
                f"directories of two installations: {best.installation} and {each.installation}"
            )
        if each.version == best.version and each.digest() != best.digest():
            raise DirectoryError(f"two directories are of version {each.version} and differ")
        if each.version > best.version:
            best = each
    return best
