"""Settings of one section each, read from the environment and from `duly.toml`.

A section is a frozen class whose fields are the one place for its defaults. Each field is
read, in this order, from the constructor, the environment (`DULY_<SECTION>_<FIELD>`), the
section's table in the TOML file (`duly.toml` in the working folder, or the file that
`DULY_CONFIG` names), and its default.
"""

import difflib
import os
import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, PlainSerializer, ValidationError
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)
from pydantic_settings import SettingsError as UnreadableError

from duly_core.config.config_file import config_file, read_config
from duly_core.config.durations import format_duration, parse_duration
from duly_core.config.section_names import SECTIONS
from duly_core.config.setting_errors import NO_JSON, in_plain_words, shown_key
from duly_core.errors import SettingsError

__all__ = ["Duration", "Section", "config_file", "format_duration", "parse_duration", "read_config"]

_FIELD = re.compile(r'field "(\w+)"')
"""In what pydantic says of a variable that is no JSON."""

Duration = Annotated[timedelta, BeforeValidator(parse_duration), PlainSerializer(format_duration)]


class Section(BaseSettings):
    """Base of all settings sections; a subclass says `SECTION = "name"` as its class argument."""

    # What is written under a field is its meaning wherever it is shown.
    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", validate_default=True, use_attribute_docstrings=True
    )
    SECTION: ClassVar[str]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        cls.model_config["env_prefix"] = f"DULY_{cls.SECTION.upper()}_"
        super().__init_subclass__(**kwargs)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 (pydantic names it)
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 (pydantic names it)
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        table = InitSettingsSource(settings_cls, read_config().get(cls.SECTION, {}))
        return init_settings, env_settings, table

    @classmethod
    def load(cls, **overrides: Any) -> Self:
        """Read the section; a None in `overrides` is ignored.

        Raises:
            SettingsError: a value is unusable; names the section, the field, and what is wrong.
        """
        said = {name: value for name, value in overrides.items() if value is not None}
        if cls.model_config.get("extra") == "forbid":
            cls._refuse_unknown_variables()
        try:
            return cls(**said)
        except UnreadableError as error:  # its cause quotes the value, which may have secrets
            found = _FIELD.search(str(error))
            where = cls._where([found[1]], said) if found else cls.SECTION
            raise SettingsError(f"{where}: {NO_JSON}") from None
        except ValidationError as error:
            problems = []
            for problem in error.errors():
                path = [shown_key(part) for part in problem["loc"]]
                if problem["type"] != "extra_forbidden":
                    problems.append(f"{cls._where(path, said)}: {in_plain_words(problem)}")
                elif len(path) > 1:
                    problems.append(f"{cls._where(path, said)}: there is no such setting")
                else:
                    problems.append(
                        f"{config_file()}: there is no setting {cls.SECTION}.{path[0]}{cls._meant(path[0])}"
                    )
            raise SettingsError("; ".join(problems)) from None  # pydantic's words quote values

    @classmethod
    def _where(cls, path: Sequence[str], said: dict[str, Any]) -> str:
        """The setting, and who gives it the value in question: whoever can fix it looks there."""
        if not path:
            return cls.SECTION
        field = path[0]  # what a table or a list has comes from where it does
        variable = f"DULY_{cls.SECTION}_{field}".upper()
        if field in said:
            source = "command line"
        elif variable not in os.environ and field in read_config().get(cls.SECTION, {}):
            source = str(config_file())
        else:
            source = f"environment: {variable}"
        return f"{cls.SECTION}.{'.'.join(path)} ({source})"

    @classmethod
    def _refuse_unknown_variables(cls) -> None:
        """A variable that is misspelt must not be taken for one that is not set."""
        mine = f"DULY_{cls.SECTION}_".upper()
        longer = [f"DULY_{name}_".upper() for name in SECTIONS if name.startswith(f"{cls.SECTION}_")]
        for variable in os.environ:
            if variable.startswith(mine) and not variable.startswith(tuple(longer)):
                field = variable.removeprefix(mine).lower()
                if field not in cls.model_fields:
                    raise SettingsError(
                        f"{variable}: there is no setting {cls.SECTION}.{field}{cls._meant(field)}"
                    )

    @classmethod
    def _meant(cls, field: str) -> str:
        close = difflib.get_close_matches(field, cls.model_fields, n=1)
        return f"; do you mean {cls.SECTION}.{close[0]}?" if close else "; `duly config` shows all"
