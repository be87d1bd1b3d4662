"""The model of capacity: more load never needs less, what the page says of published loads holds, nonsense is refused."""

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest

from benchmarks.capacity.report import ATF, EXAMPLES, PAGERDUTY
from duly_cli.capacity.costs import costs, list_prices, machine, prices_of
from duly_cli.capacity.model import PROCESSES, TERMS, Groups, Mix, fitted, on_curve
from duly_cli.capacity.rules import CapacityError, Limits, Load, fewest, plan

LIMITS = Limits()


def test_more_tasks_a_second_never_need_less() -> None:
    found = [plan(Load(rate, rate), LIMITS, fitted()) for rate in (1, 10, 100, 1_000, 5_000, 20_000, 100_000)]

    for part in ("cells", "frontends", "hscs", "store_consumers", "hosts", "slots", "disk_bytes"):
        values = [getattr(each, part) for each in found]
        assert values == sorted(values), part
    for cores in ("postgres_cores", "postgres_cores_at_most"):
        whole = [getattr(each, cores) * each.cells for each in found]
        assert whole == sorted(whole), cores
    assert all(each.postgres_cores <= each.postgres_cores_at_most for each in found)


def test_slots_follow_littles_law() -> None:
    load = Load(9_000, 9_000, run_time=timedelta(milliseconds=200))

    found = plan(load, replace(LIMITS, busy_slots=1.0), fitted())

    assert found.slots == 1_800
    assert found.hosts * LIMITS.slots >= 1_800


def test_disk_is_what_is_kept_in_the_retention() -> None:
    load = Load(500, 10, retention=timedelta(days=2), mix=Mix(payload=100))

    found = plan(load, LIMITS, fitted())

    assert found.kept_tasks == 10 * 2 * 86_400
    assert found.disk_bytes == found.kept_tasks * fitted().kept_bytes[0][1]


def test_a_smaller_postgres_needs_more_cells_and_none_is_too_busy() -> None:
    load = Load(20_000, 20_000)

    large, small = (plan(load, replace(LIMITS, postgres_cores=cores), fitted()) for cores in (64, 1))

    assert small.cells > large.cells
    assert all(wall.share <= LIMITS.busy for wall in (*large.walls, *small.walls))
    assert small.postgres_vcpus <= 1


def test_what_atf_and_pagerduty_published_needs_no_more_than_two_cells() -> None:
    atf, pagerduty = (plan(load, LIMITS, fitted()) for load in (ATF, PAGERDUTY))

    assert (atf.cells <= 2, pagerduty.cells) == (True, 1)
    in_tens = plan(replace(ATF, mix=replace(ATF.mix, tasks_per_call=10)), LIMITS, fitted())
    assert in_tens.cells == 1
    assert (ATF.tasks_per_second, PAGERDUTY.tasks_per_second) == (9_000, 1_600)
    assert 1.19 < PAGERDUTY.mean_tasks_per_second < 1.21


def test_every_wall_is_sized_for_calls_that_share_no_statement() -> None:
    found = plan(Load(9_000, 9_000), replace(LIMITS, commits_per_s=1e6), fitted())

    model = fitted()
    commits = next(wall for wall in found.walls if wall.name == "commits")
    assert commits.used == found.transactions_per_s_at_most > 9_000 * model.transactions["schedule_group"]
    assert commits.expected == found.transactions_per_s < commits.used
    wal = next(wall for wall in found.walls if wall.name == "WAL")
    assert wal.used == found.wal_bytes_per_s_at_most > found.wal_bytes_per_s == wal.expected


def test_a_volume_too_slow_for_a_commit_of_each_call_needs_another_cell_as_the_page_says_of_atf() -> None:
    fast, slow = (plan(ATF, replace(LIMITS, commits_per_s=commits), fitted()) for commits in (80_000, 16_000))

    assert (fast.cells, slow.cells) == (1, 2)
    assert fast.transactions_per_s < LIMITS.busy * 16_000 < fast.transactions_per_s_at_most


def test_a_volume_too_small_for_what_is_kept_needs_more_cells() -> None:
    load = Load(100, 100, retention=timedelta(days=100))
    kept = plan(load, LIMITS, fitted()).disk_bytes

    found = plan(load, replace(LIMITS, disk_bytes=kept / 3 / LIMITS.busy * 1.01), fitted())

    assert found.cells == 3
    assert (found.walls[0].name, found.walls[0].used) == ("disk", kept / 3)
    assert found.disk_bytes == kept


def test_calls_of_several_tasks_and_larger_payloads_cost_what_they_should() -> None:
    one = plan(Load(9_000, 9_000), LIMITS, fitted())
    ten = plan(Load(9_000, 9_000, mix=Mix(tasks_per_call=10)), LIMITS, fitted())
    large = plan(Load(9_000, 9_000, mix=Mix(payload=4_096)), LIMITS, fitted())

    assert ten.frontends < one.frontends
    assert large.wal_bytes_per_s * large.cells - one.wal_bytes_per_s * one.cells > 9_000 * 3_900
    assert large.disk_bytes > one.disk_bytes


def test_tasks_that_run_longer_than_a_heartbeat_cost_one_each_period() -> None:
    short, long = (
        plan(Load(100, 100, run_time=timedelta(seconds=seconds)), LIMITS, fitted()) for seconds in (14, 46)
    )

    extra = 3 * 100 * fitted().heartbeat_us["postgres"] * 1e-6
    assert long.postgres_cores - short.postgres_cores == pytest.approx(extra)


def test_many_hosts_need_more_frontends_for_their_reports() -> None:
    few, many = (
        plan(Load(1_000, 1_000, run_time=timedelta(seconds=10)), replace(LIMITS, slots=slots), fitted())
        for slots in (100, 2)
    )

    assert many.hosts > 20 * few.hosts
    assert many.frontends > few.frontends


def test_groups_grow_with_the_rate_and_not_beyond_what_was_measured() -> None:
    groups = Groups(alone=1.0, half_rate=100, steepness=1.5, highest_rate=1_000)
    rates = (1, 50, 100, 150, 200, 500, 1_000, 50_000)

    values = [groups.of_arrival(rate) for rate in rates]

    assert groups.of_arrival(100) == 0.5
    assert values == sorted(values, reverse=True)
    assert values[-1] == values[-2] < 0.1
    a_second = [rate * value for rate, value in zip(rates, values, strict=True)]
    assert all(later >= earlier - 1e-9 for earlier, later in pairwise(a_second))


def test_a_curve_goes_through_its_points_and_on_beyond_them() -> None:
    curve = [(100.0, 600.0), (1_000.0, 2_400.0), (2_000.0, 3_400.0)]

    assert [on_curve(curve, x) for x in (0, 100, 550, 1_000, 3_000)] == [600, 600, 1_500, 2_400, 4_400]


def test_no_cost_of_the_model_is_negative_and_each_has_a_meaning() -> None:
    model = fitted()

    assert set(model.cpu_us) == set(PROCESSES) == set(model.idle_cores) == set(model.heartbeat_us)
    for cost in (*model.cpu_us.values(), model.transactions, model.wal_bytes):
        assert set(cost) <= set(TERMS)
        assert all(value > 0 for value in cost.values())
    sizes = [size for _, size in model.kept_bytes]
    assert sizes == sorted(sizes)


@pytest.mark.parametrize(
    ("load", "says"),
    [
        (Load(0, 0), "tasks a second must be more than 0"),
        (Load(float("nan"), 1), "tasks a second must be more than 0"),
        (Load(1, 2), "the average of 2 tasks a second is above the peak of 1"),
        (Load(1e300, 1), "tasks a second must be more than 0 and at most 1e"),
        (Load(1, 1, run_time=timedelta()), "the run time must be more than 0"),
        (Load(1, 1, callback_cpu=timedelta(seconds=1)), "cannot use more CPU than its run time"),
        (Load(1, 1, mix=Mix(tasks_per_call=0.5)), "a call has at least 1 task"),
        (Load(1, 1, mix=Mix(ahead=1.5)), "scheduled ahead is from 0 to 1"),
        (Load(1e9, 1e9, mix=Mix(payload=2**20)), "of a part do not carry it"),
    ],
)
def test_a_load_that_means_nothing_is_refused(load: Load, says: str) -> None:
    with pytest.raises(CapacityError, match=says):
        plan(load, LIMITS, fitted())


def test_the_fewest_that_are_enough_are_found() -> None:
    assert [fewest(least, lambda n: n >= 37) for least in (1, 2, 37, 50)] == [37, 37, 37, 50]


def test_a_bill_is_parts_multiplied_by_prices() -> None:
    load = Load(9_000, 4_500, mix=Mix(sqs=1.0))
    found = plan(load, LIMITS, fitted())

    lines = {line.name: line.a_month for line in costs(load, LIMITS, found, list_prices())}

    assert lines["hosts"] == pytest.approx(found.hosts * 4 * 730 * 0.048)
    assert lines["storage, with a standby"] == pytest.approx(found.disk_bytes * 2 / 1e9 * 0.08)
    assert lines["SQS"] > 0
    free = prices_of({"prices": dict.fromkeys(list_prices().of, 0)})
    assert sum(line.a_month for line in costs(load, LIMITS, found, free)) == 0


def test_writes_that_a_volume_must_be_able_to_do_are_paid_though_calls_may_share_statements() -> None:
    load = Load(5_000, 5_000)
    found = plan(load, replace(LIMITS, commits_per_s=80_000), fitted())

    lines = {line.name: line.a_month for line in costs(load, LIMITS, found, list_prices())}

    assert found.transactions_per_s < 3_000 < found.transactions_per_s_at_most
    beyond = (found.transactions_per_s_at_most - 3_000) * 2
    assert lines["writes beyond what storage includes"] == pytest.approx(beyond * 0.005)


def test_machines_have_the_sizes_that_are_sold() -> None:
    assert [machine(vcpus) for vcpus in (1, 2, 3, 17, 97)] == [2, 2, 4, 32, 97]


@pytest.mark.parametrize(
    ("found", "says"),
    [
        ([], 'no object "prices"'),
        ({"prices": {}}, "'vcpu_hour' is missing"),
        ({"prices": {"vcpus": 1}}, "'vcpus' is no price"),
        ({"prices": {"vcpu_hour": -1}}, "'vcpu_hour' is no number from 0"),
        ({"prices": {"vcpu_hour": 10**400}}, "'vcpu_hour' is no number from 0 to 1,000,000,000,000"),
        ({"prices": {"vcpu_hour": float("inf")}}, "'vcpu_hour' is no number from 0"),
        ({"prices": {"vcpu_hour": float("nan")}}, "'vcpu_hour' is no number from 0"),
        ({"prices": {"vcpu_hour": True}}, "'vcpu_hour' is no number from 0"),
        ({"prices": {"vcpu_hour": {"price": "1"}}}, "'vcpu_hour' is no number from 0"),
        ({"prices": {}, "currency": 1}, "'currency' is no text"),
    ],
)
def test_prices_that_are_wrong_are_refused_by_name(found: object, says: str) -> None:
    with pytest.raises(CapacityError, match=says):
        prices_of(found)


def test_every_example_of_the_page_has_a_plan() -> None:
    for example in EXAMPLES:
        assert plan(example.load, example.limits, fitted()).cells >= 1
