"""What operators change while Duly runs: over the real wire, in the real store, seen by Store Consumers."""

import asyncio
from datetime import timedelta

import psycopg
import pytest

import duly
from duly_core.live_settings import definitions as live_settings
from duly_core.live_settings import store as kept_settings
from duly_core.postgres.notifications import Listener
from duly_core.postgres.settings import StoreSettings
from duly_store_consumer.consumer import Consumer
from duly_store_consumer.settings import StoreConsumerSettings
from duly_wire.enums import SettingSource
from duly_wire.v1 import settings_pb2, task_pb2
from tests.fixtures.services import refusal
from tests.fixtures.task_states import SECOND

POLL = "store_consumer.poll_interval"
EXACT = "store_consumer.exact"
BATCH = "store_consumer.batch"
DEADLINE = 10


@pytest.fixture
def make_consumer(store, sender):
    def make(**settings):
        return Consumer(store, sender, StoreConsumerSettings(**settings))

    return make


async def shown(client, name):
    return next(setting for setting in await client.settings() if setting.name == name)


# ---- asked of the Frontend ---------------------------------------------------------------------------------


async def test_every_setting_is_listed_with_default_source_and_effect(client):
    found = await client.settings()

    assert [each.name for each in found] == sorted(live_settings.NAMES)
    assert all(each.effect.endswith(".") and each.value == each.default_value for each in found)
    assert {(each.source, each.changed_at) for each in found} == {(SettingSource.DEFAULT, None)}


async def test_a_setting_that_an_operator_set_is_shown_so_and_one_that_was_reset_is_not(client, frontend):
    was_set = await client.set_setting(POLL, "1m30s")

    assert await shown(client, POLL) == was_set
    assert (was_set.value, was_set.default_value, was_set.own_value) == ("90s", "2s", "2s")
    assert was_set.source is SettingSource.OPERATOR
    assert was_set.changed_at is not None
    (was_reset,) = await client.reset_settings([POLL])
    assert was_reset == await shown(client, POLL)
    assert (was_reset.value, was_reset.source) == ("2s", SettingSource.DEFAULT)


async def test_setting_what_is_set_already_keeps_its_time(client):
    first = await client.set_setting(POLL, "5s")

    assert await client.set_setting(POLL, "5000ms") == first


async def test_a_value_that_the_file_could_not_have_changes_nothing(client):
    for name, value, reason in [
        (POLL, "3m", "must be at most 2 minutes"),
        (POLL, "5", "has no unit|is not a duration"),
        (EXACT, "perhaps", "must be true or false, not 'perhaps'"),
        (BATCH, "0", "must be at least 1, not '0'"),
        (BATCH, "1e3", "must be a whole number, not '1e3'"),
        ("store_consumer.reclaim_rate", "nan", "must be at most"),
        (BATCH, "1" * 101, "at most 100 characters"),
        (BATCH, "", "must be a whole number, not ''"),
    ]:
        before = await client.settings()

        with pytest.raises(duly.InvalidSettingError, match=f"{name}: .*({reason})"):
            await client.set_setting(name, value)

        assert await client.settings() == before


async def test_nothing_to_set_or_reset_is_nothing(client):
    assert await client.set_settings({}) == []
    assert await client.reset_settings([]) == []


async def test_too_many_at_once_are_refused_as_settings_are(client):
    values = {f"nothing.{number}": "1" for number in range(101)}

    with pytest.raises(duly.InvalidSettingError, match=r"^settings: there must be 1 to 100"):
        await client.set_settings(values)
    with pytest.raises(duly.InvalidSettingError, match=r"^names: there must be 1 to 100"):
        await client.reset_settings(values)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("store_consumer.pol_interval", POLL), ("exact", EXACT), ("poll_intervall", POLL)],
)
async def test_an_unknown_name_is_answered_with_the_closest(client, name, meant):
    with pytest.raises(duly.UnknownSettingError, match=f"{name}.*do you mean {meant}"):
        await client.set_setting(name, "2s")


async def test_a_setting_that_is_read_at_the_start_only_is_not_changed(client):
    (answer,) = await client.reset_settings(["store.dsn"])

    assert isinstance(answer, duly.UnknownSettingError)
    assert "duly config" in str(answer)


async def test_of_many_each_is_answered_for_itself(client):
    answers = await client.set_settings({"nonsense": "1", POLL: "4s", BATCH: "many", EXACT: "off"})

    kinds = [type(answer).__name__ for answer in answers]
    assert kinds == ["UnknownSettingError", "Setting", "InvalidSettingError", "Setting"]
    assert (await shown(client, POLL)).value == "4s"
    assert (await shown(client, EXACT)).value == "false"


async def test_a_call_takes_at_least_one_and_at_most_a_hundred(frontend):
    many = [settings_pb2.NewSetting(name=POLL, value="2s")] * 101

    for asked in ([], many):
        refused = await refusal(
            frontend.settings.SetSettings(settings_pb2.SetSettingsRequest(settings=asked))
        )
        assert refused.field == "settings"
    refused = await refusal(frontend.settings.ResetSettings(settings_pb2.ResetSettingsRequest()))
    assert refused.field == "names"


async def test_the_same_setting_twice_in_a_call_ends_as_the_last(frontend):
    twice = [settings_pb2.NewSetting(name=POLL, value=value) for value in ("3s", "4s")]

    response = await frontend.settings.SetSettings(settings_pb2.SetSettingsRequest(settings=twice))

    assert [result.setting.value for result in response.results] == ["4s", "4s"]
    assert not any(result.error.code != task_pb2.ERROR_CODE_UNSPECIFIED for result in response.results)


async def test_what_the_store_consumer_has_of_its_own_is_shown(client, make_consumer):
    await make_consumer(poll_interval=5 * SECOND).run_once()

    setting = await shown(client, POLL)

    assert (setting.value, setting.default_value, setting.own_value) == ("5s", "2s", "5s")
    assert setting.source is SettingSource.CONFIGURATION
    assert (await client.set_setting(POLL, "1s")).own_value == "5s"
    await make_consumer().run_once()
    (was_reset,) = await client.reset_settings([POLL])
    assert (was_reset.value, was_reset.source) == ("2s", SettingSource.DEFAULT)


# ---- seen by Store Consumers --------------------------------------------------------------------------------


async def test_a_store_consumer_goes_by_it_within_one_poll_of_the_old_interval(client, make_consumer):
    consumer = make_consumer(poll_interval=timedelta(minutes=2))
    await consumer.run_once()
    await client.set_setting(POLL, "1s")
    consumer._live_config._read_at -= 120  # the old interval has passed

    assert await consumer.run_once() <= SECOND


async def test_without_exactness_too(client, make_consumer):
    consumer = make_consumer(poll_interval=timedelta(minutes=2), exact=False)
    assert await consumer.run_once() == timedelta(minutes=2)
    await client.set_settings({POLL: "3s", EXACT: "false"})
    consumer._live_config._read_at -= 120

    assert await consumer.run_once() == 3 * SECOND


async def test_rounds_that_others_cause_do_not_put_off_the_look_at_settings(make_consumer):
    consumer = make_consumer(poll_interval=timedelta(minutes=2))
    await consumer.run_once()
    consumer._live_config._read_at -= 100

    assert await consumer.run_once() <= 20 * SECOND


@pytest.mark.parametrize("exact", [True, False])
async def test_one_that_listens_goes_by_it_at_once(client, dsn, make_consumer, exact):
    consumer = make_consumer(poll_interval=timedelta(minutes=2), exact=exact)
    ready, stop = asyncio.Event(), asyncio.Event()

    def changed():
        consumer.config_changed()
        ready.set()

    listening = asyncio.ensure_future(Listener(StoreSettings(dsn=dsn), consumer.note_due, changed).run(stop))
    await asyncio.wait_for(ready.wait(), DEADLINE)
    await consumer.run_once()
    consumer.wake.clear()

    await client.set_setting(POLL, "1s")

    await asyncio.wait_for(consumer.wake.wait(), DEADLINE)
    assert await consumer.run_once() <= SECOND
    stop.set()
    await listening


async def test_every_store_consumer_takes_it_also_one_that_starts_later(client, make_consumer):
    first = make_consumer(poll_interval=timedelta(minutes=2))
    await first.run_once()
    await client.set_setting(POLL, "1s")
    first.config_changed()

    assert await first.run_once() <= SECOND
    assert await make_consumer(poll_interval=timedelta(minutes=2)).run_once() <= SECOND


async def test_a_reset_gives_each_its_own_again(client, make_consumer):
    await client.set_setting(POLL, "1s")
    consumer = make_consumer(poll_interval=timedelta(minutes=1))
    await consumer.run_once()
    await client.reset_settings([POLL])
    consumer.config_changed()

    await consumer.run_once()

    assert consumer._live_config.settings.poll_interval == timedelta(minutes=1)


async def test_a_value_of_another_release_is_passed_over_and_shown(client, store, make_consumer):
    await kept_settings.put(store, {POLL: "an hour", "store_consumer.mood": "good", BATCH: "7"})
    consumer = make_consumer(poll_interval=timedelta(minutes=1))

    assert await consumer.run_once() > 59 * SECOND

    assert consumer._live_config.settings.batch == 7
    setting = await shown(client, POLL)
    assert (setting.value, setting.ignored_value) == ("1m", "an hour")
    assert setting.source is SettingSource.CONFIGURATION


async def test_what_cannot_be_told_or_read_anew_keeps_no_task_waiting(task_states, dsn, make_consumer):
    consumer = make_consumer()
    with psycopg.connect(dsn, autocommit=True) as operator:
        operator.execute("alter table own_setting rename to somewhere")
        first = await task_states.new()
        await consumer.run_once()
        operator.execute("alter table setting rename to elsewhere")
        consumer.config_changed()
        second = await task_states.new()
        await consumer.run_once()

    assert {await task_states.status(task.task_id) for task in (first, second)} == {"enqueued"}
    assert consumer._live_config.fresh_for(asyncio.get_running_loop().time()) > timedelta()


async def test_what_was_bounded_otherwise_is_bounded_so_from_now_on(client, make_consumer):
    consumer = make_consumer()
    await consumer.run_once()
    await client.set_settings({"store_consumer.reclaim_rate": "7", "store_consumer.max_depth": "50"})
    consumer.config_changed()

    await consumer.run_once()

    assert consumer._timeouts._limiter.allowance() <= 7
    assert consumer._queue_room.limits._most == 50
