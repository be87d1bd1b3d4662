"""Dead letters from the SDK and from the shell, against a Frontend that serves."""

import json
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import grpc
import pytest

import duly
from duly_cli.tasks import bulk
from duly_core.results.store import set_results
from duly_core.tasks.task import Result
from duly_frontend.tasks import dead_letters
from duly_frontend.tasks.service import FrontendServicer
from duly_wire.enums import FailureKind, Outcome
from duly_wire.ids import new_task_id
from tests.fixtures.services import serve_frontend
from tests.fixtures.task_states import LAMBDA

NEW = duly.TaskStatus.NEW
FATAL = duly.TaskStatus.FATAL_FAILURE


async def statuses(client, task_ids):
    return [task.status for task in await client.get_many(task_ids)]


# ---- the SDK ---------------------------------------------------------------------------------------------


async def test_a_dead_letter_is_redriven_once(client, dead_letter):
    task_id = await dead_letter()

    assert await client.redrive(task_id) is NEW

    assert (await client.get(task_id)).redrives == 1
    with pytest.raises(duly.NotADeadLetterError, match="not a dead letter but new"):
        await client.redrive(task_id)
    with pytest.raises(duly.TaskNotFoundError):
        await client.redrive(new_task_id())


async def test_dead_letters_are_found_by_filters_through_all_pages(client, dead_letter):
    kinds = [FailureKind.EXCEPTION, FailureKind.EXCEPTION, FailureKind.BAD_RESULT, FailureKind.EXCEPTION]
    ids = [await dead_letter(kind, collection="spring") for kind in kinds]
    which = {
        "lambda_name": LAMBDA,
        "collection": "spring",
        "failure_kinds": [duly.FailureKind.EXCEPTION],
        "finished_after": datetime.now(UTC) - timedelta(hours=1),
        "finished_before": datetime.now(UTC) + timedelta(hours=1),
    }

    found = [task async for task in client.dead_letters(page_size=1, **which)]

    assert [task.task_id for task in found] == [ids[3], ids[1], ids[0]]
    assert {task.status for task in found} == {FATAL}
    with pytest.raises(TypeError, match="lambda_nam"):
        await client.redrive_where(lambda_nam=LAMBDA)
    with pytest.raises(duly.InvalidTaskError, match="no time zone"):
        await client.redrive_where(finished_after=datetime(2026, 1, 1))  # noqa: DTZ001 (the point)


async def test_a_redrive_by_filter_goes_through_all_its_pages(client, dead_letter, monkeypatch):
    monkeypatch.setattr("duly.tasks.dead_letters._PAGE", 2)
    ids = [await dead_letter() for _ in range(5)]

    would = await client.redrive_where(rate=2, dry_run=True)
    assert await statuses(client, ids) == [FATAL] * 5
    done = await client.redrive_where(rate=2)

    assert (would.count, would.spread) == (5, timedelta(seconds=2))
    assert (done.count, done.spread) == (5, timedelta(seconds=2))
    tasks = await client.get_many(ids)
    assert [task.status for task in tasks] == [NEW] * 5
    assert [task.next_trigger_at - done.as_of for task in tasks[1:]] == [
        timedelta(seconds=n / 2) for n in range(1, 5)
    ]


async def test_a_limit_holds_over_all_pages(client, dead_letter, monkeypatch):
    monkeypatch.setattr("duly.tasks.dead_letters._PAGE", 2)
    ids = [await dead_letter() for _ in range(5)]

    would = await client.redrive_where(limit=3, dry_run=True)
    done = await client.redrive_where(limit=3)

    assert (would.count, done.count, done.spread) == (3, 3, timedelta(0))
    assert await statuses(client, ids) == [NEW] * 3 + [FATAL] * 2


async def test_what_was_done_before_an_error_is_told_with_it(store, task_states, dead_letter, monkeypatch):
    monkeypatch.setattr("duly.tasks.dead_letters._PAGE", 2)
    for _ in range(5):
        await dead_letter()

    async with (
        serve_frontend(store, horizon=timedelta(seconds=70)) as frontend,
        duly.AsyncClient(frontend.address) as client,
    ):
        with pytest.raises(duly.InvalidTaskError, match="beyond the horizon") as raised:
            await client.redrive_where(rate=0.05)

    assert raised.value.__notes__ == ["2 dead letters were redriven before"]


@pytest.fixture
async def loses_replies(store, task_states, monkeypatch):
    """A client of a Frontend that does what it is asked to, and whose first reply to each redrive is lost."""
    lost = []

    def losing(method):
        async def call(self, request, context):
            answer = await method(self, request, context)
            if method not in lost:
                lost.append(method)
                await context.abort(grpc.StatusCode.UNAVAILABLE, "lost")
            return answer

        return call

    for name in ("RedriveTask", "RedriveTasks"):
        monkeypatch.setattr(FrontendServicer, name, losing(getattr(FrontendServicer, name)))
    async with serve_frontend(store) as frontend, duly.AsyncClient(frontend.address) as client:
        yield client


async def test_a_redrive_by_filter_whose_reply_is_lost_goes_no_further_and_says_so(
    loses_replies, dead_letter
):
    ids = [await dead_letter() for _ in range(3)]

    with pytest.raises(duly.UnavailableError) as raised:
        await loses_replies.redrive_where(limit=1)

    assert await statuses(loses_replies, ids) == [NEW, FATAL, FATAL]
    assert "up to 1 more may be" in raised.value.__notes__[0]


async def test_a_redrive_by_id_whose_reply_is_lost_is_told_as_done(loses_replies, dead_letter):
    assert await loses_replies.redrive(await dead_letter()) is NEW


async def test_a_rate_or_a_limit_that_is_none_is_refused(client):
    for name, value in (("rate", 0), ("rate", -1), ("rate", float("nan")), ("limit", 0)):
        with pytest.raises(duly.InvalidTaskError, match=name):
            await client.redrive_where(**{name: value})


# ---- the shell -------------------------------------------------------------------------------------------


async def test_dead_letters_are_listed_as_a_table_and_as_json(run_duly, task_states, dead_letter):
    spring = await dead_letter(FailureKind.EXCEPTION, collection="spring")
    other = await dead_letter()
    await task_states.new()

    table = await run_duly("dead-letters", "--collection", "spring", "--kind", "exception", "--since", "1h")
    lines = await run_duly("dead-letters", "--until", "2126-01-01T00:00:00Z", "--json")

    assert table.exit_code == lines.exit_code == 0
    assert spring in table.stdout
    assert other not in table.stdout
    assert "exception: the printer is out of paper" in table.stdout
    assert [json.loads(line)["task_id"] for line in lines.stdout.splitlines()] == [other, spring]
    assert (await run_duly("dead-letters", "--since", "2126-01-01")).stdout.strip() == "no dead letters"


async def test_a_list_that_is_cut_short_says_so(run_duly, dead_letter):
    newest = [await dead_letter() for _ in range(3)][1:]

    cut, whole = (
        await run_duly("dead-letters", "--limit", "2"),
        await run_duly("dead-letters", "--limit", "3"),
    )

    assert all(task_id in cut.stdout for task_id in newest)
    assert "more than these 2" in cut.stderr
    assert "more than" not in whole.stderr


async def test_named_dead_letters_are_redriven_each_with_its_answer(run_duly, client, dead_letter):
    dead, again = await dead_letter(), await dead_letter()
    await client.redrive(again)

    result = await run_duly("redrive", dead, again, "nonsense")

    assert result.exit_code == 1
    assert result.stdout.strip() == f"{dead}: redriven, is new"
    assert f"{again}: it is not a dead letter but new" in result.stderr
    assert "nonsense: not a task id" in result.stderr
    assert "redrives  1" in (await run_duly("get", dead)).stdout


async def test_a_redrive_by_filter_says_what_it_will_do_and_what_it_did(run_duly, client, dead_letter):
    ids = [await dead_letter() for _ in range(3)]
    which = ("redrive", "--lambda", LAMBDA, "--kind", "callback", "--rate", "60/m")

    dry = await run_duly(*which, "--dry-run")
    refused = await run_duly(*which)
    assert await statuses(client, ids) == [FATAL] * 3
    done = await run_duly(*which, "--yes")

    assert dry.stdout.strip() == "3 dead letters would run again at 60/m, the last due in 2s"
    assert (refused.exit_code, "add --yes" in refused.stderr) == (2, True)
    assert done.exit_code == 0
    assert done.stdout.splitlines()[-1] == "redriven: 3, the last due in 2s"
    assert await statuses(client, ids) == [NEW] * 3
    assert (await run_duly(*which, "--yes")).stdout.strip() == "no dead letters match"


async def test_what_the_page_shows_finds_a_task_that_failed_too_often(run_duly, client, task_states):
    await task_states.register(max_attempts=1)
    claimed = await task_states.claimed()
    failed = Result(
        claimed.task_id,
        claimed.token,
        Outcome.RETRIABLE_FAILURE,
        failure_kind=FailureKind.EXCEPTION,
        failure_message="the printer is out of paper",
    )
    await set_results(task_states.store, [failed])
    page = Path(__file__).parents[2] / "docs" / "operators" / "dead-letters.md"
    commands = [
        shlex.split(line, comments=True)[1:]
        for line in page.read_text(encoding="utf-8").splitlines()
        if line.startswith(("duly dead-letters --", "duly redrive --"))
    ]

    said = [await run_duly(*command, *["--yes"] * ("--rate" in command)) for command in commands]

    assert len(said) == 3
    assert str(UUID(bytes=claimed.task_id)) in said[0].stdout
    assert said[1].stdout.strip() == "1 dead letter would run again"
    assert said[2].stdout.strip().startswith("redriven: 1")


async def test_the_command_of_the_board_redrives_the_tasks_of_one_cause(
    run_duly, client, dead_letter, board, monkeypatch
):
    ours = [await dead_letter() for _ in range(3)]
    monkeypatch.setattr(board, "_every", timedelta())
    await board.run_once()
    (problem,) = (await client.problems()).problems
    other = await dead_letter(FailureKind.EXCEPTION)

    _, *command = shlex.split(problem.commands[1].command)
    said = await run_duly(*command, "--yes")
    again = await run_duly(*command, "--dry-run")

    assert said.stdout.strip() == "redriven: 3, the last due in 0s"
    assert again.stdout.strip() == "no dead letters match"
    assert await statuses(client, [*ours, other]) == [NEW] * 3 + [FATAL]


async def test_an_older_frontend_that_ignores_the_cause_redrives_nothing(client, dead_letter, monkeypatch):
    task_id = await dead_letter()
    monkeypatch.setattr(dead_letters, "of_cause", lambda _request: None)
    to_wire = dead_letters.page_to_wire
    monkeypatch.setattr(dead_letters, "page_to_wire", lambda page, _cause: to_wire(page, ""))

    with pytest.raises(duly.DulyError, match="upgrade it first"):
        await client.redrive_where(cause="0" * 16)

    assert await statuses(client, [task_id]) == [FATAL]


@pytest.mark.parametrize("answer", ["y", "n"])
async def test_at_a_terminal_it_asks(run_duly, client, dead_letter, monkeypatch, answer):
    task_id = await dead_letter()
    monkeypatch.setattr(bulk, "is_terminal", lambda: True)

    result = await run_duly("redrive", "--all", "--limit", "1", stdin=f"{answer}\n")

    assert "1 dead letter to redrive" in result.stdout
    assert result.exit_code == (0 if answer == "y" else 1)
    assert await statuses(client, [task_id]) == [NEW if answer == "y" else FATAL]


BAD_COMMANDS = [
    (["redrive"], 2, "say which: task ids, filters"),
    (["redrive", "--all", "--lambda", LAMBDA], 2, "--all cannot be combined with filters"),
    (["redrive", "some-id", "--rate", "5/s"], 2, "either task ids or filters"),
    (["redrive", "--all", "--rate", "fast"], 2, "'fast' is not a rate: write 50/s"),
    (["redrive", "--all", "--rate", "5/d"], 2, "'5/d' is not a rate"),
    (["redrive", "--all", "--rate", "0/s"], 2, "must be more than 0"),
    (["redrive", "--all", "--limit", "0"], 2, "--limit"),
    (["redrive", "some-id", "--cause", "0" * 16], 2, "either task ids or filters: --cause"),
    (["redrive", "--all", "--cause", "0" * 16], 2, "--all cannot be combined with filters"),
    (["redrive", "--cause", "ValueError", "--yes"], 1, "cause: must be 16 hexadecimal digits"),
    (["redrive", "--kind", "sadness"], 2, "'sadness' is not a kind of failure: callback, exception"),
    (["redrive", "--since", "yesterday"], 2, "'yesterday' is not an instant"),
    (["redrive", "--lambda", "nobody.knows", "--yes"], 1, "no lambda 'nobody.knows' is registered"),
    (["dead-letters", "--since", "1h", "--until", "2h"], 1, "--until: must be later than --since"),
    (["dead-letters", "--limit", "0"], 2, "--limit"),
]


async def test_what_cannot_be_done_is_said_with_the_fix(run_duly, task_states):
    for arguments, code, complaint in BAD_COMMANDS:
        result = await run_duly(*arguments)

        assert result.exit_code == code, result.output
        assert complaint in result.stderr
        assert "Traceback" not in result.output
