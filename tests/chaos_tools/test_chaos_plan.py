"""A chaos run's plan follows from its seed, and from nothing else."""

from collections import Counter
from random import Random

import pytest

from tests.chaos import kinds
from tests.chaos.faults import _BY_PREFIX
from tests.chaos.pickers import reaches_picks
from tests.chaos.plan import KINDS, make_plan
from tests.chaos.topology import Topology


def test_the_same_seed_gives_the_same_plan() -> None:
    assert make_plan(7, 60) == make_plan(7, 60)
    assert make_plan(7, 60) != make_plan(8, 60)


def test_every_fault_begins_and_heals_within_the_traffic() -> None:
    for seed in range(50):
        for fault in make_plan(seed, 60).faults:
            assert fault.at_s > 0
            assert fault.at_s + fault.seconds <= 60.01


def test_a_minute_has_twenty_faults_of_many_kinds() -> None:
    for seed in range(50):
        faults = make_plan(seed, 60).faults
        assert len(faults) >= 20
        assert max(Counter(fault.kind for fault in faults).values()) == 1


def test_a_campaign_meets_every_usual_kind() -> None:
    for queue in ("store", "sqs"):
        met = {fault.kind for seed in range(50) for fault in make_plan(seed, 60, queue=queue).faults}

        usual = {name for name, kind in KINDS.items() if kind.usual and kind.queue in ("", queue)}
        assert met == {*usual, "postgres_failover"}


def test_only_the_kinds_that_are_named_are_chosen() -> None:
    kinds_of = {
        fault.kind for fault in make_plan(1, 600, queue="store", only=["pause", "notification_lose"]).faults
    }

    assert "notification_lose" in kinds_of
    assert all(kind == "notification_lose" or kind.startswith("pause_") for kind in kinds_of)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="no kind of fault 'meteor'"):
        make_plan(1, 60, only=["meteor"])


def test_the_seed_chooses_the_queue_unless_it_is_named() -> None:
    chosen = Counter(make_plan(seed, 60).queue for seed in range(20))

    assert chosen == {"store": 16, "sqs": 4}
    assert make_plan(5, 60, queue="store").queue == "store"


def test_a_tenth_of_the_seeds_has_a_standby() -> None:
    assert sum(make_plan(seed, 180).standby for seed in range(50)) == 5


def test_services_and_hosts_come_in_twos_and_threes_if_several_are_wanted() -> None:
    plans = [make_plan(seed, 10, topology="several") for seed in range(60)]

    counts = {
        (each.topology.frontends, each.topology.store_consumers, each.topology.hscs, each.topology.hosts)
        for each in plans
    }
    assert {number for each in counts for number in each} == {2, 3}
    assert {each.topology.servers for each in plans} == {0, 2, 3}


def test_a_quarter_of_the_seeds_asks_for_tokens_and_roles() -> None:
    assert sum(make_plan(seed, 10).auth for seed in range(100)) == 25
    assert make_plan(1, 10, auth=True).auth


def test_pauses_are_around_the_lease_of_the_profile() -> None:
    for profile, lease_s in (("short", 6.0), ("production", 60.0)):
        plan = make_plan(1, 1_000, only=["pause"], profile=profile)

        assert plan.lease.total_seconds() == lease_s
        lengths = {round(fault.seconds / lease_s, 2) for fault in plan.faults if fault.at_s < 100}
        assert lengths == {0.5, 0.99, 1.01, 3.0}


def test_hosts_without_cgroups_have_one_callback_process() -> None:
    for seed in range(20):
        plan = make_plan(seed, 60, topology="several", weaker_containment=True)

        assert (plan.containment, plan.topology.processes) == ("subreaper", 1)


def test_only_faults_that_stop_nobody_who_runs_are_harmless() -> None:
    assert make_plan(1, 60, only=["notification"], queue="store").harmless
    assert make_plan(1, 60, faults=False).harmless
    assert not make_plan(1, 60, only=["notification", "point_raise"], queue="store").harmless


def test_a_failover_is_done_once_and_only_when_it_is_named_with_others() -> None:
    named = make_plan(1, 60, only=["postgres_failover", "kill"])

    assert Counter(fault.kind for fault in named.faults)["postgres_failover"] == 1
    assert named.standby
    assert not any(make_plan(seed, 60, only=["postgres"]).standby for seed in range(20))


def test_every_kind_has_somebody_who_does_it_and_something_to_break() -> None:
    for name, kind in KINDS.items():
        assert name.partition("_")[0] in _BY_PREFIX
        assert any(kind.targets(topology) for topology in (Topology(), Topology(servers=1)))


WITH_FILES = {"reads_file", "gets_file", "makes_file", "takes_file", "fails_with_file"}
"""Their clients choose them by themselves."""


def test_peaceful_work_breaks_no_process() -> None:
    random = Random(1)  # noqa: S311

    chosen = {kinds.choose(random, peaceful=True).name for _ in range(20_000)}
    all_of_them = {kinds.choose(random, peaceful=False).name for _ in range(20_000)}

    assert all_of_them == {*kinds.BY_NAME} - {"careful", "daemon", "fair", "grows", *WITH_FILES}
    peaceful = {kind.name for kind in kinds.KINDS if not kind.breaks_its_process}
    assert chosen == peaceful - {"careful", "fair", "grows", *WITH_FILES}


def test_naps_may_be_quarantined_soon_where_no_fault_may_charge_them() -> None:
    random = Random(1)  # noqa: S311

    chosen = {kinds.choose(random, peaceful=False, harmless=True).name for _ in range(20_000)}

    assert chosen == {*kinds.BY_NAME} - {"nap", "daemon", "fair", "grows", *WITH_FILES}


def test_daemons_are_started_only_where_their_end_is_promised() -> None:
    random = Random(1)  # noqa: S311

    assert make_plan(1, 60, only=["kill_callback", "notification"], queue="store").contained
    assert not make_plan(1, 60, only=["kill_executor"]).contained
    assert any(kinds.choose(random, peaceful=False, contained=True).name == "daemon" for _ in range(5_000))


def test_stretches_of_odd_seeds_leave_those_who_pick_alone() -> None:
    for seed in range(1, 40, 2):
        plan = make_plan(seed, 60)
        assert plan.quiet == (10, 40)
        assert {13.5, 43.5} < {*plan.bursts}
        met = {
            fault.kind
            for fault in plan.faults
            if any(begin <= fault.at_s < begin + 8 for begin in plan.quiet)
        }
        assert met  # others go on
        for fault in plan.faults:
            if reaches_picks(fault.kind, fault.target):
                ends = max(fault.at_s, fault.at_s + fault.seconds)
                assert all(ends <= begin or fault.at_s >= begin + 8 for begin in plan.quiet)
    assert make_plan(2, 60).quiet == ()
    assert make_plan(1, 60, profile="production").quiet == ()  # a pause of it does not fit between two


@pytest.mark.parametrize(
    ("kind", "target", "reaches"),
    [
        ("pause_hsc", "hsc-1", True),
        ("kill_server", "server-1", True),
        ("postgres_lock", "postgres", True),
        ("clock_jump?", "postgres", True),
        ("net_delay", "server-1>postgres", True),
        ("net_delay", "host-1>hsc-1", False),
        ("point_raise", "hsc.claim_work.after", True),
        ("point_raise", "hsc.release.after", False),
        ("point_crash", "hsc.release.after", True),
        ("point_crash", "executor.take.before", False),
        ("pause_host", "host-1", False),
        ("notification_lose", "postgres", False),
        ("machine_busy", "machine", False),
    ],
)
def test_a_fault_reaches_picks_by_its_kind_and_target(kind: str, target: str, *, reaches: bool) -> None:
    assert reaches_picks(kind, target) is reaches
