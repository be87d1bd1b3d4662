"""What the Controller knows of the answers that an Executor may not have got."""

from duly_controller.reply_log import HeldClaim, ReplyLog


def claims(*names: bytes) -> list[HeldClaim]:
    return [(name, name) for name in names]


def test_what_a_call_was_answered_is_told_once_when_the_call_was_given_up() -> None:
    log = ReplyLog()
    log.begin(1)
    assert log.answer(1, claims(b"a", b"b"))
    log.end(1)

    assert log.unanswered([1]) == claims(b"a", b"b")
    assert log.unanswered([1]) == []


def test_a_call_that_is_still_open_when_it_is_given_up_is_not_answered_any_more() -> None:
    log = ReplyLog()
    log.begin(1)
    log.begin(2)

    assert log.unanswered([1]) == []

    assert not log.answer(1, claims(b"a"))
    assert log.answer(2, claims(b"b"))


def test_a_call_without_a_number_is_never_given_up() -> None:
    log = ReplyLog()
    log.begin(0)
    assert log.answer(0, claims(b"a"))
    log.end(0)

    assert log.unanswered([]) == []


def test_only_the_latest_answers_are_remembered() -> None:
    log = ReplyLog()
    for call in range(1, 1_001):
        log.begin(call)
        log.answer(call, claims(str(call).encode()))
        log.end(call)

    assert log.unanswered([1]) == []
    assert log.unanswered([999, 1_000]) == claims(b"999", b"1000")
