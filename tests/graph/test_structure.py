"""Structure of known networks, checked against the modules they are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from trivet.graph import Graph, graph_of

models = pytest.importorskip("torchvision.models", reason="needs torchvision")
misc = pytest.importorskip("torchvision.ops.misc", reason="needs torchvision")


def bare(name: str, **options: Any) -> nn.Module:
    if name.startswith("regnet"):  # computes its widths with tensors
        return models.get_model(name, **options)
    with torch.device("meta"):
        return models.get_model(name, **options)


def checked(model: nn.Module, side: int = 224) -> Graph:
    """The graph of an image classifier, with what holds for all of them."""
    graph = graph_of(model, torch.zeros(1, 3, side, side))
    assert graph.method == "meta"
    assert sorted(graph.parameters) == sorted(name for name, _ in model.named_parameters())
    assert not graph.unplaced
    assert graph.count("input") == 1
    assert graph.inputs == (0,)
    assert len(graph.nodes) - 1 in graph.outputs
    has_way_in = {target for _, target in graph.edges}
    roots = [node.op for index, node in enumerate(graph.nodes) if index not in has_way_in]
    assert set(roots) <= {"input", "pos_enc", "pos_bias", "raw", "conv"}
    return graph


def parts(model: nn.Module, *kinds: str) -> int:
    return sum(type(module).__name__ in kinds for module in model.modules())


@pytest.mark.parametrize("name", ["resnet18", "resnet50", "resnext50_32x4d"])
def test_residual_networks(name: str) -> None:
    model = bare(name)
    graph = checked(model)
    blocks = parts(model, "BasicBlock", "Bottleneck")
    assert graph.count("sum") == blocks
    before: dict[int, int] = {}
    for _, target in graph.edges:
        before[target] = before.get(target, 0) + 1
    assert all(before[i] == 2 for i, node in enumerate(graph.nodes) if node.op == "sum")
    assert [node.name for node in graph.nodes[-3:]] == ["avgpool.glob_avg", "fc.weight", "fc.bias"]
    assert graph.count("conv") + graph.count("sep_conv") == parts(model, "Conv2d", "Linear")
    assert graph.count("bn") == parts(model, "BatchNorm2d")
    assert [node.kernel for node in graph.nodes if node.op == "max_pool"] == [(3, 3)]
    if name == "resnet18":
        assert graph.macs == 1_814_073_344


@pytest.mark.parametrize("name", ["efficientnet_b0", "mobilenet_v3_small", "regnet_y_400mf"])
def test_squeeze_and_excitation(name: str) -> None:
    model = bare(name)
    graph = checked(model)
    gates = sum(isinstance(module, misc.SqueezeExcitation) for module in model.modules())
    assert graph.count("cse") == gates > 0
    assert graph.count("glob_avg") == 1
    assert checked(model, 32).count("cse") == gates  # maps of a single position are still averaged


def test_vision_transformer() -> None:
    graph = checked(bare("vit_b_16"))
    assert graph.count("msa") == 12
    assert graph.count("ln") == 25
    assert graph.count("sum") == 25
    assert (graph.count("pos_enc"), graph.count("raw"), graph.count("concat")) == (1, 1, 1)
    at = {node.name: index for index, node in enumerate(graph.nodes)}
    assert graph.nodes[at["encoder.pos_embedding"]].shape == (1, 197, 768)
    assert graph.nodes[-1].name == "heads.head.bias"


@pytest.mark.parametrize(
    ("name", "attention", "biases"), [("swin_t", 12, 12), ("swin_v2_t", 12, 0), ("maxvit_t", 22, 22)]
)
def test_window_attention(name: str, attention: int, biases: int) -> None:
    model = bare(name)
    graph = checked(model)
    assert graph.count("msa") == attention
    assert graph.count("pos_bias") == biases
    assert graph.nodes[-1].name.startswith(("head.", "classifier."))
    reached = {0}
    for source, target in graph.edges:
        if source in reached:
            reached.add(target)
    assert len(graph.nodes) - 1 in reached
    if name == "swin_t":
        assert graph.count("sum") == 24


def test_dense_and_branching_networks() -> None:
    dense = checked(bare("densenet121"))
    assert dense.count("concat") == 58
    assert len(dense.nodes) == 307
    fire = checked(bare("squeezenet1_1"))
    assert fire.count("concat") == 8
    assert fire.nodes[-1].op == "glob_avg"
    shuffle = checked(bare("shufflenet_v2_x0_5"))
    assert shuffle.count("concat") == 16


@pytest.mark.parametrize(("name", "side", "heads"), [("googlenet", 224, 3), ("inception_v3", 299, 2)])
def test_auxiliary_heads_are_in_the_graph_in_either_mode(name: str, side: int, heads: int) -> None:
    model = bare(name, init_weights=False)
    graph = checked(model, side)
    assert len(graph.outputs) == heads
    assert graph.nodes[-1].name == "fc.bias"
    assert checked(model.eval(), side).edges == graph.edges


def test_scale_of_layers_in_convnext() -> None:
    graph = checked(bare("convnext_tiny"))
    assert graph.count("scale") == graph.count("sum") == graph.count("sep_conv") == 18


def test_detector_and_segmentation() -> None:
    with torch.device("meta"):
        model = models.segmentation.fcn_resnet50(weights_backbone=None, aux_loss=True)
    graph = graph_of(model, torch.zeros(2, 3, 64, 64))
    assert not graph.unplaced
    assert len(graph.outputs) == 2
    detector = models.detection.ssdlite320_mobilenet_v3_large(weights_backbone=None).train()
    graph = graph_of(detector, ([torch.rand(3, 64, 64)],))
    assert graph.method == "real"
    assert not graph.unplaced
    assert detector.training


def small_transformers() -> Iterator[tuple[str, Callable[[Any], nn.Module], dict[str, torch.Tensor], dict[str, int]]]:
    ids = torch.ones(1, 6, dtype=torch.long)
    small = {
        "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 30,
    }  # fmt: skip
    yield (
        "BERT",
        lambda t: t.BertModel(t.BertConfig(**small)),
        {"input_ids": ids},
        {"msa": 2, "ln": 5, "embedding": 3, "sum": 6},
    )
    yield (
        "GPT-2",
        lambda t: t.GPT2LMHeadModel(
            t.GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=30, bos_token_id=0, eos_token_id=0)
        ),
        {"input_ids": ids},
        {"msa": 2, "ln": 5, "embedding": 2, "matmul_weight": 8},
    )
    yield (
        "ViT",
        lambda t: t.ViTForImageClassification(t.ViTConfig(image_size=16, patch_size=8, **small)),
        {"pixel_values": torch.zeros(1, 3, 16, 16)},
        {"msa": 2, "pos_enc": 1, "input": 1},
    )
    yield (
        "T5",
        lambda t: t.T5ForConditionalGeneration(
            t.T5Config(d_model=16, d_kv=8, num_layers=2, num_heads=2, d_ff=32, vocab_size=30)
        ),
        {"input_ids": ids, "decoder_input_ids": ids.clone()},
        {"msa": 6, "rms_norm": 12, "input": 2, "embedding": 3},
    )


@pytest.mark.parametrize("case", list(small_transformers()), ids=lambda case: case[0])
def test_transformers(case: Any) -> None:
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    _, build, example, expected = case
    model = build(transformers)
    graph = graph_of(model, example)
    assert sorted([*graph.parameters, *graph.unplaced]) == sorted(name for name, _ in model.named_parameters())
    assert not graph.unplaced
    assert {op: graph.count(op) for op in expected} == expected


def test_graph_network() -> None:
    gnn = pytest.importorskip("torch_geometric.nn", reason="needs torch_geometric")
    model = gnn.GCN(4, 8, 2, 3)
    graph = graph_of(model, {"x": torch.zeros(3, 4), "edge_index": torch.tensor([[0, 1, 2], [1, 2, 0]])})
    assert not graph.unplaced
    assert graph.count("conv") == 2
    assert graph.count("bias") == 2


TIMM = {
    "resnetv2_50": {"sum": 16, "group_norm": 0},
    "seresnet50": {"cse": 16, "sum": 16},
    "vit_tiny_patch16_224": {"msa": 12, "pos_enc": 1},
    "cait_xxs24_224": {"msa": 26, "sum": 52},
    "mixer_s32_224": {"sum": 16, "msa": 0},
    "convnextv2_atto": {"sep_conv": 12},
    "levit_128s": {"msa": 11},
}


@pytest.mark.parametrize("name", TIMM)
def test_timm(name: str) -> None:
    timm = pytest.importorskip("timm", reason="needs timm")
    with torch.device("meta"):
        try:
            model = timm.create_model(name)
        except RuntimeError:
            model = None
    graph = checked(model or timm.create_model(name))
    assert {op: graph.count(op) for op in TIMM[name]} == TIMM[name]
