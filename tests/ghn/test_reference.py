"""Published checkpoints: their layout, their predictions, and files that are none."""

from __future__ import annotations

import argparse
import copy
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from trivet.ghn.config import GHNConfig
from trivet.ghn.deepnets.architecture import DARTS_NETWORK
from trivet.ghn.ghn import GHN
from trivet.graph.graph import Graph
from trivet.graph.trace import graph_of

SMALL = {
    "ghn1": GHNConfig(hid=8, max_shape=(16, 16, 5, 5), virtual_edges=0, weight_norm=False, layer_norm=False),
    "mlp": GHNConfig(hid=8, max_shape=(16, 16, 5, 5), encoder="mlp"),
    "ghn2": GHNConfig(hid=8, max_shape=(16, 16, 5, 5)),
    "ghn2-mlp-decoder": GHNConfig(hid=8, max_shape=(16, 16, 5, 5), decoder="mlp"),
    "ghn3": GHNConfig(hid=16, max_shape=(16, 16, 5, 5), encoder="graphormer", decoder="linear", heads=4, layers=2),
}

PUBLISHED = [
    ("word.", "embed."),
    ("channel.", "shape_enc.embed_channel."),
    ("kernel.", "shape_enc.embed_spatial."),
    ("norm.", "ln."),
    ("encoder.message.first.", "gnn.mlp.fc.0."),
    ("encoder.message.second.", "gnn.mlp.fc.2."),
    ("encoder.virtual_message.first.", "gnn.mlp_ve.fc.0."),
    ("encoder.virtual_message.second.", "gnn.mlp_ve.fc.2."),
    ("encoder.gru.", "gnn.gru."),
    ("encoder.first.", "gnn.fc.0."),
    ("encoder.second.", "gnn.fc.2."),
    ("encoder.in_degree.", "centrality_embed_in."),
    ("encoder.out_degree.", "gnn.0.centrality_embed_out."),
    ("encoder.input_distance.", "input_dist_embed."),
    ("encoder.edge_bias.distances.", "gnn.0.attn.edge_embed.embed."),
    ("encoder.edge_bias.first.", "gnn.0.attn.proj_e.0."),
    ("encoder.edge_bias.second.", "gnn.0.attn.proj_e.2."),
    *[
        (f"encoder.layers.{i}.{ours}.", f"gnn.{i}.{theirs}.")
        for i in range(2)
        for ours, theirs in (
            ("norm1", "ln1"),
            ("norm2", "ln2"),
            ("qkv", "attn.to_qkv"),
            ("out", "attn.to_out.0"),
            ("expand", "ff.net.0"),
            ("contract", "ff.net.3"),
        )
    ],
    ("decoder.spatial.", "decoder.fc.0."),
    ("decoder.classes.", "decoder.class_layer_predictor.1."),
    ("vectors.hidden.", "decoder_1d.fc.0."),
    ("vectors.out.", "decoder_1d.fc.2."),
    ("vectors.classes.", "bias_class.1."),
]
"""Ours → the published one, written down apart from the code under test."""


def published(ghn: GHN) -> dict[str, Tensor]:
    """A state dictionary in the published layout."""
    stem = "mlp.fc" if ghn.config.decoder == "mlp" else "conv"
    table = dict(PUBLISHED) | {"decoder.hidden.": f"decoder.{stem}.0.", "decoder.out.": f"decoder.{stem}.2."}
    result = {}
    for name, value in ghn.state_dict().items():
        prefix, leaf = name[: name.rindex(".") + 1], name[name.rindex(".") + 1 :]
        pointwise = ghn.config.decoder == "conv" and prefix in ("decoder.hidden.", "decoder.out.", "decoder.classes.")
        result[table[prefix] + leaf] = value[..., None, None] if pointwise and value.dim() == 2 else value
    return result


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint.pt"


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("with_config", [True, False])
def test_published_layouts_load_without_a_key_left_over(name: str, with_config: bool, path: Path) -> None:
    ghn = GHN(SMALL[name], seed=0)
    state = {f"module.{key}": value for key, value in published(ghn).items()}
    state["module.decoder.cols_1d"] = torch.arange(3)
    if name == "ghn2-mlp-decoder" and not with_config:
        torch.save(state, path)
        with pytest.raises(ValueError, match="must have a `max_shape` that fits its decoder and has None"):
            GHN.from_reference_checkpoint(path)
        return
    config = {"max_shape": list(ghn.config.max_shape), "weight_norm": ghn.config.weight_norm, "hid": ghn.config.hid}
    content = {"config": config, "state_dict": state, "args": argparse.Namespace(lr=1), "epoch": 3}
    torch.save(content if with_config else state, path)
    loaded = GHN.from_reference_checkpoint(path)
    assert loaded.config == ghn.config
    assert all(torch.equal(value, loaded.state_dict()[key]) for key, value in ghn.state_dict().items())


def small_state() -> dict[str, Tensor]:
    return copy.deepcopy(published(GHN(SMALL["ghn2"], seed=0)))


class Hostile:
    """Would make a folder if a reader ran it."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.target),)


def test_files_that_would_run_code_are_refused(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "made"
    torch.save({"state_dict": small_state(), "extra": Hostile(target)}, path)
    with pytest.raises(ValueError, match="could run code and are refused"):
        GHN.from_reference_checkpoint(path)
    path.write_bytes(pickle.dumps(Hostile(target)))
    with pytest.raises(ValueError, match="cannot be read as a checkpoint of plain tensors"):
        GHN.from_reference_checkpoint(path)
    assert not target.exists()


@pytest.mark.parametrize("part", [0.0, 0.01, 0.5, 0.99])
def test_truncated_files_are_refused(path: Path, part: float) -> None:
    torch.save(small_state(), path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * part)])
    with pytest.raises(ValueError, match="it is damaged"):
        GHN.from_reference_checkpoint(path)


def test_missing_files_are_refused(path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        GHN.from_reference_checkpoint(path)


def spoiled(**changes: object) -> dict[str, object]:
    state: dict[str, object] = dict(small_state())
    for key, value in changes.items():
        state[key.replace("__", ".")] = value
    return state


def without(*keys: str) -> dict[str, Tensor]:
    return {key: value for key, value in small_state().items() if key not in keys}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            spoiled(decoder_1d__fc__0__bias=torch.full((16,), torch.nan)),
            "`vectors.hidden.bias` holds values that are no",
        ),
        (spoiled(decoder_1d__fc__0__bias=torch.zeros(15)), r"is \[15\] and must be \[16\]"),
        (
            spoiled(gnn__gru__weight_xx=torch.zeros(1)),
            "has 1 keys that no published hypernetwork has: gnn.gru.weight_xx",
        ),
        (spoiled(encoder__layer=torch.zeros(1)), "no published hypernetwork has: encoder.layer"),
        (spoiled(gnn__0__ln1__weight=torch.zeros(8)), "has left over 1 tensors"),
        (spoiled(decoder_1d__fc__0__bias=[1.0]), "is a list and must be a tensor"),
        (without("gnn.gru.bias_ih"), "lacks 1 tensors of such a hypernetwork"),
        (without("embed.weight"), "lacks the tensor 'word.weight'"),
        ({}, "holds no state dictionary"),
        ([1, 2], "holds no state dictionary"),
        ({"state_dict": 3}, "holds no state dictionary"),
    ],
)
def test_other_contents_are_refused(path: Path, content: object, message: str) -> None:
    torch.save(content, path)
    with pytest.raises(ValueError, match=message):
        GHN.from_reference_checkpoint(path)


def resnet(name: str) -> nn.Module:
    torchvision = pytest.importorskip("torchvision", reason="needs the package torchvision")
    model = getattr(torchvision.models, name)(num_classes=10)
    model.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
    model.maxpool = nn.Identity()
    return model


@pytest.fixture(scope="module")
def graphs() -> dict[str, Graph]:
    example = torch.zeros(1, 3, 32, 32)
    networks = {"resnet18": resnet("resnet18"), "resnet50": resnet("resnet50"), "DARTS_C32_n8": DARTS_NETWORK.build()}
    return {name: graph_of(network, example) for name, network in networks.items()}


def difference(found: Tensor, expected: Tensor | dict[str, Any]) -> float:
    """Largest absolute difference of a tensor, or of the entries that a digest of it holds."""
    if isinstance(expected, Tensor):
        return float((found - expected).abs().max())
    assert list(found.shape) == list(expected["shape"])
    flat = found.flatten()
    assert float(flat.double().norm()) == pytest.approx(expected["norm"], rel=1e-6)
    assert float(flat.double().sum()) == pytest.approx(expected["sum"], abs=1e-3)
    ends = (flat[:32] - expected["head"]).abs().max(), (flat[-32:] - expected["tail"]).abs().max()
    return max(map(float, ends))


@pytest.mark.parametrize("name", ["ghn2_cifar10", "ghn3t_cifar10"])
def test_predictions_are_those_of_the_published_code(name: str, shared_dir: Path, graphs: dict[str, Graph]) -> None:
    folder = shared_dir / "spec" / "fixtures" / "ghn"
    if not folder.is_dir():
        pytest.skip(f"needs the parity fixtures in {folder}")
    ghn = GHN.from_reference_checkpoint(folder / f"{name}.pt")
    fixtures = torch.load(folder / f"{name}_predictions.pt", weights_only=True)
    assert fixtures.keys() == graphs.keys()
    for network, expected in fixtures.items():
        graph = graphs[network]
        with torch.no_grad():
            predicted, states = ghn.predict_batch([graph])[0], ghn.embed([graph])[0]
        assert predicted.keys() == expected["params"].keys()
        assert max(difference(predicted[key], value) for key, value in expected["params"].items()) < 1e-5
        # Nodes may stand in another order, as long as edges go forward: each state has its equal in the other list.
        assert len(graph.distances()) == len(expected["edges"])
        apart = (states.unsqueeze(1) - expected["embeddings"].unsqueeze(0)).abs().amax(2)
        assert max(float(apart.amin(0).max()), float(apart.amin(1).max())) < 1e-5
