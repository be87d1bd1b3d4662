"""Pages of lists of which a caller may see a part: complete, bounded, and without names of what others own."""

import base64
from random import Random

import pytest

from duly_core.rpc.requests.problem import Problem
from duly_frontend.lists import page_token
from duly_frontend.lists.restricted import read_page

MOST = 3


class Listed:
    """A list by name, of which those whose names begin with `own` may be seen."""

    def __init__(self, names):
        self.names = sorted(names)
        self.reads = []

    async def read(self, after, skipped, limit):
        self.reads.append(limit)
        return [name for name in self.names if name > after][skipped : skipped + limit]

    async def page(self, token, size, most=MOST):
        return await read_page(
            token, size, most, self.read, lambda name: name if "own" in name else None, lambda name: name
        )


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("size", [1, 2, 100])
async def test_each_item_comes_once_and_a_call_reads_few_rows_once(seed, size):
    random = Random(seed)  # noqa: S311
    listed = Listed(
        f"{n:02}-{random.choice(['own', 'hidden', 'hidden'])}" for n in range(random.randrange(20))
    )
    found, token, calls = [], "", 0
    while calls == 0 or token:
        page, token = await listed.page(token, size)
        assert len(page) <= size
        assert "hidden" not in base64.urlsafe_b64decode(token).decode()
        found += page
        calls += 1

    assert found == [name for name in listed.names if "own" in name]
    assert listed.reads == [MOST + 1] * calls


async def test_a_page_without_anything_to_see_is_empty_and_says_how_to_go_on():
    listed = Listed([*(f"{n}-hidden" for n in range(5)), "9-own"])

    first, token = await listed.page("", 10)

    assert (first, bool(token)) == ([], True)
    assert await listed.page(token, 10) == (["9-own"], "")


@pytest.mark.parametrize("text", ["a\0", "a\0-1", "a\0" + "9" * 10, "a\x001\0", "\ufffd\x001"])
def test_a_token_that_is_not_ours_is_refused(text):
    with pytest.raises(Problem):
        page_token.read_place(base64.urlsafe_b64encode(text.encode()).decode())


@pytest.mark.parametrize("place", [("", 0), ("", 7), ("a", 0), ("é/b", 12)])
def test_a_token_says_its_place(place):
    assert page_token.read_place(page_token.write_place(*place)) == place
