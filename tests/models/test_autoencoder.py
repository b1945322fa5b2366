"""The autoencoder against its formula in numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from trivet.models import Autoencoder


def test_the_output_is_that_of_the_formula() -> None:
    torch.manual_seed(0)
    net = Autoencoder((2, 3, 4), hidden=(7, 5), code=3).double()
    pictures = torch.rand(6, 2, 3, 4, dtype=torch.float64)
    weights = [parameter.detach().numpy() for parameter in net.parameters()]
    assert [weight.shape for weight in weights[::2]] == [(7, 24), (5, 7), (3, 5), (5, 3), (7, 5), (24, 7)]
    value = pictures.numpy().reshape(6, 24)
    for number, (weight, bias) in enumerate(zip(weights[::2], weights[1::2], strict=True)):
        value = value @ weight.T + bias
        if number == 2:
            np.testing.assert_allclose(net.encode(pictures).detach().numpy(), value, atol=1e-14)
        elif number != 5:
            value = np.maximum(value, 0)
    expected = 1 / (1 + np.exp(-value.reshape(6, 2, 3, 4)))
    np.testing.assert_allclose(net(pictures).detach().numpy(), expected, atol=1e-14)


def test_no_hidden_layer_is_two_linear_ones() -> None:
    net = Autoencoder((1, 2, 2), hidden=(), code=1)
    assert sum(parameter.numel() for parameter in net.parameters()) == 4 + 1 + 4 + 4


@pytest.mark.parametrize("given", [{"code": 0}, {"hidden": (3, 0)}])
def test_a_width_below_one_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="must be numbers ≥ 1"):
        Autoencoder((1, 2, 2), **given)  # type: ignore[arg-type]
