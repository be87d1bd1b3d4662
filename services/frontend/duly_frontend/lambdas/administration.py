"""What owners and operators do to a registered lambda."""

from collections.abc import Iterator
from contextlib import contextmanager

from duly_core.access.current import current_access, denied
from duly_core.access.roles import Action
from duly_core.explain.hosts import count_alive
from duly_core.lambdas import administration as lambda_changes
from duly_core.lambdas.administration import (
    LambdaDetail,
    RampedError,
    RevisionError,
    UnknownLambdaError,
    UnknownQueueError,
    UnknownVersionError,
)
from duly_core.lambdas.cache import LambdaCache
from duly_core.lambdas.declarations import pinned_name
from duly_core.lambdas.names import base_name
from duly_core.lambdas.ramps import WHOLE, Ramp
from duly_core.postgres.pool import Store
from duly_core.rpc.requests.names import check_lambda_name, unknown_lambda
from duly_core.rpc.requests.problem import Problem
from duly_frontend.events import log
from duly_frontend.lambdas.declarations import check_text_of
from duly_wire.queue_names import PINNED_VERSION, QueueName
from duly_wire.v1 import registry_pb2, task_pb2


class LambdaAdministration:
    """Changes the registry at a person's word. Each method raises Problem for what it refuses."""

    def __init__(self, store: Store, known: LambdaCache) -> None:
        self._store = store
        self._known = known

    async def get(self, name: str) -> LambdaDetail:
        """Return all that is known about a lambda."""
        check_lambda_name("name", name)
        access = current_access()
        if not access.may(Action.READ, base_name(name)):
            raise denied(access, Action.READ, base_name(name))
        detail = await lambda_changes.get_lambda(self._store, name)
        if detail is None:
            raise _unknown(name)
        return detail

    async def update(self, asked: registry_pb2.UpdateLambdaRequest) -> None:
        """Give a lambda to another owner, go back to a version of it, or send a part of its tasks to one."""
        check_lambda_name("name", asked.name)
        if base_name(asked.name) != asked.name:
            raise Problem(
                "name", "must be that of the lambda, without a version: its queues of versions go with it"
            )
        if [asked.HasField("owner"), asked.HasField("version"), asked.HasField("ramp")].count(True) != 1:
            raise Problem("owner", "say one of these: the owner that it is to have, the version, or the ramp")
        expected = asked.expected_revision if asked.HasField("expected_revision") else None
        with self._changing(asked.name):
            if asked.HasField("owner"):
                _may(asked.name, Action.OPERATE)
                check_text_of("owner", asked.owner)
                await lambda_changes.transfer(self._store, asked.name, asked.owner, expected)
                log.info("lambda transferred", **{"lambda": asked.name}, owner=asked.owner)
            elif asked.HasField("ramp"):
                _may(asked.name, Action.OPERATE, Action.REGISTER)
                await self._ramp(asked, expected)
            else:
                _may(asked.name, Action.OPERATE, Action.REGISTER)
                check_text_of("version", asked.version)
                await lambda_changes.roll_back(self._store, asked.name, asked.version, expected)
                log.info("lambda rolled back", **{"lambda": asked.name}, version=asked.version)

    async def _ramp(self, asked: registry_pb2.UpdateLambdaRequest, expected: int | None) -> None:
        name, version = asked.name, asked.ramp.version
        ramp = _checked_ramp(asked.ramp)
        if ramp is not None and ramp.permille and not asked.ramp_without_host:
            queue = pinned_name(name, version)
            # what is not there at all is said before
            if queue in await self._known.payload_limits({queue}) and not await count_alive(
                self._store, queue
            ):
                raise Problem(
                    "ramp.version",
                    f"no live host serves {queue}, so its tasks would wait: start a worker whose App has this version and "
                    f'pinned="only", or set the ramp all the same (duly lambdas ramp {name} {version} PERCENT --force)',
                )
        await lambda_changes.put_ramp(self._store, name, ramp, expected)
        log.info("lambda ramped", **{"lambda": name}, ramp=str(ramp) if ramp else "off")

    async def delete(self, asked: registry_pb2.DeleteLambdaRequest) -> registry_pb2.DeleteLambdaResponse:
        """Delete a lambda, or count what it has."""
        check_lambda_name("name", asked.name)
        _may(asked.name, Action.OPERATE, Action.REGISTER)
        with self._changing(asked.name):
            done = await lambda_changes.delete(
                self._store,
                asked.name,
                current_access().principal,
                despite_tasks=asked.despite_tasks,
                dry_run=asked.dry_run,
                expected_revision=asked.expected_revision if asked.HasField("expected_revision") else None,
            )
        response = registry_pb2.DeleteLambdaResponse(
            pending=done.pending, running=done.running, time_tables=done.time_tables, queues=done.queues
        )
        if asked.dry_run:
            return response
        if not done.deleted:
            problem = Problem(
                "name",
                f"{asked.name} {_has(done)}. Wait until they have ended, or "
                f"cancel them with it (duly lambdas delete {asked.name} --cancel-tasks)",
                task_pb2.ERROR_CODE_LAMBDA_IN_USE,
            )
            response.error.CopyFrom(problem.to_wire())
            return response
        log.info("lambda deleted", **{"lambda": asked.name}, pending=done.pending, running=done.running)
        return response

    async def restore(self, name: str) -> None:
        """Let hosts register a deleted lambda again."""
        check_lambda_name("name", name)
        _may(name, Action.OPERATE, Action.REGISTER)
        if not await lambda_changes.restore(self._store, name):
            raise Problem("name", f"no lambda {name!r} was deleted", task_pb2.ERROR_CODE_UNKNOWN_LAMBDA)
        log.info("lambda restored", **{"lambda": name})

    @contextmanager
    def _changing(self, name: str) -> Iterator[None]:
        try:
            yield
        except UnknownLambdaError:
            raise _unknown(name) from None
        except RevisionError as error:
            raise Problem(
                "expected_revision",
                f"{name} was changed meanwhile, {error}: look at it and ask again",
                task_pb2.ERROR_CODE_LAMBDA_CONFLICT,
            ) from None
        except RampedError:
            base, version = base_name(name), QueueName.parse(name).version
            raise Problem(
                "name",
                f"the ramp of {base} sends tasks to version {version}: end it first (duly lambdas ramp {base} --off)",
                task_pb2.ERROR_CODE_LAMBDA_IN_USE,
            ) from None
        except UnknownQueueError as error:
            raise Problem(
                "ramp.version",
                f"no host declared that it serves version {str(error)!r} of {name}: start a worker whose App has this version and "
                f'pinned="only"; `duly lambdas show {name}` lists the queues that are known',
            ) from None
        except UnknownVersionError as error:
            raise Problem(
                "version",
                f"no host declared the version {str(error)!r} of {name}, or long ago: `duly lambdas show {name}` lists those "
                "that are known",
            ) from None
        finally:
            self._known.forget()


def may_change(name: str) -> None:
    """Check that the caller is an operator of a lambda, or may be its owner.

    Raises:
        Problem: it is neither.
    """
    _may(name, Action.OPERATE, Action.REGISTER)


def _may(name: str, *actions: Action) -> None:
    access = current_access()
    lambda_name = base_name(name)
    if not any(access.may(action, lambda_name) for action in actions):
        raise denied(access, actions[0], lambda_name)


def _checked_ramp(asked: registry_pb2.LambdaRamp) -> Ramp | None:
    if not asked.version:
        if asked.permille:
            raise Problem("ramp.version", "say to which version, or 0 percent")
        return None
    if PINNED_VERSION.fullmatch(asked.version) is None:
        raise Problem(
            "ramp.version",
            "must be 1 to 64 of A-Z, a-z, 0-9, '_', '.', '+', '-', the first a letter or a digit",
        )
    if not 0 <= asked.permille <= WHOLE:
        raise Problem(
            "ramp.permille", f"must be from 0 to {WHOLE:,} tenths of a percent, not {asked.permille:,}"
        )
    return Ramp(asked.version, asked.permille)


def _unknown(name: str) -> Problem:
    return Problem("name", unknown_lambda(name), task_pb2.ERROR_CODE_UNKNOWN_LAMBDA)


def _has(found: lambda_changes.Deletion) -> str:
    if found.counts_are_complete:
        return f"has live tasks: {found.pending:,} wait and {found.running:,} run"
    return (
        f"may have more live tasks than were counted: at least {found.pending:,} wait and {found.running:,} run. "
        "There are too many tasks to count them all"
    )
