"""The lambda registry: which lambdas exist, and the policy that holds for each."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from typing import Any

from psycopg.rows import dict_row

from duly_core.lambdas.declarations import IN_FORCE, Standing, Verdict, decide
from duly_core.lambdas.names import base_name
from duly_core.lambdas.patterns import to_regex
from duly_core.lambdas.policy import LambdaPolicy
from duly_core.lambdas.ramps import Ramp
from duly_core.postgres.channels import NEW_LAMBDA_CHANNEL
from duly_core.postgres.pool import Connection, Store


@dataclass(frozen=True, slots=True)
class RegisteredLambda:
    """A lambda as the store holds it."""

    policy: LambdaPolicy
    registered_at: datetime = field(compare=False)
    updated_at: datetime = field(compare=False)
    revision: int = field(compare=False)
    registered_by: str = field(compare=False)
    ramp: Ramp | None = field(compare=False, default=None)


@dataclass(frozen=True, slots=True)
class Registered:
    """What became of a declaration."""

    verdict: Verdict
    before: LambdaPolicy | None
    """The one that was in force, or that was deleted."""


POLICY = [field.name for field in fields(LambdaPolicy)]
_COLUMNS = ", ".join(POLICY)
_VALUES = ", ".join(f"%({name})s" for name in POLICY)
_EXCLUDED = ", ".join(f"{name} = excluded.{name}" for name in POLICY)
_VERSIONS_KEPT = 50
_A_PART = 200
"""Lambdas that are read at a time."""
MOST_LABEL_QUEUES = 50
"""Of one queue without labels."""
_A_PORTION = 50
"""Rows."""

# Each column by its name: a later release may add some while this one still serves.
SELECT = f"select {_COLUMNS}, registered_at, updated_at, revision, registered_by, to_version, permille from lambda left join lambda_ramp on lambda_ramp.lambda = lambda.name"  # noqa: S608 (the names are our own)
_SOME = """
where name > %(after)s and (%(part)s = '' or strpos(name, %(part)s) > 0)
    and (%(patterns)s::text is null or name ~ %(patterns)s)
order by name limit %(limit)s
"""
_LIMITS = """
select lambda.name, lambda.payload_limit, ramp.to_version, ramp.permille
from lambda left join lambda_ramp as ramp on ramp.lambda = lambda.name
"""
_STANDINGS = f"select {_COLUMNS}, revision from lambda where name = any(%(names)s)"  # noqa: S608 (as above)
_SUPERSEDED = """
select name, array_agg(version) as versions from lambda_declaration where name = any(%(names)s) and was_in_force group by name
"""
_DELETED = "select name, owner, version, revision from deleted_lambda where name = any(%(names)s)"
# Those that need not be written again: their hosts restart often.
_NOTED = f"""
select {", ".join(f"noted.{name}" for name in POLICY)}
from unnest(%(names)s::text[], %(versions)s::text[]) as asked (name, version)
join lambda_declaration as noted on noted.name = any (array[asked.name]) and noted.version = asked.version
where noted.updated_at > duly_now() - interval '1 minute'
"""  # noqa: S608 (as above)
_PUT = f"""
insert into lambda ({_COLUMNS}, registered_at, updated_at, revision, registered_by)
values ({_VALUES}, duly_now(), duly_now(), %(revision)s, %(by)s)
on conflict (name) do update
set {_EXCLUDED}, updated_at = duly_now(), revision = excluded.revision, registered_by = excluded.registered_by
"""  # noqa: S608 (as above)
_NOTE = f"""
insert into lambda_declaration ({_COLUMNS}, registered_at, updated_at, registered_by, was_in_force)
values ({_VALUES}, duly_now(), duly_now(), %(by)s, %(in_force)s)
on conflict (name, version) do update
set {_EXCLUDED}, updated_at = duly_now(), registered_by = excluded.registered_by,
    was_in_force = lambda_declaration.was_in_force or excluded.was_in_force
"""  # noqa: S608 (as above)
_FORGET_OLD = """
delete from lambda_declaration using (
    select name, version, row_number() over (partition by name order by updated_at desc, version) as place
    from lambda_declaration where name = any(%(names)s)
) as ranked
where ranked.place > %(most)s and lambda_declaration.name = ranked.name and lambda_declaration.version = ranked.version
    and not exists (
        select from lambda where lambda.name = lambda_declaration.name and lambda.version = lambda_declaration.version
    )
"""
# Whoever changes the registry does so alone: a decision and what it was made of stay together.
_LOCK = "select from turn where name = 'registry' for update"
_BACK_AGAIN = "delete from deleted_lambda where name = any(%(names)s)"
_FORGET = "delete from lambda_declaration where name = any(%(names)s)"
# Tasks may wait in them: that the first of these made its queue is long past.
_LABEL_QUEUES_BACK = """
select duly_add_label_queues(array_agg(name order by name))
from deleted_lambda
where strpos(name, ':') > 0 and rtrim(split_part(name, ':', 1), '@') = any(%(names)s)
having count(*) > 0
"""
_ADD_LABEL_QUEUES = "select duly_add_label_queues(%(names)s::text[])"
_FOLLOW = f"""
update lambda
set {", ".join(f"{name} = base.{name}" for name in POLICY if name != "name")}, updated_at = duly_now(), revision = lambda.revision + 1
from lambda as base
where strpos(lambda.name, ':') > 0 and base.name = rtrim(split_part(lambda.name, ':', 1), '@') and base.name = any(%(names)s)
"""  # noqa: S608 (as above)


async def register(
    store: Store, policies: Sequence[LambdaPolicy], registered_by: str = ""
) -> dict[str, Registered]:
    """Take what hosts declare; return by name what became of each. What changes nothing locks nothing.

    Raises:
        StoreUnavailableError: the outcome is unknown; ask again.
    """
    declared = {policy.name: policy for policy in sorted(policies, key=lambda policy: policy.name)}
    async with store.connection() as connection:
        standings = await read_standings(connection, declared)
        answers = _decide(declared, standings)
        if any(answer.verdict in (Verdict.NEW, Verdict.CHANGED) for answer in answers.values()):
            async with connection.transaction():
                await lock_registry(connection)
                standings = await read_standings(connection, declared)
                answers = _decide(declared, standings)
                await _put(connection, declared, standings, answers, registered_by)
        await _note(connection, declared, answers, registered_by)
    return answers


def _decide(declared: Mapping[str, LambdaPolicy], standings: Mapping[str, Standing]) -> dict[str, Registered]:
    """Decide in the order of the names: a lambda comes before the queues of its versions."""
    answers: dict[str, Registered] = {}
    for name, policy in declared.items():
        standing = standings.get(name, Standing())
        verdict = decide(policy, standing)
        base = base_name(name)
        if base != name:
            verdict = _of_pinned(policy, verdict, declared, standings, answers)
        answers[name] = Registered(verdict, standing.in_force or standing.deleted)
    return answers


def _of_pinned(
    policy: LambdaPolicy,
    verdict: Verdict,
    declared: Mapping[str, LambdaPolicy],
    standings: Mapping[str, Standing],
    answers: Mapping[str, Registered],
) -> Verdict:
    """Return what becomes of the queue of a version: it belongs to whom the lambda does, and goes with it."""
    base = base_name(policy.name)
    standing = standings.get(base, Standing())
    if base in answers and answers[base].verdict in (Verdict.DELETED, Verdict.NOT_OWNER):
        return answers[base].verdict
    lambda_policy = standing.in_force or declared.get(base)
    if lambda_policy is None:
        return Verdict.DELETED if standing.deleted else Verdict.NO_LAMBDA
    if lambda_policy.owner and lambda_policy.owner != policy.owner:
        return Verdict.NOT_OWNER
    return verdict


async def read_standings(connection: Connection, names: Iterable[str]) -> dict[str, Standing]:
    """Return what the store has of these lambdas, and of those of which they are versions."""
    wanted = {"names": sorted({*names, *map(base_name, names)})}
    async with connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(_STANDINGS.encode(), wanted)
        current = {row["name"]: row for row in await cursor.fetchall()}
        await cursor.execute(_SUPERSEDED.encode(), wanted)
        superseded = {row["name"]: frozenset(row["versions"]) for row in await cursor.fetchall()}
        await cursor.execute(_DELETED.encode(), wanted)
        deleted = {row["name"]: row for row in await cursor.fetchall()}
    return {
        name: Standing(
            _policy(current[name]) if name in current else None,
            (current.get(name) or deleted[name])["revision"],
            superseded.get(name, frozenset()),
            _deleted(deleted[name]) if name in deleted else None,
        )
        for name in current.keys() | deleted.keys()
    }


def _policy(row: Mapping[str, Any]) -> LambdaPolicy:
    return LambdaPolicy(**{name: row[name] for name in POLICY})


def _deleted(row: Mapping[str, Any]) -> LambdaPolicy:
    return LambdaPolicy(row["name"], owner=row["owner"], version=row["version"])


async def standings(store: Store, names: Iterable[str]) -> dict[str, Standing]:
    """Return what the store has of these lambdas.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    async with store.connection() as connection:
        return await read_standings(connection, names)


async def lock_registry(connection: Connection) -> None:
    """Keep others from changing the registry until the transaction ends."""
    await connection.execute(_LOCK)


async def _put(
    connection: Connection,
    declared: Mapping[str, LambdaPolicy],
    standings: Mapping[str, Standing],
    answers: Mapping[str, Registered],
    registered_by: str,
) -> None:
    written = [name for name, answer in answers.items() if answer.verdict in (Verdict.NEW, Verdict.CHANGED)]
    rows = [
        asdict(declared[name])
        | {"revision": standings.get(name, Standing()).revision + 1, "by": registered_by, "in_force": True}
        for name in written
    ]
    if not rows:
        return
    async with connection.cursor() as cursor:
        await cursor.execute(_BACK_AGAIN, {"names": written})
        await cursor.execute(_FORGET, {"names": _taken_over(written, declared, standings)})
        for statement in (_PUT, _NOTE):
            for some in _portions(rows):
                await cursor.executemany(statement.encode(), some)
        await follow(connection, written)
        new = [name for name in written if answers[name].verdict is Verdict.NEW]
        await cursor.execute(_LABEL_QUEUES_BACK, {"names": new})
        await cursor.execute(_FORGET_OLD, {"names": written, "most": _VERSIONS_KEPT})
        await cursor.execute("select pg_notify(duly_channel(%s), '')", (NEW_LAMBDA_CHANNEL,))


async def follow(connection: Connection, names: Sequence[str]) -> None:
    """Give the queues of tasks that require labels the policies of these queues, from which they come."""
    await connection.execute(_FOLLOW.encode(), {"names": names})


async def add_label_queues(store: Store, names: Sequence[str]) -> None:
    """Make queues of tasks that require labels, of lambdas and queues that are registered; MOST_LABEL_QUEUES of each at most.

    Raises:
        StoreUnavailableError: the outcome is unknown; ask again.
    """
    async with store.connection() as connection:
        await connection.execute(_ADD_LABEL_QUEUES, {"names": sorted(names)})


def _taken_over(
    names: Iterable[str], declared: Mapping[str, LambdaPolicy], standings: Mapping[str, Standing]
) -> list[str]:
    """Return the lambdas that had another owner until they were deleted: the versions of that one say nothing any more."""
    return [
        name
        for name in names
        if (gone := standings.get(name, Standing()).deleted) and gone.owner != declared[name].owner
    ]


async def _note(
    connection: Connection,
    declared: Mapping[str, LambdaPolicy],
    answers: Mapping[str, Registered],
    registered_by: str,
) -> None:
    """Remember which versions were declared, and when last, to a minute."""
    taken = {
        name: policy
        for name, policy in declared.items()
        if answers[name].verdict in IN_FORCE or answers[name].verdict is Verdict.OLDER
    }
    versions = [policy.version for policy in taken.values()]
    async with connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(_NOTED.encode(), {"names": list(taken), "versions": versions})
        noted = {row["name"]: _policy(row) for row in await cursor.fetchall()}
        rows = [
            asdict(policy) | {"by": registered_by, "in_force": answers[name].verdict in IN_FORCE}
            for name, policy in taken.items()
            if noted.get(name) != policy
        ]
        if rows:
            async with connection.transaction():
                for some in _portions(rows):
                    await cursor.executemany(_NOTE.encode(), some)


def _portions(rows: Sequence[Mapping[str, Any]]) -> Iterator[Sequence[Mapping[str, Any]]]:
    """Yield the rows in portions: the driver writes all of one before other calls have their turn."""
    for start in range(0, len(rows), _A_PORTION):
        yield rows[start : start + _A_PORTION]


async def list_lambdas(store: Store, patterns: Sequence[str] | None = None) -> list[RegisteredLambda]:
    """Return all lambdas that one of these patterns covers (None: all), by name.

    They are read in parts: an owner may register any number, and other calls have their turn between two parts.
    """
    found: list[RegisteredLambda] = []
    after = ""
    while True:
        part = await list_some(store, after=after, name_part="", limit=_A_PART, patterns=patterns)
        found += part
        if len(part) < _A_PART:
            return found
        after = part[-1].policy.name


async def payload_limits_and_ramps(store: Store) -> tuple[dict[str, int], dict[str, Ramp]]:
    """Return how large a payload each lambda takes, in bytes, and the ramps of those that have one."""
    async with store.connection() as connection, connection.cursor() as cursor:
        await cursor.execute(_LIMITS)
        rows = await cursor.fetchall()
    limits = {name: limit for name, limit, _, _ in rows}
    return limits, {name: Ramp(version, permille) for name, _, version, permille in rows if version}


async def list_names(store: Store) -> list[str]:
    """Return the names of all lambdas, sorted by code points."""
    async with store.connection() as connection, connection.cursor() as cursor:
        await cursor.execute(b"select name from lambda")
        return sorted([row[0] for row in await cursor.fetchall()])


async def list_some(
    store: Store, *, after: str, name_part: str, limit: int, patterns: Sequence[str] | None = None
) -> list[RegisteredLambda]:
    """Return lambdas behind this name, by name.

    Args:
        store: has them.
        after: the name of the last one of the page before; empty: from the first one.
        name_part: only those whose name has this text.
        limit: how many at most.
        patterns: only those that one of these covers (lambda_patterns). None: any.
    """
    regex = None if patterns is None else to_regex(patterns)
    wanted = {"after": after, "part": name_part, "limit": limit, "patterns": regex}
    async with store.connection() as connection, connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(f"{SELECT} {_SOME}".encode(), wanted)
        return [registered(row) for row in await cursor.fetchall()]


def registered(row: Mapping[str, Any]) -> RegisteredLambda:
    """Return the lambda of a row."""
    return RegisteredLambda(
        _policy(row),
        row["registered_at"],
        row["updated_at"],
        row["revision"],
        row["registered_by"],
        Ramp(row["to_version"], row["permille"]) if row["to_version"] else None,
    )
