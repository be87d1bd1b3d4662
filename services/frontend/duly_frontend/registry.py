"""RegistryService: lambdas as their hosts declare them."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from duly.time_conversion import to_duration, to_timestamp
from duly.v1 import registry_pb2, registry_pb2_grpc
from duly_core.errors import InvalidRequestError
from duly_core.rpc.checks import check_count, read_duration
from duly_core.rpc.new_tasks import check_name
from duly_core.rpc.problem import Problem, check_each
from duly_core.rpc.stubs import Context
from duly_core.store import lambdas
from duly_core.store.declared_tables import put_declared
from duly_core.store.lambda_cache import LambdaCache
from duly_core.store.lambda_policy import LambdaPolicy
from duly_core.store.lambdas import RegisteredLambda
from duly_core.store.pool import Store
from duly_core.store.time_tables import PutVerdict
from duly_core.task import HARD_PAYLOAD_LIMIT
from duly_core.time_table import TimeTable
from duly_frontend.events import log
from duly_frontend.replaced_lambdas import ReplacedLambdas
from duly_frontend.time_table_definitions import time_table
from duly_frontend.time_table_wire import put_problem

_MOST_LAMBDAS = 1000
_MOST_TABLES = 1000
_MOST_TABLES_A_CALL = 5000
"""They are one transaction."""
_MOST_LOGGED = 20
_MOST_PROBLEMS = 10
"""Of time tables, told for each lambda."""
_TEXT_LIMIT = 256
_LONGEST = timedelta(days=365)


class RegistryServicer(registry_pb2_grpc.RegistryServiceServicer):
    """Answers each lambda for itself; one with an error has changed nothing."""

    def __init__(self, store: Store, known: LambdaCache) -> None:
        self._store = store
        self._known = known
        self._replaced = ReplacedLambdas()

    async def RegisterLambdas(  # noqa: N802 (the wire's name)
        self, request: registry_pb2.RegisterLambdasRequest, _context: Context
    ) -> registry_pb2.RegisterLambdasResponse:
        check_count("lambdas", len(request.lambdas), _MOST_LAMBDAS)
        number = sum(len(declared.time_tables) for declared in request.lambdas)
        if number > _MOST_TABLES_A_CALL:
            raise InvalidRequestError(
                "lambdas.time_tables",
                f"there must be at most {_MOST_TABLES_A_CALL:,} in one call, not {number:,}: register fewer lambdas at a time",
            )
        # many of them take a while: other calls have their turn meanwhile
        read = await asyncio.to_thread(check_each, _read, request.lambdas)
        results = []
        valid: dict[str, LambdaPolicy] = {}
        tables: dict[str, list[TimeTable]] = {}
        for checked in read:
            if isinstance(checked, Problem):
                results.append(registry_pb2.RegisterLambdasResult(error=checked.to_wire()))
            else:
                policy, tables[checked[0].name] = checked
                valid[policy.name] = policy
                results.append(registry_pb2.RegisterLambdasResult())
        if valid:
            before = await lambdas.register(self._store, list(valid.values()))
            self._known.forget()
            log.info(
                "lambdas registered",
                lambdas=sorted(valid)[:_MOST_LOGGED],
                count=len(valid),
                owner=next(iter(valid.values())).owner,
            )
            warnings = {
                name: self._replaced.warning(before.get(name), policy) for name, policy in valid.items()
            }
            kept = await self._declare(tables)
            warnings |= {name: "; ".join(filter(None, (warnings[name], *_some(kept[name])))) for name in kept}
            for name, warning in sorted(warnings.items()):
                if warning:
                    log.warning("lambda declaration replaced", **{"lambda": name}, problem=warning)
            for declared, result in zip(request.lambdas, results, strict=True):
                if not result.HasField("error"):
                    result.warning = warnings[declared.name]
        return registry_pb2.RegisterLambdasResponse(results=results)

    async def _declare(self, tables: Mapping[str, Sequence[TimeTable]]) -> dict[str, list[str]]:
        """Write declared time tables; return, by lambda, what was not taken."""
        problems: dict[str, list[str]] = {}
        first: dict[str, TimeTable] = {}
        for lambda_name, declared in tables.items():
            for table in declared:
                if first.setdefault(table.name, table) is not table:
                    other = first[table.name].lambda_name
                    problems.setdefault(lambda_name, []).append(
                        f"time table {table.name!r} not written: it is declared for {other!r} too, use another name"
                    )
        answers = await put_declared(self._store, list(first.values())) if first else {}
        for name, answer in answers.items():
            lambda_name = first[name].lambda_name
            if answer.verdict is PutVerdict.KEPT:
                problems.setdefault(lambda_name, []).append(
                    f"time table {name!r} was defined by an operator, and stays so: to take the declaration, "
                    f"delete it (duly tables delete {name}) and attach again"
                )
            elif refused := put_problem(answer, name, lambda_name):
                problems.setdefault(lambda_name, []).append(
                    f"time table {name!r} not written: {refused.field}: {refused.message}"
                )
        return problems

    async def ListLambdas(  # noqa: N802
        self, _request: registry_pb2.ListLambdasRequest, _context: Context
    ) -> registry_pb2.ListLambdasResponse:
        registered = await lambdas.list_lambdas(self._store)
        return registry_pb2.ListLambdasResponse(lambdas=[_to_wire(each) for each in registered])


def _read(declared: registry_pb2.Lambda) -> tuple[LambdaPolicy, list[TimeTable]]:
    return policy_from_wire(declared), declared_tables(declared)


def _some(problems: Sequence[str]) -> list[str]:
    """Return the first of these, and how many there are besides: a log line and an answer must not grow without limit."""
    more = [f"{len(problems) - _MOST_PROBLEMS:,} more"] if len(problems) > _MOST_PROBLEMS else []
    return [*problems[:_MOST_PROBLEMS], *more]


def declared_tables(declared: registry_pb2.Lambda) -> list[TimeTable]:
    """The time tables that an application declares for a lambda.

    Raises:
        Problem: names the time table, the field and the fix.
    """
    if len(declared.time_tables) > _MOST_TABLES:
        raise Problem("time_tables", f"there must be at most {_MOST_TABLES} for one lambda")
    tables = []
    for asked in declared.time_tables:
        setattr(asked, "lambda", declared.name)
        try:
            table = time_table(asked)
        except Problem as problem:
            where = f"time_tables[{asked.name[:128]!r}].{problem.field}"
            raise Problem(where, problem.message, problem.code) from problem
        limit = (
            declared.payload_limit if declared.HasField("payload_limit") else LambdaPolicy("").payload_limit
        )
        if len(table.payload) > limit:
            raise Problem(
                f"time_tables[{table.name!r}].payload",
                f"is larger than the {limit:,} bytes that the lambda takes",
            )
        tables.append(table)
    return tables


def policy_from_wire(declared: registry_pb2.Lambda) -> LambdaPolicy:
    """A lambda's policy with the defaults filled in.

    Raises:
        Problem: names the field and the fix.
    """
    check_name("name", declared.name)
    for field in ("owner", "version"):
        text: str = getattr(declared, field)
        _check(
            field,
            f"must be at most {_TEXT_LIMIT} characters without NUL",
            holds=len(text) <= _TEXT_LIMIT and "\x00" not in text,
        )
    policy = LambdaPolicy(declared.name, owner=declared.owner, version=declared.version)
    for name, lowest, highest in (
        ("max_attempts", 1, 1_000_000),
        ("max_crashes", 1, 1_000),
        ("payload_limit", 0, HARD_PAYLOAD_LIMIT),
    ):
        if declared.HasField(name):  # type: ignore[arg-type]
            value: int = getattr(declared, name)
            _check(name, f"must be from {lowest:,} to {highest:,}", holds=lowest <= value <= highest)
            policy = replace(policy, **{name: value})  # type: ignore[arg-type]  # the names stand above
    for name in ("max_runtime", "crash_window"):
        if declared.HasField(name):  # type: ignore[arg-type]
            duration = read_duration(name, getattr(declared, name), _LONGEST, least=timedelta.resolution)
            policy = replace(policy, **{name: duration})  # type: ignore[arg-type]
    if declared.HasField("backoff"):
        policy = _with_backoff(policy, declared.backoff)
    return policy


def _with_backoff(policy: LambdaPolicy, declared: registry_pb2.Backoff) -> LambdaPolicy:
    if declared.HasField("initial"):
        initial = read_duration("backoff.initial", declared.initial, _LONGEST)
        policy = replace(policy, backoff_initial=initial, backoff_max=max(initial, policy.backoff_max))
    if declared.HasField("factor"):
        _check("backoff.factor", "must be from 1 to 1000", holds=1 <= declared.factor <= 1000)
        policy = replace(policy, backoff_factor=declared.factor)
    if declared.HasField("max"):
        policy = replace(policy, backoff_max=read_duration("backoff.max", declared.max, _LONGEST))
    _check(
        "backoff.max",
        "must not be below backoff.initial",
        holds=policy.backoff_max >= policy.backoff_initial,
    )
    return policy


def _check(field: str, message: str, *, holds: bool) -> None:
    if not holds:
        raise Problem(field, message)


def _to_wire(registered: RegisteredLambda) -> registry_pb2.RegisteredLambda:
    policy = registered.policy
    message = registry_pb2.RegisteredLambda(
        registered_at=to_timestamp(registered.registered_at), updated_at=to_timestamp(registered.updated_at)
    )
    getattr(message, "lambda").CopyFrom(
        registry_pb2.Lambda(
            name=policy.name,
            owner=policy.owner,
            version=policy.version,
            max_attempts=policy.max_attempts,
            max_crashes=policy.max_crashes,
            crash_window=to_duration(policy.crash_window),
            max_runtime=to_duration(policy.max_runtime),
            backoff=registry_pb2.Backoff(
                initial=to_duration(policy.backoff_initial),
                factor=policy.backoff_factor,
                max=to_duration(policy.backoff_max),
            ),
            payload_limit=policy.payload_limit,
        )
    )
    return message
