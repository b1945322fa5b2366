"""Reading and writing YAML: a strict, safe subset.

Only `true` and `false` are booleans (`on`, `yes`, `off` stay strings: they are good names for levels), `1e-3`
is a number, a key may stand only once, and anchors and aliases are refused, because a few lines of them can
unfold into gigabytes.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from trivet.core.errors import ConfigError, Problem, kind_of, nearest

MAX_BYTES = 1_000_000
"""Largest configuration file that is read."""

MAX_DEPTH = 50
"""Deepest nesting that is read."""


class _Loader(yaml.SafeLoader):
    """Safe YAML without aliases, without repeated keys, with YAML 1.2 booleans and numbers."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise yaml.constructor.ConstructorError(
                None,
                None,
                f"aliases (*{event.anchor}) are not allowed; write the value out",
                event.start_mark,
            )
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise yaml.constructor.ConstructorError(
                None, None, f"nested deeper than {MAX_DEPTH} levels", self.peek_event().start_mark
            )
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} stands twice; keep one", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


# The parent's table, less the kinds of scalar that are resolved more strictly below.
_Loader.yaml_implicit_resolvers = {  # pyrefly: ignore[instance-var-assign]
    first: [(tag, regex) for tag, regex in pairs if not tag.endswith((":bool", ":float", ":int", ":timestamp"))]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false)$"), list("tf"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?[0-9][0-9_]*$"), list("-+0123456789"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"^[-+]?(?:[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?|[0-9][0-9_]*[eE][-+]?[0-9]+"
        r"|\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?|\.inf|\.nan)$"
    ),
    list("-+0123456789."),
)


def _construct_int(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    return int(loader.construct_scalar(node).replace("_", ""))


_Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)


def load_yaml(path: Path | str) -> dict[str, Any]:
    r"""Read a configuration file.

    Args:
        path: A YAML file whose top level is a mapping.

    Raises:
        ConfigError: The file is missing, too large, not UTF-8, not YAML, not a mapping, or uses aliases.

    Examples:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "s.yaml"
        >>> _ = file.write_text("switch: on\nlr: 1e-3")
        >>> load_yaml(file)
        {'switch': 'on', 'lr': 0.001}
    """
    path = Path(path)
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError([_file_problem(path, "no file", "a YAML file", _similar_file(path))]) from None
    except OSError as error:
        raise ConfigError(
            [_file_problem(path, f"a file that cannot be read ({error.strerror})", "a YAML file")]
        ) from None
    if len(raw) > MAX_BYTES:
        raise ConfigError([_file_problem(path, f"{len(raw):,} bytes", f"at most {MAX_BYTES:,} bytes")])
    try:
        return parse_yaml(raw.decode("utf-8"), file=str(path))
    except UnicodeDecodeError:
        raise ConfigError([_file_problem(path, "bytes that are not UTF-8", "a YAML text file")]) from None


def parse_yaml(text: str, *, file: str = "") -> dict[str, Any]:
    """Parse YAML text whose top level is a mapping; see `load_yaml`."""
    try:
        content = yaml.load(text, Loader=_Loader)  # a subclass of SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        found = _found(error.problem or error.context or "")
        raise ConfigError([Problem(file, "", f"{found}{place}", "valid YAML")]) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError([Problem(file, "", str(error).splitlines()[0], "valid YAML")]) from None
    if not isinstance(content, dict):
        found = "nothing" if content is None else f"{kind_of(content)} at the top level"
        raise ConfigError([Problem(file, "", found, "a mapping (lines of `key: value`)")])
    wrong = [key for key in content if not isinstance(key, str)]
    if wrong:
        raise ConfigError([Problem(file, str(wrong[0]), f"the key {wrong[0]!r}", "keys that are text; quote it")])
    return content


def _found(complaint: str) -> str:
    """PyYAML's complaint, to stand after "found"."""
    expected = re.fullmatch(r"expected (.*), but (?:found|got) (.*)", complaint)
    return f"{expected[2]} in place of {expected[1]}" if expected else complaint.removeprefix("found ")


def _file_problem(path: Path, found: str, allowed: str, fix: str = "") -> Problem:
    return Problem(str(path), "", found, allowed, fix)


def _similar_file(path: Path) -> str:
    try:
        names = [entry.name for entry in path.parent.iterdir() if entry.suffix in (".yaml", ".yml")]
    except OSError:
        return f"the folder {path.parent} does not exist"
    close = nearest(path.name, names)
    return f"did you mean {path.parent / close}?" if close else ""


def dump_plain(content: Any) -> str:
    """Plain dicts, lists, text and numbers as YAML that `load_yaml` reads back to the same values, key order kept."""
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


class _Dumper(yaml.SafeDumper):
    """Writes what `_Loader` reads: text that would be read as a number or boolean is quoted, no anchors."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    tag = "tag:yaml.org,2002:str"
    style = None
    if not text.isprintable():
        style = '"'  # PyYAML's plain and single-quoted styles change some control characters and line breaks
    elif _Loader("").resolve(yaml.ScalarNode, text, (True, False)) != tag:
        style = "'"
    return dumper.represent_scalar(tag, text, style=style)


def _represent_float(dumper: yaml.SafeDumper, value: float) -> yaml.Node:
    text = repr(value)
    special = {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}
    return dumper.represent_scalar("tag:yaml.org,2002:float", special.get(text, text))


_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(float, _represent_float)
