"""Moves one cell: looks at both sides, does the next step, and looks again. A killed move goes on where it was."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import NoReturn, Self
from uuid import uuid4

from psycopg import sql

from duly_core.cells.change_lock import locked
from duly_core.cells.directory import Cell, Directory, DirectoryError, newest
from duly_core.cells.guards import add_guards, fence, unfence
from duly_core.cells.moving import checks
from duly_core.cells.moving.copies import forward, make_cell, read_copy
from duly_core.cells.moving.errors import MoveError, MoveTakenError, SwitchedError
from duly_core.cells.moving.sides import (
    KEPT_APART,
    STATEMENT_TIMEOUT,
    TIDYING,
    Connection,
    Side,
    in_schema,
    read_note,
    with_password_of,
    without_password,
)
from duly_core.cells.moving.steps import Facts, Step, next_step
from duly_core.errors import StoreUnavailableError
from duly_core.postgres.schema.migrate import migrate

LONGEST_FENCE = timedelta(seconds=30)
"""After so long without a switch the fence is taken down again, and callers are served by the source."""
_FENCE_FOR = timedelta(seconds=60)
"""So long the fence is tried while transactions hold tables of the cell."""
_FENCE_LOCK_TIMEOUT = "set local lock_timeout = '500ms'"
"""Less than Postgres's deadlock_timeout: where the fence and a transaction wait for each other, the fence gives up."""
_FENCE_AGAIN = timedelta(milliseconds=200)
"""Writers go on for so long between two tries."""
_LOOK_AGAIN = timedelta(milliseconds=50)
_WORKERS_GONE_FOR = timedelta(seconds=20)
"""How long the workers of a subscription may take to end."""
_SLOT_FREE_FOR = timedelta(seconds=20)
"""How long a slot may stay in use after its subscription is gone."""

_BEFORE_THE_FENCE = (Step.PREPARE, Step.PUBLISH, Step.SUBSCRIBE, Step.COPY)
"""Steps in which callers are served; a fence is what an earlier process left."""

Tell = Callable[[str], None]


class Mover:
    """One move of one cell, in this process. Use it as a context manager: it holds the lock of the move at the source."""

    def __init__(
        self,
        directory: Directory,
        cell: str,
        source: str,
        target: str,
        others: Mapping[str, str],
        *,
        source_seen_from_target: str = "",
        longest_fence: timedelta = LONGEST_FENCE,
        compares: bool = True,
        tell: Tell = lambda _: None,
    ) -> None:
        """Make one.

        Args:
            directory: the newest that is known.
            cell: the name of the cell.
            source: where it is, with its password.
            target: where it shall be, with its password.
            others: the addresses of the other cells by name, with their passwords.
            source_seen_from_target: the source's address for the target's server; empty: the same.
            longest_fence: how long callers of the cell may be held up.
            compares: whether the rows of both sides are compared before the switch.
            tell: takes a line for the operator.
        """
        self._directory = directory
        self._cell = directory.cells[cell]
        self._others = {name: dsn for name, dsn in others.items() if name != cell}
        self._seen = with_password_of(source, source_seen_from_target or without_password(source))
        self._longest_fence = longest_fence
        self._compares = compares
        self.tell = tell
        """Takes a line for the operator."""
        self.source = Side(source, self._cell.schema, "source")
        self.target = Side(target, self._cell.schema, "target")
        self.name = f"duly_move_{cell.replace('-', '_')}_{directory.installation.hex[:8]}"
        """Of publication, slot and subscription."""
        self.not_told: list[str] = []
        """The cells that did not answer when they were told of the switch; Frontends tell them later."""
        self.fenced_for: timedelta | None = None
        """How long callers of the cell were held up."""
        self._fenced_at: float | None = None
        self._attempt = ""
        """What this process has written at the target before it switches; empty: nothing."""
        self._may_have_switched = False
        """Whether the switch was sent to the target; its outcome may be unknown."""
        self._locked_on: Connection | None = None
        """The connection that holds the lock: a lost one holds it no more."""

    def __enter__(self) -> Self:
        """Take the lock.

        Raises:
            MoveTakenError: another process moves this cell.
            StoreUnavailableError: the source cannot be reached.
        """
        try:
            self._lock()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End both connections."""
        self.source.close()
        self.target.close()

    def _lock(self) -> None:
        if self._locked_on is self.source.connection:
            return
        taken = self.source.one("select pg_try_advisory_lock(hashtextextended(%s, 0))", [self.name])
        if not taken:
            raise MoveTakenError(f"another process moves cell {self._cell.name} at this moment")
        self._locked_on = self.source.connection

    def run_once(self) -> Step:
        """Do the next step, and return it; a step that waits returns after a look.

        Raises:
            MoveError: the move cannot go on; what holds then is said.
            StoreUnavailableError: a server does not answer; run it again.
        """
        self._lock()
        facts = self.look()
        step = next_step(facts)
        if facts.is_fenced and step in _BEFORE_THE_FENCE:
            self._lower_fence()
        match step:
            case Step.PREPARE:
                self._prepare()
            case Step.PUBLISH:
                self._publish()
            case Step.SUBSCRIBE:
                self._subscribe()
            case Step.COPY:
                self.tell(f"copy: {facts.tables_to_copy} tables to go, {facts.behind:,} bytes of WAL behind")
                self._check_errors()
            case Step.FENCE:
                self._fence()
            case Step.SWITCH:
                self._switch()
            case Step.TELL:
                self._tell_others()
            case Step.CLEAN:
                self._clean()
            case Step.DONE:
                pass
        return step

    def look(self) -> Facts:
        """Read from both sides how far the move is.

        Raises:
            MoveTakenError: the cell is on its way to another target.
            MoveError: a side is not what the directory says.
        """
        target_copy = read_copy(self.target)
        is_switched = target_copy is not None and target_copy.own == self._cell.name
        if target_copy is not None and not is_switched:
            raise MoveError(f"{self.target.where} is cell {target_copy.own} already")
        published = self.source.run(
            "select obj_description(oid, 'pg_publication') from pg_publication where pubname = %s",
            [self.name],
        )
        slot = self.source.run(
            "select pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::bigint from pg_replication_slots "
            "where slot_name = %s",
            [self.name],
        )
        subscribed = self.target.one("select oid from pg_subscription where subname = %s", [self.name])
        if published and not is_switched:
            goes_to = read_note(published[0][0]).get("target", "")
            if goes_to != without_password(self.target.dsn):
                raise MoveTakenError(
                    f"cell {self._cell.name} is on its way to {goes_to}: name that target, or give it up with --abort"
                )
        source_copy = read_copy(self.source)
        if source_copy is None or source_copy.own != self._cell.name:
            there = "no cell" if source_copy is None else f"cell {source_copy.own}"
            raise MoveError(f"{self.source.where} is {there}, and the directory says {self._cell.name}")
        to_copy = (
            self.target.one(
                "select count(*) from pg_subscription_rel where srsubid = %s and srsubstate <> 'r'",
                [subscribed],
            )
            if subscribed
            else 0
        )
        return Facts(
            is_prepared=subscribed is not None or self._is_prepared(),
            is_published=bool(published),
            has_slot=bool(slot),
            is_subscribed=subscribed is not None,
            tables_to_copy=int(to_copy or 0),
            behind=int(slot[0][0] or 0) if slot else 0,
            is_fenced=source_copy.fenced,
            is_switched=is_switched,
            is_told=is_switched and self._is_told(target_copy.directory if target_copy else None),
        )

    def _is_prepared(self) -> bool:
        """Tell whether the target has the schema and no rows; one that an earlier move filled is not."""
        if self.target.version() is None:
            return False
        empty = (
            sql.SQL("select true from {} limit 1").format(self.target.table(name))
            for name in self.target.tables()
        )
        return not any(map(self.target.run, empty))

    def _is_told(self, switched: Directory | None) -> bool:
        source = read_copy(self.source)
        return switched is not None and source is not None and source.directory.version >= switched.version

    def _prepare(self) -> None:
        checks.before_a_move(self.source, self.target, self._seen)
        if self.target.version() is None:
            checks.of_this_release(self.source)
            self.tell(f"prepare: making the schema at {self.target.where}")
            self.target.run(
                sql.SQL("create schema if not exists {}").format(sql.Identifier(self._cell.schema))
            )
            migrate(in_schema(self.target))
        checks.same_release(self.source, self.target)
        checks.is_new(self.target)
        tables = sql.SQL(", ").join(map(self.target.table, self.target.tables()))
        self.target.run(sql.SQL("truncate {}").format(tables))
        self.tell("prepare: the target has the schema, and no rows")

    def _publish(self) -> None:
        # upkeep has the row locked until it is through; from then on nobody finds it
        self.source.run(sql.SQL("delete from {} where name = 'upkeep'").format(self.source.table(TIDYING)))
        by_hand = {*self.source.by_hand()}
        tables = sql.SQL(", ").join(
            self.source.table(name) for name in self.source.tables() if name not in by_hand
        )
        name = sql.Identifier(self.name)
        if not self.source.one("select true from pg_publication where pubname = %s", [self.name]):
            note = json.dumps({"target": without_password(self.target.dsn)})
            with self.source.connection.transaction():
                self.source.run(
                    sql.SQL(
                        "create publication {} for table {} with (publish_via_partition_root = true)"
                    ).format(name, tables)
                )
                self.source.run(sql.SQL("comment on publication {} is {}").format(name, note))
        self.tell("publish: the tables are published")
        self.tell("publish: waiting for the transactions that run at the source")
        if not self.source.one("select true from pg_replication_slots where slot_name = %s", [self.name]):
            self.source.run("select pg_create_logical_replication_slot(%s, 'pgoutput')", [self.name])

    def _subscribe(self) -> None:
        name = sql.Identifier(self.name)
        note = self._note_of_source()
        with self.target.connection.transaction():
            # the slot is there already: a server that subscribed to itself would wait for itself
            self.target.run(
                sql.SQL(
                    "create subscription {} connection {} publication {} with (create_slot = false, slot_name = {})"
                ).format(name, sql.Literal(self._seen), name, sql.Literal(self.name))
            )
            self.target.run(sql.SQL("comment on subscription {} is {}").format(name, note))
        self.tell("subscribe: Postgres copies the tables")

    def _note_of_source(self, attempt: str = "") -> str:
        return json.dumps({"source": without_password(self.source.dsn), "attempt": attempt})

    def _check_errors(self) -> None:
        if self.target.connection.info.server_version < checks.COUNTS_ERRORS:
            return
        rows = self.target.run(
            "select apply_error_count, sync_error_count from pg_stat_subscription_stats where subname = %s",
            [self.name],
        )
        if rows and any(rows[0]):
            self.tell(
                f"copy: {rows[0][0]} errors of apply and {rows[0][1]} of the copy so far: the log of {self.target.where} "
                "says which"
            )

    def _fence(self) -> None:
        self._copies()  # the switch needs all cells: better to hear now that one is away
        end = time.monotonic() + _FENCE_FOR.total_seconds()
        while True:
            try:
                with self.source.translated(), self.source.connection.transaction():
                    self.source.connection.execute(_FENCE_LOCK_TIMEOUT)
                    fence(self.source.connection)
            except StoreUnavailableError as error:
                if time.monotonic() >= end:
                    raise MoveError(
                        f"the fence cannot be put up, for transactions hold tables of the cell: {error}; "
                        "callers are served by the source; run the command again"
                    ) from error
                time.sleep(_FENCE_AGAIN.total_seconds())
            else:
                break
        self._fenced_at = time.monotonic()
        self.tell("fence: writes of this cell are refused from now on")

    def _switch(self) -> None:
        self._begin_attempt()
        began_at = self._fenced_at if self._fenced_at is not None else time.monotonic()
        end = began_at + self._longest_fence.total_seconds()
        try:
            self._check_copied()
            self._wait_for_the_rest(end)
            self.tell("switch: the target has all that was written")
            self._copy_by_hand()
            self.tell("switch: sequences and turns are copied")
            if self._compares:
                self._compare(end)
                self.tell("switch: both sides have the same rows")
            self._make_target_the_cell()
        except (MoveError, StoreUnavailableError, DirectoryError) as error:
            self._take_down_fence(error)
        self.tell(f"switch: cell {self._cell.name} is at {self.target.where}")
        if self._fenced_at is not None:
            self.fenced_for = timedelta(seconds=time.monotonic() - self._fenced_at)

    def _begin_attempt(self) -> None:
        """Write at the target that this process is about to switch, so that an earlier one that lost its lock does not.

        Raises:
            MoveError: the target is the cell already, or the move was given up.
            StoreUnavailableError: the target does not answer; the fence stays up.
        """
        self._attempt = uuid4().hex
        name = sql.Identifier(self.name)
        with self.target.connection.transaction():
            self._lock_target()
            self._check_not_switched()
            if self._attempt_at_target() is None:
                raise MoveError(
                    f"the move of cell {self._cell.name} was given up meanwhile: run the command again"
                )
            self.target.run(
                sql.SQL("comment on subscription {} is {}").format(name, self._note_of_source(self._attempt))
            )

    def _attempt_at_target(self) -> str | None:
        """Return who is about to switch; None: there is no subscription."""
        rows = self.target.run(
            "select obj_description(oid, 'pg_subscription') from pg_subscription where subname = %s",
            [self.name],
        )
        return read_note(rows[0][0]).get("attempt", "") if rows else None

    def _check_not_switched(self) -> None:
        copy = read_copy(self.target)
        if copy is not None and copy.own == self._cell.name:
            raise SwitchedError(
                f"cell {self._cell.name} is at {self.target.where} already: run the command without --abort, which completes "
                "the move"
            )

    def _check_copied(self) -> None:
        to_copy = self.target.one(
            "select count(*) from pg_subscription_rel join pg_subscription on pg_subscription.oid = srsubid "
            "where subname = %s and srsubstate <> 'r'",
            [self.name],
        )
        if to_copy:
            raise MoveError(f"{to_copy} tables are not copied yet")

    def _check_alone(self) -> None:
        """Check that this process still holds the lock of the move, and that the source is fenced.

        Raises:
            MoveError: it does not: another process may have gone on.
        """
        if self.source.connection is not self._locked_on:
            raise MoveError("the connection to the source was lost, and with it the lock of the move")
        copy = read_copy(self.source)
        if copy is None or not copy.fenced:
            raise MoveError(f"{self.source.where} is not fenced any more")

    def _make_target_the_cell(self) -> None:
        with self._arbiter() as arbiter, locked(arbiter, self._directory):
            # others may have changed the directory since this move began
            directory = newest(self._copies(), self._directory) or self._directory
            moved = directory.with_cell(replace(self._cell, address=without_password(self.target.dsn)))
            with self.target.connection.transaction():
                self._lock_target()
                self._check_not_switched()
                if self._attempt_at_target() != self._attempt:
                    raise MoveError(
                        f"the move of cell {self._cell.name} was given up meanwhile, or another process goes on with it"
                    )
                self._check_alone()
                make_cell(self.target, moved, self._cell.name)
                with self.target.translated():
                    add_guards(self.target.connection)
                self._may_have_switched = True
        self._directory = moved

    def _take_down_fence(self, error: Exception) -> NoReturn:
        """Let the source serve again, if it is certain that nobody switches, and raise what holds."""
        try:
            self._lower_fence()
        except SwitchedError:
            raise
        except (MoveError, StoreUnavailableError) as other:
            raise MoveError(
                f"{error}; and the fence is still up ({other}): callers of cell {self._cell.name} are refused; run the "
                "command again, or with --abort"
            ) from error
        raise MoveError(
            f"{error}; the fence is down, and callers are served by the source; run the command again"
        ) from error

    def _lower_fence(self) -> None:
        """Let the source serve again.

        Raises:
            SwitchedError: the target is the cell already.
            MoveError: another process may go on with the move.
            StoreUnavailableError: a server does not answer, and it matters.
        """
        # an earlier process that lost its lock may still switch, unless this one has begun an attempt after it
        if not self._attempt or self._may_have_switched:
            with self.target.connection.transaction():
                self._lock_target()
                self._check_not_switched()
                if self._attempt_at_target() is not None:
                    self._attempt = uuid4().hex
                    note = self._note_of_source(self._attempt)
                    self.target.run(
                        sql.SQL("comment on subscription {} is {}").format(sql.Identifier(self.name), note)
                    )
        self._check_alone()
        self._unfence()

    @contextmanager
    def _arbiter(self) -> Iterator[Side]:
        """Give a connection to the default cell, where changes of the directory are locked."""
        name = self._directory.default_cell
        if name == self._cell.name:
            yield self.source
            return
        with Side(self._others[name], self._directory.cells[name].schema, f"cell {name}") as side:
            yield side

    def _copies(self) -> list[Directory]:
        """Read the directories of the source and of the other cells.

        Raises:
            DirectoryError: a cell does not answer: it may have a newer directory than the others.
        """
        copies = []
        for name, dsn in [(self._cell.name, self.source.dsn), *self._others.items()]:
            with Side(dsn, self._directory.cells[name].schema, f"cell {name}") as side:
                try:
                    copy = read_copy(side)
                except (StoreUnavailableError, MoveError) as error:
                    raise DirectoryError(f"a switch needs all cells: {error}") from error
            if copy is not None and copy.directory.installation == self._directory.installation:
                copies.append(copy.directory)
        return copies

    def _unfence(self) -> None:
        with self.source.translated(), self.source.connection.transaction():
            unfence(self.source.connection)

    def _wait_for_the_rest(self, end: float) -> None:
        sent_to = self.source.one("select pg_current_wal_lsn()::text")
        while True:
            rows = self.source.run(
                "select confirmed_flush_lsn >= %s::pg_lsn from pg_replication_slots where slot_name = %s",
                [sent_to, self.name],
            )
            if not rows:
                raise MoveError(f"the slot {self.name} is gone from {self.source.where}")
            if rows[0][0]:
                return
            if time.monotonic() >= end:
                raise MoveError(f"{self.target.where} did not catch up within {self._longest_fence}")
            time.sleep(_LOOK_AGAIN.total_seconds())

    def _copy_by_hand(self) -> None:
        for table in self.source.by_hand():
            rows = self.source.rows_of(table)
            name = self.target.table(table)
            with self.target.connection.transaction():
                self.target.run(sql.SQL("delete from {}").format(name))
                for (row,) in rows:
                    self.target.run(
                        sql.SQL(
                            "insert into {name} select * from jsonb_populate_record(null::{name}, %s)"
                        ).format(name=name),
                        [row],
                    )
        with self.target.connection.transaction():
            self.target.run(
                sql.SQL("insert into {} (name) values ('upkeep')").format(self.target.table(TIDYING))
            )
            for sequence, value in self.source.sequences().items():
                self.target.run(
                    "select setval(format('%%I.%%I', %s::text, %s::text)::regclass, %s)",
                    [self._cell.schema, sequence, value],
                )

    def _compare(self, end: float) -> None:
        by_hand = {*self.source.by_hand(), *KEPT_APART}
        differ = []
        try:
            for name in self.source.tables():
                if name in by_hand:
                    continue
                left = timedelta(seconds=end - time.monotonic())
                if left <= timedelta():
                    raise MoveError(
                        f"the comparison took longer than {self._longest_fence}: give --longest-fence more, or --no-compare"
                    )
                self.source.limit(left)
                self.target.limit(left)
                if self.source.contents(name) != self.target.contents(name):
                    differ.append(name)
        finally:
            for side in (self.source, self.target):
                if side.is_open:
                    side.limit(STATEMENT_TIMEOUT)
        if differ:
            raise MoveError(f"source and target differ in {', '.join(differ)}")

    def _tell_others(self) -> None:
        switched = read_copy(self.target)
        if switched is None:
            raise MoveError(f"{self.target.where} has no directory")
        self.not_told = []
        for name, dsn in sorted(self._others.items()):
            cell = switched.directory.cells.get(name)
            if cell is None:
                continue
            with Side(dsn, cell.schema, f"cell {name}") as other:
                try:
                    forward(other, switched.directory)
                except (StoreUnavailableError, MoveError) as error:
                    self.not_told.append(name)
                    self.tell(f"tell: {error}; its directory is brought up to date when it answers")
        copy = read_copy(self.source)
        if copy is not None and not copy.fenced:  # it must never serve again
            self._fence()
        # the source last: once it says where the cell is, this step is done
        self.tell("tell: the other cells know the new address")
        forward(self.source, switched.directory)

    def _clean(self) -> None:
        # the subscription last: its note says where the source is, to the mover that completes the move
        self._end_workers()
        self._drop_at_source()
        self.tell("clean: slot and publication are gone")
        self._drop_subscription()
        self.tell("clean: the subscription is gone")

    def _drop_subscription(self, *, gives_up: bool = False) -> None:
        name = sql.Identifier(self.name)
        self._end_workers()
        with self.target.connection.transaction():
            self._lock_target()
            if gives_up:
                self._check_not_switched()
            if self._attempt_at_target() is None:
                return
            # without its slot, which the target could not drop while the source is away
            self.target.run(sql.SQL("alter subscription {} set (slot_name = none)").format(name))
            self.target.run(sql.SQL("drop subscription {}").format(name))

    def _end_workers(self) -> None:
        """Disable the subscription, if there is one, and wait for its workers.

        Outside of a transaction: slots that its workers make at the source wait for every one that runs.
        """
        if not self.target.one("select true from pg_subscription where subname = %s", [self.name]):
            return
        self.target.run(sql.SQL("alter subscription {} disable").format(sql.Identifier(self.name)))
        end = time.monotonic() + _WORKERS_GONE_FOR.total_seconds()
        while self.target.one(
            "select true from pg_stat_subscription where subname = %s and pid is not null limit 1",
            [self.name],
        ):
            if time.monotonic() >= end:
                raise MoveError(
                    f"the workers of subscription {self.name} at {self.target.where} do not end; run the command again"
                )
            time.sleep(_LOOK_AGAIN.total_seconds())

    def _drop_at_source(self) -> None:
        end = time.monotonic() + _SLOT_FREE_FOR.total_seconds()
        while self.source.one("select true from pg_replication_slots where slot_name = %s", [self.name]):
            self.source.run(
                "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = %s and not active",
                [self.name],
            )
            if time.monotonic() >= end:
                raise MoveError(
                    f"the slot {self.name} at {self.source.where} stays in use; run the command again"
                )
            time.sleep(_LOOK_AGAIN.total_seconds())
        self.source.run(sql.SQL("drop publication if exists {}").format(sql.Identifier(self.name)))

    def _lock_target(self) -> None:
        """Be alone with the switch: who gives the move up, and who switches, may be two processes."""
        self.target.run("select pg_advisory_xact_lock(hashtextextended(%s, 1))", [self.name])

    def give_up(self, *, target_is_gone: bool = False) -> None:
        """Take back a move that is not past its switch; the cell stays where it is.

        Raises:
            MoveError: it is past its switch, so that it can only be completed.
            StoreUnavailableError: a server does not answer. The target has to: else it could still switch.
        """
        self._lock()
        if not target_is_gone:
            # without a subscription no process switches
            self._drop_subscription(gives_up=True)
        if (copy := read_copy(self.source)) is not None and copy.fenced:
            self._check_alone()
            self._unfence()
        self._drop_at_source()
        self.source.run(
            sql.SQL("insert into {} (name) values ('upkeep') on conflict do nothing").format(
                self.source.table(TIDYING)
            )
        )


def source_of(target: Side, cell: Cell) -> str:
    """Return where a cell was moved from, as a subscription at the target says; empty: no move is left to complete."""
    rows = target.run(
        "select obj_description(oid, 'pg_subscription') from pg_subscription where starts_with(subname, %s)",
        [f"duly_move_{cell.name.replace('-', '_')}_"],
    )
    return read_note(rows[0][0]).get("source", "") if rows else ""
