"""A target is told of what the board says: at least once, once after a restart, and not by two Frontends."""

import asyncio
from datetime import timedelta

import pytest
from prometheus_client import REGISTRY

import duly
from duly_core.notifications import store as store_notifications
from duly_core.notifications.settings import NotificationSettings
from duly_core.postgres.pool import Store
from duly_core.problems import store as store_problems
from duly_core.problems.kinds import Kind, Severity
from duly_core.problems.problem import FoundProblem, found
from duly_frontend.notifications.deliveries import Deliveries
from duly_frontend.notifications.notifier import Notifier, notifiers_of
from tests.fixtures.problems import pause
from tests.fixtures.services import serve_frontend
from tests.fixtures.task_states import SECOND
from tests.fixtures.waiting import until

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


class Installation:
    """A board that says what a test wants, and Frontends that tell `ops` of it."""

    def __init__(self, store: Store, receiver) -> None:
        self.store, self.receiver, self.opened = store, receiver, []

    async def says(self, *problems: FoundProblem) -> None:
        begun_at = await store_problems.begin(self.store, "test", timedelta())
        assert begun_at is not None
        assert await store_problems.publish(self.store, begun_at, problems)

    def deliveries(self, **targets) -> Deliveries:
        settings = NotificationSettings(
            targets=targets, allow=("127.0.0.0/8",), allow_plaintext=True, timeout=SECOND
        )
        self.opened.append(Deliveries(settings, "https://duly.example.com"))
        return self.opened[-1]

    def frontend(self, every: timedelta = timedelta(), **rules) -> Notifier:
        target = {"kind": "webhook", "url": self.receiver.url, "delay": "0s"} | rules
        deliveries = self.deliveries(ops=target)
        return Notifier(self.store, "ops", deliveries.targets["ops"], deliveries, every, lambda: 0.0)

    async def state(self, name: str = "ops") -> store_notifications.TargetState:
        return (await store_notifications.read_targets(self.store, [name]))[name]

    @property
    def told(self) -> list[list[tuple[str, str]]]:
        return [[(each["event"], each["text"]) for each in said["problems"]] for said in self.receiver.said]


@pytest.fixture
async def installation(store, receiver, clock):
    installation = Installation(store, receiver)
    yield installation
    for each in installation.opened:
        await each.close()


def no_host(name: str = "mail.send", severity: Severity = Severity.CRITICAL) -> FoundProblem:
    from datetime import UTC, datetime

    since = datetime(2026, 11, 27, 12, tzinfo=UTC)
    return found(Kind.BREAKER_OPEN, severity, since, name, lambdas={name: 3}, state="open")


def breaker(name: str = "mail.send") -> str:
    return f"too many runs of {name} failed, and its breaker is open: none of its tasks run"


async def test_a_problem_is_told_once_and_its_end_once(installation, clock):
    frontend = installation.frontend()
    await installation.says(no_host())
    await frontend.run_once()
    await frontend.run_once()
    await installation.says()
    await frontend.run_once()
    await clock.tick(2 * MINUTE)
    await installation.says()
    await frontend.run_once()
    await frontend.run_once()

    assert installation.told == [[("new", breaker())], [("resolved", breaker())]]
    (said, _) = installation.receiver.said
    assert said["problems"][0]["url"] == f"https://duly.example.com/#card-{no_host().fingerprint}"


async def test_a_restart_and_another_frontend_neither_repeat_nor_lose(installation, clock):
    await installation.says(no_host("a"))
    await installation.frontend().run_once()
    await clock.tick(2 * MINUTE)
    await installation.says(no_host("a"), no_host("b"))
    await installation.frontend().run_once()
    await installation.frontend().run_once()

    assert installation.told == [[("new", breaker("a"))], [("new", breaker("b"))]]


async def test_one_frontend_at_a_time_sends(installation):
    first, second = installation.frontend(10 * SECOND), installation.frontend(10 * SECOND)
    await installation.says(no_host())
    await asyncio.gather(first.run_once(), second.run_once())
    await second.run_once()

    assert len(installation.told) == 1


async def test_a_message_whose_end_is_unknown_is_sent_again_with_the_same_id(installation, clock):
    """The Frontend dies after it sent, and before it wrote that it did."""
    await installation.says(no_host())
    frontend = installation.frontend()
    sent = asyncio.Event()
    deliver = frontend._deliveries.deliver

    async def killed(*asked):
        await deliver(*asked)
        sent.set()
        await asyncio.Event().wait()

    frontend._deliveries.deliver = killed
    dying = asyncio.create_task(frontend.run_once())
    await sent.wait()
    dying.cancel()
    await asyncio.wait([dying])
    await installation.frontend().run_once()  # the round is still the dead one's
    assert len(installation.told) == 1
    await clock.tick(61 * SECOND)
    await installation.frontend().run_once()
    await installation.frontend().run_once()

    first, second = installation.receiver.said
    assert first == second
    assert first["id"]


async def test_a_frontend_that_stood_still_writes_nothing_over_what_others_told(installation, store, clock):
    await installation.says(no_host("a"))
    slow = await store_notifications.begin(store, "ops", "slow", timedelta())
    await clock.tick(61 * SECOND)
    await installation.says(no_host("a"))
    await installation.frontend().run_once()

    assert not await store_notifications.keep(store, "ops", slow.begun_at, slow.told)
    assert not await store_notifications.finish(store, "ops", slow.begun_at, slow.told)
    await installation.frontend().run_once()
    assert len(installation.told) == 1


async def test_a_dead_target_is_tried_again_ever_later_and_is_a_problem_for_the_others(
    installation, board, client, clock
):
    installation.receiver.status = 500
    await installation.says(no_host())
    frontend = installation.frontend()
    for _ in range(100):  # 1,000 s
        await frontend.run_once()
        await clock.tick(10 * SECOND)
    tries = len(installation.told)
    ids = {each["id"] for each in installation.receiver.said}
    await board.run_once()
    (problem,) = (await client.problems()).problems

    assert (5 <= tries <= 9, len(ids)) == (True, 1)
    assert problem.kind is duly.ProblemKind.NOTIFICATIONS_FAIL
    assert problem.text == "notifications to the target ops do not arrive: it answered 500"
    installation.receiver.status = 200
    await clock.tick(10 * MINUTE)
    await installation.says(no_host())
    await frontend.run_once()
    await board.run_once()
    assert (await client.problems()).problems == ()
    assert installation.receiver.said[-1]["id"] in ids


async def test_a_target_that_was_away_for_hours_hears_how_things_stand_then(installation, clock):
    installation.receiver.status = 503
    frontend = installation.frontend()
    for number in range(8):
        await installation.says(no_host(f"l{number}"), no_host("lasting"))
        await frontend.run_once()
        await clock.tick(15 * MINUTE)
    installation.receiver.status = 200
    installation.receiver.bodies.clear()
    await installation.says(no_host("last"), no_host("lasting"))
    await clock.tick(10 * MINUTE)
    await installation.says(no_host("last"), no_host("lasting"))
    await frontend.run_once()
    await clock.tick(10 * MINUTE)
    await installation.says(no_host("last"), no_host("lasting"))
    await frontend.run_once()

    told = [each for message in installation.told for each in message]
    assert {("new", breaker("last")), ("new", breaker("lasting"))} <= set(told)
    assert len(installation.told) <= 2


async def test_a_receiver_that_hangs_disturbs_neither_the_board_nor_another_target(
    installation, store, board, receiver, mail_receiver
):
    receiver.is_silent = True
    mail = {
        "kind": "email",
        "smtp": mail_receiver.address,
        "tls": "none",
        "sender": "duly@example.com",
        "recipients": ["ann@example.com"],
        "delay": "0s",
    }
    hangs = {"kind": "webhook", "url": receiver.url, "delay": "0s"}
    await installation.says(no_host())
    ops, team = notifiers_of(store, installation.deliveries(ops=hangs, team=mail))
    hanging = asyncio.create_task(ops.run_once())
    await until(lambda: receiver.requests)
    await team.run_once()
    await board.run_once()
    assert not hanging.done()
    await hanging

    assert len(mail_receiver.envelopes) == 1
    assert (await installation.state()).failure == "no answer within 1 s"
    assert (await installation.state("team")).failures == 0


async def test_a_deliberate_pause_tells_nobody(installation, store, board):
    await pause(store)
    await board.run_once()
    await installation.frontend().run_once()

    assert installation.told == []


async def test_300_new_problems_are_one_message(installation, clock):
    await installation.says(*(no_host(f"l{number}") for number in range(1000)))
    frontend = installation.frontend()
    for _ in range(5):
        await frontend.run_once()

    (said,) = installation.receiver.said
    assert (len(said["problems"]), said["left_out"], said["counts"]) == (20, 280, {"new": 300})


async def test_messages_come_at_most_once_a_minute(installation, clock):
    frontend = installation.frontend()
    for number in range(12):
        await installation.says(*(no_host(f"l{each}") for each in range(number + 1)))
        await frontend.run_once()
        await clock.tick(10 * SECOND)

    assert [len(each) for each in installation.told] == [1, 6]


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ({"severity": "critical"}, ["a.send"]),
        ({"kinds": ["dead_letters"]}, []),
        ({"lambdas": ["b.*"]}, ["b.send"]),
        ({"lambdas": ["c.*"]}, []),
        ({"delay": "1m"}, []),
    ],
)
async def test_a_target_hears_only_what_it_is_for(installation, rules, told):
    await installation.says(no_host("a.send"), no_host("b.send", Severity.WARNING))
    await installation.frontend(**rules).run_once()

    assert [text for message in installation.told for _, text in message] == [breaker(each) for each in told]


async def test_a_target_for_some_lambdas_reads_no_names_of_others_and_no_message_of_a_callback(
    installation, board, dead_letter
):
    since = no_host().since_at
    letters = found(
        Kind.DEAD_LETTERS,
        Severity.WARNING,
        since,
        "mail.send",
        lambdas={"mail.send": 1},
        failure_kind=1,
        exception="ValueError",
        message="the payload says s3cret",
        newest_at=since.isoformat(),
    )
    held = found(
        Kind.SLOTS_HELD,
        Severity.CRITICAL,
        since,
        "other.team",
        lambdas={"mail.send": 2, "another.team": 5},
        slots=4,
        held=4,
        shown=4,
    )
    await installation.says(letters, held)
    await installation.frontend(lambdas=["mail.*"]).run_once()

    (body,) = installation.receiver.bodies
    assert b"ValueError" in body
    assert b"another lambda holds 4 of the 4 slots" in body
    for secret in (b"s3cret", b"other.team", b"another.team"):
        assert secret not in body


async def test_a_stale_board_ends_nothing(installation, clock):
    frontend = installation.frontend()
    await installation.says(no_host())
    await frontend.run_once()
    await installation.says()
    await clock.tick(2 * MINUTE)
    await frontend.run_once()
    await frontend.run_once()

    assert len(installation.told) == 1


async def test_counters_say_what_arrived_and_what_failed_by_target(installation, clock):
    def count(what: str) -> float:
        return REGISTRY.get_sample_value(f"duly_notifications_{what}_total", {"target": "ops"}) or 0.0

    before = count("sent"), count("failed")
    await installation.says(no_host())
    installation.receiver.status = 500
    frontend = installation.frontend()
    await frontend.run_once()
    installation.receiver.status = 200
    await clock.tick(MINUTE)
    await installation.says(no_host())
    await frontend.run_once()

    assert (count("sent") - before[0], count("failed") - before[1]) == (1, 1)


async def test_operators_list_targets_without_secrets_and_test_them(installation, store, receiver):
    deliveries = installation.deliveries(
        ops={
            "kind": "slack",
            "url": receiver.url,
            "lambdas": ["mail.*"],
            "kinds": ["no_host"],
            "repeat": "4h",
        },
        gone={"kind": "webhook", "url": "http://127.0.0.1:1/s3cret"},
    )
    async with (
        serve_frontend(store, deliveries=deliveries) as served,
        duly.AsyncClient(served.address) as client,
    ):
        arrived = await client.test_notification_target("ops")
        failed = await client.test_notification_target("gone")
        with pytest.raises(duly.InvalidTaskError, match="there are gone, ops"):
            await client.test_notification_target("nobody")
        gone, ops = await client.notification_targets()

    assert (arrived.failure, failed.failure) == ("", "no connection: Connection refused")
    assert (ops.name, ops.kind, ops.lambdas, ops.kinds) == (
        "ops",
        "slack",
        ("mail.*",),
        (duly.ProblemKind.NO_HOST,),
    )
    assert (ops.repeat, ops.severity) == (4 * HOUR, duly.ProblemSeverity.WARNING)
    assert ops.last_success_at is not None
    assert (ops.next_attempt_at, gone.next_attempt_at) == (None, None)
    assert gone.last_failure_at is not None
    assert "s3cret" not in f"{ops}{gone}{arrived}{failed}"
    assert b"a test" in receiver.bodies[0]


async def test_a_message_that_failed_tells_when_it_is_tried_again_until_it_arrives(
    installation, store, receiver, clock
):
    await installation.says(no_host())
    receiver.status = 500
    frontend = installation.frontend()
    await frontend.run_once()
    failed = await installation.state()
    receiver.status = 200
    await clock.tick(MINUTE)
    await installation.says(no_host())
    await frontend.run_once()
    arrived = await installation.state()

    assert failed.next_attempt_at is not None
    assert failed.failing_since is not None
    assert failed.next_attempt_at > failed.failing_since
    assert (arrived.is_message_under_way, arrived.next_attempt_at) == (False, None)


async def test_a_test_that_arrives_sends_what_waits_at_once(installation, store, receiver, clock):
    await installation.says(no_host())
    receiver.status = 500
    frontend = installation.frontend()
    await frontend.run_once()
    receiver.status = 200
    await store_notifications.note_test(store, "ops", "")
    await frontend.run_once()

    assert len(installation.told) == 2
    assert (await installation.state()).failing_since is None
