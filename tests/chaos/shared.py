"""What all runs of a campaign have in common: one Postgres, a data directory to copy, one SQS look-alike."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from duly_local.moto import MotoServer
from duly_local.postgres.embedded import EmbeddedPostgres
from tests.chaos.postgres import SHARED_SETTINGS, TEMPLATE_DATABASE, make_template, prepare


@dataclass(frozen=True, slots=True)
class Shared:
    """Where it is; what is empty, each run has for itself."""

    dsn: str = ""
    """Of the server on which runs have databases of their own."""
    template: Path | None = None
    """A data directory, for runs that break the server itself."""
    sqs: str = ""


@contextmanager
def sharing(folder: Path, *, sqs: bool) -> Iterator[Shared]:
    """Start it, and stop it at the end; blocks, main thread only."""
    template, data = folder / "template", folder / "postgres"
    for left in (template, data):
        shutil.rmtree(left, ignore_errors=True)
    make_template(template)
    with ExitStack() as at_the_end:
        postgres = at_the_end.enter_context(EmbeddedPostgres(data, settings=SHARED_SETTINGS))
        with psycopg.connect(postgres.dsn, autocommit=True) as connection:
            connection.execute(f"create database {TEMPLATE_DATABASE}")
        prepare(postgres.dsn_of(TEMPLATE_DATABASE))
        endpoint = ""
        if sqs:
            endpoint = at_the_end.enter_context(MotoServer(folder / "sqs.log")).endpoint_url
        yield Shared(postgres.dsn, template, endpoint)
