"""The rules of CONTRIBUTING.md that a machine can check."""

import ast
import functools
import os
import re
import shutil
import statistics
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.moves import MOVES

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES = [ROOT / package for package in PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]]
GENERATED = [ROOT / "wire" / "duly_wire" / package for package in ("v1", "externalscaler")]
TOOLS = Path(sys.executable).parent

MAX_MEDIAN_LINES = 150


PROGRAMS_WITHOUT_GRPC = {
    "scripts/failed_again.py",
    "scripts/resolved_sql.py",
    "scripts/sbom_licences.py",
    "benchmarks/driver.py",  # whoever starts it says what gRPC reads; rivals have none of Duly
    "benchmarks/plot.py",
    "benchmarks/report.py",
    "benchmarks/soak/plot.py",
    "benchmarks/soak/report.py",
    "tests/chaos/checker/__main__.py",
}


@functools.cache
def product() -> tuple[Path, ...]:
    """Every hand-written module of the product."""
    modules = [module for package in PACKAGES for module in sorted(package.rglob("*.py"))]
    return tuple(module for module in modules if module.parent not in GENERATED)


@functools.cache
def parsed(module: Path) -> ast.Module:
    return ast.parse(module.read_text(encoding="utf-8"), str(module))


def calls(module: Path) -> Iterator[tuple[str, ast.Call]]:
    """Every call in a module, with the last part of the name it goes by: `time.sleep(1)` is a `sleep`."""
    for node in ast.walk(parsed(module)):
        if isinstance(node, ast.Call):
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            yield name, node


def place(module: Path, node: ast.AST) -> str:
    return f"{module.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a tool in the repository's root, with the tools of this very environment first on PATH."""
    path = os.pathsep.join([str(TOOLS), os.environ.get("PATH", os.defpath)])
    return subprocess.run(
        [str(part) for part in command],
        cwd=ROOT,
        env={"BUF_CACHE_DIR": str(Path(sys.prefix) / "buf"), **os.environ, "PATH": path, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=55,
        check=False,
    )


def assert_succeeds(*command: str | Path, **environment: str) -> None:
    done = run(*command, **environment)

    assert done.returncode == 0, f"{done.stdout}{done.stderr}"


# ---- who may import whom -------------------------------------------------------------------------------


def test_imports_keep_to_the_contracts() -> None:
    assert_succeeds("lint-imports", "--no-cache", "--no-logo")


def test_what_a_callback_process_loads_does_not_load_grpc() -> None:
    contracts = PYPROJECT["tool"]["importlinter"]["contracts"]
    (contract,) = (contract for contract in contracts if contract["id"] == "callback-process")
    modules, forbidden = contract["source_modules"], set(contract["forbidden_modules"])
    program = f"import sys, {', '.join(modules)}; print(*sorted({forbidden!r} & sys.modules.keys()))"

    done = run(sys.executable, "-c", program)

    assert (done.returncode, done.stdout.strip()) == (0, ""), f"{done.stdout}{done.stderr}"


def test_importing_the_sdk_loads_the_wire_and_nothing_else() -> None:
    contracts = PYPROJECT["tool"]["importlinter"]["contracts"]
    (contract,) = (contract for contract in contracts if contract["id"] == "sdk")
    program = f"import sys, duly; print(*sorted({set(contract['forbidden_modules'])!r} & sys.modules.keys()))"

    done = run(sys.executable, "-c", program)

    assert (done.returncode, done.stdout.strip()) == (0, ""), f"{done.stdout}{done.stderr}"


# ---- modules -------------------------------------------------------------------------------------------


def test_the_median_module_is_small() -> None:
    sizes = {
        str(module.relative_to(ROOT)): len(module.read_text(encoding="utf-8").splitlines())
        for module in product()
        if "migrations" not in module.parts
    }

    assert statistics.median(sizes.values()) < MAX_MEDIAN_LINES


def test_every_module_says_what_it_is_for() -> None:
    silent = [place(module, parsed(module)) for module in product() if not ast.get_docstring(parsed(module))]

    assert silent == []


def test_the_product_runs_no_data_as_code() -> None:
    serializers = {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
    found = []
    for module in product():
        for node in ast.walk(parsed(module)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if any(name.partition(".")[0] in serializers for name in names):
                found.append(place(module, node))
        for name, call in calls(module):
            bare = isinstance(call.func, ast.Name)
            is_yaml = name in {"load", "load_all"} and ast.unparse(call.func).startswith("yaml.")
            if (bare and name in {"eval", "exec"}) or is_yaml:
                found.append(place(module, call))

    assert found == []


# ---- tests ---------------------------------------------------------------------------------------------


def test_tests_wait_for_events_and_never_for_time_to_pass() -> None:
    exempt = {
        "chaos",
        "zones",
        "fixtures",
    }  # the first two break things for a while, the other holds the one waiting loop
    sleeps = []
    for module in sorted((ROOT / "tests").rglob("*.py")):
        if exempt & set(module.relative_to(ROOT / "tests").parts):
            continue
        if "sleep" not in module.read_text(encoding="utf-8"):
            continue  # parsing all tests takes seconds
        for name, call in calls(module):
            yields_only = [ast.unparse(argument) for argument in call.args] == ["0"]  # asyncio.sleep(0)
            if name == "sleep" and not yields_only:
                sleeps.append(place(module, call))

    assert sleeps == []


def test_each_fixture_of_all_tests_has_a_name_of_its_own() -> None:
    """Modules of tests/fixtures are plugins: of two fixtures of one name, the later replaces the other without a word."""
    homes: dict[str, set[str]] = {}
    for module in sorted((ROOT / "tests" / "fixtures").rglob("*.py")):
        for each in ast.parse(module.read_text(encoding="utf-8")).body:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and any(
                "fixture" in ast.unparse(decorator) for decorator in each.decorator_list
            ):
                homes.setdefault(each.name, set()).add(module.name)

    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


# ---- the wire ------------------------------------------------------------------------------------------


def test_generated_stubs_are_fresh(tmp_path: Path) -> None:
    assert_succeeds(ROOT / "scripts" / "genproto", tmp_path, VENV=sys.prefix)

    fresh, committed = (
        {
            f"{folder.name}/{file.name}": file.read_text(encoding="utf-8")
            for folder in folders
            for file in folder.iterdir()
            if file.suffix in {".py", ".pyi"}
        }
        for folders in ([tmp_path / "duly_wire" / folder.name for folder in GENERATED], GENERATED)
    )
    assert fresh.keys() == committed.keys()
    assert [name for name in fresh if fresh[name] != committed[name]] == [], "run: make proto"


def test_protos_keep_to_the_style() -> None:
    assert_succeeds("buf", "lint")


def test_protos_are_formatted() -> None:
    assert_succeeds("buf", "format", "--diff", "--exit-code")


def test_protos_break_nothing_that_was_released() -> None:
    assert_succeeds("buf", "breaking", "--against", "proto/baseline.binpb")


# ---- documents and other files -------------------------------------------------------------------------


def test_the_lifecycle_document_lists_every_move_with_its_writer() -> None:
    text = (ROOT / "docs" / "lifecycle.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| (Frontend|Store Consumer|HSC)\b", text, re.MULTILINE)

    documented = [(name, writer.lower().replace(" ", "_")) for name, writer in rows]

    assert sorted(documented) == sorted((move.name, move.writer.value) for move in MOVES)


def test_the_lifecycle_diagram_draws_the_same_arrows() -> None:
    text = (ROOT / "docs" / "lifecycle.md").read_text(encoding="utf-8")
    (diagram,) = re.findall(r"```mermaid\n(.*?)```", text, re.DOTALL)
    drawn = set()
    for before, after, label in re.findall(r"^ +(\S+) --> (\w+)(?:: (.+))?$", diagram, re.MULTILINE):
        befores = {"[*]": [""], "held": ["claimed", "processing"]}.get(before, [before])
        drawn |= {(start, name, after) for start in befores for name in label.split(", ") if label}

    meant = {
        (before, move.name, after)
        for move in MOVES
        for before in (move.before or {""})
        for after in move.after
        if move.name not in {"request_cancel", "claim_repeated"}  # they change no status
    }
    assert drawn == meant


def committed_text() -> Iterator[tuple[Path, str]]:
    """Every text file that is, or is about to be, part of the repository."""
    if shutil.which("git") and (ROOT / ".git").exists():
        listed = run("git", "-c", f"safe.directory={ROOT}", "ls-files", "-co", "--exclude-standard", "-z")
        files = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        hidden = {".venv", ".git", ".duly", "__pycache__", "build", "dist"}
        files = [file for file in ROOT.rglob("*") if not hidden & set(file.relative_to(ROOT).parts)]
    for file in files:
        if file.is_file() and file.suffix not in {".binpb", ".png", ".ico", ".woff2", ".pyc"}:
            yield file, file.read_text(encoding="utf-8", errors="replace")


def test_no_file_names_a_place_on_somebodys_machine() -> None:
    somebodys = re.compile(r"(?<![\w.}*])/(?:home|root|Users|work)/\w")

    named = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for file, text in committed_text()
        for number, line in enumerate(text.splitlines(), start=1)
        if somebodys.search(line)
    ]

    assert named == []


def test_constraints_are_names_and_versions_only() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]

    assert pins
    assert [pin for pin in pins if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+_-]+", pin)] == []


@pytest.mark.parametrize(
    "script", ["scripts/genproto", "scripts/constraints", "scripts/findpython", ".ci/run"]
)
def test_scripts_are_sound_bash(script: str) -> None:
    assert os.access(ROOT / script, os.X_OK)
    assert_succeeds("bash", "-n", ROOT / script)


def test_every_program_sets_what_grpc_reads_before_it_imports_grpc():
    programs = [
        module
        for package in PACKAGES
        for module in package.glob("__main__.py")
        if package.name not in ("duly_cli", "duly")  # the first one's __init__ does
    ]
    tools = [
        module
        for folder in ("benchmarks", "scripts", "tests/chaos", "tests/zones", "tests/fuzz")
        for module in (ROOT / folder).rglob("*.py")
        if 'if __name__ == "__main__":' in module.read_text(encoding="utf-8")
        and module.relative_to(ROOT).as_posix() not in PROGRAMS_WITHOUT_GRPC
        and module.parent != ROOT / "benchmarks" / "rivals"  # they run without Duly
    ]
    assert {module.parent.name for module in programs} >= {"duly_controller", "duly_executor", "duly_server"}
    assert {module.parent.name for module in tools} >= {"benchmarks", "recovery", "incident", "chaos", "fuzz"}
    for module in (*programs, *tools):
        first = next(node for node in parsed(module).body if isinstance(node, (ast.Import, ast.ImportFrom)))
        assert ast.unparse(first) == "import duly_core.rpc.environment", module
