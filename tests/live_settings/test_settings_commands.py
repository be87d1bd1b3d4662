"""`duly settings` and the blocking client, against a Frontend that serves."""

import json
import re

from duly_core.live_settings import definitions as live_settings
from duly_core.live_settings import store as kept_settings

POLL = "store_consumer.poll_interval"
EXACT = "store_consumer.exact"


async def listed(run_duly):
    return {
        line["name"]: line
        for line in map(json.loads, (await run_duly("settings", "--json")).stdout.splitlines())
    }


async def test_each_setting_is_a_line_with_value_default_source_time_and_effect(run_duly):
    await run_duly("settings", "set", POLL, "500ms")

    shown = (await run_duly("settings")).stdout.splitlines()

    assert re.split(" {2,}", shown[0]) == [
        "SETTING", "VALUE", "DEFAULT", "COMES FROM", "SET AT", "USED BY", "WHAT IT DOES",
    ]  # fmt: skip
    assert len(shown) == 1 + len(live_settings.NAMES)
    (line,) = [line for line in shown if line.startswith(POLL)]
    assert re.split(" {2,}", line)[1:4] == ["500ms", "2s", "set while running"]
    assert line.endswith("How often Duly looks for due and silent tasks, even if nothing wakes it.")


async def test_what_is_set_is_told_and_kept_until_it_is_reset(run_duly):
    was_set = await run_duly("settings", "set", POLL, "1m30s")

    assert (was_set.exit_code, was_set.stdout.splitlines()[-1]) == (0, f"{POLL} = 90s")
    assert (await listed(run_duly))[POLL] | {"changed_at": "", "effect": ""} == {
        "name": POLL,
        "value": "90s",
        "default": "2s",
        "own": "2s",
        "source": "operator",
        "changed_at": "",
        "effect": "",
        "used_by": "Store Consumer, HSC",
        "users": 0,
        "users_with_it": 0,
        "users_without_it": [],
        "ignored": None,
    }
    was_reset = await run_duly("settings", "reset", POLL)
    assert (was_reset.exit_code, was_reset.stdout.splitlines()[-1]) == (0, f"{POLL} = 2s")
    assert (await listed(run_duly))[POLL]["source"] == "default"


async def test_all_are_reset_at_once(run_duly):
    await run_duly("settings", "set", POLL, "5s")
    await run_duly("settings", "set", EXACT, "off")

    done = await run_duly("settings", "reset", "--all")

    assert done.exit_code == 0
    assert {line["source"] for line in (await listed(run_duly)).values()} == {"default"}


async def test_what_cannot_be_is_said_in_a_line(run_duly):
    for arguments, reason in [
        (("set", "poll_interval", "5s"), f"do you mean {POLL}"),
        (("set", POLL, "5"), "is not a duration"),
        (("set", POLL, "1h"), "must be at most 2 minutes"),
        (("reset", POLL, "nonsense"), "there is no setting 'nonsense'"),
    ]:
        done = await run_duly("settings", *arguments)

        assert done.exit_code == 1
        assert reason in done.stderr
        assert len(done.stderr.splitlines()) == 1


async def test_a_name_that_is_none_keeps_a_reset_from_changing_anything(run_duly):
    await run_duly("settings", "set", POLL, "5s")

    refused = await run_duly("settings", "reset", POLL, "nonsense", "rubbish")

    assert refused.exit_code == 1
    assert refused.stdout == ""
    assert [line.partition(": there")[0] for line in refused.stderr.splitlines()] == [
        "duly: nothing was reset"
    ] * 2
    assert (await listed(run_duly))[POLL]["value"] == "5s"


async def test_a_set_and_a_reset_answer_in_json_if_they_are_asked_to(run_duly):
    was_set = await run_duly("settings", "set", POLL, "5s", "--json")
    was_reset = await run_duly("settings", "reset", POLL, "--json")

    assert [json.loads(done.stdout.splitlines()[-1])["value"] for done in (was_set, was_reset)] == [
        "5s",
        "2s",
    ]


async def test_a_reset_says_which_or_all(run_duly):
    for arguments in (("reset",), ("reset", POLL, "--all")):
        assert (await run_duly("settings", *arguments)).exit_code == 2


async def test_a_value_that_is_passed_over_is_told(run_duly, store):
    await kept_settings.put(store, {POLL: "an hour"})

    done = await run_duly("settings")

    assert f"{POLL}: 'an hour'" in done.stderr
    assert "passed over" in done.stderr
