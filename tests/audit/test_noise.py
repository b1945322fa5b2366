from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from trivet.audit.noise import Noise, raced
from trivet.audit.noise_config import NoiseConfig
from trivet.core.config import build
from trivet.core.errors import ConfigError
from trivet.tasks.config import RunConfig


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm, self.head = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.norm(self.conv(x))).mean((2, 3)))


IMAGES = torch.randn(32, 1, 8, 8, generator=torch.Generator().manual_seed(1))
LABELS = torch.arange(32) % 3


def trained(config: NoiseConfig, steps: int = 3, *, seed: int = 5, resume_at: int = 0) -> Net:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    noise = Noise(net, config, seed)
    for step in range(steps):
        if resume_at and step == resume_at:
            state, weights, sgd = noise.state_dict(), net.state_dict(), optimizer.state_dict()
            net = Net()
            noise = Noise(net, config, seed)
            net.load_state_dict(weights)
            noise.load_state_dict(state)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            optimizer.load_state_dict(sgd)
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(IMAGES), LABELS).backward()
        optimizer.step()
        noise.step()
    return net


def flat(net: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in net.parameters()])


PLAIN = flat(trained(NoiseConfig()))


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 30), st.integers(0, 100))
def test_rounding_noise_is_relative_and_bounded(bits: int, seed: int) -> None:
    layer = nn.Linear(40, 30, bias=False)
    Noise(layer, NoiseConfig(kind="rounding", bits=bits), seed)
    x = torch.rand(8, 40, generator=torch.Generator().manual_seed(seed))  # positive: a sum near 0 has no relative error
    layer(x).sum().backward()
    exact = x.sum(0).expand(30, 40)
    assert layer.weight.grad is not None
    relative = (layer.weight.grad - exact).abs() / exact.abs()
    assert relative.max() <= 2.0**-bits + 1e-5
    if bits < 12:
        drawn = (layer.weight.grad / exact - 1) * 2.0**bits
        assert abs(drawn.mean()) < 0.1  # of variance 1/3 over 1,200 numbers: 0.1 is six standard errors
        assert abs(drawn.var() - 1 / 3) < 0.05


@pytest.mark.parametrize(
    "config",
    [
        NoiseConfig(kind="rounding", bits=16),
        NoiseConfig(kind="rounding", bits=16, target="weights"),
        NoiseConfig(kind="order"),
        NoiseConfig(kind="ulp", start=1),
    ],
    ids=str,
)
def test_noise_changes_bits_little_repeats_and_resumes(config: NoiseConfig) -> None:
    first = flat(trained(config))
    assert not torch.equal(first, PLAIN)
    torch.testing.assert_close(first, PLAIN, rtol=1e-2, atol=1e-3)
    assert torch.equal(flat(trained(config)), first)
    assert torch.equal(flat(trained(config, resume_at=2)), first)
    if config.kind != "ulp":
        assert not torch.equal(flat(trained(config, seed=6)), first)


def test_noise_keeps_to_its_steps() -> None:
    late = NoiseConfig(kind="rounding", bits=8, start=2)
    assert torch.equal(flat(trained(late, steps=2)), flat(trained(NoiseConfig(), steps=2)))
    assert not torch.equal(flat(trained(late, steps=3)), PLAIN)
    early = NoiseConfig(kind="rounding", bits=8, length=1)
    assert not torch.equal(flat(trained(early, steps=1)), flat(trained(NoiseConfig(), steps=1)))


def test_one_unit_in_the_last_place_of_one_weight() -> None:
    net = Net()
    before = copy.deepcopy(net)
    Noise(net, NoiseConfig(kind="ulp"), 0)
    a, b = flat(before), flat(net)
    [place] = torch.nonzero(a != b).flatten().tolist()
    assert b[place] == torch.nextafter(a[place], torch.tensor(torch.inf))


def test_examples_in_another_order_give_the_same_outputs_in_place() -> None:
    net = Net()
    expected = net(IMAGES).detach()
    noise = Noise(net, NoiseConfig(kind="order"), 0)
    found = net(IMAGES).detach()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    net.eval()
    assert noise._places is not None
    net(IMAGES)
    assert noise._places is None  # evaluation is not disturbed


def test_racing_sums_are_the_gradient_to_rounding_and_fixed_with_one_thread() -> None:
    values = torch.randn(50_000, generator=torch.Generator().manual_seed(0))
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = raced(values)
        assert torch.equal(one, raced(values))
    finally:
        torch.set_num_threads(threads)
    torch.testing.assert_close(one, values, rtol=1e-6, atol=1e-7)


BASE = {"task": {"data": "fashion-mnist", "model": "resnet8"}, "training": {"steps": 2}}


@pytest.mark.parametrize(
    ("noise", "words"),
    [
        ({"kind": "roundin"}, "did you mean 'rounding'"),
        ({"kind": "rounding", "bits": 0}, r"`bits=0` must lie in \[1, 30\]"),
        ({"kind": "order", "bits": 8}, "`bits=8` applies to kind=rounding alone"),
        ({"kind": "ulp", "length": 3}, "happens once"),
        ({"start": 3}, "no effect without a `kind`"),
        ({"kind": "order", "start": -1}, "must be ≥ 0"),
    ],
)
def test_slips_are_refused(noise: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build(RunConfig, {**BASE, "noise": noise})


def test_what_cannot_be_disturbed_is_refused_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="two threads or more"):
        build(RunConfig, {**BASE, "noise": {"kind": "race"}}).check()
    build(RunConfig, {**BASE, "noise": {"kind": "race"}, "environment": {"threads": 2}}).check()
    command = {"task": {"command": "python x.py", "metrics": {"loss": "loss (.*)"}}, "noise": {"kind": "order"}}
    with pytest.raises(ConfigError, match="out of reach"):
        build(RunConfig, command).check()
