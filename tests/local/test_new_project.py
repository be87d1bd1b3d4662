"""`duly init`: what it writes, what it refuses, and that it changes no file that exists."""

import ast
import json
import re
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from duly_cli.__main__ import app
from duly_local.new_project.files import NewProjectError, check_name, project_files, write_project


def init(*words: str) -> Result:
    return CliRunner().invoke(app, ["init", *words], env={"COLUMNS": "300"})


def contents(folder: Path) -> dict[str, str]:
    """Return all files of a folder."""
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_it_makes_the_folder_and_says_what_to_do_next(tmp_path: Path) -> None:
    made = init(str(tmp_path / "Mail-Sender"), "--owner", 'the "mail" team')

    assert made.exit_code == 0, made.stderr
    assert f"cd {tmp_path}/Mail-Sender" in made.stdout
    assert "pip install -e '.[dev]'" in made.stdout
    assert "duly up mail_sender.app:app" in made.stdout
    files = contents(tmp_path / "Mail-Sender")
    assert files == project_files("mail_sender", 'the "mail" team')
    assert 'owner="the \\"mail\\" team"' in files["mail_sender/app.py"]
    for name, text in files.items():
        assert "{{" not in text, name
        if name.endswith(".py"):
            ast.parse(text)
    assert (
        tomllib.loads(files["pyproject.toml"])["tool"]["pytest"]["ini_options"]["duly_app"]
        == "mail_sender.app:app"
    )
    without_comments = re.sub(r"^ *//.*\n", "", files[".vscode/launch.json"], flags=re.MULTILINE)
    assert len(json.loads(without_comments)["configurations"]) == 3


def test_this_folder_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "notes.txt").write_text("mine")
    monkeypatch.chdir(tmp_path / "shop")

    made = init()

    assert made.exit_code == 0, made.stderr
    assert "cd " not in made.stdout
    assert (tmp_path / "shop" / "shop" / "app.py").exists()
    assert (tmp_path / "shop" / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("there", ["README.md", "tests/test_app.py", ".gitignore"])
def test_no_file_is_overwritten_and_none_is_written_beside(tmp_path: Path, there: str) -> None:
    (tmp_path / "shop" / there).parent.mkdir(parents=True)
    (tmp_path / "shop" / there).write_text("mine")

    refused = init(str(tmp_path / "shop"))

    assert refused.exit_code == 1
    assert f"has {there}: " in refused.stderr
    assert contents(tmp_path / "shop") == {there: "mine"}


def test_a_link_that_leads_nowhere_is_a_file_too(tmp_path: Path) -> None:
    (tmp_path / "README.md").symlink_to(tmp_path / "elsewhere")

    refused = init(str(tmp_path), "--name", "shop")

    assert (refused.exit_code, [*tmp_path.iterdir()]) == (1, [tmp_path / "README.md"])


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "tests").write_text("no folder")

    refused = init(str(tmp_path), "--name", "shop")

    assert refused.exit_code == 1
    assert refused.stderr.startswith("duly init: cannot write ")
    assert contents(tmp_path) == {"tests": "no folder"}
    assert [*tmp_path.iterdir()] == [tmp_path / "tests"]


def test_folders_that_were_made_are_removed_and_those_that_were_there_stay(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()

    with pytest.raises(NewProjectError, match="cannot write"):
        write_project(tmp_path / "there" / "new", {"a/b/one.txt": "1", "a/b/one.txt/two.txt": "2"})

    assert [*tmp_path.rglob("*")] == [tmp_path / "there"]


@pytest.mark.parametrize(
    "name",
    ["", "9x", "a-b", "Mail", "a.b", "class", "match", "json", "duly", "duly_shop", "tests", "a" * 41, "é"],
)
def test_a_name_that_is_no_package_is_refused(tmp_path: Path, name: str) -> None:
    assert check_name(name)
    if name:
        refused = init(str(tmp_path / "new"), "--name", name)
        assert refused.exit_code == 2
        assert not (tmp_path / "new").exists()


def test_the_image_names_no_registry_and_copies_what_there_is() -> None:
    files = project_files("shop", "me")

    (base,) = re.findall(r"^FROM (.+)$", files["Containerfile"], re.MULTILINE)
    (source,) = re.findall(r"^COPY (\S+) ", files["Containerfile"], re.MULTILINE)
    assert base == "duly-host"  # as deploy/Containerfile names it
    assert any(name.startswith(f"{source}/") for name in files)
    assert f"!{source}\n" in files[".containerignore"]
