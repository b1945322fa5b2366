import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from trivet.core.errors import TrivetError
from trivet.ghn import GHN, GHNConfig, InitReport, init_
from trivet.graph import graph_of


class Net(nn.Module):
    """Convolution, batch norm, a bare parameter that no hypernetwork knows, a classifier."""

    def __init__(self, num_classes: int = 10) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 24, 3, padding=1)
        self.bn = nn.BatchNorm2d(24)
        self.token = nn.Parameter(torch.full((1, 24), 7.0))
        self.fc = nn.Linear(24, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        pooled = self.bn(self.conv(x)).relu().mean((2, 3))
        return self.fc(torch.cat([self.token, pooled]))[1:]


@pytest.fixture(scope="module")
def ghn() -> GHN:
    return GHN(GHNConfig(hid=8, max_shape=(16, 16, 3, 3)), seed=0)


X = torch.zeros(2, 3, 8, 8)


def state_of(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


def assert_same(module: nn.Module, before: dict[str, Tensor]) -> None:
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_what_is_predicted_is_written_and_the_rest_is_kept_and_listed(ghn: GHN) -> None:
    net = Net().eval()
    before, wanted = state_of(net), ghn.predict(net, X)
    report = init_(net, ghn, X)
    assert list(report.kept) == ["token"]
    assert "raw" in report.kept["token"]
    assert torch.equal(net.token, torch.full((1, 24), 7.0))
    for name, value in net.named_parameters():
        if name != "token":
            torch.testing.assert_close(value, wanted[name], rtol=1e-6, atol=1e-7)
            assert not torch.equal(value, before[name])
    assert torch.equal(net.bn.running_var, before["bn.running_var"])
    assert not net.training
    assert [row.name for row in report.rows] == [name for name, _ in net.named_parameters()]
    assert report.predicted_tensors == 6
    assert report.parameters == sum(value.numel() for value in net.parameters())
    assert report.predicted_parameters == report.parameters - 24
    assert report.coverage == report.predicted_parameters / report.parameters


def test_report_prints_what_a_user_needs(ghn: GHN) -> None:
    report = init_(Net(), ghn, X)
    text = str(report)
    assert "6 of 7 parameter tensors predicted" in text
    assert "token" in text
    assert "recalibrate_bn" in text
    assert len(report.table().splitlines()) == 7
    plain = report.to_dict()
    assert {row["name"]: row["shape"] for row in plain["rows"]}["conv.weight"] == [24, 3, 3, 3]
    assert (plain["tensors"], plain["predicted_tensors"], plain["batch_norms"]) == (7, 6, 1)


def test_a_graph_that_is_there_already_is_used(ghn: GHN) -> None:
    one, other = Net(), Net()
    init_(one, ghn, X)
    report = init_(other, ghn, graph=graph_of(Net(), X))
    assert report.predicted_tensors == 6
    assert torch.equal(one.conv.weight, other.conv.weight)
    with pytest.raises(ValueError, match="not that of the module"):
        init_(nn.Linear(3, 3), ghn, graph=graph_of(Net(), X))


def test_strict_refuses_before_anything_is_written(ghn: GHN) -> None:
    net = Net()
    before = state_of(net)
    with pytest.raises(ValueError, match=r"1 parameter tensors cannot be predicted \(`token`"):
        init_(net, ghn, X, strict=True)
    assert_same(net, before)
    plain = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 36, 10))
    assert init_(plain, ghn, X, strict=True).coverage == 1.0


def test_another_number_of_classes_is_a_choice_never_silent(ghn: GHN) -> None:
    net = Net(num_classes=7)
    before = state_of(net)
    with pytest.raises(ValueError, match=r"7 classes .* predicts 10.*head='keep'.*head='resize'"):
        init_(net, ghn, X)
    assert_same(net, before)
    kept = init_(net, ghn, X, head="keep")
    assert set(kept.kept) == {"token", "fc.weight", "fc.bias"}
    assert torch.equal(net.fc.weight, before["fc.weight"])
    resized = init_(net, ghn, X, head="resize")
    assert list(resized.kept) == ["token"]
    assert not torch.equal(net.fc.weight, before["fc.weight"])


@pytest.mark.parametrize("wrong", [torch.zeros(2, 5, 8, 8), torch.zeros(3), {"y": X}, None, "image"])
def test_inputs_that_do_not_fit_leave_the_module_as_it_was(ghn: GHN, wrong: object) -> None:
    net = Net()
    before = state_of(net)
    with pytest.raises((ValueError, TypeError)):
        init_(net, ghn, wrong)
    assert_same(net, before)


def test_predictions_that_are_not_finite_are_never_written(ghn: GHN) -> None:
    broken = copy.deepcopy(ghn)
    with torch.no_grad():
        broken.word.weight.fill_(torch.nan)
    net = Net()
    before = state_of(net)
    with pytest.raises(TrivetError, match="not finite"):
        init_(net, broken, X)
    assert_same(net, before)


def test_a_folder_or_name_is_taken_and_unknown_ones_are_refused(ghn: GHN, tmp_path: Path) -> None:
    ghn.save_pretrained(tmp_path / "mine")
    one, other = Net(), Net()
    init_(one, ghn, X)
    assert isinstance(init_(other, tmp_path / "mine", X), InitReport)
    assert torch.equal(one.conv.weight, other.conv.weight)
    with pytest.raises(ValueError, match="no folder 'fashion-smal' here, and "):
        init_(other, "fashion-smal", X)


def test_modules_without_parameters_and_on_no_device_are_refused(ghn: GHN) -> None:
    with pytest.raises(ValueError, match="parameters"):
        init_(nn.ReLU(), ghn, X)
    with pytest.raises(ValueError, match="meta device"):
        init_(Net().to("meta"), ghn, X)


def test_half_precision_and_channels_last_modules_keep_type_and_strides(ghn: GHN) -> None:
    net = Net().to(memory_format=torch.channels_last).to(torch.bfloat16)
    strides = net.conv.weight.stride()
    report = init_(net, ghn, X.to(torch.bfloat16))
    assert report.predicted_tensors == 6
    assert net.conv.weight.dtype is torch.bfloat16
    assert net.conv.weight.stride() == strides
    torch.testing.assert_close(net.conv.weight.float(), ghn.predict(Net(), X)["conv.weight"], rtol=1e-2, atol=1e-2)


def test_frozen_whole_and_shared_parameters_are_kept_and_listed(ghn: GHN) -> None:
    net = Net()
    net.fc.weight.requires_grad_(False)
    net.bn.bias = nn.Parameter(torch.zeros(1).expand(24))
    before = state_of(net)
    with pytest.raises(ValueError, match=r"frozen|share one place"):
        init_(net, ghn, X, strict=True)
    assert_same(net, before)
    report = init_(net, ghn, X)
    assert report.kept["fc.weight"] == "it is frozen (`requires_grad=False`)"
    assert "share one place" in report.kept["bn.bias"]
    assert torch.equal(net.fc.weight, before["fc.weight"])
    assert not torch.equal(net.conv.weight, before["conv.weight"])


def test_integers_are_kept_before_anything_is_written(ghn: GHN) -> None:
    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(8, 8)
            self.weight = nn.Parameter(torch.ones(8, 8, dtype=torch.int8), requires_grad=False)

        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.linear(self.first(x), self.weight.float())

    net = Whole()
    report = init_(net, ghn, torch.zeros(1, 8))
    assert "weight" in report.kept
    assert bool((net.weight == 1).all())


def test_what_half_precision_cannot_hold_is_never_written(ghn: GHN) -> None:
    loud = copy.deepcopy(ghn)
    with torch.no_grad():
        for parameter in loud.decoder.parameters():
            parameter *= 200
    net = Net().half()
    before = state_of(net)
    assert all(bool(value.isfinite().all()) for value in loud.predict(Net(), X).values())
    with pytest.raises(TrivetError, match="not finite in float16"):
        init_(net, loud, X.half())
    assert_same(net, before)
