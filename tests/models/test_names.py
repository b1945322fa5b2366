"""Model names, checked without torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from trivet.core.errors import MissingExtraError
from trivet.models import check_model_name
from trivet.models.names import RESNETS, parse_python_name, torchvision_names


@pytest.mark.parametrize("name", [*RESNETS, "python:trivet.models.resnet:resnet20", "python:json:dumps"])
def test_good_names(name: str) -> None:
    check_model_name(name)
    check_model_name(name, width=8)


@pytest.mark.parametrize("name", ["mobilenet_v2", "torchvision:resnet18", "torchvision:vit_b_16"])
def test_names_that_need_torchvision(name: str) -> None:
    pytest.importorskip("torchvision", reason="needs torchvision (extra vision)")
    check_model_name(name)
    with pytest.raises(ValueError, match=r"`width=8` has no effect on"):
        check_model_name(name, width=8)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnet21", "did you mean 'resnet20'?"),
        ("resnet1000", "did you mean 'resnet152'?"),
        ("resnt20", "did you mean 'resnet20'?"),
        ("ResNet20", "did you mean 'resnet20'?"),
        ("mobilenet", "did you mean 'mobilenet_v2'?"),
        ("", "unknown model ''"),
        ("mypkg.nets:small", "write 'python:mypkg.nets:small'"),
        ("nets/small.py", "looks like a path"),
        ("python:", "write 'python:pkg.module:function'"),
        ("python:nets", "write 'python:pkg.module:function'"),
        ("python:nets.py:small:x", "write 'python:pkg.module:function'"),
        ("python:a/nets.py:small", "with dots and without .py"),
        ("python:no_such_package:small", "found no module 'no_such_package'"),
        ("python:trivet.no_such.thing:small", "found no module 'trivet.no_such'"),
        ("python:trivet.models.names.deeper:small", "'trivet.models.names' is no package"),
    ],
)
def test_bad_names(name: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the message is checked below)
        check_model_name(name)
    assert message in str(caught.value)


def test_bad_names_of_torchvision() -> None:
    pytest.importorskip("torchvision", reason="needs torchvision (extra vision)")
    with pytest.raises(ValueError, match="write 'torchvision:resnet18'"):
        check_model_name("resnet18x"[:-1])
    with pytest.raises(ValueError, match=r"unknown model of torchvision 'resnet19'.*did you mean 'resnet1"):
        check_model_name("torchvision:resnet19")


def test_torchvision_names_are_those_that_torchvision_lists() -> None:
    models = pytest.importorskip("torchvision.models", reason="needs torchvision (extra vision)")
    assert torchvision_names() == sorted(models.list_models(module=models))


@pytest.mark.parametrize("name", ["mobilenet_v2", "torchvision:resnet18"])
def test_without_torchvision(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = __import__("importlib.util").util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda n: None if n == "torchvision" else find_spec(n))
    with pytest.raises(MissingExtraError, match=r"trivet\[vision\]"):
        check_model_name(name)


def test_width_must_be_positive() -> None:
    with pytest.raises(ValueError, match="`width=0` must be ≥ 1"):
        check_model_name("resnet20", width=0)


def test_user_module_in_the_current_folder_is_found_and_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "my_own_nets" / "sub"
    package.mkdir(parents=True)
    (tmp_path / "my_own_nets" / "__init__.py").write_text("raise RuntimeError('run')")
    (package / "__init__.py").write_text("raise RuntimeError('run')")
    (package / "small.py").write_text("raise RuntimeError('run')")
    monkeypatch.chdir(tmp_path)
    check_model_name("python:my_own_nets.sub.small:make")
    with pytest.raises(ValueError, match=r"found no module 'my_own_nets\.sub\.big'"):
        check_model_name("python:my_own_nets.sub.big:make")


def test_parse() -> None:
    parsed = parse_python_name("python:a.b_1.c:make_net")
    assert (parsed.module, parsed.function) == ("a.b_1.c", "make_net")


def test_no_torch_is_imported() -> None:
    code = (
        "import sys; from trivet.models import check_model_name, model_names; model_names(); "
        "check_model_name('resnet20'); check_model_name('torchvision:resnet18'); "
        "print(sorted({'torch', 'torchvision', 'numpy'} & set(sys.modules)))"
    )
    pytest.importorskip("torchvision", reason="needs torchvision (extra vision)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
