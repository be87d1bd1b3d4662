"""The pytest plugin: fixtures for tests of an application. It imports nothing of Duly before a test asks for a fixture."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    import duly
    from duly_local.testing.clock import DulyClock
    from duly_local.testing.stack import TestSession, TestStack
    from duly_local.testing.worker import DulyWorker

_STACK: pytest.StashKey[TestStack] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options of the ini file."""
    parser.addini("duly_app", "the application that duly_worker runs: MODULE:APP", default="")
    parser.addini("duly_postgres", "a Postgres server for duly_client, instead of one of its own", default="")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the tasks of a test that failed."""
    report = yield
    if report.failed and (stack := item.stash.get(_STACK, None)) is not None:
        from duly_local.testing.report import TITLE, section

        report.sections.append((TITLE, section(stack)))
    return report


@pytest.fixture(scope="session")
def duly_app(request: pytest.FixtureRequest) -> duly.App:
    """The application of the tests: the ini option `duly_app`, unless a test suite overrides this fixture."""
    named = str(request.config.getini("duly_app"))
    if not named:
        pytest.fail(
            'no application: write duly_app = "MODULE:APP" into [tool.pytest.ini_options] of pyproject.toml, or a fixture '
            "duly_app that returns yours",
            pytrace=False,
        )
    from duly.callbacks.loading import load_app

    return load_app(named)


@pytest.fixture(scope="session")
def duly_session(request: pytest.FixtureRequest) -> Iterator[TestSession]:
    """What the tests of this process share: a Postgres, and connections."""
    try:
        from duly_local.testing.stack import TestSession
    except ModuleNotFoundError as error:
        pytest.fail(
            f"the fixtures of Duly need its services: pip install 'duly[local]' ({error})", pytrace=False
        )

    with TestSession(str(request.config.getini("duly_postgres"))) as session:
        yield session


@pytest.fixture
def duly_begins_at() -> datetime | None:
    """When the clock begins; None: now. A test suite overrides it, such as for the night in which the clocks change."""
    return None


@pytest.fixture
def duly_stack(
    request: pytest.FixtureRequest, duly_session: TestSession, duly_begins_at: datetime | None, tmp_path: Path
) -> Iterator[TestStack]:
    """The services of one test, on an empty store. `DULY_ADDRESS` names them meanwhile."""
    from duly_local.testing.stack import TestStack

    with TestStack(duly_session, tmp_path / "duly-attachments", duly_begins_at) as stack:
        request.node.stash[_STACK] = stack
        yield stack
        del request.node.stash[_STACK]


@pytest.fixture
def duly_worker(duly_stack: TestStack, duly_app: duly.App) -> DulyWorker:
    """A worker of `duly_app`, which runs its callbacks in the test's thread."""
    return duly_stack.add_worker(duly_app)


@pytest.fixture
def duly_clock(duly_stack: TestStack) -> DulyClock:
    """The clock by which tasks are due; the test steps it."""
    return duly_stack.clock


@pytest.fixture
def duly_client(duly_stack: TestStack, duly_app: duly.App, duly_worker: DulyWorker) -> Iterator[duly.Client]:  # noqa: ARG001 (it registers the lambdas)
    """A client of the services."""
    with duly_stack.client(duly_app) as client:
        yield client


@pytest.fixture
def duly_async_client(duly_stack: TestStack, duly_app: duly.App, duly_worker: DulyWorker) -> duly.AsyncClient:  # noqa: ARG001 (it registers the lambdas)
    """A client for async tests, to be opened there: `async with duly_async_client as client:`."""
    import duly

    return duly.AsyncClient(duly_stack.address, codec=duly_app.codec)


@pytest.fixture
def duly_worker_of(duly_stack: TestStack) -> Callable[[duly.App], DulyWorker]:
    """Make further workers: `duly_worker_of(app)` runs another application, or another version of one."""
    return duly_stack.add_worker


@pytest.fixture
def duly_address(duly_stack: TestStack) -> str:
    """Where the services are: for clients of the test's own."""
    return duly_stack.address


@pytest.fixture
def duly_dsn(duly_stack: TestStack) -> str:
    """Where the database of the services is: for `duly.transactional` and `duly_schedule`."""
    return duly_stack.dsn
