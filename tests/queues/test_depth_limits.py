"""How deep a queue may be: arithmetic on what a test tells it."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from duly_core.lambdas.names import QueueKey
from duly_store_consumer.depth_limits import DepthLimits
from duly_wire.enums import Priority

QUEUE = QueueKey("mail.send", Priority.NORMAL)
OTHER = QueueKey("mail.send", Priority.LOW)
LEAST, MOST = 100, 20_000


def bounds():
    return DepthLimits(timedelta(seconds=5), LEAST, MOST)


def room(made, batch=10**9):
    return made.room([QUEUE], batch, max(0, made._queue(QUEUE).looked_at)).get(QUEUE, 0)


def test_an_unknown_queue_takes_a_first_thousand_and_no_more_than_a_batch():
    made = bounds()

    assert made.room([QUEUE, OTHER], 50, now=0) == {QUEUE: 50, OTHER: 50}
    assert room(made) == 1_000


def test_what_was_sent_and_what_is_there_leave_less_room():
    made = bounds()
    made.looked({QUEUE: 300}, now=0)
    made.sent(QUEUE, 200, now=0)

    assert room(made) == 500


def test_a_full_queue_is_left_out_and_another_is_not():
    made = bounds()
    made.sent(QUEUE, 1_000, now=0)

    assert made.room([QUEUE, OTHER], 10, now=0) == {OTHER: 10}


def test_a_queue_holds_what_its_hosts_claim_within_the_horizon():
    made = bounds()
    made.looked({QUEUE: 1_000}, now=0)
    made.looked({QUEUE: 400}, now=1)

    assert room(made) == 600 * 5 - 400


def test_a_queue_that_was_found_empty_is_trusted_with_more_at_once():
    made = bounds()
    for second in range(3):
        made.looked({QUEUE: 0}, now=second)
        made.sent(QUEUE, 10, now=second)
    assert room(made) == LEAST - 10

    made.sent(QUEUE, 990, now=2)
    made.looked({QUEUE: 0}, now=3)

    assert room(made) == 1_000 * 5


def test_a_queue_that_nobody_drains_shrinks_to_the_least():
    made = bounds()
    for second in range(20):
        made.looked({QUEUE: 500}, now=second)

    assert room(made) == 0
    made.looked({QUEUE: 0}, now=21)
    assert LEAST <= room(made) <= 500 * 5


def test_a_queue_that_was_never_sent_anything_keeps_its_first_bound():
    made = bounds()
    for second in range(20):
        made.looked({QUEUE: 0}, now=second)

    assert room(made) == 1_000


def test_a_queue_is_looked_at_before_it_is_sent_more_if_it_may_be_near_its_bound():
    made = bounds()
    assert made.unsure([QUEUE], now=0) == [QUEUE]

    made.looked({QUEUE: 0}, now=0)
    assert made.unsure([QUEUE], now=0.2) == []
    made.sent(QUEUE, 501, now=0.2)
    assert made.unsure([QUEUE, OTHER], now=0.2) == [QUEUE, OTHER]


def test_a_queue_that_was_not_looked_at_for_long_is_sent_little_before_a_look():
    made = bounds()
    made.looked({QUEUE: 0}, now=0)
    assert made.unsure([QUEUE], now=60) == []

    assert made.room([QUEUE], 10**9, now=60) == {QUEUE: LEAST}
    made.sent(QUEUE, LEAST, now=60)

    assert made.unsure([QUEUE], now=60) == [QUEUE]


def test_a_queue_in_use_is_looked_at_every_second_and_an_empty_one_now_and_then():
    made = bounds()
    made.looked({QUEUE: 1, OTHER: 0}, now=0)

    assert made.stale([QUEUE, OTHER], now=0.9) == []
    assert made.stale([QUEUE, OTHER], now=1.1) == [QUEUE]
    assert made.stale([QUEUE, OTHER], now=31) == [QUEUE, OTHER]


def test_the_time_before_anything_was_in_a_queue_does_not_make_its_hosts_slow():
    made = bounds()
    made.looked({QUEUE: 0}, now=0)
    made.sent(QUEUE, 100, now=100)

    made.looked({QUEUE: 0}, now=100.5)

    assert room(made) == 100 / 0.5 * 5


def test_a_look_right_after_the_sending_teaches_nothing():
    made = bounds()
    made.looked({QUEUE: 0}, now=0)
    made.sent(QUEUE, 100, now=100)

    made.looked({QUEUE: 100}, now=100.005)

    assert room(made) == 1_000 - 100


def test_one_that_stands_by_does_not_take_a_queue_that_another_keeps_full_for_one_that_nobody_drains():
    made = bounds()
    made.looked({QUEUE: 400}, now=0)
    made.looked({QUEUE: 500}, now=1)

    for second in range(2, 20):
        made.looked({QUEUE: 500}, now=second)

    assert room(made) == 1_000 - 500


def test_two_looks_at_one_instant_divide_by_nothing():
    made = bounds()
    made.sent(QUEUE, 10, now=4)
    made.looked({QUEUE: 10}, now=5)
    made.looked({QUEUE: 0}, now=5)

    assert room(made) == 1_000


@given(
    st.lists(
        st.tuples(st.integers(0, 10**6), st.integers(0, 10**4), st.just(0.0) | st.floats(1e-6, 10)),
        max_size=30,
    )
)
def test_whatever_is_seen_the_bound_stays_between_least_and_most(history):
    made, now = bounds(), 0.0
    for depth, sent, elapsed in history:
        now += elapsed
        made.sent(QUEUE, sent, now)
        made.looked({QUEUE: depth}, now)
        assert room(made) == 0 or LEAST <= room(made) + depth <= MOST
