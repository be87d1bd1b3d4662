"""A frozen dataclass that is made quickly is what it was before."""

import copy
import dataclasses
import inspect
import pickle

import pytest

import duly
from duly.tasks.quick_init import quick_init


@dataclasses.dataclass(frozen=True, slots=True)
class Plain:
    name: str
    size: int = 3


@quick_init
@dataclasses.dataclass(frozen=True, slots=True)
class Quick:
    name: str
    size: int = 3


class Wider(Quick):
    """Has a dict, so it cannot take the short way."""


def test_it_is_made_as_before():
    assert dataclasses.astuple(Quick("a")) == ("a", 3)
    assert dataclasses.astuple(Quick(size=1, name="b")) == ("b", 1)
    assert Quick("a") == Quick("a", 3) != Quick("b")
    assert hash(Quick("a")) == hash(Quick("a"))
    assert repr(Quick("a")) == "Quick(name='a', size=3)"
    assert type(Wider("a")) is Wider
    assert Wider("a").size == 3
    assert inspect.signature(Quick) == inspect.signature(Plain)


def test_it_stays_frozen():
    made = Quick("a")

    with pytest.raises(dataclasses.FrozenInstanceError):
        made.size = 4  # type: ignore[misc]
    with pytest.raises(TypeError, match=r"Quick\.__init__\(\) got an unexpected keyword argument"):
        Quick("a", colour=1)  # type: ignore[call-arg]


def test_a_task_is_copied_replaced_and_pickled():
    task = duly.NewTask("mail.send", {"to": "ann"}, collection="c")

    assert copy.copy(task) == pickle.loads(pickle.dumps(task)) == task  # noqa: S301 (made here)
    assert dataclasses.replace(task, collection="d").collection == "d"
