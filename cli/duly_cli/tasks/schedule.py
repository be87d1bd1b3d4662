"""`duly schedule`: new tasks from the shell."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated

import typer

import duly
from duly_cli.attachments.commands import add_files
from duly_cli.attachments.progress_bar import ProgressBar
from duly_cli.limits.commands import parse_need
from duly_cli.output.safe_text import say
from duly_cli.startup.option_values import (
    parse_attributes,
    parse_duration,
    parse_member,
    parse_moment,
    parse_moment_or_distance,
    parse_priority,
    parse_session,
)
from duly_cli.tasks.commands import DEFAULT_ADDRESS, Address, add_to_tasks, connected, show
from duly_cli.tasks.payloads import Payload, Raw, read_lines, read_payload
from duly_cli.tasks.wait_reasons import wait_told

_CONFLICTS = {
    duly.OnConflict.IGNORE: "this task has the unique key: no other one was scheduled",
    duly.OnConflict.REPLACE: "this task has the unique key: it has the new payload, priority and due time",
}


def add_command(app: typer.Typer) -> None:
    """Add `schedule`."""
    add_to_tasks(app, schedule)


def schedule(
    lambda_name: Annotated[
        str,
        typer.Argument(metavar="LAMBDA", help="Its name, such as hello.greet; `duly lambdas` lists them."),
    ],
    payload: Payload = "null",
    raw: Raw = False,
    lines: Annotated[
        bool, typer.Option("--lines", help="PAYLOAD has a JSON value a line: schedule a task for each.")
    ] = False,
    attach: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=PATH",
            help="Put a file into a field of PAYLOAD, as an attachment. Repeatable; one field several times has a list.",
            show_default=False,
        ),
    ] = None,
    priority: Annotated[str, typer.Option(help="urgent, high, normal or low.")] = "normal",
    collection: Annotated[str, typer.Option(help="A label on a subset of the lambda's tasks.")] = "",
    fair_key: Annotated[
        str,
        typer.Option(
            help="Whose work it is, such as a customer: tasks of one lambda take turns by it.",
            show_default=False,
        ),
    ] = "",
    delay: Annotated[
        str | None, typer.Option(help="Run it after this time: 90s, 2h.", show_default=False)
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(help="Run it at this instant: 2026-12-24T18:00:00+01:00.", show_default=False),
    ] = None,
    expires_at: Annotated[
        str | None,
        typer.Option(
            help="End it as a dead letter if it still waits to start, or to run again, at this time: as for --at, or 2h from now.",
            show_default=False,
        ),
    ] = None,
    idempotency_key: Annotated[
        str | None,
        typer.Option(
            "--idempotency-key",
            "--key",
            help="Idempotency key: repeated with the same one, it makes no second task.",
            show_default=False,
        ),
    ] = None,
    session: Annotated[
        str | None,
        typer.Option(help="Key of its session, whose tasks run one at a time, in order.", show_default=False),
    ] = None,
    session_order: Annotated[
        str, typer.Option(help="Order of the session: scheduled, or due (by due time).")
    ] = "scheduled",
    session_on_failure: Annotated[
        str,
        typer.Option(help="If it fails for good: skip to the next, block the session, or fail_rest."),
    ] = "skip",
    resource: Annotated[
        list[str] | None,
        typer.Option(
            help="A resource of which it takes a unit while it runs, or WEIGHT units: NAME, NAME=WEIGHT, NAME/KEY. Repeatable.",
            show_default=False,
        ),
    ] = None,
    attribute: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="What you find the task by: order=17. At most 8; repeatable. `duly list --where order=17` finds it.",
            show_default=False,
        ),
    ] = None,
    unique: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="Unique key: schedule nothing while another task has it. Empty: a digest of PAYLOAD.",
            show_default=False,
        ),
    ] = None,
    held_while: Annotated[
        str, typer.Option(help="With --unique: a task has the key while it is pending, or live.")
    ] = "pending",
    period: Annotated[
        str | None,
        typer.Option(
            help="With --unique: a task has the key for this time after it was scheduled, too: 1h.",
            show_default=False,
        ),
    ] = None,
    on_conflict: Annotated[
        str, typer.Option(help="With --unique, if the key is taken: ignore, reject or replace.")
    ] = "ignore",
    debounce: Annotated[
        str | None,
        typer.Option(
            metavar="WAIT",
            help="With --unique and --at-most: run it so long after the last call, with the payload of that: 5s.",
            show_default=False,
        ),
    ] = None,
    at_most: Annotated[
        str | None,
        typer.Option(
            help="With --debounce: run it so long after the first call at the latest: 1m.", show_default=False
        ),
    ] = None,
    lambda_version: Annotated[
        str,
        typer.Option(help="Run it only where this version of the lambda is served.", show_default=False),
    ] = "",
    requires: Annotated[
        list[str] | None,
        typer.Option(
            help="Run it only on hosts with this label, such as gpu or region=eu; may be repeated.",
            show_default=False,
        ),
    ] = None,
    domain: Annotated[
        str, typer.Option(help="Run it only on workers of this domain.", show_default=False)
    ] = "",
    timeout: Annotated[
        str | None,
        typer.Option(
            help="How long to try until it is scheduled; --wait takes longer.",
            show_default="10s, or 3s where nothing listens",
        ),
    ] = None,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait",
            help="Wait for its end and show it; exit 1 if it did not succeed. After 3 s, say what it waits for.",
        ),
    ] = False,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Schedule a task and print its id."""
    if lines and (raw or idempotency_key is not None):
        message = "--lines cannot be combined with --raw or --idempotency-key"
        raise typer.BadParameter(message)
    if at is not None and delay is not None:
        message = "--at and --delay cannot be combined"
        raise typer.BadParameter(message)
    unique_key = _unique(unique, held_while, period, on_conflict, debounce, at_most)
    payloads = read_lines(payload) if lines else [read_payload(payload, raw=raw)]
    bar = ProgressBar()
    payloads = [add_files(value, attach or (), bar) for value in payloads]
    new = [
        duly.NewTask(
            lambda_name,
            value,
            priority=parse_priority(priority),
            collection=collection,
            fair_key=fair_key,
            delay=parse_duration(delay, "--delay"),
            at=parse_moment(at, "--at", needs_zone=True),
            expires_at=parse_moment_or_distance(expires_at, "--expires-at", 1, needs_zone=True),
            idempotency_key=idempotency_key,
            session=parse_session(session, session_order, session_on_failure),
            resources=tuple(parse_need(each) for each in resource or ()),
            attributes=parse_attributes(attribute or (), "--attribute"),
            lambda_version=lambda_version,
            domain=domain,
            requires=requires or (),
            unique=unique_key if isinstance(unique_key, duly.Unique) else None,
            debounce=unique_key if isinstance(unique_key, duly.Debounce) else None,
        )
        for value in payloads
    ]
    from duly.transport.caller import DEFAULT_TIMEOUT  # it loads gRPC, which --help does without

    patience = DEFAULT_TIMEOUT if timeout is None else parse_duration(timeout, "--timeout") or timedelta()
    with connected(address, is_patient=timeout is not None) as client:
        with bar:
            scheduled = schedule_new(client, new, patience)
        for each in scheduled:
            say(each.task_id)
            if each.conflict is not None:
                say(_CONFLICTS[each.conflict], err=True)
        ended = wait_told(client, scheduled) if wait else []
    show(ended, as_json=False)
    if any(task.status is not duly.TaskStatus.SUCCESS for task in ended):
        raise typer.Exit(1)


def schedule_new(
    client: "duly.Client", new: Sequence[duly.NewTask], timeout: timedelta
) -> list[duly.ScheduledTask]:
    """Schedule tasks; one alone is refused in its own words."""
    try:
        return client.schedule_many(new, timeout=timeout)
    except duly.ScheduleManyError as error:
        if len(new) == 1 and isinstance(error.results[0], duly.DulyError):
            raise error.results[0] from None
        for each in error.results:
            if isinstance(each, duly.ScheduledTask):
                say(each.task_id)
        raise


def _unique(
    key: str | None,
    held_while: str,
    period: str | None,
    on_conflict: str,
    debounce: str | None,
    at_most: str | None,
) -> duly.Unique | duly.Debounce | None:
    said = (held_while, period, on_conflict) != ("pending", None, "ignore")
    if key is None:
        if said or debounce is not None or at_most is not None:
            message = "--held-while, --period, --on-conflict, --debounce and --at-most go with --unique KEY"
            raise typer.BadParameter(message)
        return None
    wait, longest = parse_duration(debounce, "--debounce"), parse_duration(at_most, "--at-most")
    if wait is None and longest is None:
        return duly.Unique(
            key,
            parse_member("--held-while", held_while, duly.HeldWhile, "a state"),
            parse_duration(period, "--period"),
            parse_member("--on-conflict", on_conflict, duly.OnConflict, "a policy"),
        )
    if wait is None or longest is None:
        message = "--debounce and --at-most go together: without the one, calls that do not pause put the task off for ever"
        raise typer.BadParameter(message)
    if said:
        message = "--debounce cannot be combined with --held-while, --period and --on-conflict"
        raise typer.BadParameter(message)
    return duly.Debounce(key, wait, longest)
