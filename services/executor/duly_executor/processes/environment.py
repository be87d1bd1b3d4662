"""Which variables of the worker's environment its callbacks see: an allow-list, and what a setting names besides."""

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import BeforeValidator

SETTING = "executor.callback_environment (DULY_EXECUTOR_CALLBACK_ENVIRONMENT)"

_ALLOWED = (
    # who and where
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "HOSTNAME", "TMPDIR", "TMP", "TEMP"),
    # how text and time are shown
    *(
        "LANG",
        "LANGUAGE",
        "LC_*",
        "TZ",
        "TZDIR",
        "TERM",
        "COLORTERM",
        "COLUMNS",
        "LINES",
        "NO_COLOR",
        "FORCE_COLOR",
    ),
    # what Python and libraries need to be loaded
    *("PYTHON*", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "LD_LIBRARY_PATH", "LD_PRELOAD"),
    *("MALLOC_*", "OMP_*", "OPENBLAS_*", "MKL_*", "NUMEXPR_*"),
    *("CUDA_VISIBLE_DEVICES", "DJANGO_SETTINGS_MODULE", "DJANGO_CONFIGURATION"),
    # the network
    *(
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
        "AWS_CA_BUNDLE",
        "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    ),
    *(f"{name}_proxy" for name in ("http", "https", "ftp", "all", "no", "grpc")),
    *(f"{name}_PROXY" for name in ("HTTP", "HTTPS", "FTP", "ALL", "NO", "GRPC")),
    # telemetry, but for what _SECRET finds
    "OTEL_*",
    # Duly: where a client finds the Frontend and whom it trusts; the tests' failpoints
    *("DULY_ADDRESS", "DULY_RPC_CA_FILE", "DULY_RPC_ALLOW_PLAINTEXT"),
    *("DULY_TELEMETRY_LOG_FORMAT", "DULY_FAILPOINTS", "DULY_FAILPOINTS_FOLDER"),
)
_SECRET = re.compile(r"OTEL_.*(HEADER|KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL|CERTIFICATE)")
_OWN = ("GRPC_ENABLE_FORK_SUPPORT", "GRPC_EXPERIMENTS")
"""Set by this process for itself: callbacks may use gRPC and fork as they like."""
_DULY = "DULY_"
_SHELLS_OWN = frozenset(("_", "SHLVL", "OLDPWD"))
"""Nobody misses them."""
_NAME = re.compile(r"[A-Za-z_*?][A-Za-z0-9_*?]*")
_EXAMPLE = 'write ["DATABASE_URL", "AWS_*"] in the file, or "DATABASE_URL, AWS_*"'
_WORD = re.compile(r"KeyError: ['\"]([A-Za-z_][A-Za-z0-9_]*)['\"]|\b([A-Za-z][A-Za-z0-9]*_[A-Za-z0-9_]*)\b")
_MOST_TEXT = 10_000
"""Characters of an error in which a name is looked for."""


def _as_text(value: object) -> object:
    """Return a list of the settings file, or a text, in one form."""
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, (list, tuple)) or not all(isinstance(each, str) for each in value):
        raise ValueError(f"must be a list or a text: {_EXAMPLE}")
    names = [name for each in value if (name := each.strip())]
    for name in names:
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} is not the name of a variable, nor a pattern with * and ?: {_EXAMPLE}"
            )
    return ", ".join(names)


VariableNamesText = Annotated[str, BeforeValidator(_as_text)]


class CallbackEnvironment:
    """The part of an environment that callbacks see."""

    def __init__(self, environment: Mapping[str, str], named: str = "") -> None:
        """Divide an environment.

        Args:
            environment: the worker's.
            named: names and patterns, with commas between them. A pattern stands for variables of Duly's own (`DULY_`) only
                if it begins so.
        """
        patterns = [name for each in named.split(",") if (name := each.strip())]
        self.variables = {
            name: value
            for name, value in environment.items()
            if _is_allowed(name) or _is_named(name, patterns)
        }
        """What they see."""
        self.withheld = frozenset(environment.keys() - self.variables.keys() - set(_OWN))
        """The names of what they do not see."""

    def with_hint(self, error: str) -> str:
        """Return an error of the application's; with the setting to change if it names a variable that is withheld."""
        missing = self._named_in(error)
        if not missing:
            return error
        names = ", ".join(missing)
        return f"{error}\n{names}: withheld from callbacks; name it in {SETTING} if they need it"

    def hint(self, error: str) -> str:
        """Return what `with_hint` adds, as a part of a line; empty: nothing."""
        missing = self._named_in(error)
        return f" ({', '.join(missing)} is withheld from callbacks: see {SETTING})" if missing else ""

    def _named_in(self, error: str) -> list[str]:
        words = (match[1] or match[2] for match in _WORD.finditer(error[:_MOST_TEXT]))
        return sorted({word for word in words if word in self.withheld})

    def told(self) -> list[str]:
        """Return the names to be logged: what is withheld and not Duly's own."""
        return sorted(name for name in self.withheld - _SHELLS_OWN if not name.startswith(_DULY))


def _is_allowed(name: str) -> bool:
    return _matches(name, _ALLOWED) and not _SECRET.match(name)


def _is_named(name: str, patterns: Iterable[str]) -> bool:
    if name in _OWN:
        return False
    if name.startswith(_DULY):
        patterns = [pattern for pattern in patterns if pattern.startswith(_DULY)]
    return _matches(name, patterns)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
