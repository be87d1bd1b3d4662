"""Tables fit a terminal, and break no word."""

import pytest

from duly_cli.output.table import columns

HEADS = ("TASK ID", "LAMBDA", "STATUS", "LAST FAILURE")
TASK_ID = "0192d3e4-5f60-7abc-8def-0123456789ab"
REASON = "exception: ValueError: the address ann@example.org is not one that this relay knows"
ROWS = [(TASK_ID, "mail.send", "retriable_failure", REASON), (TASK_ID, "report.make", "new", "")]


def words(lines):
    return " ".join(lines).split()


def test_a_pipe_gets_a_line_for_each_row_whatever_its_length():
    lines = list(columns(HEADS, ROWS))

    assert len(lines) == 3
    assert lines[1].endswith(REASON)
    assert lines[0].index("LAMBDA") == lines[1].index("mail.send")


@pytest.mark.parametrize("width", [200, 120, 100, 80, 60, 40])
def test_what_fits_no_line_goes_on_in_the_next_between_words(width):
    lines = list(columns(HEADS, ROWS, width))

    assert all(len(line) <= width for line in lines)
    assert words(lines) == [*words(HEADS), *words(ROWS[0]), *words(ROWS[1])]


def test_the_last_column_is_wrapped_below_itself():
    lines = list(columns(HEADS, ROWS, 110))

    column = lines[0].index("LAST FAILURE")
    assert lines[1][column:].startswith("exception: ")
    assert lines[2][:column].isspace()
    assert not lines[2][column].isspace()


def test_a_last_column_without_room_stands_below_the_other_columns():
    heads = ("AT", "CALL", "OUTCOME", "WHAT IT NAMED")
    rows = [
        ("2026-11-23 03:00:37Z", "CancelTask", "OK", TASK_ID),
        ("2026-11-23 03:00:43Z", "PutBreaker", "OK", ""),
    ]

    lines = list(columns(heads, rows, 60))

    assert lines == [
        "AT                    CALL        OUTCOME",
        "    WHAT IT NAMED",
        "2026-11-23 03:00:37Z  CancelTask  OK",
        f"    {TASK_ID}",
        "2026-11-23 03:00:43Z  PutBreaker  OK",
    ]


def test_a_word_that_is_longer_than_a_line_stands_alone():
    lines = list(columns(("ID", "WHY"), [("1", "x" * 50)], 30))

    assert "x" * 50 in "".join(lines)


@pytest.mark.parametrize(
    ("width", "order", "heads"),
    [
        (200, HEADS, HEADS),
        (80, ("LAST FAILURE", "STATUS"), ("TASK ID", "LAMBDA", "STATUS")),
        (80, ("STATUS", "LAST FAILURE"), ("TASK ID", "LAMBDA", "LAST FAILURE")),
        (60, ("STATUS", "LAST FAILURE"), ("TASK ID", "LAMBDA")),
    ],
)
def test_columns_are_left_out_until_the_others_fit(width, order, heads):
    lines = list(columns(HEADS, ROWS, width, order))

    assert all(len(line) <= width for line in lines)
    assert words(lines[:1]) == words(heads)


def test_a_pipe_gets_all_columns():
    assert words(list(columns(HEADS, ROWS, left_out_first=HEADS))[:1]) == words(HEADS)
