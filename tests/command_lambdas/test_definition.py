"""The file of command lambdas: what it says, and how its mistakes are told."""

from datetime import timedelta
from pathlib import Path

import pytest

import duly
from duly.command_lambdas import application
from duly.command_lambdas.definition import read_file

FILE = """
owner = "team-data"
version = "3"

[lambdas."chores/run"]
programs = ["ps", "/bin/cat"]
inherit = ["TZ", "NOT_SET"]
environment = ["LANG"]
set = { MODE = "batch" }
max_runtime = "90s"
transfer_time = "1m"
stop_grace = "2s"
memory_limit = "64MiB"
process_limit = 9
output_limit = 1000
folder_limit = "2GiB"
max_attempts = 3
requires = ["gpu"]
backoff = { initial = "1s", factor = 3 }

[lambdas."chores/run".exit_codes]
1 = "success"
2 = "fatal"
75 = { snooze = "5m" }
"""


def test_a_file_says_what_may_run_and_how_much_of_the_host_it_gets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    (tmp_path / "commands.toml").write_text(FILE)

    definition = read_file(tmp_path / "commands.toml")

    (found,) = definition.lambdas
    assert (definition.owner, definition.version, found.name) == ("team-data", "3", "chores/run")
    assert found.programs.keys() == {"ps", "/bin/cat"}
    assert all(Path(each).is_absolute() for each in found.programs.values())
    assert found.environment == {"PATH": "/usr/local/bin:/usr/bin:/bin", "TZ": "UTC", "MODE": "batch"}
    assert (found.settable, found.shell) == (frozenset({"LANG"}), "")
    limits = found.memory_limit, found.process_limit, found.output_limit, found.folder_limit
    assert limits == (64 << 20, 9, 1000, 2 << 30)
    assert found.exit_codes == {1: "success", 2: "fatal", 75: timedelta(minutes=5)}
    assert (found.max_runtime, found.stop_grace) == (timedelta(seconds=90), timedelta(seconds=2))
    assert found.policy.max_runtime == timedelta(seconds=152)
    assert (found.policy.max_attempts, found.policy.requires) == (3, ["gpu"])
    assert found.policy.backoff == duly.Backoff(initial=timedelta(seconds=1), factor=3)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("", "allows nothing: name programs"),
        ('programs = ["no-such-program"]', "programs: 'no-such-program' is not installed here"),
        ('programs = ["bin/ps"]', "write a name, or an absolute path"),
        ("programs = 1", "programs: must be a list of texts"),
        ('shell = "no-such-shell"', "shell: must be true, false or a shell that is installed"),
        (
            'programs = ["ps"]\nenvironment = ["LD_PRELOAD"]',
            "environment: LD_PRELOAD decides which code runs",
        ),
        ('programs = ["ps"]\nenvironment = ["PATH"]', "environment: PATH decides which code runs"),
        ('programs = ["ps"]\nmemory_limit = "lots"', "memory_limit: 'lots' is no size"),
        ('programs = ["ps"]\nprocess_limit = 0', "process_limit: must be a whole number from 1"),
        ('programs = ["ps"]\nmax_runtime = "soon"', "max_runtime: 'soon' is no duration"),
        ('programs = ["ps"]\nmax_runtime = "400d"', "max_runtime: '400d' is no duration"),
        ('programs = ["ps"]\nstop_grace = "1m"', "stop_grace: at most 8s"),
        ('programs = ["ps"]\nexit_codes = { 256 = "fatal" }', "exit_codes.256: exit codes are 0 to 255"),
        ('programs = ["ps"]\nexit_codes = { 2 = "bad" }', 'exit_codes.2: is "success", "fatal"'),
        ('programs = ["ps"]\nexit_codes = { 2 = { snooze = "x" } }', "exit_codes.2"),
        ('programs = ["ps"]\nset = { A = 1 }', "set.A: must be a text"),
        ('programs = ["ps"]\nmemory = "1GiB"', "memory: unknown here: there are programs, shell"),
        ('programs = ["ps"]\nmax_attempts = 0', "max_attempts"),
        ('programs = ["ps"]\nrequires = ["A b"]', "A b"),
    ],
)
def test_a_mistake_is_told_by_its_place_in_the_file(tmp_path: Path, line: str, problem: str) -> None:
    file = tmp_path / "commands.toml"
    file.write_text(f'[lambdas."chores/run"]\n{line}\n')

    with pytest.raises(duly.RegistrationError) as refused:
        application(str(file))

    assert problem in str(refused.value)
    assert str(file) in str(refused.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no lambdas"),
        ("lambdas = 1", "lambdas: must be a table"),
        ('folder = "/no/such/folder"', "folder: /no/such/folder is no folder"),
        ("= 1", "not TOML"),
        ('[lambdas."Chores Run"]\nshell = true', "is not a lambda name"),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "commands.toml").write_text(text)

    with pytest.raises(duly.RegistrationError, match=problem):
        application(str(tmp_path / "commands.toml"))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(duly.RegistrationError, match="No such file"):
        application(str(tmp_path / "commands.toml"))


def test_a_user_who_may_not_run_python_is_told_before_any_command_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "commands.toml").write_text(FILE)
    (tmp_path / "python").touch(mode=0o600)
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))

    with pytest.raises(duly.RegistrationError, match="may not run it"):
        application(str(tmp_path / "commands.toml"))
