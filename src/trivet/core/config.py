"""From a user's YAML file to frozen dataclasses and back, with errors a person can act on.

pydantic is used in this file alone: it fills the stdlib dataclasses and reports what does not fit.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from trivet.core.errors import ConfigError, Problem, describe, nearest
from trivet.core.yamlfile import dump_plain, load_yaml, parse_yaml

__all__ = [
    "build",
    "canonical_json",
    "digest",
    "dump_yaml",
    "field_names",
    "load_yaml",
    "merge",
    "parse_yaml",
    "set_key",
    "to_plain",
]

C = TypeVar("C")


def build(cls: type[C], mapping: Mapping[str, Any], *, file: str = "", key: str = "") -> C:
    """Fill a frozen dataclass (and the dataclasses inside it) from plain values.

    Args:
        cls: A dataclass; its `__post_init__` may raise `ValueError`.
        mapping: Plain values, as read from YAML.
        file: Named in the errors.
        key: Where the mapping stands in the file, dotted.

    Raises:
        ConfigError: With *every* problem: unknown keys (and the nearest one), wrong types, refused values. Nothing is
            converted but a whole number to a float and a list to a tuple: `true`, `"8"` and `8.0` are no ints.

    Examples:
        >>> @dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
        ... class Coffee:
        ...     cups: int
        >>> build(Coffee, {"cup": 2}, file="c.yaml")
        Traceback (most recent call last):
        ...
        trivet.core.errors.ConfigError: c.yaml: cups: found nothing; allowed: a value (it is required)
        c.yaml: cup: found an unknown key; allowed: cups; did you mean 'cups'?
    """
    import pydantic

    if not isinstance(mapping, Mapping):
        raise ConfigError([Problem(file, key, describe(mapping), "a mapping")])
    config = pydantic.ConfigDict(extra="forbid", strict=False, arbitrary_types_allowed=True)
    adapter = _adapter(cls, config)
    values, problems, refused = _with_variants(cls, mapping, file, key)
    problems += [Problem(file, where, found, allowed) for where, found, allowed in _misfits(cls, values, key)]
    try:
        built = adapter.validate_python(values)
        if not problems:
            return built
    except pydantic.ValidationError as error:
        misfits = [problem.key for problem in problems]
        details = [detail for detail in error.errors(include_url=False) if detail["loc"] not in refused]
        others = [_problem(cls, detail, mapping, file, key) for detail in details]
        problems += [problem for problem in others if not _tells_of(problem, misfits, key)]
    raise ConfigError(_unique(problems))


def _with_variants(
    cls: type, mapping: Mapping[str, Any], file: str, key: str
) -> tuple[dict[str, Any], list[Problem], set[tuple[str, ...]]]:
    """The mapping with each section built whose class depends on what stands in it, and what was wrong there.

    Such a section is declared by a class with a static method `variant_of(section)`, which returns the class to build.
    A section that is refused is taken out of the mapping, and named, so that nobody misses it.
    """
    values = dict(mapping)
    problems: list[Problem] = []
    refused: set[tuple[str, ...]] = set()
    for name, hint in typing.get_type_hints(cls).items():
        section, choose = values.get(name), getattr(hint, "variant_of", None)
        if choose is None or not isinstance(section, Mapping):
            continue
        where = f"{key}.{name}" if key else name
        try:
            values[name] = build(_placed(choose, section, file, where), section, file=file, key=where)
        except ConfigError as error:
            problems += error.problems
            refused.add((name,))
            del values[name]
    return values, problems, refused


def _placed(choose: Any, section: Mapping[str, Any], file: str, where: str) -> type:
    """The class of a section; problems get the file and the place of the section."""
    try:
        return choose(section)
    except ConfigError as error:
        found = [
            dataclasses.replace(problem, file=file, key=f"{where}.{problem.key}" if problem.key else where)
            for problem in error.problems
        ]
        raise ConfigError(found) from None


_SCALARS: dict[Any, tuple[type | tuple[type, ...], str]] = {
    bool: (bool, "true or false"),
    int: (int, "a whole number"),
    float: ((int, float), "a number"),
    str: (str, "text; quote it if it is meant as text"),
}


def _fits(kind: Any, value: Any) -> bool:
    """Whether a value may stand where `kind` is declared; booleans are no numbers."""
    if kind not in _SCALARS or not _is_scalar(value):
        return True  # pydantic judges it
    return isinstance(value, _SCALARS[kind][0]) and (kind is bool or not isinstance(value, bool))


def _misfits(hint: Any, value: Any, where: str) -> list[tuple[str, str, str]]:
    """Key, what was found and what is allowed, of booleans, numbers and text that pydantic would convert."""

    def inner(part: Any, content: Any, name: object) -> list[tuple[str, str, str]]:
        return _misfits(part, content, f"{where}.{name}" if where else str(name))

    if isinstance(value, float) and not math.isfinite(value):  # no file of trivet's can hold it
        return [(where, f"{value}", "a finite number")]
    origin, options = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        tried = [_misfits(option, value, where) for option in options if _has_shape(option, value)]
        if not tried or not all(tried):
            return []
        allowed = [_SCALARS[option][1] for option in options if option in _SCALARS]
        return [(where, describe(value), " or ".join(allowed))] if _is_scalar(value) else tried[0]
    if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
        hints = typing.get_type_hints(hint)
        names = [item.name for item in dataclasses.fields(hint) if item.name in value]
        return [bad for name in names for bad in inner(hints[name], value[name], name)]
    if isinstance(value, Mapping) and len(options) == 2:
        return [bad for name, content in value.items() for bad in inner(options[1], content, name)]
    if isinstance(value, (list, tuple)) and origin in (list, tuple, Sequence):
        kinds = options if len(options) == len(value) and Ellipsis not in options else options[:1] * len(value)
        parts = enumerate(zip(kinds, value, strict=True))
        return [bad for place, (kind, content) in parts for bad in inner(kind, content, place)]
    if origin is typing.Literal and isinstance(value, (bool, int, float)):
        same = any(type(value) is type(option) and value == option for option in options)
        return [] if same else [(where, describe(value), ", ".join(map(str, options)))]
    if isinstance(value, (Mapping, list, tuple)) and (hint is Any or hint in (dict, list)):
        parts = value.items() if isinstance(value, Mapping) else enumerate(value)
        return [bad for name, content in parts for bad in inner(Any, content, name)]
    return [] if _fits(hint, value) else [(where, describe(value), _SCALARS[hint][1])]


def _is_scalar(value: Any) -> bool:
    return isinstance(value, (bool, int, float, str))


def _has_shape(hint: Any, value: Any) -> bool:
    """Whether an option of a union is meant for this kind of value."""
    scalar_hint = hint in _SCALARS or typing.get_origin(hint) is typing.Literal
    return hint is Any or (hint is not type(None) and scalar_hint == _is_scalar(value))


def _tells_of(problem: Problem, misfits: list[str], root: str) -> bool:
    """Whether a problem repeats a misfit, or is a sentence about a section that holds one."""
    inside = any(f"{problem.key}.".startswith(f"{bad}.") for bad in misfits)
    above = problem.key == root or any(bad.startswith(f"{problem.key}.") for bad in misfits)
    return inside or (bool(misfits) and bool(problem.sentence) and above)


_ADAPTERS: dict[type, Any] = {}


def _adapter(cls: type[C], config: Any) -> Any:
    import pydantic

    if cls not in _ADAPTERS:
        for part in _dataclasses_in(cls):
            if not hasattr(part, "__pydantic_config__"):
                part.__pydantic_config__ = config
        _ADAPTERS[cls] = pydantic.TypeAdapter(cls)
    return _ADAPTERS[cls]


def _dataclasses_in(cls: Any) -> list[Any]:
    """`cls` and every dataclass among the types of its fields."""
    found: list[Any] = []
    queue = [cls]
    while queue:
        item = queue.pop()
        if dataclasses.is_dataclass(item) and item not in found:
            found.append(item)
            queue.extend(typing.get_type_hints(item).values())
        queue.extend(typing.get_args(item))
    return found


def _unique(problems: list[Problem]) -> list[Problem]:
    """One problem a key: a union reports every branch, the first says enough."""
    seen: dict[tuple[str, str], Problem] = {}
    for problem in problems:
        seen.setdefault((problem.key, problem.allowed), problem)
    return list(seen.values())


def _problem(cls: type, detail: Any, mapping: Mapping[str, Any], file: str, key: str) -> Problem:
    path = [str(part) for part in detail["loc"]]
    where = ".".join([key, *path] if key else path)
    kind, context, found = detail["type"], detail.get("ctx", {}), describe(detail.get("input"))
    if kind in ("unexpected_keyword_argument", "extra_forbidden"):
        names = field_names(cls, *path[:-1])
        close = nearest(path[-1], names)
        fix = f"did you mean {close!r}?" if close else ""
        return Problem(file, where, "an unknown key", ", ".join(names) or "no key here", fix)
    if kind in ("missing", "missing_argument", "missing_keyword_only_argument"):
        return Problem(file, where, "nothing", "a value (it is required)")
    if kind == "literal_error":
        names = [name.strip().strip("'") for name in re.split(r",| or ", context["expected"])]
        close = nearest(str(detail.get("input")), names)
        return Problem(file, where, found, ", ".join(names), f"did you mean {close!r}?" if close else "")
    if kind == "value_error":
        sentence = str(context["error"])
        return Problem(file, where, _input_of(mapping, path), sentence, sentence=sentence)
    return Problem(file, where, found, _allowed(kind, str(detail["msg"])))


def _allowed(kind: str, message: str) -> str:
    known = {
        "dataclass_type": "a mapping",
        "dict_type": "a mapping",
        "list_type": "a list",
        "tuple_type": "a list",
        "string_type": "text; quote it if it is meant as text",
        "int_type": "a whole number",
        "int_parsing": "a whole number",
        "int_from_float": "a whole number",
        "float_type": "a number",
        "float_parsing": "a number",
        "bool_type": "true or false",
        "bool_parsing": "true or false",
    }
    return known.get(kind, message)


def _input_of(mapping: Mapping[str, Any], path: list[str]) -> str:
    value: Any = mapping
    for part in path:
        if not isinstance(value, Mapping) or part not in value:
            return "these values"
        value = value[part]
    return describe(dict(value)) if isinstance(value, Mapping) else describe(value)


def field_names(cls: Any, *path: str) -> list[str]:
    """Field names of the dataclass that lies at `path` inside `cls`; none where there is no dataclass.

    Examples:
        >>> field_names(Problem)[:2]
        ['file', 'key']
    """
    for part in path:
        hints = typing.get_type_hints(cls)
        inner = hints.get(part, Any)
        options = [item for item in _dataclasses_in(inner) if dataclasses.is_dataclass(item)]
        if not options:
            return []
        cls = options[0]
    return [item.name for item in dataclasses.fields(cls)]


UNSET_IS_LEFT_OUT = {"unset is left out": True}
"""Metadata of a field that came later: where it has its default, `to_plain` leaves it out, and with it every digest."""


def to_plain(config: Any) -> Any:
    """A configuration as plain dicts, lists, text and numbers, every default written out.

    A field with the metadata `UNSET_IS_LEFT_OUT` is written only where it is set, so that the names of older runs stay.

    Examples:
        >>> @dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
        ... class Coffee:
        ...     sizes: tuple[int, ...] = (1, 2)
        >>> to_plain(Coffee())
        {'sizes': [1, 2]}
    """
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        values = [(item, getattr(config, item.name)) for item in dataclasses.fields(config)]
        return {item.name: to_plain(value) for item, value in values if not _is_left_out(item, value)}
    if isinstance(config, Mapping):
        return {str(name): to_plain(value) for name, value in config.items()}
    if isinstance(config, (list, tuple)):
        return [to_plain(value) for value in config]
    if isinstance(config, Path):
        return str(config)
    return config


def _is_left_out(item: dataclasses.Field[Any], value: Any) -> bool:
    if not item.metadata.get("unset is left out"):
        return False
    made = item.default_factory is not dataclasses.MISSING
    return value == (item.default_factory() if made else item.default)  # pyrefly: ignore[not-callable]


def merge(base: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `patch` laid over it: mappings are merged key by key, everything else is replaced.

    Neither argument changes.

    Examples:
        >>> merge({"a": {"x": 1, "y": 2}}, {"a": {"y": 3}})
        {'a': {'x': 1, 'y': 3}}
    """
    result = {key: to_plain(value) for key, value in base.items()}
    for key, value in patch.items():
        old = result.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        result[key] = merge(old, value) if both else to_plain(value)
    return result


def set_key(mapping: Mapping[str, Any], assignment: str) -> dict[str, Any]:
    """`mapping` with one `dotted.key=value` laid over it; the value is read as YAML.

    Raises:
        ConfigError: The assignment has no `=`, an empty key, or a key inside something that is no mapping.

    Examples:
        >>> set_key({"a": {"x": 1}}, "a.y=2.5")
        {'a': {'x': 1, 'y': 2.5}}
    """
    name, equals, text = assignment.partition("=")
    parts = name.strip().split(".")
    if not equals or not all(parts):
        raise ConfigError([Problem("--set", "", repr(assignment), "dotted.key=value, such as training.steps=100")])
    value = parse_yaml(f"value: {text}", file=f"--set {name}")["value"] if text.strip() else ""
    inner: Any = mapping
    for depth, part in enumerate(parts[:-1]):
        inner = inner.get(part, {})
        if not isinstance(inner, Mapping):
            place = ".".join(parts[: depth + 1])
            raise ConfigError([Problem("--set", name, f"{place} is {describe(inner)}", "a key inside a mapping")])
    return merge(mapping, _nested(parts, value))


def _nested(parts: list[str], value: Any) -> dict[str, Any]:
    inner = {parts[-1]: value}
    return {parts[0]: _nested(parts[1:], value)} if len(parts) > 1 else inner


def canonical_json(content: Any, *, is_plain: bool = False) -> str:
    """JSON text that is the same for equal content: keys sorted, no spaces, whole floats as floats.

    Args:
        content: A configuration, or a part of one.
        is_plain: Whether `to_plain` has made it; 10,000 runs are named in a second where this is known.
    """
    plain = content if is_plain else to_plain(content)
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(content: Any, *, is_plain: bool = False) -> str:
    """Twelve hex digits that name a configuration: SHA-256 of its canonical JSON; see there for the arguments.

    Examples:
        >>> digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
        True
    """
    return hashlib.sha256(canonical_json(content, is_plain=is_plain).encode()).hexdigest()[:12]


def dump_yaml(content: Any) -> str:
    """A configuration as YAML that `load_yaml` reads back to the same values, key order kept."""
    return dump_plain(to_plain(content))
