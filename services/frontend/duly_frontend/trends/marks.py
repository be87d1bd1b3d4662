"""Makes marks of a chart from entries of the audit log and new versions. Pure: no I/O."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from duly_core.trends.rules import ALL
from duly_core.trends.store import Mark
from duly_frontend.explain.text import one_line
from duly_wire.time_conversion import to_timestamp
from duly_wire.v1 import inspection_pb2

_GATE = inspection_pb2.TREND_MARK_KIND_GATE
_BREAKER = inspection_pb2.TREND_MARK_KIND_BREAKER
_SETTING = inspection_pb2.TREND_MARK_KIND_SETTING
_RESOURCE = inspection_pb2.TREND_MARK_KIND_RESOURCE
_VERSION = inspection_pb2.TREND_MARK_KIND_VERSION
_OBJECTIVE = inspection_pb2.TREND_MARK_KIND_OBJECTIVE
_POOL = inspection_pb2.TREND_MARK_KIND_POOL

_KINDS: Mapping[str, tuple[Any, str]] = {
    "GateService/PutGate": (_GATE, "gate {} set"),
    "GateService/DeleteGates": (_GATE, "gate {} removed"),
    "GateService/Breaker": (_BREAKER, "breaker of {} {}"),
    "GateService/PutBreaker": (_BREAKER, "breaker of {} changed"),
    "GateService/DeleteBreakers": (_BREAKER, "breaker of {} removed"),
    "SettingsService/SetSettings": (_SETTING, "setting {} set"),
    "SettingsService/ResetSettings": (_SETTING, "setting {} reset"),
    "ObjectiveService/PutObjective": (_OBJECTIVE, "objective of {} set"),
    "ObjectiveService/DeleteObjectives": (_OBJECTIVE, "objective of {} removed"),
    "LimitService/PutResource": (_RESOURCE, "resource {} set"),
    "LimitService/DeleteResource": (_RESOURCE, "resource {} removed"),
    "RegistryService/UpdateLambda": (_VERSION, "{} changed"),
    "PoolService/PutPools": (_POOL, "pool {} set"),
    "PoolService/DeletePools": (_POOL, "pool {} removed"),
}
METHODS: Sequence[str] = tuple(_KINDS)
"""The RPCs of which there are marks."""
_NAMES = (
    "name",
    "lambda",
    "names",
    "lambdas",
    "settings",
    "gate",
    "breaker",
    "objective",
    "resource",
    "pools",
)
"""Fields that name what was changed, in the order in which they are looked for."""
_MOST_NAMES = 3
_NO_NAME = "?"


def marks_of(found: Sequence[Mark], lambda_name: str = ALL) -> list[inspection_pb2.TrendMark]:
    """Return the marks of a lambda, or of all; oldest first."""
    marks = [_mark(each) for each in reversed(found) if _concerns(each, lambda_name)]
    return [each for each in marks if each is not None]


def _concerns(found: Mark, lambda_name: str) -> bool:
    if lambda_name in (ALL, found.lambda_name):
        return True
    if not found.method:
        return False
    # a setting holds for all; so does a gate of all lambdas
    return (
        _KINDS[found.method][0] == _SETTING
        or json.dumps(lambda_name) in found.request
        or '"*"' in found.request
    )


def _mark(found: Mark) -> inspection_pb2.TrendMark | None:
    if not found.method:
        kind, text = _VERSION, f"version {found.request} of {found.lambda_name}"
    else:
        kind, template = _KINDS[found.method]
        said = _read(found.request)
        words = [_name_of(said)]
        if template.count("{}") > 1:
            words.append(
                {"open": "opened", "closed": "closed", "half_open": "tries"}.get(
                    str(said.get("to")), "changed"
                )
            )
        text = template.format(*words)
    return inspection_pb2.TrendMark(
        at=to_timestamp(found.at), kind=kind, text=one_line(text), principal=found.actor
    )


def _read(request: str) -> dict[str, Any]:
    try:
        said = json.loads(request)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _name_of(said: Any) -> str:
    """Return what a request named; names in lists with commas between them, the first few."""
    if isinstance(said, str):
        return said
    if isinstance(said, list):
        names = [_name_of(each) for each in said[:_MOST_NAMES]]
        return ", ".join(names) + (", ..." if len(said) > _MOST_NAMES else "") or _NO_NAME
    if isinstance(said, dict):
        for field in _NAMES:
            if said.get(field):
                return _name_of(said[field])
    return _NO_NAME
