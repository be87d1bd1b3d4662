"""`python -m scripts.reference`: writes every page of docs/reference."""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

from pathlib import Path

from scripts.reference import cli, commands, errors, metrics, rpcs, settings

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
PAGES = {
    "commands.md": commands.text,
    "cli.md": cli.text,
    "settings.md": settings.text,
    "metrics.md": metrics.text,
    "errors.md": errors.text,
    "rpcs.md": rpcs.text,
}

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in PAGES.items():
        (FOLDER / name).write_text(text(), encoding="utf-8")
