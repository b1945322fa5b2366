"""torchvision's classifiers, fitted to the images."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from trivet.models import build_model
from trivet.models.vision import check_output, fit_in_channels, mobilenet_v2, torchvision_model

models = pytest.importorskip("torchvision.models", reason="needs torchvision (extra vision)")


def sizes(model: nn.Module, image: torch.Tensor) -> dict[int, int]:
    """Height after each block of a MobileNetV2."""
    found: dict[int, int] = {}
    for index, block in enumerate(model.get_submodule("features")):
        block.register_forward_hook(lambda module, inputs, output, index=index: found.update({index: output.shape[2]}))
    with torch.no_grad():
        model.eval()(image)
    return found


def test_small_mobilenet_ends_as_4_by_4() -> None:
    found = sizes(mobilenet_v2(num_classes=10, in_channels=3, image_size=(32, 32)), torch.zeros(1, 3, 32, 32))
    assert found[0] == 32
    assert found[3] == 32
    assert found[max(found)] == 4


def test_small_mobilenet_has_the_published_parameters() -> None:
    small = mobilenet_v2(num_classes=10, in_channels=3, image_size=(32, 32))
    published = models.mobilenet_v2(weights=None, num_classes=10)
    assert [p.shape for p in small.parameters()] == [p.shape for p in published.parameters()]
    assert list(small.state_dict()) == list(published.state_dict())


def test_large_mobilenet_is_the_published_network() -> None:
    torch.manual_seed(0)
    large = mobilenet_v2(num_classes=5, in_channels=3, image_size=(96, 80)).eval()
    published = models.mobilenet_v2(weights=None, num_classes=5).eval()
    published.load_state_dict(large.state_dict())
    image = torch.randn(2, 3, 96, 80)
    torch.testing.assert_close(large(image), published(image))


@pytest.mark.parametrize(
    ("name", "size", "channels"),
    [
        ("resnet18", 28, 1),
        ("shufflenet_v2_x0_5", 32, 2),
        ("squeezenet1_1", 48, 3),
        ("mobilenet_v3_small", 32, 4),
        ("densenet121", 32, 1),
        ("regnet_x_400mf", 32, 1),
        ("googlenet", 32, 1),
    ],
)
def test_classes_and_channels(name: str, size: int, channels: int) -> None:
    model = build_model(f"torchvision:{name}", num_classes=7, in_channels=channels, image_size=size)
    assert model.training
    with torch.no_grad():
        assert model.eval()(torch.zeros(2, channels, size, size)).shape == (2, 7)


def test_untouched_with_three_channels() -> None:
    torch.manual_seed(1)
    ours = torchvision_model("resnet18", num_classes=10, in_channels=3, image_size=(32, 32))
    torch.manual_seed(1)
    theirs = models.resnet18(weights=None, num_classes=10)
    for name, parameter in theirs.named_parameters():
        assert torch.equal(parameter, ours.get_parameter(name)), name


def test_transformers_get_the_image_size() -> None:
    with torch.device("meta"):
        model = torchvision_model("vit_b_16", num_classes=10, in_channels=1, image_size=(32, 32))
        assert model.eval()(torch.zeros(1, 1, 32, 32)).shape == (1, 10)
    with pytest.raises(ValueError, match="square images; these are 32 × 48"):
        torchvision_model("vit_b_16", num_classes=10, in_channels=3, image_size=(32, 48))


def test_replaced_convolution_keeps_everything_but_the_channels() -> None:
    model = nn.Sequential(
        nn.Flatten(2), nn.Unflatten(2, (8, 8)), nn.Conv2d(3, 6, (3, 5), 2, (1, 2)), nn.Conv2d(6, 2, 1)
    )
    fit_in_channels(model, 1)
    new = model[2]
    assert isinstance(new, nn.Conv2d)
    assert (new.in_channels, new.out_channels, new.kernel_size, new.stride, new.padding) == (
        1,
        6,
        (3, 5),
        (2, 2),
        (1, 2),
    )
    assert new.bias is not None
    untouched = model[2]
    fit_in_channels(model, 1)
    assert model[2] is untouched
    with pytest.raises(ValueError, match="no convolution"):
        fit_in_channels(nn.Linear(3, 2), 1)


def test_images_too_small_are_refused_with_their_size() -> None:
    with pytest.raises(ValueError, match=r"torchvision:alexnet.*fails on an image of 3 × 28 × 28"):
        build_model("torchvision:alexnet", num_classes=10, in_channels=3, image_size=28)


def test_unknown_name() -> None:
    with pytest.raises(ValueError, match="did you mean 'resnet18'"):
        torchvision_model("resnt18", num_classes=10, in_channels=3, image_size=(32, 32))


def test_check_output_changes_nothing() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Dropout(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    check_output(model, "x", num_classes=4, image_shape=(3, 8, 8))
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
