import pytest

import duly
from duly.loading import load_app


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
        ("", "mail_tasks.py:app", "is no module: write it as in an import"),
        ("", "nowhere", "there is no module 'nowhere': run from the directory that contains it"),
        ("", "mail_tasks.nowhere", "'mail_tasks' is not a package|there is no module 'mail_tasks.nowhere'"),
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
