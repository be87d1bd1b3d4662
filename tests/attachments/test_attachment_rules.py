"""What the SDK and the servers agree on: parts, hashes and names of attachments."""

import hashlib

import pytest

from duly_wire.attachment_rules import (
    PART_BYTES,
    divided,
    hash_of,
    name_problem,
    part_count,
    part_size,
)


def _sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def test_the_parts_of_an_attachment_have_4_mib_and_the_last_one_the_rest() -> None:
    sizes = [0, 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES]

    parts = [[part_size(size, index) for index in range(part_count(size))] for size in sizes]

    assert parts == [[], [1], [PART_BYTES], [PART_BYTES, 1], [PART_BYTES] * 3]


def test_the_hash_is_that_of_the_only_part_or_of_the_hashes_of_all() -> None:
    first, second = _sha256(b"a"), _sha256(b"b")

    assert hash_of([]) == _sha256(b"")
    assert hash_of([first]) == first
    assert hash_of([first, second]) == _sha256(first + second)
    assert hash_of([first, second]) != hash_of([second, first])
    assert divided(first + second) == [first, second]


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../etc/passwd",
        "/etc/passwd",
        "a\\b",
        "a\0b",
        "a\nb",
        "a\x1b[2J",
        "\ud800",
        "x" * 256,
        "é" * 128,
    ],
)
def test_a_name_that_could_be_a_path_or_change_a_terminal_is_refused(name: str) -> None:
    assert name_problem(name)


@pytest.mark.parametrize("name", ["a", "report 2026.csv", "…", ".profile", "x" * 255, "é" * 127])
def test_other_names_are_taken(name: str) -> None:
    assert not name_problem(name)
