"""The console's pages of pools of workers: what they show, to whom, and the change of limits."""

import re
from datetime import timedelta

import pytest

from duly_core.pools import lease
from duly_core.pools.lease import NO_FENCE, PlanToWrite
from duly_core.pools.planner import Announced, Memory, Plan
from duly_wire.v1 import fleet_pb2_grpc
from tests.console.test_console_pages import LAMBDA, NASTY
from tests.fixtures.console import browse
from tests.fleet.test_fleet_hosts import a_report

SECOND = timedelta(seconds=1)


@pytest.fixture
async def mail(client, store, frontend):
    """Declare a pool with one worker; its driver fails, and says so in markup, as the plan and the leader do."""
    await client.put_pool(
        "mail",
        lambdas=[LAMBDA, "bill.*", "c", "d"],
        labels=["gpu", "region=eu"],
        minimum=1,
        maximum=9,
        target_age=10 * SECOND,
        budget=timedelta(hours=20),
        driver="kube",
        driver_settings={"deployment": "mail-worker"},
        note=f"note {NASTY}",
    )
    fleet = fleet_pb2_grpc.FleetServiceStub(frontend.channel)
    told = await fleet.ReportHost(a_report("one", lambdas=(LAMBDA,), pool="mail"))
    now = told.store_at.ToDatetime().astimezone()
    holder = f"rack-1:7{NASTY}"
    fence = await lease.take_lease(store, holder, NO_FENCE, timedelta(minutes=5))
    plan = Plan(
        3,
        (f"8,000 tasks are due {NASTY}", "and because"),
        Memory(desired=3),
        3,
        Announced(now + timedelta(minutes=9), 8, f"soon {NASTY}"),
    )
    failing = PlanToWrite("mail", plan, f"no Deployment {NASTY}", now - timedelta(minutes=7))
    await lease.write_plans(store, holder, fence, now, [failing], [])


@pytest.mark.usefixtures("mail")
async def test_pools_are_shown_with_their_plans_and_what_others_wrote_is_text(browser, client):
    await client.put_pool("idle", lambdas=["*"], maximum=2, driver="here")

    listed = (await browser.get("/pools")).text.replace("&nbsp;", " ")
    shown = (await browser.get("/pools/mail")).text
    idle = (await browser.get("/pools/idle")).text
    hostile = await browser.get(f"/pools/{NASTY.replace('/', '')}")

    both = (
        "gpu, region=eu",
        "no Deployment &lt;script&gt;",
        ">7 min ",
        "8,000 tasks are due &lt;script&gt;",
    )
    for said in (*both, "rack-1:7&lt;script&gt;", "leads (fence 1)", "kube", "10 s", "3 of 16"):
        assert said in listed, said
        assert said in shown, said
    assert "mail.send, bill.*, c and 1 more" in listed
    assert "1 alive, 0 starting" in listed
    assert "1 to 9" in listed
    assert (
        listed.count("No autoscaler planned for it yet.")
        == idle.count("No autoscaler planned for it yet.")
        == 1
    )
    for said in (
        "and because",
        "8 workers; soon",
        "deployment=mail-worker",
        "note &lt;script&gt;",
        "assumed",
        "0.00 of 20.00 hours",
    ):
        assert said in shown, said
    assert hostile.status_code == 400  # no pool can have that name
    for page in (listed, shown, idle, hostile.text, (await browser.get("/hosts/one")).text):
        assert "<script>alert" not in page
    assert 'href="/pools/mail"' in (await browser.get("/hosts/one")).text


async def test_without_pools_the_page_has_the_command_that_declares_one(browser):
    assert "<code>duly pools set NAME" in (await browser.get("/pools")).text


@pytest.mark.usefixtures("mail")
async def test_limits_are_changed_after_a_confirmation_and_the_rest_of_the_pool_stays(browser, client):
    (before,) = await client.pools()
    (shown,) = re.findall(r'name="changed_at" value="([^"]+)"', (await browser.get("/pools/mail")).text)
    path = "/pools/mail/limits"

    asked = await browser.post(path, minimum=2, maximum=12, changed_at=shown)
    unchanged = await client.pools()
    done = await browser.confirmed(path, minimum=2, maximum=12, changed_at=shown)
    refused = [
        (await browser.post(path, minimum=low, maximum=high)).status_code
        for low, high in ((-1, 5), (6, 5), (0, 0), (0, 10_001), ("", 5), ("²", 5), (2, 12))
    ]
    late = await browser.post(path, minimum=0, maximum=1, changed_at=shown, confirm="yes")
    gone = await browser.post("/pools/gone/limits", minimum=0, maximum=1)

    (after,) = await client.pools()
    assert "mail may have 1 to 9 workers now, and 2 to 12 from the next plan on." in asked.text
    assert unchanged == [before]
    assert "mail may have 2 to 12 workers now." in done.text
    assert (after.minimum, after.maximum) == (2, 12)
    assert (after.lambdas, after.labels, after.budget, after.note, after.driver_settings) == (
        before.lambdas,
        before.labels,
        before.budget,
        before.note,
        before.driver_settings,
    )
    assert (set(refused), late.status_code, gone.status_code) == ({400}, 409, 404)
    assert "Somebody changed mail" in late.text
    assert "PoolService/PutPools" in (await browser.get("/audit")).text


@pytest.mark.usefixtures("mail")
async def test_only_who_may_read_all_lambdas_sees_pools_and_only_operators_change_them(guarded):
    seen = {}
    async with browse(guarded) as guarded_browser:
        for maximum, principal in enumerate(("operator", "auditor", "owner"), 3):
            await guarded_browser.sign_in(principal)
            menu = 'href="/pools"' in (await guarded_browser.get("/")).text
            listed = await guarded_browser.get("/pools")
            page = await guarded_browser.get("/pools/mail")
            forced = await guarded_browser.post(
                "/pools/mail/limits", minimum=0, maximum=maximum, confirm="yes"
            )
            seen[principal] = (menu, listed.status_code, "Change the limits" in page.text, forced.status_code)
            assert ("mail" in listed.text) == (principal != "owner")

    assert seen == {
        "operator": (True, 200, True, 303),
        "auditor": (True, 200, False, 403),
        "owner": (False, 403, False, 403),
    }
