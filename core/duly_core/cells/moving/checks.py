"""What must hold before a move begins: each problem with what helps."""

from psycopg import sql

from duly_core.cells.moving.errors import MoveError
from duly_core.cells.moving.sides import Side
from duly_core.postgres.schema.steps import STEPS, newest

COUNTS_ERRORS = 150000
"""The first version of Postgres that counts the errors of a subscription."""
_HAS_ROLE_FOR_SUBSCRIPTIONS = 160000
_WORKERS = 2
"""One applies, one copies."""
_FIRST_ROWS = (
    "access_version",
    "attachment_store",
    "autoscaler_lease",
    "gate_version",
    "problem_board",
    "store_epoch",
    "task_event_sweep",
    "turn",
)
"""What a new store begins with."""


def before_a_move(source: Side, target: Side, seen_from_target: str) -> None:
    """Check both servers, and that the target reaches the source.

    Raises:
        MoveError: something is missing; names all of it. Nothing was changed.
    """
    if source.identity() == target.identity():
        raise MoveError(f"{target.where} is the database in which the cell is already: name another")
    problems = [*_of_source(source), *_of_target(target)]
    if problems:
        raise MoveError("the move cannot begin:\n" + "\n".join(f"  {problem}" for problem in problems))
    with Side(seen_from_target, source.schema, "source") as seen:
        seen.one("select 1")


def _of_source(source: Side) -> list[str]:
    problems = []
    if source.setting("wal_level") != "logical":
        problems.append(
            f"{source.where} has wal_level = {source.setting('wal_level')}: set wal_level = logical and restart it"
        )
    used = int(source.one("select count(*) from pg_replication_slots"))
    if used >= int(source.setting("max_replication_slots")):
        problems.append(f"{source.where} has no free replication slot: raise max_replication_slots")
    if not source.one(
        "select rolsuper or rolreplication or exists (select from pg_roles as managed where managed.rolname = "
        "'rds_replication' and pg_has_role(current_user, managed.oid, 'member')) from pg_roles where rolname = current_user"
    ):
        problems.append(f"the user of {source.where} may not replicate: alter role ... replication")
    foreign = source.run(
        "select relname::text from pg_class where relnamespace = to_regnamespace(%s) and relkind in ('r', 'p') "
        "and not pg_has_role(current_user, relowner, 'usage') limit 3",
        [source.schema],
    )
    if foreign:
        problems.append(f"the user of {source.where} does not own {', '.join(name for (name,) in foreign)}")
    return problems


def _of_target(target: Side) -> list[str]:
    problems = []
    may = target.one("select rolsuper from pg_roles where rolname = current_user")
    if not may and target.connection.info.server_version >= _HAS_ROLE_FOR_SUBSCRIPTIONS:
        may = target.one("select pg_has_role(current_user, 'pg_create_subscription', 'usage')")
    if not may:
        problems.append(f"the user of {target.where} may not subscribe: grant pg_create_subscription to it")
    if int(target.setting("max_logical_replication_workers")) < _WORKERS:
        problems.append(
            f"{target.where} has max_logical_replication_workers = {target.setting('max_logical_replication_workers')}: "
            "set 4 or more and restart it"
        )
    if not target.one("select has_database_privilege(current_database(), 'create')"):
        problems.append(f"the user of {target.where} may not create a schema there")
    return problems


def of_this_release(source: Side) -> None:
    """Check that the source has the schema that this release makes, before one is made at the target.

    Raises:
        MoveError: it has not.
    """
    there = source.version()
    if there is None or there[0] != newest(STEPS):
        raise MoveError(
            f"the schema of {source.where} is {there[0] if there else 'missing'}, and this release makes {newest(STEPS)}: run "
            "`duly migrate` there, or the command of the release that the cell has"
        )


def same_release(source: Side, target: Side) -> None:
    """Check that both have the same schema of Duly.

    Raises:
        MoveError: they have not.
    """
    ours, theirs = source.version(), target.version()
    if ours is None:
        raise MoveError(f"{source.where} has no schema of Duly")
    if theirs is None or ours[0] != theirs[0]:
        has = "none" if theirs is None else theirs[0]
        raise MoveError(
            f"the schema of {source.where} is {ours[0]}, and that of {target.where} is {has}: run `duly migrate` at the older one"
        )


def is_new(target: Side) -> None:
    """Check that the target has no rows but those that a new store begins with.

    Raises:
        MoveError: it has.
    """
    for table in target.tables():
        if table in _FIRST_ROWS:
            continue
        if target.run(sql.SQL("select true from {} limit 1").format(target.table(table))):
            raise MoveError(
                f"{target.where} has rows in {target.schema}.{table}: a cell moves to an empty schema. If it is what an earlier "
                f"move left, drop it: drop schema {target.schema} cascade"
            )
