import pytest

import duly
from duly.callbacks.loading import load_app


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """A working directory whose modules no other test sees."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    monkeypatch.setattr("sys.modules", {**__import__("sys").modules})
    return tmp_path


def test_an_app_is_found_by_module_and_attribute_or_as_app(directory):
    (directory / "mail_tasks.py").write_text("import duly\napp = duly.App()\nclass Box: other = duly.App()")

    assert isinstance(load_app("mail_tasks"), duly.App)
    assert load_app("mail_tasks") is load_app("mail_tasks:app")
    assert load_app("mail_tasks:Box.other") is not load_app("mail_tasks:app")


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("", "mail_tasks.py:app", "is not a module: write it as in an import"),
        ("", "nowhere", "there is no module 'nowhere': run from the directory that contains it"),
        (
            "",
            "mail_tasks.nowhere",
            "'mail_tasks' is not a package|there is no module 'mail_tasks.nowhere'",
        ),
        (
            "import nothing_of_the_kind",
            "mail_tasks",
            "'mail_tasks' imports 'nothing_of_the_kind', which is not",
        ),
        ("1 / 0", "mail_tasks", "importing 'mail_tasks' failed: ZeroDivisionError"),
        ("import sys; sys.exit(3)", "mail_tasks", "importing 'mail_tasks' failed: SystemExit: 3"),
        ("import duly; tasks = duly.App()", "mail_tasks", "'mail_tasks' has no 'app'.*\"mail_tasks:tasks\""),
        ("app = 3", "mail_tasks", "'mail_tasks' is a int, not a duly.App"),
    ],
)
def test_an_app_that_cannot_be_loaded_is_an_error_that_says_what_to_do(directory, source, target, message):
    (directory / "mail_tasks.py").write_text(source)

    with pytest.raises(duly.AppImportError, match=message):
        load_app(target)


def test_of_an_import_that_fails_the_owners_lines_are_told_and_not_pythons(directory):
    (directory / "mail_tasks.py").write_text("import duly\nfrom mail_config import LIMIT\n")
    (directory / "mail_config.py").write_text("import json\n\nLIMIT = json.loads('{not json')\n")

    with pytest.raises(duly.AppImportError) as raised:
        load_app("mail_tasks")

    problem, *lines, advice = str(raised.value).splitlines()
    assert problem.startswith("importing 'mail_tasks' failed: JSONDecodeError: ")
    assert lines[:2] == [
        "  mail_tasks.py:2: from mail_config import LIMIT",
        "  mail_config.py:3: LIMIT = json.loads('{not json')",
    ]
    assert len(lines) == 3
    assert "decoder.py" in lines[2]
    assert advice == 'for the whole traceback: python -c "import mail_tasks"'
    assert raised.value.__cause__ is None


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("def broken(:", ["  mail_tasks.py:1: import mail_config", "  mail_config.py:1: def broken(:"]),
        ("import nothing", ["  mail_tasks.py:1: import mail_config", "  mail_config.py:1: import nothing"]),
        ("raise OSError", ["  mail_tasks.py:1: import mail_config", "  mail_config.py:1: raise OSError"]),
    ],
)
def test_the_line_at_fault_comes_last(directory, line, told):
    (directory / "mail_tasks.py").write_text("import mail_config")
    (directory / "mail_config.py").write_text(line)

    with pytest.raises(duly.AppImportError) as raised:
        load_app("mail_tasks")

    assert [each for each in str(raised.value).splitlines() if each.startswith("  ")] == told
