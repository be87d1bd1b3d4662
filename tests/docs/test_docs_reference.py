"""docs/reference says what the code says."""

import pytest

from scripts.reference import metrics
from scripts.reference.__main__ import FOLDER, PAGES


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_reference_page_is_what_the_code_says(name: str) -> None:
    written = (FOLDER / name).read_text(encoding="utf-8")

    assert written == PAGES[name](), "run `make reference`"


def test_no_page_is_left_of_what_is_no_longer_generated() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(PAGES)


def test_every_metric_is_on_the_page() -> None:
    assert metrics.undocumented() == []
