"""Live settings of every service: validated together, and taken by Frontends, HSCs and Store Consumers."""

from datetime import UTC, datetime, timedelta

import pytest
import structlog

import duly
from duly_core.config.live_sections import LiveFrontendSettings, TriggerSettings
from duly_core.errors import SettingsError
from duly_core.live_settings import definitions as live_settings
from duly_core.live_settings import store as kept_settings
from duly_core.live_settings.effective import EffectiveSettings
from duly_core.live_settings.log_level_follower import LogLevelFollower
from duly_core.postgres.settings import StoreSettings
from duly_core.process.log_levels import log_levels
from duly_core.process.telemetry import TelemetrySettings
from duly_core.rpc.requests.field_count import MOST_FIELDS
from duly_core.upkeep.retention import Retention
from duly_frontend.live_settings.follower import LiveConfig
from duly_frontend.settings import FrontendSettings
from duly_hsc.live_config import LiveConfig as HscLiveConfig
from duly_hsc.settings import HscSettings
from duly_store_consumer.live_config import LiveConfig as StoreConsumerLiveConfig
from duly_store_consumer.settings import StoreConsumerSettings
from duly_wire.enums import SettingSource
from tests.fixtures.services import serve_frontend
from tests.fixtures.task_states import LAMBDA, SECOND

POLL = "store_consumer.poll_interval"


@pytest.fixture(autouse=True)
def levels():
    """Give the process its level back."""
    before = log_levels._default, dict(log_levels._levels)
    yield log_levels
    log_levels._default, log_levels._levels = before


# ---- what is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "refused"),
    [
        ({POLL: "1s", "store_consumer.batching_gap": "2s"}, {POLL, "store_consumer.batching_gap"}),
        ({"store_consumer.batching_gap": "3s"}, {"store_consumer.batching_gap"}),
        ({"store_consumer.enqueue_timeout": "2s"}, {"store_consumer.enqueue_timeout"}),
        ({POLL: "5s", "store_consumer.batching_gap": "3s"}, set()),
    ],
)
async def test_settings_are_checked_together(client, values, refused):
    answers = dict(zip(values, await client.set_settings(values), strict=True))

    assert {name for name, each in answers.items() if isinstance(each, duly.InvalidSettingError)} == refused
    assert all("must not exceed" in str(answers[name]) for name in refused)
    held = {each.name: each.value for each in await client.settings()}
    assert {name for name, value in values.items() if held[name] == value} == values.keys() - refused


async def test_a_value_is_checked_against_what_others_set_before(client):
    await client.set_setting("store_consumer.batching_gap", "2s")

    with pytest.raises(duly.InvalidSettingError, match="must not exceed"):
        await client.set_setting(POLL, "1s")

    assert (await client.set_setting(POLL, "2s")).value == "2s"


async def test_what_needs_a_restart_is_refused_with_what_to_do(client):
    for name, remedy in [
        ("timing.heartbeat_period", "restart workers"),
        ("store.dsn", "restart the processes that read it"),
        ("executor.slots", "restart workers"),
        ("hsc.max_items_per_call", "restart HSCs"),
        ("rpc.cert_file", "duly.toml or the environment"),
    ]:
        with pytest.raises(
            duly.UnknownSettingError, match=f"{name} cannot be changed while Duly runs: .*{remedy}"
        ):
            await client.set_setting(name, "1m")


def test_a_call_may_not_be_set_to_more_items_than_a_request_may_have():
    with pytest.raises(SettingsError, match="at most"):
        live_settings.read("frontend.max_tasks_per_call", str(MOST_FIELDS + 1))
    assert live_settings.read("frontend.max_tasks_per_call", str(MOST_FIELDS)) == MOST_FIELDS


# ---- what is shown ------------------------------------------------------------------------------------------


async def test_each_setting_says_which_processes_use_it(client):
    used_by = {each.name: each.used_by for each in await client.settings()}

    assert used_by[POLL] == "Store Consumer, HSC"
    assert used_by["frontend.horizon"] == "Frontend"
    assert used_by["executor.log_level"] == "Executor"
    assert used_by["telemetry.log_level"] == "Frontend, HSC, Store Consumer, Controller, Executor"


async def test_what_the_configuration_of_processes_says_is_shown(client, store, frontend):
    store.settings = store.settings.model_copy(update={"retention": timedelta(days=3)})
    await StoreConsumerLiveConfig(store, StoreConsumerSettings()).read(0.0)

    shown = next(each for each in await client.settings() if each.name == "store.retention")

    assert (shown.value, shown.source) == ("3d", SettingSource.CONFIGURATION)


# ---- what takes them ----------------------------------------------------------------------------------------


def follower(service="frontend", section=None):
    return LogLevelFollower(service, section or FrontendSettings(), TelemetrySettings())


async def test_a_frontend_takes_its_limits_within_a_poll_interval(task_states, store, client):
    await task_states.register()
    config = LiveConfig(store, FrontendSettings(), TriggerSettings(), follower())
    async with serve_frontend(store, live=config.now) as served, duly.AsyncClient(served.address) as direct:
        in_a_year = datetime.now(UTC) + timedelta(days=300)
        await direct.schedule(LAMBDA, at=in_a_year)
        await client.set_settings({"frontend.horizon": "10d", "frontend.max_tasks_per_call": "1"})

        pause = await config.run_once()

        assert pause == 2 * SECOND
        with pytest.raises(duly.DulyError, match=r"horizon|ahead"):
            await direct.schedule(LAMBDA, at=in_a_year)
    await client.reset_settings(["frontend.horizon"])
    await config.run_once()
    assert config.now().horizon == timedelta(days=365)
    assert config.now().max_tasks_per_call == 1


async def test_a_frontend_reads_as_often_as_the_poll_interval_says(store, client):
    config = LiveConfig(store, FrontendSettings(), TriggerSettings(), follower())
    await client.set_setting(POLL, "30s")

    assert await config.run_once() == 30 * SECOND


async def test_the_log_level_of_all_services_changes_and_one_may_have_its_own(store, client, levels):
    levels.default("info")
    frontend = LiveConfig(store, FrontendSettings(), TriggerSettings(), follower())
    hsc = HscLiveConfig(store, TriggerSettings(), follower("hsc", HscSettings()))
    consumer = StoreConsumerLiveConfig(store, StoreConsumerSettings())
    level = follower("store-consumer", StoreConsumerSettings())
    consumer.follow(lambda found: level.take(found.settings))
    await client.set_settings({"telemetry.log_level": "warning", "hsc.log_level": "debug"})

    await frontend.run_once()
    await hsc.run_once()
    await consumer.read(0.0)

    def logged(service, method):
        try:
            return bool(levels.drop_below(None, method, {"event": "e", "service": service}))
        except structlog.DropEvent:
            return False

    assert [logged(service, "info") for service in ("frontend", "hsc", "store-consumer")] == [
        False,
        True,
        False,
    ]
    assert all(logged(service, "warning") for service in ("frontend", "hsc", "store-consumer"))
    assert logged("hsc", "debug")
    await client.reset_settings(["telemetry.log_level", "hsc.log_level"])
    await frontend.run_once()
    await hsc.run_once()
    assert logged("frontend", "info")
    assert not logged("hsc", "debug")


async def test_an_hsc_takes_its_shares_of_retries_and_of_low_priorities_within_a_poll_interval(store, client):
    own = HscSettings(retry_floor=7)
    hsc = HscLiveConfig(store, TriggerSettings(), follower("hsc", own), hsc=own)
    await client.set_settings({"hsc.retry_share": "0.05", "hsc.low_priority_share": "0.4"})

    await hsc.run_once()

    now = hsc.hsc()
    assert (now.retry_share, now.low_priority_share, now.retry_floor) == (0.05, 0.4, 7)
    await client.reset_settings(["hsc.retry_share", "hsc.low_priority_share"])
    await hsc.run_once()
    assert hsc.hsc() == own


@pytest.mark.parametrize(
    ("name", "value"),
    [("hsc.low_priority_share", "0.6"), ("hsc.retry_floor", "0"), ("hsc.retry_share", "nan")],
)
async def test_a_share_that_cannot_be_is_refused(client, name, value):
    with pytest.raises(duly.InvalidSettingError, match=name):
        await client.set_setting(name, value)


async def test_a_frontend_answers_hosts_with_what_they_follow_and_no_more(store, client):
    config = LiveConfig(store, FrontendSettings(), TriggerSettings(), follower())
    before = config.of_hosts()
    values = {"executor.log_level": "debug", "telemetry.log_level": "warning"}
    await client.set_settings(values | {"hsc.log_level": "debug", "frontend.horizon": "10d"})

    await config.run_once()

    assert before is None
    assert dict(config.of_hosts().values) == values
    await client.reset_settings([*values])
    await config.run_once()
    assert dict(config.of_hosts().values) == {}


async def test_a_store_consumer_keeps_tasks_as_long_as_the_live_setting_says(store, client):
    consumer = StoreConsumerLiveConfig(store, StoreConsumerSettings())
    kept_for = EffectiveSettings(StoreSettings())
    consumer.follow(lambda found: kept_for.take(found.settings))
    await client.set_setting("store.retention", "1h")

    await consumer.read(0.0)

    assert kept_for.now.retention == timedelta(hours=1)
    assert kept_for.now.dead_letter_retention == timedelta(days=30)


async def test_retention_removes_what_a_shorter_time_does_not_keep(store, task_states, clock, client):
    boot = 0  # runs as the store's clock does: nothing stepped
    retention = Retention(
        store, timedelta(days=7), timedelta(days=30), timedelta(days=1), since_boot=lambda: boot
    )
    await task_states.new()
    (ended,) = await task_states.end_all_that_may_run()
    await retention.run_once()
    await clock.tick(timedelta(days=3))
    boot = 3 * 86_400 * 10**9
    await retention.run_once()
    before = await kept_tasks(store)

    retention.keep(timedelta(hours=1), timedelta(days=30))
    for _ in range(5):
        await retention.run_once()

    assert before == [ended.task_id]
    assert await kept_tasks(store) == []


async def kept_tasks(store):
    async with store.connection() as connection:
        cursor = await connection.execute("select task_id from task where status is not null")
        return [row[0] if isinstance(row[0], bytes) else row[0].bytes for row in await cursor.fetchall()]


async def test_a_value_of_another_release_is_passed_over_by_each(store):
    await kept_settings.put(store, {"frontend.horizon": "never", "telemetry.log_level": "loud"})
    config = LiveConfig(store, FrontendSettings(), TriggerSettings(), follower())

    await config.run_once()

    assert config.now() == FrontendSettings()
    assert isinstance(config.now(), LiveFrontendSettings)
