"""Models by name, and a user's own callables."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from trivet.models import build_model
from trivet.models.build import find_callable

NETS = """
import torch
from torch import nn

def make(num_classes, in_channels):
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(num_classes))

def everything(*, num_classes, in_channels, image_size, width=16, depth=2):
    net = nn.Sequential(nn.Flatten(), nn.Linear(in_channels * image_size[0] * image_size[1], num_classes))
    net.width, net.depth = width, depth
    return net

def nothing():
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 10))

class Net(nn.Module):
    def __init__(self, num_classes=1000):
        super().__init__()
        self.fc = nn.Linear(3, num_classes)

    def forward(self, x):
        return self.fc(x.mean((2, 3)))

def pair(num_classes):
    class Two(nn.Module):
        def forward(self, x):
            return x, x
    return Two()

def wrong_type():
    return "net"

def broken(num_classes):
    raise KeyError("a bug of the user")

number = 3
"""


@pytest.fixture
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package `user_nets` in the current folder, which is not on the path."""
    (tmp_path / "user_nets").mkdir()
    (tmp_path / "user_nets" / "__init__.py").write_text("")
    (tmp_path / "user_nets" / "small.py").write_text(NETS)
    (tmp_path / "user_nets" / "needs.py").write_text("import no_such_dependency")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", str(tmp_path))])
    yield "python:user_nets.small:"
    for name in [name for name in sys.modules if name.split(".")[0] == "user_nets"]:
        del sys.modules[name]


def test_resnet_by_name() -> None:
    model = build_model("resnet8", num_classes=5, in_channels=1, image_size=(28, 28), width=4)
    assert model(torch.zeros(2, 1, 28, 28)).shape == (2, 5)


def test_same_seed_same_parameters() -> None:
    states = []
    for _ in range(2):
        torch.manual_seed(11)
        states.append(build_model("resnet8", width=4).state_dict())
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])


@pytest.mark.parametrize("function", ["make", "everything", "Net"])
def test_user_callables_get_what_their_signature_takes(nets: str, function: str) -> None:
    model = build_model(nets + function, num_classes=4, in_channels=3, image_size=8)
    assert model(torch.zeros(2, 3, 8, 8)).shape == (2, 4)


def test_user_callable_that_takes_nothing_must_fit(nets: str) -> None:
    assert isinstance(build_model(nets + "nothing", num_classes=10, in_channels=3, image_size=8), nn.Module)
    with pytest.raises(ValueError, match=r"gives \[1, 10\] for one image; allowed: a tensor \[1, 4\]"):
        build_model(nets + "nothing", num_classes=4, in_channels=3, image_size=8)
    with pytest.raises(ValueError, match=r"fails on an image of 1 × 8 × 8.*RuntimeError"):
        build_model(nets + "nothing", num_classes=10, in_channels=1, image_size=8)


def test_width_goes_where_it_is_taken(nets: str) -> None:
    model = build_model(nets + "everything", num_classes=4, in_channels=3, image_size=8, width=5)
    assert (model.width, model.depth) == (5, 2)
    with pytest.raises(ValueError, match="takes no `width`"):
        build_model(nets + "make", num_classes=4, in_channels=3, image_size=8, width=5)


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        ("mak", ValueError, "found no 'mak' in .*small.py; did you mean 'make'?"),
        ("number", ValueError, "'number' is a int and cannot be called"),
        ("wrong_type", TypeError, "returned a str; it must return a torch.nn.Module"),
        ("pair", ValueError, "gives tuple for one image"),
        ("broken", KeyError, "a bug of the user"),
    ],
)
def test_user_mistakes(nets: str, function: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        build_model(nets + function, num_classes=4, in_channels=3, image_size=8)


def test_modules_that_are_not_there(nets: str) -> None:
    with pytest.raises(ValueError, match=r"found no module 'user_nets\.big'"):
        find_callable("python:user_nets.big:make")
    with pytest.raises(ModuleNotFoundError, match="no_such_dependency"):
        find_callable("python:user_nets.needs:make")
    with pytest.raises(ValueError, match="found no module 'nowhere_at_all'"):
        find_callable("python:nowhere_at_all:make")


def test_unknown_name() -> None:
    with pytest.raises(ValueError, match="did you mean 'resnet20'"):
        build_model("resnet19")
