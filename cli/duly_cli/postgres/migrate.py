"""`duly migrate`: brings the store's schema up to this release, or says what that would do."""

from typing import TYPE_CHECKING, Annotated

import typer

from duly_cli.output.safe_text import say
from duly_cli.startup.exit_codes import exit_code_of
from duly_cli.startup.option_values import invalid

if TYPE_CHECKING:
    from duly_core.postgres.schema.migrate import Migrated
    from duly_core.postgres.schema.plan import Plan

_EXIT_TO_MIGRATE = 1
_EXIT_UNUSABLE = 2


def add_command(app: typer.Typer) -> None:
    """Add `migrate`."""
    app.command(rich_help_panel="For operators")(migrate)


def migrate(
    dsn: Annotated[
        str | None, typer.Option(help="The Postgres to migrate.", show_default="the setting store.dsn")
    ] = None,
    *,
    roles: Annotated[
        bool, typer.Option("--roles", help="Also make a role for each service, with the rights it needs.")
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Change nothing: compare the schema with what this release needs. Exit with 0 if services can run, "
            "1 if `duly migrate` must run first, 2 if the schema is another or cannot be read.",
        ),
    ] = False,
    plan: Annotated[
        bool,
        typer.Option(
            "--plan",
            help="Change nothing: show each step that would run, with its locks, its rows and an estimate of its time.",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --check or --plan: print one JSON object.")
    ] = False,
) -> None:
    """Bring the store's schema up to this release. Services do so themselves only with store.migrate."""
    from duly_core.errors import DulyError

    if check and plan:
        raise invalid("--plan", "shows what --check finds: leave out --check")
    if roles and (check or plan):
        raise invalid("--check" if check else "--plan", "changes nothing: leave out --roles")
    if as_json and not (check or plan):
        raise invalid("--json", "is for --check and --plan")
    try:
        if check or plan:
            _show(_plan(dsn), whole=plan, as_json=as_json)
        else:
            _migrate(dsn, roles=roles)
    except DulyError as error:
        say(f"duly migrate: {error}", err=True)
        raise typer.Exit(_EXIT_UNUSABLE if check else exit_code_of(error)) from error


def _migrate(dsn: str | None, *, roles: bool) -> None:
    from duly_core.postgres.rights import names

    made = _migrate_one(_address(dsn), "the store's schema", roles=roles)
    if roles:
        say(f"roles: {', '.join(names())}" + (f" (new: {', '.join(made)})" if made else ""))
        say("give each service a user of its own: create role hsc_user login password '...' in role duly_hsc")
    if dsn is None:
        _migrate_other_cells(roles=roles)


def _migrate_one(address: str, what: str, *, roles: bool) -> list[str]:
    """Migrate one store; return the roles that were made."""
    from duly_core.postgres.schema.migrate import migrate as run_steps
    from duly_core.postgres.service_roles import make_roles

    migrated = run_steps(address, contract=True)
    made = make_roles(address) if roles else []
    for step in migrated.done:
        say(f"step {step.version} ({step.kind}): {step.title}")
    say(f"{what} is up to date")
    _say_what_waits(migrated)
    return made


def _migrate_other_cells(*, roles: bool) -> None:
    """Migrate the other cells of the installation, if the store is a cell; one that is away holds up no other.

    Raises:
        DulyError: some were not migrated.
    """
    from duly_core.cells.administration import Administration
    from duly_core.errors import DulyError
    from duly_core.postgres.settings import StoreSettings, direct

    administration = Administration(direct(StoreSettings.load()))
    if administration.own_copy() is None:
        return
    found = administration.look()
    failed = []
    for state in found.states:
        name = state.cell.name
        if name == found.own:
            continue
        if state.away:
            failed.append(f"cell {name}: {state.away}")
            continue
        try:
            _migrate_one(administration.address_of(state.cell), f"the schema of cell {name}", roles=roles)
        except DulyError as error:
            failed.append(f"cell {name}: {error}")
    if failed:
        raise DulyError("not migrated: " + "; ".join(failed))


def _say_what_waits(migrated: "Migrated") -> None:
    if migrated.waiting is None:
        return
    say(f"step {migrated.waiting.version} (contract) waits for processes of another release:")
    for process in migrated.waits_for:
        say(f"  {process}")
    say("when they have ended, run `duly migrate` again; nothing else depends on it")


def _plan(dsn: str | None) -> "Plan":
    from duly_core.postgres.schema.plan import plan

    return plan(_address(dsn))


def _show(plan: "Plan", *, whole: bool, as_json: bool) -> None:
    from duly_core.postgres.schema.plan import can_migrate, usable

    if as_json:
        _say_json(plan)
    else:
        for difference in plan.differences:
            say(difference)
        say(_summary(plan))
        if whole:
            _say_steps(plan)
    if not whole and not usable(plan.state):
        raise typer.Exit(_EXIT_TO_MIGRATE if can_migrate(plan.state) else _EXIT_UNUSABLE)


def _summary(plan: "Plan") -> str:
    from duly_core.postgres.schema.plan import State

    waiting = f"; {len(plan.steps)} contract step(s) may follow" if plan.steps else ""
    return {
        State.USABLE: f"the store's schema is {plan.version}, as this release needs{waiting}",
        State.MISSING: "the store has no schema of Duly: run `duly migrate`",
        State.OLDER: f"the store's schema is {plan.version}, and this release needs {plan.needed}: run `duly migrate`",
        State.NEWER: f"the store's schema is {plan.version}, of a newer release: this release works on it",
        State.CONTRACTED: f"the store's schema is {plan.version}, of a newer release, which has taken away what this "
        "release uses: run the newer release",
        State.OTHER: f"the store's schema says that it is {plan.version}, and differs as above: another build made it, or "
        "somebody changed it. Undo the changes, or make a new database",
        State.TOO_OLD: f"the store's schema is {plan.version}, from before the first release: make a new database",
    }[plan.state]


def _say_steps(plan: "Plan") -> None:
    for step in plan.steps:
        say(f"\nstep {step.version} ({step.kind}): {step.title}")
        say(f"  locks: {', '.join(map(str, step.locks)) or 'none on tables that are there'}")
        say(f"  rows: {f'about {step.rows:,}' if step.rows else 'reads no table in whole'}")
        say(f"  rewrites a table: {'yes' if step.rewrites_a_table else 'no'}")
        say(f"  time: about {step.estimated_time.total_seconds():,.1f} s (an estimate), and waits for locks")
        say(
            f"  the older release works meanwhile and afterwards: {'yes' if step.older_release_works else 'no'}"
        )
        for process in step.waits_for:
            say(f"  waits for: {process}")
    if plan.steps:
        say("\na step that waits for a lock gives up after 0.5 s, and tries again for a minute")


def _say_json(plan: "Plan") -> None:
    from duly_cli.output.json_text import json_text
    from duly_core.postgres.schema.plan import usable

    say(
        json_text(
            {
                "state": str(plan.state),
                "usable": usable(plan.state),
                "version": plan.version,
                "needed": plan.needed,
                "newest": plan.newest,
                "differences": list(plan.differences),
                "steps": [
                    {
                        "version": step.version,
                        "title": step.title,
                        "kind": str(step.kind),
                        "locks": [{"table": lock.table, "mode": lock.mode} for lock in step.locks],
                        "rows": step.rows,
                        "estimated_seconds": step.estimated_time.total_seconds(),
                        "rewrites_a_table": step.rewrites_a_table,
                        "older_release_works": step.older_release_works,
                        "waits_for": list(step.waits_for),
                    }
                    for step in plan.steps
                ],
            }
        )
    )


def _address(dsn: str | None) -> str:
    from duly_core.postgres.password import admin_address

    return admin_address(dsn)
