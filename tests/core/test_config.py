"""Configuration at the file boundary: strict YAML, dataclasses, errors that say everything at once."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trivet.core import config
from trivet.core.config import build, to_plain
from trivet.core.errors import ConfigError, Problem


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Inner:
    profile: Literal["cosine", "linear"] = "cosine"
    bits: int = 8

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 32:
            raise ValueError(f"`bits={self.bits}` must lie in [1, 32]")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Outer:
    name: str
    inner: Inner = Inner()
    rates: tuple[float, ...] = ()
    fast: bool = False


def problems(mapping: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        config.build(Outer, mapping, file="s.yaml")
    return {problem.key: str(problem) for problem in caught.value.problems}


def test_build_fills_nested_dataclasses() -> None:
    outer = config.build(Outer, {"name": "x", "inner": {"bits": 3}, "rates": [1, 0.5]})
    assert outer == Outer(name="x", inner=Inner(bits=3), rates=(1.0, 0.5))


def test_build_reports_every_problem_with_key_found_allowed_and_nearest() -> None:
    found = problems({"nam": "x", "inner": {"profile": "cosin", "bit": 1}, "rates": "fast", "fast": "perhaps"})
    assert "name" in found
    assert "required" in found["name"]
    assert "did you mean 'name'?" in found["nam"]
    assert "found 'cosin'; allowed: cosine, linear; did you mean 'cosine'?" in found["inner.profile"]
    assert "allowed: profile, bits; did you mean 'bits'?" in found["inner.bit"]
    assert "a list" in found["rates"]
    assert "true or false" in found["fast"]
    assert all(text.startswith("s.yaml: ") for text in found.values())


def test_build_passes_on_what_the_dataclass_refuses() -> None:
    assert "`bits=40` must lie in [1, 32]" in problems({"name": "x", "inner": {"bits": 40}})["inner"]


@pytest.mark.parametrize("value", [[1], "text", 3, None])
def test_build_refuses_a_section_that_is_no_mapping(value: object) -> None:
    assert "a mapping" in problems({"name": "x", "inner": value})["inner"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"),
        ("yes", "yes"),
        ("true", True),
        ("1e-3", 1e-3),
        ("1.5E+2", 150.0),
        (".5", 0.5),
        ("12", 12),
        ("-3", -3),
        ("2020-01-01", "2020-01-01"),
        ("12:30", "12:30"),
        ("0x10", "0x10"),
        ("", None),
        ("null", None),
        ("'8'", "8"),
    ],
)
def test_yaml_scalars(text: str, value: object) -> None:
    assert config.parse_yaml(f"v: {text}")["v"] == value
    assert type(config.parse_yaml(f"v: {text}")["v"]) is type(value)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("- 1\n- 2", "a list at the top level"),
        ("just text", "text at the top level"),
        ("", "nothing"),
        ("a: 1\na: 2", "stands twice"),
        ("a: [1", "line"),
        ("a: !!python/object/apply:os.system [true]", "python/object"),
        ("1: a", "text"),
        ("a: &x 1\nb: *x", "aliases"),
    ],
)
def test_yaml_that_is_refused(text: str, word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        config.parse_yaml(text, file="s.yaml")


def test_yaml_bombs_are_refused_at_once() -> None:
    lines = ['a0: &a0 ["x", "x"]']
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30)]
    started = time.process_time()
    with pytest.raises(ConfigError, match="aliases"):
        config.parse_yaml("\n".join(lines))
    with pytest.raises(ConfigError, match="deeper"):
        config.parse_yaml("a: " + "[" * 5000 + "]" * 5000)
    # Not a speed test: an unfolded bomb would need hours, a refused one needs well under a minute anywhere.
    assert time.process_time() - started < 60


def test_load_yaml_names_the_file_and_a_similar_one(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text("a: 1")
    with pytest.raises(ConfigError, match=r"studi\.yaml.*did you mean .*study\.yaml"):
        config.load_yaml(tmp_path / "studi.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        config.load_yaml(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"a: \xff\xfe")
    with pytest.raises(ConfigError, match="UTF-8"):
        config.load_yaml(tmp_path / "latin.yaml")
    (tmp_path / "large.yaml").write_text("a: " + "x" * config_limit())
    with pytest.raises(ConfigError, match="bytes"):
        config.load_yaml(tmp_path / "large.yaml")


def config_limit() -> int:
    from trivet.core.yamlfile import MAX_BYTES

    return MAX_BYTES


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no fault
@given(st.dictionaries(st.text(min_size=1, max_size=8), plain, max_size=5))
def test_dump_and_parse_are_inverse(content: dict[str, Any]) -> None:
    assert config.parse_yaml(config.dump_yaml(content) if content else "{}") == content


@given(st.dictionaries(st.text(max_size=5), plain, max_size=4), st.dictionaries(st.text(max_size=5), plain, max_size=4))
def test_merge_laws(base: dict[str, Any], patch: dict[str, Any]) -> None:
    merged = config.merge(base, patch)
    assert set(merged) == set(base) | set(patch)
    assert config.merge(merged, patch) == merged
    assert config.merge(base, {}) == base
    assert config.merge({}, patch) == patch


def test_merge_does_not_share_with_its_arguments() -> None:
    base = {"a": {"b": [1]}}
    merged = config.merge(base, {})
    merged["a"]["b"].append(2)
    assert base == {"a": {"b": [1]}}


@pytest.mark.parametrize("assignment", ["novalue", "=3", "a..b=3", "a.b=1"])
def test_set_key_refuses(assignment: str) -> None:
    with pytest.raises(ConfigError, match="--set"):
        config.set_key({"a": 1}, assignment)


def test_set_key_reads_values_as_yaml() -> None:
    assert config.set_key({}, "a.b=[1, 2]") == {"a": {"b": [1, 2]}}
    assert config.set_key({}, "a=on") == {"a": "on"}
    assert config.set_key({}, "a=1e-3") == {"a": 1e-3}


def test_digest_ignores_order_and_sees_every_value() -> None:
    assert config.digest({"a": 1, "b": [1, 2]}) == config.digest({"b": [1, 2], "a": 1})
    assert config.digest({"a": 1}) != config.digest({"a": 2})
    assert len(config.digest({})) == 12
    with pytest.raises(ValueError, match="JSON"):
        config.digest({"a": math.nan})


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Kinds:
    whole: int = 0
    number: float = 0.0
    switch: bool = False
    text: str = ""
    pair: tuple[float, float] = (0.0, 1.0)
    many: tuple[int, ...] = ()
    seeds: int | list[int] = 1
    maybe: int | None = None
    options: Mapping[str, str | int | float | bool] = dataclasses.field(default_factory=dict)
    inner: Inner | None = None
    level: Literal[1, 2, "auto"] = "auto"


@pytest.mark.parametrize(
    ("mapping", "key", "found", "allowed"),
    [
        ({"whole": True}, "whole", "true", "a whole number"),
        ({"whole": "8"}, "whole", "'8'", "a whole number"),
        ({"whole": 8.0}, "whole", "8.0", "a whole number"),
        ({"number": True}, "number", "true", "a number"),
        ({"number": "1e-3"}, "number", "'1e-3'", "a number"),
        ({"switch": 1}, "switch", "1", "true or false"),
        ({"switch": "true"}, "switch", "'true'", "true or false"),
        ({"text": True}, "text", "true", "text"),
        ({"text": 3}, "text", "3", "text"),
        ({"pair": [0.5, "1"]}, "pair.1", "'1'", "a number"),
        ({"many": [1, True]}, "many.1", "true", "a whole number"),
        ({"seeds": "3"}, "seeds", "'3'", "a whole number"),
        ({"seeds": True}, "seeds", "true", "a whole number"),
        ({"seeds": [1, 2.0]}, "seeds.1", "2.0", "a whole number"),
        ({"maybe": False}, "maybe", "false", "a whole number"),
        ({"inner": {"bits": True}}, "inner.bits", "true", "a whole number"),
        ({"inner": {"bits": "99"}}, "inner.bits", "'99'", "a whole number"),
        ({"level": True}, "level", "true", "1, 2, auto"),
    ],
)
def test_nothing_is_converted_silently(mapping: dict[str, Any], key: str, found: str, allowed: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config.build(Kinds, mapping, key="top")
    (problem,) = caught.value.problems
    assert problem.key == f"top.{key}"
    assert found in problem.found.lower()
    assert problem.allowed.startswith(allowed)


def test_misfits_do_not_hide_other_problems() -> None:
    with pytest.raises(ConfigError) as caught:
        config.build(Kinds, {"whole": "8", "txt": "a", "switch": [1]})
    assert {problem.key for problem in caught.value.problems} == {"whole", "txt", "switch"}


def test_every_kind_is_kept_exactly() -> None:
    options = {"a": "1", "b": 1, "c": 1.0, "d": True}
    mapping = {"number": 1, "pair": [1, 0.5], "many": [1], "seeds": [1, 2], "options": options, "inner": {"bits": 4}}
    built = config.build(Kinds, {**mapping, "level": 2})
    assert built.pair == (1.0, 0.5)
    assert type(built.number) is float
    assert built.many == (1,)
    assert built.inner == Inner(bits=4)
    assert {name: (type(value), value) for name, value in built.options.items()} == {
        name: (type(value), value) for name, value in options.items()
    }


@pytest.mark.parametrize("text", ["a:\t1\n\tb: 2", "a: @x", "a: [1, 2", "a: 'x", "a: 1\n a: 2\n- 3", "a: b: c"])
def test_bad_yaml_is_told_in_one_clause(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config.parse_yaml(text, file="s.yaml")
    message = str(caught.value)
    assert message.count("found") == 1
    assert ": found expected" not in message
    assert "line" in message


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Drink:
    kind: str = ""

    @staticmethod
    def variant_of(section: Mapping[str, Any]) -> type[_Drink]:
        if section.get("kind") == "tea":
            return _Tea
        raise ConfigError([Problem("", "kind", "milk", "tea")])


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Tea(_Drink):
    minutes: int = 3


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Order:
    drink: _Drink
    table: int


def test_a_section_whose_class_depends_on_its_content() -> None:
    order = build(_Order, {"drink": {"kind": "tea", "minutes": 4}, "table": 1})
    assert order.drink == _Tea(kind="tea", minutes=4)
    assert to_plain(order) == {"drink": {"kind": "tea", "minutes": 4}, "table": 1}


@pytest.mark.parametrize(
    ("drink", "keys"),
    [
        ({"kind": "milk"}, ["drink.kind", "table"]),
        ({"kind": "tea", "minute": 4}, ["drink.minute", "table"]),
        (5, ["drink", "table"]),
    ],
)
def test_a_section_of_no_class_is_reported_with_the_rest(drink: Any, keys: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        build(_Order, {"drink": drink, "table": "x"}, file="o.yaml")
    assert sorted(problem.key for problem in caught.value.problems) == keys
    assert {problem.file for problem in caught.value.problems} == {"o.yaml"}
