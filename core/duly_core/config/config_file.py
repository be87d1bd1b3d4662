"""The TOML file with the settings: where it is, and what it says."""

import os
import tomllib
from pathlib import Path
from typing import Any

from duly_core.config.section_names import refuse_unknown_sections
from duly_core.errors import SettingsError


def config_file() -> Path:
    """The TOML file in force: `DULY_CONFIG`, else `duly.toml` in the working folder."""
    return Path(os.environ.get("DULY_CONFIG", "duly.toml"))


def read_config() -> dict[str, dict[str, Any]]:
    """The tables of the TOML file in force; none if there is no file and none was named.

    Raises:
        SettingsError: it is not there though DULY_CONFIG names it, cannot be read, or is not what it should be.
    """
    path = config_file()
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        if "DULY_CONFIG" in os.environ:
            raise SettingsError(f"DULY_CONFIG names {path}, which does not exist") from error
        return {}
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not TOML: {error}") from error
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise SettingsError(f"{path}: [{name}] must be a table")
    refuse_unknown_sections(path, tables)
    return tables
