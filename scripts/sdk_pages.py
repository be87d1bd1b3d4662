"""Makes the pages of docs/sdk from the SDK's source: an extension of griffe, which mkdocstrings reads Python with.

The SDK is written for `help` and for readers of the source. Three things differ from what griffe expects:

- A field of a dataclass, or a member of an enum, has its meaning in a comment above it. The pages have them in a table.
- Most methods of `Client` are made from those of `AsyncClient` when the module is imported. The source has no `def`.
- Examples with a prompt (`>>>`) are fenced, so that Markdown leaves them alone.

Names of the SDK in backticks become links.
"""

import html
import importlib
import re
import sys
from pathlib import Path
from typing import Any

import griffe

_ROOT = Path(__file__).parents[1]
_CLIENT = "duly.sync_client.Client"
_MADE = re.compile(r"^(?:blocking|iterating|watching)\(AsyncClient\.(\w+)")
_PROMPT = re.compile(r"^(?P<indent> *)>>> ")
_NAMED = re.compile(r"(?<![\[`\w])`(?:duly\.)?([A-Z]\w+(?:\.\w+)?)`(?!`)")
_ARGUMENT = re.compile(r"`\w+`(?:, `\w+`)*: ")
_INDENTED_ARGUMENT = re.compile(r" {4}(\w+): (\S.*)")
_PACKED = re.compile(r"Unpack\[(\w+)\]")
_GENERATED = frozenset({"v1", "externalscaler"})
_OF_THE_WIRE = frozenset({"declare", "from_proto", "to_proto", "to_fields", "from_fields"})


class SdkPages(griffe.Extension):
    """Fits what griffe found to what a reader of the reference needs."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Fit a whole package, when all of it was read."""
        if pkg.name not in {"duly", "duly_wire", "duly_local"}:
            return
        public = _public_names()
        griffe.DataclassesExtension().on_package(pkg=pkg)  # constructors, while the classes have their fields
        objects = _objects(pkg)
        for found in objects:
            if found.is_function:  # first: it reads the fields of classes, which a table replaces
                _fit_function(found)
        for found in objects:
            if found.is_class:
                _fit_class(found)
            if found.docstring is not None:
                found.docstring.value = _linked(_listed(_fenced(found.docstring.value)), public)


def _objects(module: Any) -> list[Any]:
    """Return the classes, functions and attributes of a package that are its own."""
    found = []
    for member in module.members.values():
        if member.is_alias or member.name in _GENERATED:
            continue
        if member.is_module:
            found += _objects(member)
        else:
            found.append(member)
            if member.is_class:
                found += [each for each in member.members.values() if not each.is_alias]
    return found


def _fit_class(cls: Any) -> None:
    is_answer = "from_proto" in cls.members and "to_proto" not in cls.members
    for name, member in [*cls.members.items()]:
        if member.is_alias:
            continue
        if name in _OF_THE_WIRE:
            del cls.members[name]
        elif cls.path == _CLIENT and member.is_attribute and (made := _MADE.match(str(member.value))):
            cls.set_member(name, _blocking(cls, name, made[1]))
    if "dataclass" in cls.labels and is_answer:  # only Duly makes it
        cls.members.pop("__init__", None)
        cls.decorators = []  # else griffe makes it again, without arguments: the fields are in the table by then
    if cls.path == _CLIENT:
        for name in ("schedule", "get", "wait", "__init__"):
            source = _method(cls.package["client.AsyncClient"], name)
            cls.members[name].docstring = griffe.Docstring(
                _without_await(source.docstring.value), parent=cls.members[name]
            )
    _fields_into_docstring(cls)


def _without_await(text: str) -> str:
    return text.replace("await ", "").replace("async ", "")


def _fit_function(function: Any) -> None:
    """Write out what a private alias of a type, and `**options`, stand for."""
    _write_out_options(function)
    name = str(function.returns or "")
    alias = function.module.members.get(name) if name.startswith("_") else None
    if alias is None and name.startswith("_") and "client" in function.package.members:
        alias = function.package["client"].members.get(name)
    if alias is not None and not alias.is_alias and alias.is_attribute:
        function.returns = alias.value


def _write_out_options(function: Any) -> None:
    """Put the options of a TypedDict, `**options: Unpack[...]`, into the signature; overloads have it in place of the function."""
    of_overload = function.overloads[0].parameters if function.overloads else function.parameters
    options = of_overload[-1] if len(of_overload) else None
    if options is None or options.kind is not griffe.ParameterKind.var_keyword:
        return
    packed = _PACKED.fullmatch(str(options.annotation))
    if packed is None:
        return
    if function.overloads:
        function.returns = " | ".join(dict.fromkeys(str(each.returns) for each in function.overloads))
    del function.parameters[function.parameters[-1].name]
    for name, annotation in _options(function.module.resolve(packed[1]), function.package).items():
        if name not in function.parameters:
            function.parameters.add(
                griffe.Parameter(
                    name, annotation=annotation, kind=griffe.ParameterKind.keyword_only, default="..."
                )
            )


def _options(path: str, package: Any) -> dict[str, Any]:
    """Return the fields of a TypedDict and of what it inherits from, those first."""
    cls = package[path.removeprefix(f"{package.name}.")]
    if cls.is_alias:
        cls = cls.final_target
    found: dict[str, Any] = {}
    for base in cls.resolved_bases:
        found |= _options(base.path, package)
    return found | {name: each.annotation for name, each in cls.members.items() if each.is_attribute}


def _blocking(cls: Any, name: str, of: str) -> griffe.Function:
    """Return a method of Client as `help` shows it: the arguments of AsyncClient's, and a value of its own."""
    source = _method(cls.package["client.AsyncClient"], of)
    made = getattr(_client(), name)
    result = made.__signature__.return_annotation
    method = griffe.Function(
        name,
        parameters=source.parameters,
        returns=griffe.ExprName(result) if result.isidentifier() else result,
        docstring=griffe.Docstring(made.__doc__, lineno=source.lineno),
        lineno=source.lineno,
        endlineno=source.endlineno,
    )
    method.docstring.value = griffe.Docstring(made.__doc__).value  # cleaned of its indentation
    method.docstring.parent = method
    method.parent = cls
    return method


def _method(cls: Any, name: str) -> Any:
    """Return a method of a class, or of one that it is made of."""
    for base in [cls, *cls.resolved_bases]:
        if name in base.members:
            return base.members[name]
    raise KeyError(f"{cls.path} has no method {name}")


def _client() -> Any:
    for folder in ("wire", "sdk"):
        if str(_ROOT / folder) not in sys.path:
            sys.path.append(str(_ROOT / folder))
    return importlib.import_module("duly.sync_client").Client


def _public_names() -> frozenset[str]:
    _client()
    return frozenset(importlib.import_module("duly").__all__)


def _fields_into_docstring(cls: Any) -> None:
    """Put a table of a class's public fields, with the comments above them, at the end of its docstring."""
    fields = [
        each
        for name, each in cls.members.items()
        if not name.startswith("_")
        and each.is_attribute
        and not each.is_alias
        and "property" not in each.labels
    ]
    if not _is_record(cls):  # what a constructor sets, and says nothing of, is one of its arguments
        for each in fields:
            if "class-attribute" not in each.labels and not each.docstring:
                del cls.members[each.name]
        fields = [each for each in fields if each.name in cls.members]
    if not fields:
        return
    said = _comments(cls, fields)
    is_enum = any(str(base) in {"Named", "IntEnum", "StrEnum", "Enum"} for base in cls.bases)
    rows = (
        ["| member | number | meaning |", "|---|---|---|"]
        if is_enum
        else ["| field | type | default | meaning |", "|---|---|---|---|"]
    )
    for each in fields:
        meaning = _cell(each.docstring.value if each.docstring else said.get(each.name, ""))
        value = _code(str(each.value)) if each.value is not None else ""
        if is_enum:
            rows.append(f"| `{each.name}` | {value} | {meaning} |")
        else:
            kind = _code(str(each.annotation)) if each.annotation is not None else ""
            rows.append(f"| `{each.name}` | {kind} | {_default(each)} | {meaning} |")
        del cls.members[each.name]
    docstring = cls.docstring or griffe.Docstring("", parent=cls)
    docstring.value = f"{docstring.value}\n\n" + "\n".join(rows)
    cls.docstring = docstring


def _is_record(cls: Any) -> bool:
    return "dataclass" in cls.labels or any(str(base) in {"TypedDict", "NamedTuple"} for base in cls.bases)


def _default(field: Any) -> str:
    """Return a default as its reader thinks of it; how a dataclass is told is no default."""
    if field.value is None or "class-attribute" not in field.labels:
        return ""
    value = str(field.value)
    if value.startswith("field("):
        found = re.search(r"default(?:_factory)?=([^,)]+)", value)
        value = found[1] if found else ""
    return _code(value) if value else ""


def _code(text: str) -> str:
    """Return code for a cell of a table, where a bar within backticks would end the cell."""
    return f"<code>{html.escape(' '.join(text.split()), quote=False).replace('|', '&#124;')}</code>"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def _comments(cls: Any, fields: list[Any]) -> dict[str, str]:
    """Return the comment above each field.

    A comment stands above a group of fields, which ends at the next comment. If it has as many parts, between semicolons, as the
    group has fields, each has its part. Otherwise it says something of the first.
    """
    lines = cls.filepath.read_text(encoding="utf-8").splitlines()
    at = {each.lineno: each for each in fields if each.lineno}
    found: dict[str, str] = {}
    comment: list[str] = []
    group: list[str] = []

    def end() -> None:
        parts = [part.strip() for part in " ".join(comment).rstrip(".").split(";")]
        if comment and group and len(parts) == len(group) > 1:
            found.update(
                {name: f"{part[:1].upper()}{part[1:]}." for name, part in zip(group, parts, strict=True)}
            )
        elif comment and group:
            found[group[0]] = " ".join(comment)

    for number in range(cls.lineno, cls.endlineno + 1):
        line = lines[number - 1].strip()
        if line.startswith("#"):
            if group:
                end()
                comment, group = [], []
            comment.append(line.lstrip("# "))
        elif number in at:
            group.append(at[number].name)
        elif not line:
            end()
            comment, group = [], []
    end()
    return found


def _fenced(text: str) -> str:
    """Fence examples: those with a prompt, and what is indented below `Example:`."""
    lines: list[str] = []
    closing = ""
    for line in text.splitlines():
        if closing and (
            (closing == "prompt" and not line.strip()) or (closing == "indent" and line[:1].strip())
        ):
            lines += ["```", ""]
            closing = ""
        if not closing and _PROMPT.match(line):
            lines += ["", "```pycon"]
            closing = "prompt"
        if closing == "indent":
            lines.append(line.removeprefix("    "))
        elif not closing and line.strip() == "Example:":
            lines += ["", "```python"]
            closing = "indent"
        else:
            lines.append(line)
    return "\n".join([*lines, "```"] if closing else lines)


def _listed(text: str) -> str:
    """Make a list of lines that begin with the name of an argument."""
    lines: list[str] = []
    inside = fenced = False
    for line in text.splitlines():
        fenced ^= line.startswith("```")
        if line == "Args:":
            continue
        if found := _INDENTED_ARGUMENT.match(line):
            line = f"`{found[1]}`: {found[2]}"  # noqa: PLW2901 (the line as it is shown)
        if not fenced and _ARGUMENT.match(line):
            lines += [f"- {line}"] if inside else ["", f"- {line}"]
            inside = True
        elif inside and line.strip() and not line.startswith(("Raises ", "```")):
            lines.append(f"  {line.strip()}")
        else:
            lines += ["", line] if inside and line.strip() else [line]
            inside = False
    return "\n".join(lines)


def _linked(text: str, public: frozenset[str]) -> str:
    """Link public names in backticks, outside of examples."""
    outside = True
    lines = []
    for line in text.splitlines():
        if line.startswith("```"):
            outside = not outside
        if outside and not line.startswith("    "):
            line = _NAMED.sub(  # noqa: PLW2901 (the line as it is shown)
                lambda found: (
                    f"[{found[0]}][duly.{found[1].partition('.')[0]}]"
                    if found[1].partition(".")[0] in public
                    else found[0]
                ),
                line,
            )
        lines.append(line)
    return "\n".join(lines)
