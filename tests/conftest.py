"""Loads the shared fixtures; each stands in a module of its own under tests/fixtures."""

import gc
import os
import signal
import sys

from hypothesis import HealthCheck, settings

# A background job of a shell without job control, and nohup, ignore these; programs that tests start would inherit that.
for _signal, _handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_signal) is signal.SIG_IGN:
        signal.signal(_signal, _handler)


# How long an example takes says nothing on a busy machine. Hypothesis knows this of CI; the rest of its profile stays.
settings.register_profile("duly", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("duly")

# Where this is set, as in many containers, every program of the tests compiles Duly anew, and pytest every test file.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# What collecting the tests makes stays until the end: half a million objects, which each full collection would look through.
gc.disable()


def pytest_collection_finish() -> None:
    """Leave what is there alone from now on."""
    gc.freeze()
    gc.enable()


# Tests start programs while calls are under way. gRPC's fork handlers then begin threads in the child, which
# crash before it has become the program. gRPC reads this when it is imported: before the plugins below.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
# As the `duly` command has it.
os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_client,-event_engine_listener")

pytest_plugins = [
    "tests.fixtures.clock",
    "tests.fixtures.subreaper",
    "tests.fixtures.identity_provider",
    "tests.fixtures.known_sections",
    "tests.fixtures.roles",
    "tests.fixtures.task_states",
    "tests.fixtures.time_tables",  # after task_states, which it imports
    "tests.fixtures.dead_letters",  # after task_states, which it imports
    "tests.fixtures.moto",
    "tests.fixtures.postgres",
    "tests.fixtures.cells",  # after postgres, which it imports
    "tests.fixtures.base_release",  # after postgres, which it imports
    "tests.fixtures.logical_postgres",  # after postgres, which it imports
    "tests.fixtures.embedded",  # after postgres, which it imports
    "tests.fixtures.postgres_versions",  # after postgres, which it imports
    "tests.fixtures.programs",
    "tests.fixtures.queues",
    "tests.fixtures.services",
    "tests.fixtures.command_line",  # after services, which it imports
    "tests.fixtures.console",  # after services, which it imports
    "tests.fixtures.console_pages",
    "tests.fixtures.retention",
    "tests.fixtures.forked_process",
    "tests.fixtures.host",  # after those whose helpers it imports: pytest rewrites a module's asserts once
    "tests.fixtures.refusals",
    "tests.fixtures.callback_process",
    "tests.fixtures.controllers",
    "tests.fixtures.problems",  # after task_states, which it imports
    "tests.fixtures.receivers",
    "tests.fixtures.attachments",  # after services and task_states, which it imports
    "tests.fixtures.routed_cells",  # after services and postgres, which it imports
    "tests.fixtures.helm",
]
