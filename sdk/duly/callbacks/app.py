"""The application: the lambdas a lambda owner's module declares, by name."""

from __future__ import annotations

import re
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack

from duly.callbacks import lambda_of as handles
from duly.callbacks.callback import Callback, make_callback
from duly.callbacks.hooks import FAILURES, SUCCESS, Hook
from duly.errors import DulyError, RegistrationError
from duly.lambdas.policy import Policy, PolicyOptions, unknown_option
from duly.limits.new_resource import ResourceOptions, new_resource
from duly.tasks.arguments import check_names
from duly.time_tables.cron import cron_problem
from duly.time_tables.new_time_table import TimeTableOptions, new_time_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from duly.callbacks.codec import Codec
    from duly.lambdas.batch import Batch
    from duly_wire.v1 import limits_pb2, registry_pb2, time_tables_pb2

_MOST_BATCH_LAMBDAS = 16
"""For each, a worker keeps a request for work open."""
_MOST_RESOURCES = 100
_PINNED_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}")

F = TypeVar("F", bound="Callable[..., Any]")


class App:
    """A set of lambdas with one owner and one version; an Executor serves it as "module:app".

    Example:
        app = duly.App(owner="team-mail", version="1.4.2")

        @app.callback("mail.send", max_attempts=5, max_runtime=timedelta(minutes=2))
        def send(payload: Mail, ctx: duly.TaskContext) -> dict[str, str]:
            return {"message_id": relay.send(payload, fence=ctx.fence)}
    """

    def __init__(
        self,
        *,
        owner: str = "",
        version: str = "",
        pinned: bool | Literal["only"] = False,
        compatible_with: Iterable[str] = (),
        codec: Codec | None = None,
    ) -> None:
        """Make an empty application.

        - `owner`: who answers for it. The first that is declared for a lambda stays.
        - `version`: of the owner's code. Give each build its own: 1.4.2, or a date, or a commit.
        - `pinned`: also run tasks that were scheduled with `lambda_version` of this version. "only": run no others. Then this version does not
          come into force, its time tables are not declared, and a worker of another version must have declared the lambdas before.
        - `compatible_with`: and those of these versions.
        - `codec`: decrypts payloads, and encrypts what callbacks return, keep and schedule; see `duly.encryption`.

        Raises RegistrationError for a version that tasks cannot be pinned to, and for another value of `pinned`.
        """
        if pinned not in (False, True, "only"):
            # a typo would put a version in force that was to be tried
            raise RegistrationError(f'pinned must be True, False or "only", not {pinned!r}')
        self.owner = owner
        self.version = version
        self.served_versions = _served(version, compatible_with) if pinned or compatible_with else ()
        self.serves_unpinned = pinned != "only"
        """Whether it runs tasks that are pinned to no version."""
        self.codec = codec
        self._callbacks: dict[str, Callback] = {}
        self._time_tables: dict[str, time_tables_pb2.TimeTable] = {}
        self._resources: dict[str, limits_pb2.ResourceLimit] = {}
        self._hooks: list[Hook] = []

    @property
    def callbacks(self) -> Mapping[str, Callback]:
        """All callbacks by lambda name; cannot be written to."""
        return MappingProxyType(self._callbacks)

    def callback(
        self,
        name: str,
        *,
        raw: bool = False,
        keep_output: bool = True,
        batch: Batch | None = None,
        **options: Unpack[PolicyOptions],
    ) -> Callable[[F], F]:
        """Register a function, sync or async, as the callback of a lambda; the function is left as it was.

        A client schedules it by its name, or by the function: `client.schedule(send, Mail(to=["ann"]))`.

        It may take `(payload)`, `(payload, ctx)` or nothing. The payload is checked against the first
        parameter's annotation before the callback runs: JSON as it is for none, Any or dict; a dataclass,
        TypedDict or pydantic model is built and checked; `bytes` needs `raw=True`.

        - `max_attempts`: failures after which the task is FATAL_FAILURE (default 10).
        - `max_crashes`, `crash_window`: as many dead processes within such a time quarantine it (default 3, 72 h).
        - `max_runtime`: an attempt that runs longer is killed and counts as a failure (default 1 h).
        - `backoff`: how long to wait before the next attempt.
        - `payload_limit`, `result_limit`: bytes, at most 1 MiB (default 256 KiB).
        - `fatal_exceptions`: raising one of these ends the task; any other exception is retried.
        - `requires`: labels that a host must have to run it, such as `["gpu", "region=eu"]`; a worker is given its own with `--label`.
        - `resources`: of which each of its tasks takes units while it runs, whatever its caller names: `[duly.Need("gpu")]`.
        - `keep_output`: False keeps nothing of what it prints and logs: `duly logs` shows nothing, the worker's own output has it.
        - `batch`: one call takes up to so many tasks: the callback gets a list of payloads, and one of contexts, and returns a list of
          results, or None. `batch=duly.Batch(size=100, wait=timedelta(milliseconds=50))`; see docs/batches.md.
        - `on_exception`: "fatal" makes every exception end the task.

        Raises RegistrationError for a name taken or badly formed, and for what could never work.
        """
        check_names(options, PolicyOptions.__optional_keys__, unknown_option)
        policy = Policy(**options)

        def register(function: F) -> F:
            made = make_callback(
                name, function, policy, raw=raw, codec=self.codec, keep_output=keep_output, batch=batch
            )
            self.add(made)
            handles.register(function, name, in_batches=batch is not None)
            return function

        return register

    def add(self, callback: Callback) -> None:
        """Add a callback that is made already. For applications that Duly makes itself."""
        name = callback.name
        if name in self._callbacks:
            taken_by = getattr(self._callbacks[name].function, "__qualname__", "another callback")
            raise RegistrationError(f"lambda {name!r} is declared twice: it is {taken_by} already")
        if callback.batch is not None and self._batches() >= _MOST_BATCH_LAMBDAS:
            raise RegistrationError(
                f"lambda {name!r}: an application has at most {_MOST_BATCH_LAMBDAS} lambdas with batch=: make several applications"
            )
        self._callbacks[name] = replace(callback, hooks=self._hooks)

    def _batches(self) -> int:
        return sum(callback.batch is not None for callback in self._callbacks.values())

    def on_end(self, lambda_name: str | Callable[..., Any] = "") -> Callable[[F], F]:
        """Have a function called when a run has ended, however it did: of all lambdas of this application, or of one.

        Example:
            @app.on_failure("mail.send")
            def count(ctx: duly.TaskContext, end: duly.RunEnd) -> None:
                failures.labels(ctx.lambda_name, end.failure_kind).inc()

        It is called in the callback's process, in its slot and within `max_runtime`, before the end is reported: for as long as it runs the
        task runs. Best effort: if the process dies, or lost its claim, nothing is called, or a run that was called for is repeated. What it raises
        is logged, and changes nothing. It may be async. `docs/lambdas.md` says when to use something else.

        Raises RegistrationError for a lambda that this application does not declare.
        """
        return self._hook(lambda_name, frozenset())

    def on_success(self, lambda_name: str | Callable[..., Any] = "") -> Callable[[F], F]:
        """Have a function called when a run has succeeded; as `on_end`."""
        return self._hook(lambda_name, SUCCESS)

    def on_failure(self, lambda_name: str | Callable[..., Any] = "") -> Callable[[F], F]:
        """Have a function called when a run has failed, whether the task runs again or not; as `on_end`."""
        return self._hook(lambda_name, FAILURES)

    def _hook(self, lambda_name: str | Callable[..., Any], outcomes: frozenset[int]) -> Callable[[F], F]:
        try:
            name = handles.name_of(lambda_name) if lambda_name else ""
        except (DulyError, TypeError) as error:
            raise RegistrationError(
                f"a hook of all lambdas needs parentheses: write @app.on_end(); {error}"
            ) from error
        if name and name not in self._callbacks:
            raise RegistrationError(
                f"a hook of {name!r}: this application has no such lambda; declare the callback before it"
            )

        def register(function: F) -> F:
            self._hooks.append(Hook(function, name, outcomes))
            return function

        return register

    def time_table(
        self,
        name: str,
        lambda_name: str | Callable[..., Any],
        payload: object = None,
        **options: Unpack[TimeTableOptions],
    ) -> None:
        """Declare a time table of a lambda of this application: it is written when a worker attaches.

        Example:
            app.time_table("mail.digest.daily", send_digest, cron="0 7 * * 1-5", zone="Europe/Berlin")

        The options are those of `client.create_table`. The newest version's declaration holds. What operators decide stays: a pause,
        and the definition of a time table that they changed. What is declared no more stays until it is deleted.

        Raises RegistrationError for a name taken, for a lambda that this application does not declare, and for what is no cron expression.
        """
        cron = options.get("cron")
        if isinstance(cron, str) and (problem := cron_problem(cron)):
            raise RegistrationError(f"time table {name!r}: {problem}")
        try:
            table = new_time_table(name, handles.name_of(lambda_name), payload, self.codec, **options)
        except (DulyError, TypeError, ValueError) as error:
            raise RegistrationError(f"time table {name!r}: {error}") from error
        served = getattr(table, "lambda")
        if served not in self._callbacks:
            raise RegistrationError(
                f"time table {name!r}: this application has no lambda {served!r}; declare the callback before it"
            )
        if name in self._time_tables:
            raise RegistrationError(f"time table {name!r} is declared twice")
        self._time_tables[name] = table

    def resource(self, name: str, capacity: int | None = None, **options: Unpack[ResourceOptions]) -> None:
        """Declare a resource of which tasks take units while they run: it is made when a worker attaches, if it is not there.

        Example:
            app.resource("shop/database", capacity=20, note="20 connections")
            app.resource("mail", rate=duly.Rate(10), burst=5)

        The newest version's declaration holds, until an operator sets the resource: from then on no declaration changes it. What is
        declared no more stays until it is deleted. With roles, its name needs a namespace of which the caller owns all lambdas, or the
        caller owns all lambdas of all.

        - `capacity`: how many units tasks may take at a time. None: only the rate limits them.
        - `rate`: how many units tasks may start to use over time.
        - `burst`: how many of them may start at once (default 1).
        - `per_key`: each key has as many units of its own.
        - `note`: for people.

        Raises RegistrationError for what contradicts itself, and for another declaration of the same name.
        """
        check_names(options, ("capacity", *ResourceOptions.__optional_keys__), unknown_option)
        declared = new_resource(name, capacity, **options)
        if self._resources.setdefault(name, declared) != declared:
            raise RegistrationError(f"resource {name!r} is declared twice, and otherwise: declare it once")
        if len(self._resources) > _MOST_RESOURCES:
            raise RegistrationError(
                f"resource {name!r}: an application declares at most {_MOST_RESOURCES} resources"
            )

    def lambdas(self) -> list[registry_pb2.Lambda]:
        """Return the lambdas as they are told to the registry, with their time tables and resources, in the order they were declared."""
        declared = {}
        if self.serves_unpinned:
            declared = {name: self._declare(callback, name) for name, callback in self._callbacks.items()}
            for table in self._time_tables.values():
                declared[getattr(table, "lambda")].time_tables.append(table)
            for resource in self._resources.values() if declared else ():
                # to the first that needs it: they may be told in several calls
                needing = (
                    each
                    for each in declared.values()
                    if any(need.name == resource.name for need in each.resources)
                )
                next(needing, next(iter(declared.values()))).declared_resources.append(resource)
        pinned = [
            self._declare(callback, f"{name}@{version}")
            for name, callback in self._callbacks.items()
            for version in self.served_versions
        ]
        return [*declared.values(), *pinned]

    def _declare(self, callback: Callback, name: str) -> registry_pb2.Lambda:
        declared = callback.policy.declare(name, self.owner, self.version)
        if callback.batch is not None:
            declared.batch.CopyFrom(callback.batch.declare())
        return declared


def _served(version: str, compatible_with: Iterable[str]) -> tuple[str, ...]:
    versions = dict.fromkeys((version, *compatible_with))
    for each in versions:
        if _PINNED_VERSION.fullmatch(each) is None:
            raise RegistrationError(
                f"version {each!r}: tasks can be pinned to 1 to 64 of A-Z, a-z, 0-9, '_', '.', '+', '-', the first a letter or digit"
            )
    return tuple(versions)
