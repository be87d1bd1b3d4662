"""The label `lambda` has a bounded number of values, whatever is registered."""

from collections import Counter as Tally

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from duly_core.process.histograms import observe_all
from duly_core.process.lambda_metrics import ByLambda, GaugeByLambda, NamedLambdas


def series(registry: CollectorRegistry, name: str) -> dict[tuple[str, ...], float]:
    return {
        tuple(sample.labels.values()): sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name == name
    }


def test_ten_thousand_lambdas_make_no_more_series_than_are_named_and_one() -> None:
    registry = CollectorRegistry()
    counter = Counter("runs_total", "Runs.", ["lambda", "outcome"], registry=registry)
    runs = ByLambda(counter, NamedLambdas(20))

    for number in range(10_000):
        runs.labels(f"job.{number}", "success").inc()

    found = series(registry, "runs_total")
    assert len(found) == 21
    assert sum(found.values()) == 10_000
    assert found["other", "success"] == 9_980


def test_a_lambda_that_comes_late_and_is_used_most_gets_series_of_its_own() -> None:
    registry = CollectorRegistry()
    counter = Counter("runs_total", "Runs.", ["lambda"], registry=registry)
    runs = ByLambda(counter, NamedLambdas(2))
    for name in ("rare", "steady", *("steady",) * 500):
        runs.labels(name).inc()

    for _ in range(300):
        runs.labels("late").inc()

    found = series(registry, "runs_total")
    assert found.keys() == {("steady",), ("late",), ("other",)}
    assert found["steady",] == 501
    assert found["late",] + found["other",] == 300
    assert found["late",] > 100


def test_lambdas_that_are_used_alike_keep_their_places() -> None:
    named = NamedLambdas(2)
    forgotten: list[str] = []
    named.on_forget(forgotten.append)

    uses = Tally(named.label(f"job.{number % 4}") for number in range(4_000))

    assert forgotten == []
    assert uses == {"job.0": 1_000, "job.1": 1_000, "other": 2_000}


def test_a_gauge_names_the_largest_and_combines_the_others() -> None:
    registry = CollectorRegistry()
    backlog = GaugeByLambda(
        Gauge("backlog", "Due.", ["lambda", "priority"], registry=registry), sum, NamedLambdas(2)
    )
    age = GaugeByLambda(
        Gauge("age", "Due for.", ["lambda", "priority"], registry=registry), max, NamedLambdas(2)
    )
    values = {("a", "low"): 5, ("b", "low"): 3, ("c", "low"): 9, ("d", "low"): 1, ("c", "high"): 0}

    backlog.set(values)
    age.set(values)

    assert series(registry, "backlog") == {
        ("a", "low"): 5, ("c", "low"): 9, ("c", "high"): 0, ("other", "low"): 4
    }  # fmt: skip
    assert series(registry, "age")["other", "low"] == 3


def test_a_gauge_shows_nothing_of_a_lambda_that_is_gone() -> None:
    registry = CollectorRegistry()
    gauge = GaugeByLambda(Gauge("backlog", "Due.", ["lambda"], registry=registry), sum, NamedLambdas(2))
    gauge.set({("gone",): 5})

    gauge.set({("new",): 1})

    assert series(registry, "backlog") == {("new",): 1}


def test_a_label_that_is_looked_up_for_many_uses_counts_them_all() -> None:
    named = NamedLambdas(1)

    one_by_one = [named.label("rare"), *(named.label("often") for _ in range(40))]
    at_once = named.label("often", 1_000)

    assert {*one_by_one} == {"rare", "other"}
    assert at_once == "often"


def test_values_that_are_observed_at_once_are_in_the_buckets_of_each() -> None:
    registry = CollectorRegistry()
    seconds = Histogram("wait", "Waits.", ["how"], buckets=(0.5, 1, 2), registry=registry)
    values = [0, 0.5, 0.75, 1, 1.5, 9, 9]
    for value in values:
        seconds.labels("each").observe(value)

    observe_all(seconds.labels("all"), values)

    def seen(how: str) -> list[tuple[str, str, float]]:
        return [
            (sample.name, sample.labels.get("le", ""), sample.value)
            for metric in registry.collect()
            for sample in metric.samples
            if sample.labels["how"] == how and not sample.name.endswith("_created")
        ]

    assert seen("all") == seen("each")
