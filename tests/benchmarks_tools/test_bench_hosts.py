"""The comparison of the queue's backends says from how many hosts on the store costs more, and hides nothing."""

from dataclasses import replace

from benchmarks.hosts.comparison import COSTS, SQS, STORE, Cost, Measured, crossing, ratios_by_hosts, report

POSTGRES = COSTS["postgres"]
BOTH = COSTS["postgres and server"]


def measured(backend: str, hosts: int, postgres: float, server: float = 100.0) -> Measured:
    return Measured(backend, 1, "one", hosts, Cost(postgres, server, 1.0, 2.0))


def by_hosts(store: dict[int, float], sqs: dict[int, float]) -> list[Measured]:
    return [measured(STORE, *each) for each in store.items()] + [measured(SQS, *each) for each in sqs.items()]


def test_the_store_costs_more_from_the_first_number_of_hosts_after_which_it_always_does() -> None:
    found = by_hosts(
        {1: 90, 10: 110, 50: 90, 200: 120, 500: 150}, dict.fromkeys((1, 10, 50, 200, 500), 100.0)
    )

    assert crossing(found, POSTGRES) == 200


def test_without_a_crossing_no_number_is_named() -> None:
    found = by_hosts({1: 50, 200: 90}, {1: 100, 200: 100})

    assert crossing(found, POSTGRES) is None
    assert "the store costs more at no number of hosts" in report(found)


def test_hosts_that_only_one_backend_was_measured_with_are_not_compared() -> None:
    found = by_hosts({1: 50, 200: 500}, {1: 100})

    assert ratios_by_hosts(found, POSTGRES) == {1: 0.5}


def test_ratios_are_of_the_medians_of_the_rounds() -> None:
    found = [measured(STORE, 1, cost) for cost in (10, 20, 900)] + [measured(SQS, 1, 40)]

    assert ratios_by_hosts(found, POSTGRES) == {1: 0.5}


def test_the_server_counts_where_it_is_asked_for() -> None:
    found = [measured(STORE, 1, 100, server=300), measured(SQS, 1, 100, server=100)]

    assert ratios_by_hosts(found, POSTGRES) == {1: 1.0}
    assert ratios_by_hosts(found, BOTH) == {1: 2.0}


def test_a_report_keeps_cases_apart_and_tells_calls_of_sqs() -> None:
    alone = by_hosts({10: 50}, {10: 100})
    own = [
        replace(each, lambdas="each", cost=Cost(2 * each.cost.postgres_us, 100, 1.0, 2.0))
        for each in alone[:1]
    ]
    calling = replace(alone[1], cost=replace(alone[1].cost, calls_per_task={"server SendMessageBatch": 0.25}))

    text = report([alone[0], calling, *own])

    assert "1 server(s), one, postgres: store / sqs by hosts: 10: 0.50" in text
    assert "calls of SQS a task, 1 server(s), one, 10 hosts: server SendMessageBatch 0.25" in text
    assert "| 1 | each | 10 | store | 100 | 100 | 1.0 | 2.0 |" in text
