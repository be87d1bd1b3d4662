"""The directory of cells: where a namespace lives, which copy holds, which changes are refused."""

from dataclasses import replace
from uuid import UUID

import pytest

from duly_core.cells.directory import Cell, Directory, DirectoryError, newest

FIRST = Cell("a", "postgresql://duly@one/duly", "duly_a")
SECOND = Cell("b", "postgresql://duly@two/duly", "duly_b")
DIRECTORY = Directory(UUID(int=1), 4, {"a": FIRST, "b": SECOND}, {"mail": "b"}, "a")


def test_a_listed_namespace_lives_in_its_cell_and_every_other_one_in_the_default_cell() -> None:
    assert DIRECTORY.cell_of("mail") == "b"
    assert DIRECTORY.cell_of("") == DIRECTORY.cell_of("sort") == "a"


@pytest.mark.parametrize(
    ("name", "cell"), [("mail/send", "b"), ("mail/send@v2~x", "b"), ("send", "a"), ("send@:zone=x/y", "a")]
)
def test_a_lambda_and_each_queue_of_it_live_where_their_namespace_lives(name: str, cell: str) -> None:
    assert DIRECTORY.cell_of_lambda(name) == cell


def test_each_change_makes_the_next_version() -> None:
    assert DIRECTORY.with_namespace("sort", "b").version == DIRECTORY.version + 1
    assert (
        DIRECTORY.with_cell(replace(SECOND, address="postgresql://three/duly"))
        .cells["b"]
        .address.endswith("three/duly")
    )


@pytest.mark.parametrize(
    "cell",
    [
        replace(SECOND, name="c"),
        replace(SECOND, name="B!"),
        replace(SECOND, name="c", schema="x; drop table task"),
        replace(SECOND, name="c", schema="A"),
    ],
)
def test_a_cell_with_an_invalid_name_or_the_place_of_another_is_refused(cell: Cell) -> None:
    with pytest.raises(DirectoryError):
        DIRECTORY.with_cell(cell)


@pytest.mark.parametrize(("name", "problem"), [("a", "default"), ("b", "mail"), ("x", "there is no cell")])
def test_a_cell_in_which_namespaces_live_is_not_removed(name: str, problem: str) -> None:
    with pytest.raises(DirectoryError, match=problem):
        DIRECTORY.without_cell(name)


def test_a_namespace_is_not_given_to_a_cell_that_does_not_exist_nor_is_the_default_one_given_away() -> None:
    with pytest.raises(DirectoryError, match="there is no cell"):
        DIRECTORY.with_namespace("sort", "x")
    with pytest.raises(DirectoryError, match="default"):
        DIRECTORY.with_namespace("", "b")


@pytest.mark.parametrize("namespace", ["a/b", "mail/", "mail@2", "Mail", "default", "mail *"])
def test_a_namespace_in_which_no_lambda_can_be_is_refused(namespace: str) -> None:
    with pytest.raises(
        DirectoryError, match=r"no lambda can be in .*: a namespace is what stands before '/'"
    ):
        DIRECTORY.with_namespace(namespace, "b")


def test_the_newest_version_holds_and_an_older_one_never_replaces_what_is_known() -> None:
    newer = DIRECTORY.with_namespace("sort", "b")
    assert newest([DIRECTORY, newer, DIRECTORY]) == newer
    assert newest([DIRECTORY], known=newer) == newer
    assert newest([]) is None


@pytest.mark.parametrize(
    "liar", [replace(DIRECTORY, installation=UUID(int=2)), replace(DIRECTORY, namespaces={"mail": "a"})]
)
def test_directories_of_two_installations_or_with_two_contents_at_one_version_are_refused(
    liar: Directory,
) -> None:
    with pytest.raises(DirectoryError):
        newest([DIRECTORY, liar])
