"""Holds declarations of lambdas against what their caller may declare. A host may attach with what is registered already."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from duly_core.access.current import restriction
from duly_core.access.roles import Action
from duly_core.lambdas import store as lambdas
from duly_core.lambdas.declarations import Standing, Verdict, decide
from duly_core.lambdas.policy import LambdaPolicy
from duly_core.limits.declared import CHANGES, StoredResource
from duly_core.postgres.pool import Store
from duly_core.rpc.requests.problem import Problem
from duly_core.time_tables import store as time_tables
from duly_core.time_tables.rows import TableRow
from duly_core.time_tables.time_table import TimeTable
from duly_frontend.access.reach import refused
from duly_frontend.limits.declarations import DeclaredResource, resource_refusal
from duly_wire.v1 import task_pb2


class Declaration(NamedTuple):
    """A lambda, with what it brings."""

    policy: LambdaPolicy
    tables: list[TimeTable]
    resources: list[DeclaredResource]


async def permitted(
    store: Store, declared: Sequence[Declaration | Problem], resources: Mapping[str, StoredResource]
) -> list[Declaration | Problem | None]:
    """Return the declarations that are to be written; a Problem for those that the caller may not make.

    None: the caller runs the lambda, and would change nothing: what is registered says the same but for owner and version,
    or is of a newer version, or was deleted. `resources` is what is there of those that are declared.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    scope, hosted = restriction(Action.REGISTER), restriction(Action.RUN)
    if scope is None:
        return [*declared]
    checked: list[Declaration | Problem | None] = []
    attached: dict[int, Declaration] = {}
    for place, each in enumerate(declared):
        if isinstance(each, Problem) or scope.covers(each.policy.name):
            no_right = None if isinstance(each, Problem) else resource_refusal(each.resources, resources)
            checked.append(no_right or each)
            continue
        checked.append(refused(Action.REGISTER, each.policy.name, "name"))
        if hosted is None or hosted.covers(each.policy.name):
            checked[place] = _OWNER_REGISTERS
            attached[place] = each
    if attached:
        standings = await lambdas.standings(store, [each.policy.name for each in attached.values()])
        names = sorted({table.name for each in attached.values() for table in each.tables})
        found = await time_tables.get(store, names) if names else {}
        for place, (policy, tables, brought) in attached.items():
            standing = standings.get(policy.name, Standing())
            known = standing.in_force
            is_kept = known is not None and _is_same(known, policy)
            if decide(policy, standing) in _CHANGES_NOTHING or (
                is_kept
                and all(_is_kept(found, each) for each in tables)
                and all(each.fate(resources) not in CHANGES for each in brought)
            ):
                checked[place] = None
    return checked


_CHANGES_NOTHING = frozenset({Verdict.OLDER, Verdict.DELETED})

_OWNER_REGISTERS = Problem(
    "name",
    "this host may run it, but not declare it, and what is registered is missing or says otherwise: let an owner "
    "register it (duly register MODULE:APP)",
    task_pb2.ERROR_CODE_PERMISSION_DENIED,
)


def _is_same(known: LambdaPolicy, policy: LambdaPolicy) -> bool:
    return replace(known, owner="", version="") == replace(policy, owner="", version="")


def _is_kept(found: dict[str, TableRow], table: TimeTable) -> bool:
    """Tell whether a declaration would leave a time table as it is: it says the same, or somebody changed the table."""
    row = found.get(table.name)
    return row is not None and (row.definition == table or not row.declared)
