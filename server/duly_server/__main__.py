"""Wiring of the server process: the services that were picked, in one event loop."""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import argparse
import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta

import structlog

from duly_core.postgres.local_notifications import LocalNotifications
from duly_core.postgres.start import Migration
from duly_core.process.service import Serve, run_service
from duly_server.roles import ROLES, build_role, parse_roles

_LAST_WORDS = timedelta(seconds=10)
"""How long the other roles may take to stop after one has failed."""


def build(roles: Sequence[str]) -> Serve:
    """Read the settings of each role; the roles share notifications and one migration."""
    notifications = LocalNotifications()
    migration = Migration()
    serves = {name: build_role(name, notifications, migration) for name in roles}

    async def serve(stop: asyncio.Event) -> None:
        await _run_all(serves, stop)

    return serve


async def _run_all(serves: Mapping[str, Serve], stop: asyncio.Event) -> None:
    """Run all roles until `stop`; when one fails, stop the others and raise its error."""
    running = [asyncio.ensure_future(_run(name, serve, stop)) for name, serve in serves.items()]
    try:
        done, others = await asyncio.wait(running, return_when=asyncio.FIRST_EXCEPTION)
        stop.set()
        if others:
            await asyncio.wait(others, timeout=_LAST_WORDS.total_seconds())
    finally:
        for task in running:
            task.cancel()
        await asyncio.wait(running, timeout=_LAST_WORDS.total_seconds())
    for task in (*done, *others):
        if task.done() and not task.cancelled():
            task.result()


async def _run(name: str, serve: Serve, stop: asyncio.Event) -> None:
    # tasks that a role starts inherit this, so its log lines are those of a process of its own
    structlog.contextvars.bind_contextvars(service=name)
    await serve(stop)


def main(roles: str = ",".join(ROLES)) -> None:
    """Run the named roles until told to stop.

    Args:
        roles: their names, separated by commas.
    """
    run_service("server", lambda: build(parse_roles(roles)))


def _from_command_line() -> None:
    parser = argparse.ArgumentParser(prog="duly server", description="Run several services in one process.")
    parser.add_argument("--roles", default=",".join(ROLES))
    main(parser.parse_args().roles)


if __name__ == "__main__":
    _from_command_line()
