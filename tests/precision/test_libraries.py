"""Models of other libraries, unchanged: transformers, torchvision detection, torch_geometric."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from trivet.precision import PrecisionController, PrecisionSchedule, layer_macs, quantize_, training_bitops
from trivet.precision.layerreport import LayerReport

TOKENS = torch.arange(14).view(2, 7)


def train(
    model: nn.Module, loss: Callable[[nn.Module], torch.Tensor], steps: int = 3
) -> tuple[PrecisionController, dict[str, LayerReport]]:
    quantize_(model.train())
    schedule = PrecisionSchedule.named("LR", q_min=3, q_max=8, num_cycles=1, total_steps=steps)
    ctl = PrecisionController(model, schedule)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(model).backward()
        optimizer.step()
        ctl.step()
    return ctl, {row.name: row for row in ctl.report()}


def config(name: str, **options: Any) -> Any:
    transformers = pytest.importorskip("transformers", reason="needs `pip install 'trivet[text]'`")
    made = getattr(transformers, name)
    return made(vocab_size=50, num_hidden_layers=2, num_attention_heads=2, hidden_size=16, **options)


@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
def test_bert(kernel: str) -> None:
    c = config("BertConfig", intermediate_size=32, max_position_embeddings=16, attn_implementation=kernel)
    import transformers

    model = transformers.BertForSequenceClassification(c)
    keys = list(model.state_dict())
    labels = torch.tensor([0, 1])
    layers = layer_macs(model, {"input_ids": TOKENS})
    ctl, rows = train(model, lambda m: m(TOKENS, labels=labels).loss)
    assert list(model.state_dict()) == keys
    products = ("qk", "pv") if kernel == "sdpa" else ("matmul", "matmul#2")
    for i in range(2):
        name = f"bert.encoder.layer.{i}"
        for part in ("self.query", "self.key", "self.value", "output.dense", *(f"self:{p}" for p in products)):
            row = rows[f"{name}.attention.{part}"]
            assert row.quantised
            assert row.calls == 3
            assert 0 < (row.activation_error or 0) < 0.5
    assert {name for name, row in rows.items() if not row.quantised} == {
        "classifier",
        *(f"bert.embeddings.{kind}_embeddings" for kind in ("word", "position", "token_type")),
    }
    assert ctl.cost == training_bitops(layers, ctl.schedule, grad_bits=8, batch_size=2)


@pytest.mark.filterwarnings("ignore:.gradient_checkpointing_enable. is deprecated")
@pytest.mark.parametrize("recompute", [False, True])
def test_gpt2_with_its_own_layer_class_and_tied_head(recompute: bool) -> None:
    transformers = pytest.importorskip("transformers", reason="needs `pip install 'trivet[text]'`")
    torch.manual_seed(0)
    made = transformers.GPT2Config(
        vocab_size=50, n_embd=16, n_layer=2, n_head=2, n_positions=16, use_cache=False, attn_pdrop=0.0, resid_pdrop=0.0
    )
    made.loss_type = "ForCausalLM"
    model = transformers.GPT2LMHeadModel(made)
    if recompute:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    layers = layer_macs(model, {"input_ids": TOKENS})
    ctl, rows = train(model, lambda m: m(TOKENS, labels=TOKENS).loss)
    for part in ("attn.c_attn:addmm", "attn.c_proj:addmm", "mlp.c_fc:addmm", "mlp.c_proj:addmm", "attn:qk", "attn:pv"):
        assert rows[f"transformer.h.1.{part}"].calls == 3
        assert rows[f"transformer.h.1.{part}"].quantised
    assert not rows["lm_head"].quantised
    assert model.lm_head.weight is model.transformer.wte.weight
    assert ctl.cost == training_bitops(layers, ctl.schedule, grad_bits=8, batch_size=2)


def test_vit() -> None:
    transformers = pytest.importorskip("transformers", reason="needs `pip install 'trivet[text]'`")
    c = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=16, patch_size=8
    )
    model = transformers.ViTForImageClassification(c)
    images = torch.randn(2, 3, 16, 16)
    _, rows = train(model, lambda m: m(images, labels=torch.tensor([0, 1])).loss)
    assert sum(row.quantised for row in rows.values()) == 1 + 2 * 8  # patches; q, k, v, qk, pv, out, two of the MLP
    assert [name for name, row in rows.items() if not row.quantised] == ["classifier"]


def test_rotary_positions_stay_exact() -> None:
    transformers = pytest.importorskip("transformers", reason="needs `pip install 'trivet[text]'`")
    c = config("LlamaConfig", num_key_value_heads=1, intermediate_size=32)
    c.loss_type = "ForCausalLM"
    model = transformers.LlamaForCausalLM(c)
    rotary, x, positions = model.model.rotary_emb, torch.zeros(1, 7, 16), torch.arange(7)[None]
    before = rotary(x, positions)
    train(model, lambda m: m(TOKENS, labels=TOKENS).loss)
    assert all(torch.equal(a, b) for a, b in zip(rotary(x, positions), before, strict=True))


def detection_targets() -> tuple[list[torch.Tensor], list[dict[str, torch.Tensor]]]:
    box = {"boxes": torch.tensor([[4.0, 4.0, 30.0, 30.0]]), "labels": torch.tensor([1])}
    return [torch.rand(3, 64, 64) for _ in range(2)], [dict(box) for _ in range(2)]


def test_retinanet_heads_run_five_times() -> None:
    pytest.importorskip("torchvision", reason="needs `pip install 'trivet[vision]'`")
    from torchvision.models import resnet18
    from torchvision.models.detection import RetinaNet
    from torchvision.models.detection.anchor_utils import AnchorGenerator
    from torchvision.models.detection.backbone_utils import _resnet_fpn_extractor
    from torchvision.ops.feature_pyramid_network import LastLevelP6P7

    body = _resnet_fpn_extractor(
        resnet18(weights=None), 5, returned_layers=[2, 3, 4], extra_blocks=LastLevelP6P7(256, 256)
    )
    anchors = AnchorGenerator(tuple((8, 10, 12) for _ in range(5)), ((0.5, 1.0, 2.0),) * 5)
    model = RetinaNet(body, 3, min_size=64, max_size=64, anchor_generator=anchors)
    images, targets = detection_targets()
    _, rows = train(model, lambda m: sum(m(images, targets).values()), steps=2)
    assert all(row.quantised for row in rows.values())
    assert rows["backbone.body.conv1"].calls == 2
    assert rows["head.classification_head.cls_logits"].calls == 2 * 5
    assert rows["head.regression_head.conv.0.0"].calls == 2 * 5
    model.eval()
    with torch.no_grad():
        assert all(bool(found["boxes"].isfinite().all()) for found in model(images))


def test_ssdlite() -> None:
    pytest.importorskip("torchvision", reason="needs `pip install 'trivet[vision]'`")
    from torchvision.models.detection import ssdlite320_mobilenet_v3_large

    model = ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=3)
    images, targets = detection_targets()
    _, rows = train(model, lambda m: sum(m(images, targets).values()), steps=1)
    assert len(rows) == 98
    assert all(row.quantised and row.calls >= 1 for row in rows.values())


@pytest.mark.filterwarnings("ignore:.*torch.jit.*")
def test_graph_layers_with_their_own_linear() -> None:
    pytest.importorskip("torch_geometric", reason="needs `pip install torch_geometric`")
    from torch_geometric.nn import GATConv, GCNConv, SAGEConv

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = GCNConv(5, 8), SAGEConv(8, 8), GATConv(8, 4, heads=2)

        def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            return self.c(self.b(self.a(x, edges).relu(), edges).relu(), edges)

    x, edges = torch.randn(6, 5), torch.tensor([[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]])
    model = Net()
    layers = layer_macs(model, (x, edges))
    ctl, rows = train(model, lambda m: m(x, edges).square().mean())
    assert set(rows) == {"a.lin:linear", "b.lin_l:linear", "b.lin_r:linear", "c.lin:linear"}
    assert all(row.quantised and row.calls == 3 for row in rows.values())
    assert {layer.name: layer.macs for layer in layers}["a.lin:linear"] == 5 * 8
    assert ctl.cost == training_bitops(layers, ctl.schedule, grad_bits=8, batch_size=6)
