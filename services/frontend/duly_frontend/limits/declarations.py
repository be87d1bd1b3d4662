"""Resources that applications declare with their lambdas: reads them, holds them against the caller's rights, writes them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from google.protobuf.field_mask_pb2 import FieldMask

from duly_core.access.current import current_access, restriction
from duly_core.access.grants import Scope
from duly_core.access.roles import Action
from duly_core.lambdas.names import namespace_of
from duly_core.limits.changes import Contradiction, NotPut, ResourceChange, Unwritten, declare_resource
from duly_core.limits.declared import CHANGES, WRITTEN, Fate, StoredResource, decide, read_resources
from duly_core.limits.store import UNLIMITED, Rate, ResourceDeclaration, ResourceLimit, is_quota
from duly_core.postgres.notifications import Notifier
from duly_core.postgres.pool import Store
from duly_core.rpc.requests.problem import Problem
from duly_core.rpc.requests.resource_needs import ResourceCache
from duly_frontend import events
from duly_frontend.limits.checks import contradiction, not_put, read_change
from duly_wire.v1 import limits_pb2, registry_pb2, task_pb2

_WHOLE = FieldMask(paths=["capacity", "per_key", "note", "rate"])


@dataclass(frozen=True, slots=True)
class DeclaredResource:
    """A resource, as an application of an owner declares it."""

    limit: ResourceLimit
    by: ResourceDeclaration

    def fate(self, known: Mapping[str, StoredResource]) -> Fate:
        """Return what becomes of it."""
        return decide(self.limit, self.by, known.get(self.limit.name))


def read_declared(declared: registry_pb2.Lambda) -> list[DeclaredResource]:
    """Return the resources that a lambda brings.

    Raises:
        Problem: names the resource, the field and the fix.
    """
    by = ResourceDeclaration(declared.owner, declared.version)
    found: dict[str, DeclaredResource] = {}
    for asked in declared.declared_resources:
        try:
            limit = _limit(asked)
        except Problem as problem:
            raise Problem(_place(asked.name, problem.field), problem.message, problem.code) from problem
        if limit.name in found:
            raise Problem(_place(limit.name), "is declared twice: declare it once")
        found[limit.name] = DeclaredResource(limit, by)
    return [*found.values()]


def _place(name: str, field: str = "") -> str:
    return f"declared_resources[{name[:128]!r}]" + (f".{field}" if field else "")


def _limit(asked: limits_pb2.ResourceLimit) -> ResourceLimit:
    if is_quota(asked.name):
        raise Problem(
            "name",
            f"{asked.name[:128]} is a quota, which operators set: let one run `duly resources set`, or take another name",
        )
    change = read_change(asked, _WHOLE)
    if change.capacity is None and change.units is None:
        raise contradiction(change, "capacity")
    if change.units is None:
        rate = None
    elif change.period is None:
        raise contradiction(change, "rate.period")
    else:
        rate = Rate(change.units, change.period, change.burst or 1)
    capacity = UNLIMITED if change.capacity is None else change.capacity
    return ResourceLimit(change.name, capacity, change.per_key, change.note, rate)


def resource_refusal(
    resources: Sequence[DeclaredResource], known: Mapping[str, StoredResource]
) -> Problem | None:
    """Return why the caller may not declare these; None: it may, or would change nothing."""
    scope = restriction(Action.REGISTER)
    if scope is None:
        return None
    for each in resources:
        name = each.limit.name
        if each.fate(known) in CHANGES and not _may_declare(scope, name):
            namespace = namespace_of(name)
            needed = (
                f"all lambdas of the namespace {namespace} ({namespace}/*)"
                if namespace
                else "all lambdas (*)"
            )
            return Problem(
                _place(name),
                f"{current_access().principal!r} may not declare it: that needs the role owner for {needed}. Let an operator run "
                f"`duly resources set {name} ...`"
                + ("" if namespace else ", or declare a resource of your namespace (NAMESPACE/NAME)"),
                task_pb2.ERROR_CODE_PERMISSION_DENIED,
            )
    return None


def _may_declare(scope: Scope, name: str) -> bool:
    """A resource without a namespace is everybody's: who declares it could hold back the tasks of others."""
    namespace = namespace_of(name)
    return bool(namespace) and scope.covers_namespace(namespace)


class ResourceDeclarations:
    """Writes what applications declare. What changes nothing takes no lock."""

    def __init__(self, store: Store, known: ResourceCache, notifier: Notifier) -> None:
        self._store = store
        self._known = known
        self._notifier = notifier

    async def read(self, declared: Collection[DeclaredResource]) -> Mapping[str, StoredResource]:
        """Return what is there of these.

        Raises:
            StoreUnavailableError: the store does not answer.
        """
        return await read_resources(self._store, [each.limit.name for each in declared])

    async def declare(
        self, brought: Mapping[str, Sequence[DeclaredResource]], known: Mapping[str, StoredResource]
    ) -> dict[str, list[str]]:
        """Write declared resources; return, by the lambda that brings them, what was not taken.

        Raises:
            StoreUnavailableError: some may be written; ask again.
        """
        scope = restriction(Action.REGISTER)
        problems: dict[str, list[str]] = {}
        first: dict[str, DeclaredResource] = {}
        for lambda_name, resources in brought.items():
            for each in resources:
                name = each.limit.name
                if first.setdefault(name, each) is not each:
                    if first[name] == each:
                        continue
                    said: str | None = (
                        f"resource {name!r}: another lambda of the call says otherwise, which counts"
                    )
                elif (fate := each.fate(known)) in WRITTEN:
                    may = scope is None or _may_declare(scope, name)
                    said = await self._write(each) if may else None
                else:
                    said = _KEPT[fate](each, known[name]) if fate in _KEPT else None
                if said:
                    problems.setdefault(lambda_name, []).append(said)
        return problems

    async def _write(self, declared: DeclaredResource) -> str | None:
        """Return why it was not written; None: it was."""
        name, change = declared.limit.name, ResourceChange.whole(declared.limit)
        done = await declare_resource(
            self._store, declared.limit, declared.by, set_by=current_access().principal
        )
        self._known.forget()
        if isinstance(done, Unwritten):  # somebody declared it since it was read
            return _KEPT[done.fate](declared, done.known) if done.fate in _KEPT else None
        if done is NotPut.KEPT:  # since it was read
            return f"resource {name!r} stays as it is: somebody else set it meanwhile"
        if isinstance(done, NotPut):
            return f"resource {name!r} not changed: {not_put(name, done).message}"
        if isinstance(done, Contradiction):
            return f"resource {name!r} not changed: {contradiction(change, done.field).message}"
        if done.changed:
            events.resources_changed.inc()
            events.log.info(
                "resource declared by an application",
                resource=name,
                changed=[*done.changed],
                owner=declared.by.owner,
                version=declared.by.version,
            )
        if done.released:
            self._notifier.due_in(timedelta(), done.released, len(done.released))
        return None


def _of_operator(declared: DeclaredResource, known: StoredResource) -> str:
    name = declared.limit.name
    by = f"{known.set_by!r}" if known.set_by else "an operator"
    return (
        f"resource {name!r} was set by {by}, and stays so: this application declares other values. To take these, delete it "
        f"(duly resources delete {name}) and start a worker again"
    )


def _of_other_owner(declared: DeclaredResource, known: StoredResource) -> str:
    owner = known.declaration.owner if known.declaration else ""
    return (
        f"resource {declared.limit.name!r} is declared by {owner!r}, and stays so: {declared.by.owner or 'nobody'!r} declares other "
        "values. Use another name, or let an operator set it"
    )


def _of_newer(declared: DeclaredResource, known: StoredResource) -> str:
    version = known.declaration.version if known.declaration else ""
    return (
        f"resource {declared.limit.name!r} is declared by version {version!r}, which is newer than {declared.by.version!r}, and stays "
        "so. To change it, run `duly resources set`"
    )


_KEPT: Mapping[Fate, Callable[[DeclaredResource, StoredResource], str]] = {
    Fate.SET_BY_OPERATOR: _of_operator,
    Fate.OF_OTHER_OWNER: _of_other_owner,
    Fate.OLDER: _of_newer,
}
