"""Which files a new project has, and what is in them."""

import keyword
import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

_TEMPLATES = Path(__file__).parent / "templates"
_TARGETS = {
    "README.md": "README.md",
    "pyproject.toml": "pyproject.toml",
    "Containerfile": "Containerfile",
    "containerignore": ".containerignore",
    "gitignore": ".gitignore",
    "launch.json": ".vscode/launch.json",
    "package.py": "PACKAGE/__init__.py",
    "app.py": "PACKAGE/app.py",
    "test_app.py": "tests/test_app.py",
}
_LONGEST = 40
_TAKEN = frozenset({"duly", "pytest", "tests", "test"})
_OUR_PACKAGES = "duly_"
"""How the names of Duly's other packages begin."""


class NewProjectError(Exception):
    """The project cannot be made; nothing was written."""


def package_name(folder: Path) -> str:
    """Return the name that a folder's name suggests: `Mail-Sender` makes `mail_sender`."""
    return re.sub(r"[-. ]+", "_", folder.resolve().name.lower())


def check_name(name: str) -> str:
    """Return what is wrong with the name of a package; empty: nothing.

    It is the name of a folder, of a Python package and of the project, and the first word of lambdas' names.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or len(name) > _LONGEST:
        return f"{name!r} is no name of a package: write at most {_LONGEST} of a-z, 0-9 and _, with a letter first"
    if keyword.iskeyword(name) or keyword.issoftkeyword(name):
        return f"{name!r} is a word of Python's own"
    if name in sys.stdlib_module_names or name in _TAKEN:
        return f"{name!r} is the name of another package, which your project would hide"
    if name.startswith(_OUR_PACKAGES):
        return f"{name!r} begins with {_OUR_PACKAGES}, as the names of Duly's own packages do: choose another"
    return ""


def project_files(name: str, owner: str) -> Mapping[str, str]:
    """Return the files of a project by their paths in its folder."""
    return {
        target.replace("PACKAGE", name): _filled(
            (_TEMPLATES / f"{template}.template").read_text("utf-8"), name, owner
        )
        for template, target in _TARGETS.items()
    }


def write_project(folder: Path, files: Mapping[str, str]) -> None:
    """Write the files of a project; none that is there is touched.

    Raises:
        NewProjectError: some of them exist, or the folder cannot be written.
    """
    there = [name for name in files if os.path.lexists(folder / name)]
    if there:
        raise NewProjectError(f"{folder} has {', '.join(there)}: name another folder, or move them away")
    folders: list[Path] = []
    written: list[Path] = []
    try:
        for name, content in files.items():
            path = folder / name
            for missing in reversed([each for each in path.parents if not each.exists()]):
                missing.mkdir()
                folders.append(missing)
            with path.open("x", encoding="utf-8") as file:
                written.append(path)
                file.write(content)
    except OSError as error:
        for path in written:
            path.unlink(missing_ok=True)
        for made in reversed(folders):
            with suppress(OSError):  # somebody else has written into it
                made.rmdir()
        raise NewProjectError(f"cannot write {error.filename or folder}: {error.strerror}") from error


def _filled(text: str, name: str, owner: str) -> str:
    quoted = owner.replace("\\", "\\\\").replace('"', '\\"')
    return text.replace("{{package}}", name).replace("{{owner}}", quoted)
