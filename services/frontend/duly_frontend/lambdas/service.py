"""RegistryService: lambdas as their hosts declare them."""

import json
from collections.abc import Collection, Mapping, Sequence

from duly_core.access.current import current_access, current_caller, restriction
from duly_core.access.grants import Scope
from duly_core.access.roles import Action
from duly_core.errors import InvalidRequestError
from duly_core.lambdas import store as lambdas
from duly_core.lambdas.cache import LambdaCache
from duly_core.lambdas.declarations import IN_FORCE, Verdict
from duly_core.lambdas.policy import LambdaPolicy
from duly_core.lambdas.store import Registered
from duly_core.limits.store import per_key_of
from duly_core.postgres.notifications import Notifier
from duly_core.rpc.requests.checks import check_count, check_text, page_size
from duly_core.rpc.requests.problem import Problem
from duly_core.rpc.requests.resource_needs import ResourceCache, check_declared
from duly_core.rpc.stubs import Context
from duly_core.tasks.task import ResourceNeed
from duly_core.time_tables.declared import put_declared
from duly_core.time_tables.store import PutVerdict
from duly_core.time_tables.time_table import TimeTable
from duly_core.traffic.slices import Steps, each
from duly_frontend.events import log
from duly_frontend.lambdas.administration import LambdaAdministration
from duly_frontend.lambdas.declaration_warnings import refusal, warning
from duly_frontend.lambdas.declarations import policy_from_wire, reading_tables
from duly_frontend.lambdas.fairness import LambdaFairness
from duly_frontend.lambdas.registration_rights import Declaration, permitted
from duly_frontend.lambdas.wire import detail_to_wire, to_wire
from duly_frontend.limits.declarations import ResourceDeclarations, read_declared
from duly_frontend.lists import page_token
from duly_frontend.stores import FrontendStores
from duly_frontend.time_tables.wire import put_problem
from duly_wire.v1 import registry_pb2, registry_pb2_grpc, task_pb2

_LONGEST_NAME = 256
_MOST_LAMBDAS = 1000
_MOST_TABLES_A_CALL = 5000
"""They are one transaction."""
_MOST_RESOURCES_A_CALL = 100
_A_STEP = 20
"""Lambdas of a list that are put into the answer."""
_MOST_LOGGED = 20
_MOST_PROBLEMS = 10
"""Of time tables, told for each lambda."""
_WRITTEN = frozenset({Verdict.NEW, Verdict.CHANGED})


class RegistryServicer(registry_pb2_grpc.RegistryServiceServicer):
    """Answers each lambda for itself; one with an error has changed nothing."""

    def __init__(
        self, stores: FrontendStores, known: LambdaCache, resources: ResourceCache, notifier: Notifier
    ) -> None:
        self._stores = stores
        self._store = stores.writes
        self._load = stores.load
        self._known = known
        self._administration = LambdaAdministration(self._store, known)
        self._fairness = LambdaFairness(stores)
        self._resources = ResourceDeclarations(self._store, resources, notifier)

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
        number = sum(len(declared.declared_resources) for declared in request.lambdas)
        if number > _MOST_RESOURCES_A_CALL:
            raise InvalidRequestError(
                "lambdas.declared_resources",
                f"there must be at most {_MOST_RESOURCES_A_CALL} in one call, not {number:,}: declare fewer",
            )
        checked = await self._load.calls.large.run(current_caller(), _reading(request.lambdas))
        async with self._load.graphs.turn(current_caller()):
            return await self._declared(request, checked)

    async def _declared(
        self, request: registry_pb2.RegisterLambdasRequest, checked: Sequence[Declaration | Problem]
    ) -> registry_pb2.RegisterLambdasResponse:
        resources = await self._resources.read(
            [each for one in checked if isinstance(one, Declaration) for each in one.resources]
        )
        read = await permitted(self._store, checked, resources)
        taken = {each.policy.name: each for each in read if isinstance(each, Declaration)}
        valid = {name: brought.policy for name, brought in taken.items()}
        registered = await self._register(valid) if valid else {}
        in_force = {name: brought for name, brought in taken.items() if registered[name].verdict in IN_FORCE}
        # before what names them
        kept = await self._resources.declare(
            {name: brought.resources for name, brought in in_force.items()}, resources
        )
        tables = {name: brought.tables for name, brought in in_force.items()}
        for name, problems in (await self._declare(tables)).items():
            kept.setdefault(name, []).extend(problems)
        for name, problem in (await self._undeclared_needs(valid.values())).items():
            kept.setdefault(name, []).append(
                f"its tasks run without a limit: {problem.field}: {problem.message}"
            )
        results = []
        for declared in read:
            if declared is None:
                results.append(registry_pb2.RegisterLambdasResult())
            elif isinstance(declared, Problem):
                results.append(registry_pb2.RegisterLambdasResult(error=declared.to_wire()))
            else:
                policy = valid[declared.policy.name]
                results.append(_result(policy, registered[policy.name], kept.get(policy.name, ())))
        _log_problems(request.lambdas, results)
        return registry_pb2.RegisterLambdasResponse(results=results)

    async def _register(self, declared: Mapping[str, LambdaPolicy]) -> dict[str, Registered]:
        answers = await lambdas.register(self._store, list(declared.values()), current_access().principal)
        written = sorted(name for name, answer in answers.items() if answer.verdict in _WRITTEN)
        if written:
            self._known.forget()
            log.info(
                "lambdas registered",
                lambdas=written[:_MOST_LOGGED],
                count=len(written),
                owner=declared[written[0]].owner,
            )
        return answers

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
        for name, problem in (await self._undeclared(first.values())).items():
            problems.setdefault(first.pop(name).lambda_name, []).append(
                f"time table {name!r} not written: {problem.field}: {problem.message}"
            )
        answers = (
            await put_declared(self._store, list(first.values()), restriction(Action.REGISTER))
            if first
            else {}
        )
        for name, answer in answers.items():
            lambda_name = first[name].lambda_name
            if answer.verdict is PutVerdict.KEPT:
                problems.setdefault(lambda_name, []).append(
                    f"time table {name!r} was defined by an operator, and stays so: to take the declaration, "
                    f"delete it (duly tables delete {name}) and attach again"
                )
            elif refused := put_problem(answer, name):
                problems.setdefault(lambda_name, []).append(
                    f"time table {name!r} not written: {refused.field}: {refused.message}"
                )
        return problems

    async def _undeclared_needs(self, policies: Collection[LambdaPolicy]) -> dict[str, Problem]:
        """Return, by lambda, why what it says of resources is not counted: one that is not declared limits nothing."""
        needs = {
            policy.name: [ResourceNeed(**need) for need in json.loads(policy.needs)]
            for policy in policies
            if policy.needs
        }
        if not needs:
            return {}
        names = {need.name for each in needs.values() for need in each}
        kinds = await per_key_of(self._store, sorted(names))
        problems: dict[str, Problem] = {}
        for name, said in needs.items():
            try:
                check_declared(said, kinds, name)
            except Problem as problem:
                problems[name] = problem
        return problems

    async def _undeclared(self, tables: Collection[TimeTable]) -> dict[str, Problem]:
        """Return, by name, why time tables may not name their resources."""
        names = {need.name for table in tables for need in table.resources}
        if not names:
            return {}
        kinds = await per_key_of(self._store, sorted(names))
        problems: dict[str, Problem] = {}
        for table in tables:
            try:
                check_declared(table.resources, kinds, table.lambda_name)
            except Problem as problem:
                problems[table.name] = problem
        return problems

    async def ListLambdas(  # noqa: N802
        self, request: registry_pb2.ListLambdasRequest, _context: Context
    ) -> registry_pb2.ListLambdasResponse:
        scope = restriction(Action.READ)
        if request.page_size or request.page_token or request.name_part:
            return await self._list_some(request, scope)
        async with self._stores.listing("ListLambdas") as lists:
            found = await lambdas.list_lambdas(lists, _patterns(scope))
        shown = await self._load.calls.large.run(current_caller(), each(to_wire, found, _A_STEP))
        return registry_pb2.ListLambdasResponse(lambdas=shown)

    async def _list_some(
        self, request: registry_pb2.ListLambdasRequest, scope: Scope | None
    ) -> registry_pb2.ListLambdasResponse:
        check_text("name_part", request.name_part, _LONGEST_NAME)
        size = page_size(request.page_size)
        after = page_token.read_name(request.page_token)
        async with self._stores.listing("ListLambdas") as lists:
            found = await lambdas.list_some(
                lists,
                after=after,
                name_part=request.name_part,
                limit=size + 1,
                patterns=_patterns(scope),
            )
        token = page_token.write_name(found[size - 1].policy.name) if len(found) > size else ""
        return registry_pb2.ListLambdasResponse(lambdas=map(to_wire, found[:size]), next_page_token=token)

    async def GetLambda(  # noqa: N802
        self, request: registry_pb2.GetLambdaRequest, _context: Context
    ) -> registry_pb2.GetLambdaResponse:
        try:
            return detail_to_wire(await self._administration.get(request.name))
        except Problem as problem:
            return registry_pb2.GetLambdaResponse(error=problem.to_wire())

    async def UpdateLambda(  # noqa: N802
        self, request: registry_pb2.UpdateLambdaRequest, _context: Context
    ) -> registry_pb2.UpdateLambdaResponse:
        try:
            await self._administration.update(request)
        except Problem as problem:
            return registry_pb2.UpdateLambdaResponse(error=problem.to_wire())
        return registry_pb2.UpdateLambdaResponse()

    async def DeleteLambda(  # noqa: N802
        self, request: registry_pb2.DeleteLambdaRequest, _context: Context
    ) -> registry_pb2.DeleteLambdaResponse:
        try:
            return await self._administration.delete(request)
        except Problem as problem:
            return registry_pb2.DeleteLambdaResponse(error=problem.to_wire())

    async def RestoreLambda(  # noqa: N802
        self, request: registry_pb2.RestoreLambdaRequest, _context: Context
    ) -> registry_pb2.RestoreLambdaResponse:
        try:
            await self._administration.restore(request.name)
        except Problem as problem:
            return registry_pb2.RestoreLambdaResponse(error=problem.to_wire())
        return registry_pb2.RestoreLambdaResponse()

    async def SetFairWeights(  # noqa: N802
        self, request: registry_pb2.SetFairWeightsRequest, _context: Context
    ) -> registry_pb2.SetFairWeightsResponse:
        try:
            await self._fairness.set_weights(request)
        except Problem as problem:
            return registry_pb2.SetFairWeightsResponse(error=problem.to_wire())
        return registry_pb2.SetFairWeightsResponse()

    async def ListFairKeys(  # noqa: N802
        self, request: registry_pb2.ListFairKeysRequest, _context: Context
    ) -> registry_pb2.ListFairKeysResponse:
        try:
            return await self._fairness.list_keys(request)
        except Problem as problem:
            return registry_pb2.ListFairKeysResponse(error=problem.to_wire())


def _patterns(scope: Scope | None) -> Sequence[str] | None:
    return None if scope is None else (*scope.all_tasks, *scope.own_tasks)


def _reading(declared: Sequence[registry_pb2.Lambda]) -> Steps[list[Declaration | Problem]]:
    """Read declarations in steps: one is the policy of a lambda with its resources, or a time table."""
    read: list[Declaration | Problem] = []
    for lambda_ in declared:
        try:
            policy, resources = policy_from_wire(lambda_), read_declared(lambda_)
            read.append(Declaration(policy, (yield from reading_tables(lambda_)), resources))
        except Problem as problem:
            read.append(problem)
        yield
    return read


def _result(
    policy: LambdaPolicy, registered: Registered, kept: Sequence[str]
) -> registry_pb2.RegisterLambdasResult:
    if problem := refusal(policy, registered):
        return registry_pb2.RegisterLambdasResult(error=problem.to_wire())
    said = "; ".join(filter(None, (warning(policy, registered), *_some(kept))))
    return registry_pb2.RegisterLambdasResult(warning=said, in_force=registered.verdict in IN_FORCE)


def _log_problems(
    declared: Sequence[registry_pb2.Lambda], results: Sequence[registry_pb2.RegisterLambdasResult]
) -> None:
    """Log the first of what is refused or questioned: thousands of lambdas may be of an old version."""
    found = [
        (each.name, result.error.message or result.warning)
        for each, result in zip(declared, results, strict=True)
        if result.warning or result.error.code == task_pb2.ERROR_CODE_NOT_OWNER
    ]
    for name, problem in found[:_MOST_LOGGED]:
        log.warning("lambda declaration has a problem", **{"lambda": name}, problem=problem)
    if len(found) > _MOST_LOGGED:
        log.warning("more lambda declarations have problems", count=len(found) - _MOST_LOGGED)


def _some(problems: Sequence[str]) -> list[str]:
    """Return the first of these, and how many there are besides: a log line and an answer must not grow without limit."""
    more = [f"{len(problems) - _MOST_PROBLEMS:,} more"] if len(problems) > _MOST_PROBLEMS else []
    return [*problems[:_MOST_PROBLEMS], *more]
