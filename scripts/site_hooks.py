"""Hooks of the documentation site: pages that live outside docs/, and their links.

CONTRIBUTING.md and CHANGELOG.md stay in the root, where people look for them. The site shows them as pages of its own.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

_ROOT = Path(__file__).parents[1]
_PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
_LINK = re.compile(r"\]\((?P<up>(?:\.\./)*)(?P<target>[^)#:]+)(?P<anchor>#[^)]*)?\)")
_WHOLE_LINK = re.compile(r"\[(?P<text>[^\]\n]+)\]\((?P<up>(?:\.\./)+)(?P<target>[^)#:]+)(?:#[^)]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List every decision in the navigation."""
    folder = Path(config.docs_dir, "decisions")
    decisions = ["decisions/README.md", *(f"decisions/{path.name}" for path in sorted(folder.glob("0*.md")))]
    for section in config.nav or []:
        for title, entries in section.items():
            section[title] = (
                [
                    {"Decisions": decisions} if entry == {"Decisions": "decisions"} else entry
                    for entry in entries
                ]
                if isinstance(entries, list)
                else entries
            )
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that live in the root."""
    for source, name in _PAGES.items():
        files.append(File.generated(config, name, abs_src_path=str(_ROOT / source)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: object) -> str:
    """Make links to and from those pages fit the site."""
    folder = Path(page.file.src_uri).parent

    def fit(link: re.Match[str]) -> str:
        up, target, anchor = link["up"], link["target"], link["anchor"] or ""
        if page.file.src_uri in _PAGES.values():
            target = _PAGES.get(target, target.removeprefix("docs/"))
        elif target in _PAGES and up == "../" * (len(folder.parts) + 1):
            up, target = "../" * len(folder.parts), _PAGES[target]
        return f"]({up}{target}{anchor})"

    return _LINK.sub(fit, _without_sources(markdown, folder))


def _without_sources(markdown: str, folder: Path) -> str:
    """Keep the text alone of a link to a file of the repository that is no page, such as a source file or the README."""

    def fit(link: re.Match[str]) -> str:
        climbs = link["up"].count("../") > len(folder.parts)
        return link["text"] if climbs and link["target"] not in _PAGES else link[0]

    return _WHOLE_LINK.sub(fit, markdown)
