"""Which step of a move is next, by what both sides say."""

from dataclasses import replace

import pytest

from duly_core.cells.moving.steps import CLOSE, Facts, Step, next_step

NOTHING = Facts(
    is_prepared=False,
    is_published=False,
    has_slot=False,
    is_subscribed=False,
    tables_to_copy=0,
    behind=0,
    is_fenced=False,
    is_switched=False,
    is_told=False,
)
PREPARED = replace(NOTHING, is_prepared=True)
PUBLISHED = replace(PREPARED, is_published=True, has_slot=True)
COPIED = replace(PUBLISHED, is_prepared=False, is_subscribed=True)
SWITCHED = replace(COPIED, is_fenced=True, is_switched=True)


@pytest.mark.parametrize(
    ("facts", "step"),
    [
        (NOTHING, Step.PREPARE),
        (PREPARED, Step.PUBLISH),
        (replace(PREPARED, is_published=True), Step.PUBLISH),
        (PUBLISHED, Step.SUBSCRIBE),
        (replace(COPIED, tables_to_copy=1), Step.COPY),
        (replace(COPIED, behind=CLOSE + 1), Step.COPY),
        (COPIED, Step.FENCE),
        (replace(COPIED, is_fenced=True), Step.SWITCH),
        (replace(COPIED, is_fenced=True, behind=CLOSE + 1), Step.SWITCH),
        (SWITCHED, Step.TELL),
        (replace(SWITCHED, is_told=True), Step.CLEAN),
        (replace(SWITCHED, is_told=True, is_subscribed=False), Step.CLEAN),
        (replace(SWITCHED, is_told=True, is_subscribed=False, has_slot=False, is_published=False), Step.DONE),
    ],
)
def test_the_next_step_follows_from_what_was_done(facts: Facts, step: Step) -> None:
    assert next_step(facts) is step


def test_a_switched_cell_is_never_fenced_copied_or_subscribed_again() -> None:
    assert next_step(replace(NOTHING, is_switched=True, is_told=True)) is Step.DONE
    assert next_step(replace(NOTHING, is_switched=True)) is Step.TELL
