"""The store of `benchmarks.scale` has what its pages and searches ask for."""

import math

import psycopg

from benchmarks.scale.fill import Sizes, fill
from benchmarks.scale.meter import Meter, NoAnswerError
from benchmarks.scale.requests import samples

SIZES = Sizes(lambdas=1_000, tasks=12_000, live=1_000, sessions=120, graphs=5)


def test_a_store_of_days_of_work_is_filled_as_its_sizes_say(dsn: str) -> None:
    names = fill(dsn, SIZES)

    with psycopg.connect(dsn) as connection:

        def count(rows: str) -> int:
            ((number,),) = connection.execute(f"select count(*) from {rows}".encode()).fetchall()  # noqa: S608 (the names are our own)
            return int(number)

        assert len(names) == SIZES.lambdas
        assert count("task") == SIZES.tasks
        assert count("task where finished_at is not null") == SIZES.ended
        assert count("task_rest") == 0
        assert count("task_assoc") == SIZES.tasks - SIZES.ended
        assert count("task_assoc where status = 'processing'") == SIZES.live // 20
        assert count("dead_letter") == count("task where status = 'fatal_failure'") == SIZES.ended // 500
        assert count("session where blocked_at is not null") == SIZES.ended // 500
        assert count("task_attribute") == 2 * (SIZES.ended // 50)
        assert count("graph") == SIZES.graphs
    assert all(samples(dsn).values())


def test_a_request_without_an_answer_is_told_and_is_no_fast_page() -> None:
    answers = iter(["first", "status 503", "9 KiB", "took too long", "9 KiB"])

    def ask() -> str:
        answer = next(answers)
        if answer.startswith(("status", "took")):
            raise NoAnswerError(answer)
        return answer

    some = Meter(4).cost("/", ask)
    answers = iter(["status 503"] * 3)
    none = Meter(2).cost("/", ask)

    assert some.note == "2 of 4 without an answer: took too long"
    assert some.median_ms >= 0
    assert none.note == "2 of 2 without an answer: status 503"
    assert math.isnan(none.median_ms)
    assert math.isnan(none.p95_ms)
