"""What can be said about deploy/ without a container engine: it names things that exist."""

import ast
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from datetime import timedelta
from pathlib import Path
from typing import Any

import botocore
import botocore.session
import pytest
import yaml
from psycopg.conninfo import conninfo_to_dict

from duly_autoscaler.drivers import aws
from duly_console.session_cookie import SessionCookies
from duly_controller.settings import DrainSettings
from duly_core.config.settings import parse_duration
from duly_core.queues import sqs
from duly_core.queues.settings import QueueSettings
from duly_local.all_settings import sections
from tests.fixtures.command_help import help_of, options

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
ENVIRONMENTS = sorted((DEPLOY / "env").glob("*.env"))
CONTAINERFILE = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
KNOWN = {f"DULY_{section.SECTION}_{name}".upper() for section in sections() for name in section.model_fields}


def compose() -> dict[str, Any]:
    loaded = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


def our_services() -> dict[str, dict[str, Any]]:
    return {name: service for name, service in compose()["services"].items() if "build" in service}


def unit_settings(unit: Path) -> dict[str, str]:
    lines = unit.read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if re.match(r"[A-Za-z]+=", line))


def command_of(unit: Path) -> list[str]:
    return shlex.split(unit_settings(unit)["ExecStart"])


@pytest.mark.parametrize("name", our_services())
def test_a_compose_service_runs_a_command_that_exists(name: str) -> None:
    command, *arguments = our_services()[name]["command"]

    said = help_of(command)

    assert said is not None, f"duly {command} --help fails"
    assert [option for option in options(arguments) if option not in said] == []


def test_a_compose_service_that_stays_up_has_a_health_check() -> None:
    lasting = {name: service for name, service in compose()["services"].items() if name != "migrate"}

    assert [name for name, service in lasting.items() if "healthcheck" not in service] == []
    for name, service in our_services().items():
        check = service.get("healthcheck")
        if name == "console":  # its health is a page
            assert check["test"][:3] == ["CMD", "python", "-c"]
            assert "http://127.0.0.1:7480/healthz" in check["test"][3]
            compile(check["test"][3], "healthcheck", "exec")
        else:
            assert check is None or check["test"][:3] == ["CMD", "duly", "health"]
    assert help_of("health") is not None


def test_compose_services_wait_for_services_that_exist() -> None:
    services = compose()["services"]

    for service in services.values():
        assert set(service.get("depends_on", {})) <= set(services)


def test_compose_runs_the_services_in_one_process_or_in_one_each() -> None:
    services = our_services()
    by_profile = {
        profile: {
            service["command"][0] for service in services.values() if profile in service.get("profiles", ())
        }
        for profile in ("server", "separate")
    }

    assert by_profile == {"server": {"server"}, "separate": {"frontend", "store-consumer", "hsc"}}
    names = services["server"]["networks"]["default"]["aliases"]
    worker = services["worker"]["environment"]
    addresses = (worker["DULY_CONTROLLER_FRONTEND_ADDRESS"], worker["DULY_CONTROLLER_HSC_ADDRESS"])
    assert {address.partition(":")[0] for address in addresses} == set(names) <= set(services)


def test_compose_mounts_and_builds_from_folders_that_exist() -> None:
    for service in our_services().values():
        assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
        for volume in service.get("volumes", []):
            assert (DEPLOY / volume.partition(":")[0]).is_dir()


def test_a_compose_service_has_settings_that_exist_and_a_user_of_postgres_of_its_own() -> None:
    services = our_services()
    users = {}

    for name, service in services.items():
        environment = service["environment"]
        assert set(environment) <= KNOWN | {"PYTHONPATH"}
        if name in ("worker", "console"):
            assert not any(variable.startswith("DULY_STORE") for variable in environment)
            assert service.get("secrets", []) == ([] if name == "worker" else ["console_key"])
            continue
        (secret,) = service["secrets"]
        address = conninfo_to_dict(environment["DULY_STORE_DSN"])
        users[name] = address["user"]
        assert address.get("password") is None
        assert environment["DULY_STORE_PASSWORD_FILE"] == f"/run/secrets/{secret}"
        assert secret == users[name]

    assert len(set(users.values())) == len(users)
    assert users["migrate"] == "duly"


def test_the_console_of_compose_serves_this_machine_alone_and_finds_the_frontend_of_both_profiles() -> None:
    services = our_services()
    environment = services["console"]["environment"]

    assert "profiles" not in services["console"]
    assert services["console"]["ports"] == ["127.0.0.1:7480:7480"]
    assert environment["DULY_CONSOLE_LISTEN"] == "0.0.0.0:7480"
    assert environment["DULY_CONSOLE_SECRET_FILE"] == "/run/secrets/console_key"
    host = environment["DULY_CONSOLE_FRONTEND_ADDRESS"].partition(":")[0]
    assert host in services["server"]["networks"]["default"]["aliases"]
    assert host in services
    # nobody signs in where the Frontend asks nobody who calls
    asks = any("DULY_AUTH_MODE" in service["environment"] for service in services.values())
    assert (environment["DULY_CONSOLE_ALLOW_REMOTE_ANONYMOUS"] == "true") is not asks


def test_each_password_of_compose_is_made_and_each_user_gets_one(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"

    subprocess.run([DEPLOY / "make-secrets", folder], check=True)
    made = {path.name: path.read_text() for path in folder.iterdir()}
    subprocess.run([DEPLOY / "make-secrets", folder], check=True)

    assert {path.name: path.read_text() for path in folder.iterdir()} == made  # none anew
    assert set(made) == set(compose()["secrets"])
    (folder / "console_key").chmod(0o600)  # here it is our own; in the container it is mounted
    SessionCookies.open(str(folder / "console_key"), timedelta(hours=1))
    assert len(made.pop("console_key").split()) == 1
    assert set(made) == set(compose()["services"]["postgres"]["secrets"])
    assert len(set(made.values())) == len(made)
    assert all(len(password) == 48 for password in made.values())
    assert folder.stat().st_mode & 0o777 == 0o700
    users = (DEPLOY / "postgres" / "users.sql").read_text(encoding="utf-8")
    assert set(made) - {"postgres"} <= set(re.findall(r"'(\w+)'", users))


def test_the_image_of_hosts_has_the_worker_alone() -> None:
    stages = re.findall(r"^FROM \S+ AS (\S+)$", CONTAINERFILE, re.MULTILINE)
    installs = re.findall(r"pip install --quiet \"\.\[([^\]]+)\]\"", CONTAINERFILE)

    assert "host" in stages
    assert stages[-1] == "duly"  # the last one is built if none is named
    assert installs == ["${HOST_EXTRAS}", "services,worker"]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    (services,) = extras["services"]
    assert "console" in re.split(r"[\[\],]", services)  # the image can run `duly console`
    assert "ARG HOST_EXTRAS=worker\n" in CONTAINERFILE
    for service in our_services().values():
        build = service["build"]
        assert build["target"] == ("host" if service["command"][0] == "worker" else "duly")
        assert build.get("args", {"HOST_EXTRAS": "worker"}) == {"HOST_EXTRAS": "worker"}


def test_the_image_copies_what_exists() -> None:
    sources = [
        source
        for line in re.findall(r"^COPY (?!--from)(.+)$", CONTAINERFILE, re.MULTILINE)
        for source in line.split()[:-1]
    ]

    assert sources
    assert [source for source in sources if not (ROOT / source).exists()] == []


def test_the_image_copies_every_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]

    for package in packages:
        assert f"COPY {package.partition('/')[0]} " in CONTAINERFILE


def test_the_image_does_not_run_as_root() -> None:
    users = re.findall(r"^USER (\S+)", CONTAINERFILE, re.MULTILINE)

    assert users
    assert set(users) == {"10001"}


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_runs_a_command_that_exists(unit: Path) -> None:
    program, command, *arguments = command_of(unit)

    said = help_of(command)

    assert Path(program).name == "duly"
    assert said is not None, f"duly {command} --help fails"
    assert [option for option in options(arguments) if option not in said] == []


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_drains_comes_back_and_holds_no_privileges(unit: Path) -> None:
    settings = unit_settings(unit)

    assert settings["KillMode"] == "mixed"
    assert settings["Restart"] == "on-failure"
    assert settings["NoNewPrivileges"] == "yes"
    if "console" in unit.name:  # a user of its own: it cannot look into the servers
        assert settings["DynamicUser"] == "yes"
        assert "User" not in settings
    else:
        assert settings["User"] == ("duly-worker" if "worker" in unit.name else "duly")


HARDENED = {
    "AmbientCapabilities": "",
    "CapabilityBoundingSet": "",
    "LockPersonality": "yes",
    "PrivateDevices": "yes",
    "PrivateTmp": "yes",
    "ProtectHome": "yes",
    "ProtectKernelModules": "yes",
    "ProtectKernelTunables": "yes",
    "ProtectSystem": "strict",
    "RestrictSUIDSGID": "yes",
    "UMask": "0077",
}


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_is_hardened_and_a_worker_may_still_make_cgroups(unit: Path) -> None:
    settings = unit_settings(unit)

    assert settings.items() >= HARDENED.items()
    if "worker" in unit.name:
        assert settings["Delegate"] == "yes"
        assert "ProtectControlGroups" not in settings  # it makes all groups read-only
    else:
        assert settings["ProtectControlGroups"] == "yes"
        assert settings["SystemCallFilter"] == "@system-service"


def test_a_worker_is_killed_by_systemd_only_after_its_drain() -> None:
    (worker,) = [unit for unit in UNITS if "worker" in unit.name]

    allowed = parse_duration(unit_settings(worker)["TimeoutStopSec"])

    assert allowed >= DrainSettings().drain_grace + timedelta(seconds=20)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_reads_what_all_share_and_a_file_of_its_own(unit: Path) -> None:
    own = unit.name.removeprefix("duly-").removesuffix(".service").replace("@", "-%i")

    files = re.findall(r"^EnvironmentFile=(.+)$", unit.read_text(encoding="utf-8"), re.MULTILINE)

    assert files == ["-/etc/duly/duly.env", f"/etc/duly/{own}.env"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_only_what_needs_the_store_is_given_its_password(unit: Path) -> None:
    text = unit.read_text(encoding="utf-8")
    own = unit.name.removeprefix("duly-").removesuffix(".service")

    if "worker" in unit.name:
        assert "LoadCredential" not in text
        assert "STORE" not in text
    elif own == "console":
        assert "STORE" not in text
        credentials = re.findall(r"^(?:LoadCredential|Environment)=(.+)$", text, re.MULTILINE)
        assert credentials == [
            "console-keys:/etc/duly/console.keys",
            "DULY_CONSOLE_SECRET_FILE=%d/console-keys",
        ]
    else:
        assert f"LoadCredential=store-password:/etc/duly/{own}.password\n" in text
        assert "Environment=DULY_STORE_PASSWORD_FILE=%d/store-password\n" in text


def variables_of(file: Path) -> dict[str, str]:
    lines = file.read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


@pytest.mark.parametrize("file", ENVIRONMENTS, ids=lambda file: file.name)
def test_an_environment_file_sets_what_exists_and_holds_no_password(file: Path) -> None:
    found = variables_of(file)

    assert found
    assert set(found) <= KNOWN | {"DULY_APP"}
    assert conninfo_to_dict(found.get("DULY_STORE_DSN", "")).get("password") is None
    if file.name in {"duly.env", "worker-mail.env", "console.env"}:
        assert [name for name in found if name.startswith("DULY_STORE")] == []


def test_there_is_an_environment_file_for_every_unit() -> None:
    names = {unit.name.removeprefix("duly-").removesuffix(".service").replace("@", "-mail") for unit in UNITS}

    assert {file.stem for file in ENVIRONMENTS} == names | {"duly"}


SQS_CALLS = {
    "store-consumer": ("sender", "depth", "queues"),
    "controller": ("receiver", "queues"),
}
"""By IAM policy: the modules that the process calls SQS from."""


@pytest.mark.parametrize("policy", SQS_CALLS)
def test_an_iam_policy_allows_the_calls_that_the_code_makes_and_no_others(policy: str) -> None:
    (statement,) = json.loads((DEPLOY / "iam" / f"{policy}.json").read_text(encoding="utf-8"))["Statement"]
    folder = Path(sqs.__file__).parent

    called = {
        action
        for name in SQS_CALLS[policy]
        for action in _actions_of((folder / f"{name}.py").read_text(encoding="utf-8"))
    }

    assert statement["Action"] == sorted(f"sqs:{action}" for action in called)
    assert statement["Resource"].endswith(f":{QueueSettings.model_fields['prefix'].default}-*")


def _actions_of(code: str, service: str = "sqs") -> set[str]:
    """What a module calls: boto3's methods by their names in strings or as attributes, and the long poll."""
    nodes = list(ast.walk(ast.parse(code)))
    said = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    if service != "sqs":
        said |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    polls = any(isinstance(node, ast.Attribute) and node.attr == "poll" for node in nodes)
    model = botocore.session.get_session().get_service_model(service)
    methods = {botocore.xform_name(name): name for name in model.operation_names}
    # a batch needs the right of the single call
    return {methods[name].removesuffix("Batch") for name in said & methods.keys()} | (
        {"ReceiveMessage"} if polls and service == "sqs" else set()
    )


def test_the_policy_of_the_autoscaler_allows_the_calls_of_its_driver_and_no_others() -> None:
    statements = json.loads((DEPLOY / "iam" / "autoscaler.json").read_text(encoding="utf-8"))["Statement"]
    code = Path(aws.__file__).read_text(encoding="utf-8")

    called = {
        f"{service}:{action}" for service in ("autoscaling", "ec2") for action in _actions_of(code, service)
    }

    assert {action for each in statements for action in each["Action"]} == called
    anywhere = {action for each in statements if each["Resource"] == "*" for action in each["Action"]}
    assert all(action.partition(":")[2].startswith("Describe") for action in anywhere)


def test_there_is_a_unit_for_every_service() -> None:
    names = {unit.name for unit in UNITS}

    assert names == {
        "duly-server.service",
        "duly-frontend.service",
        "duly-store-consumer.service",
        "duly-hsc.service",
        "duly-console.service",
        "duly-autoscaler.service",
        "duly-worker@.service",
    }


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed: install systemd"
)
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_finds_nothing_wrong_with_a_unit(unit: Path, tmp_path: Path) -> None:
    # It insists that the program exists, and an instance has a name.
    copy = tmp_path / unit.name.replace("@.", "@pool.")
    text = unit.read_text(encoding="utf-8").replace("/opt/duly/bin/duly", sys.executable)
    copy.write_text(text, encoding="utf-8")

    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    # Older releases do not know these, say so, and ignore them, which the unit's comments allow for.
    newer = ("RestartSteps", "RestartMaxDelaySec", "DelegateSubgroup")
    complaints = [
        line
        for line in done.stderr.splitlines()
        if unit.name.split("@")[0].removesuffix(".service") in line
        and not any(name in line for name in newer)
    ]
    assert (done.returncode, complaints) == (0, []), done.stderr


def test_the_example_settings_are_toml_and_their_durations_can_be_read() -> None:
    settings = tomllib.loads((DEPLOY / "duly.example.toml").read_text(encoding="utf-8"))

    assert settings
    for section in settings.values():
        for value in section.values():
            if isinstance(value, str) and re.fullmatch(r"\d[\d.smhdu]*", value):
                parse_duration(value)
