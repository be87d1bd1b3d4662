"""Write docs/incident.md and its pictures: python -m scripts.incident."""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import tempfile
from pathlib import Path

from scripts.incident.installation import installation
from scripts.incident.normalize import Normalizer
from scripts.incident.page import page
from scripts.incident.pictures import camera, save
from scripts.incident.walk import walk

_DOCS = Path(__file__).parents[2] / "docs"
_PAUSE = "1m"
"""Of the breaker: long enough to take all pictures while it is open."""


def main() -> None:
    """Walk, and write down what was seen."""
    with tempfile.TemporaryDirectory() as folder, installation(Path(folder)) as running:
        normalized = Normalizer()
        with camera(running.console, normalized) as taken:
            story = walk(running, _PAUSE, taken.take)
            save(taken.pictures, _DOCS / "images" / "incident")
    (_DOCS / "incident.md").write_text(page(story, normalized), encoding="utf-8")


if __name__ == "__main__":
    main()
