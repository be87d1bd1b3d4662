"""Settings of cells."""

import re
from typing import ClassVar

from pydantic import field_validator

from duly_core.config.settings import Section
from duly_core.postgres.settings import SCHEMA_NAME

_SEED = re.compile(rf"(?:({SCHEMA_NAME.pattern})@)?(.+)", re.DOTALL)


class CellSettings(Section):
    """`[cells]`: of an installation of several cells."""

    SECTION: ClassVar[str] = "cells"

    seeds: tuple[str, ...] = ()
    """Addresses of other cells, as `SCHEMA@ADDRESS` or `ADDRESS`. A process that starts while its own cell is away reads the directory there."""

    serve: tuple[str, ...] = ()
    """Names of the cells that Store Consumers and HSCs of this configuration serve. Empty: all, also those that are added later."""

    @field_validator("seeds")
    @classmethod
    def _check_seeds(cls, seeds: tuple[str, ...]) -> tuple[str, ...]:
        for seed in seeds:
            if not read_seed(seed)[1].strip():
                raise ValueError("write each as SCHEMA@ADDRESS or ADDRESS")
        return seeds


def read_seed(seed: str) -> tuple[str, str]:
    """Return the schema (empty: that of `store.schema_name`) and the address of a seed.

    >>> read_seed("duly_b@postgresql://duly@two/duly")
    ('duly_b', 'postgresql://duly@two/duly')
    >>> read_seed("postgresql://duly@two/duly")
    ('', 'postgresql://duly@two/duly')
    """
    found = _SEED.fullmatch(seed)
    return ("", "") if found is None else (found[1] or "", found[2])
