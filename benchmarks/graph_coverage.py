"""What `trivet.graph.graph_of` makes of the models people use: does it run, is every parameter accounted for?

    python benchmarks/graph_coverage.py [--only torchvision timm …] [--models] [--out table.md]

A Markdown table of groups of models; `--models` adds a row for every model. "Placed" are parameter tensors that have a
node, "listed" those that are listed with a reason instead; together they must be all. "Equal" counts models whose graph
comes out the same twice. Times are CPU seconds of the first call, weights excluded: models are built without them where
their library allows it. Groups whose library is missing are left out with a line that says so.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from trivet.graph import Graph, graph_of

Case = tuple[str, Callable[[], nn.Module], Any]

TIMM = [
    "bat_resnext26ts", "beit_base_patch16_224", "botnet26t_256", "cait_xxs24_224", "coat_lite_tiny",
    "coatnet_0_rw_224", "convit_tiny", "convmixer_768_32", "convnext_tiny", "convnextv2_atto", "crossvit_9_240",
    "cs3darknet_s", "cspresnet50", "davit_tiny", "deit3_small_patch16_224", "deit_tiny_distilled_patch16_224",
    "densenet121", "dla34", "dm_nfnet_f0", "dpn68", "eca_nfnet_l0", "ecaresnet26t", "edgenext_xx_small",
    "efficientformer_l1", "efficientformerv2_s0", "efficientnet_b0", "efficientvit_b0", "eva02_tiny_patch14_224",
    "fastvit_t8", "fbnetv3_b", "focalnet_tiny_srf", "gcresnet33ts", "gernet_s", "ghostnet_100", "gmlp_ti16_224",
    "halonet26t", "hardcorenas_a", "hgnet_tiny", "hrnet_w18_small", "inception_next_tiny", "inception_resnet_v2",
    "inception_v4", "lambda_resnet26t", "lcnet_050", "legacy_senet154", "levit_128s", "maxvit_rmlp_nano_rw_256",
    "mixer_s32_224", "mixnet_s", "mnasnet_small", "mobilenetv3_small_100", "mobilenetv4_conv_small", "mobileone_s0",
    "mobilevit_xxs", "mobilevitv2_050", "mvitv2_tiny", "nasnetalarge", "nest_tiny", "nf_regnet_b0", "pit_ti_224",
    "pnasnet5large", "poolformer_s12", "pvt_v2_b0", "regnetx_002", "regnety_002", "regnetz_b16", "repghostnet_050",
    "repvgg_a0", "repvit_m0_9", "res2net50_26w_4s", "resmlp_12_224", "resnest14d", "resnet18", "resnet50",
    "resnetv2_50", "resnext50_32x4d", "rexnet_100", "rexnetr_100", "sehalonet33ts", "selecsls42", "semnasnet_075",
    "sequencer2d_s", "seresnet50", "skresnet18", "swin_tiny_patch4_window7_224", "swinv2_cr_tiny_224",
    "swinv2_tiny_window8_256", "tf_efficientnet_cc_b0_4e", "tf_efficientnetv2_b0", "tiny_vit_5m_224", "tinynet_e",
    "tnt_s_patch16_224", "tresnet_m", "twins_pcpvt_small", "vgg11_bn", "visformer_tiny",
    "vit_base_patch16_siglip_224", "vit_tiny_patch16_224", "volo_d1_224", "vovnet39a", "wide_resnet50_2",
    "xception41", "xcit_nano_12_p16_224",
]  # fmt: skip


def _bare(build: Callable[[], nn.Module]) -> nn.Module:
    """The model without weights, or with them where its constructor computes with values."""
    try:
        with torch.device("meta"):
            return build()
    except Exception:
        return build()


def _torchvision(part: str) -> Iterator[Case]:
    models = importlib.import_module("torchvision.models")
    module = models if part == "torchvision" else importlib.import_module(f"torchvision.models.{part}")
    for name in models.list_models(module=module):
        side = {"inception_v3": 299, "raft_large": 128, "raft_small": 128}.get(name, 224)
        example: Any = torch.zeros(1, 3, side, side)
        options: dict[str, Any] = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
        if part == "detection":
            example, options = ([torch.rand(3, 96, 96)],), {"weights_backbone": None}
        elif part == "segmentation":
            example, options = torch.zeros(2, 3, 96, 96), {"weights_backbone": None}
            if not name.startswith("lraspp"):
                options["aux_loss"] = True
        elif part == "video":
            frames, side = (16, 224) if name.startswith(("mvit", "swin", "s3d")) else (8, 112)
            example = torch.zeros(1, 3, frames, side, side)
        elif part == "optical_flow":
            example = (torch.zeros(1, 3, side, side), torch.zeros(1, 3, side, side))

        def build(name: str = name, options: dict[str, Any] = options) -> nn.Module:
            made = models.get_model(name, weights=None, **options)
            if part == "detection":
                made.eval()
                small = {"min_size": (96,), "max_size": 96}
                for key, value in small.items():
                    if hasattr(getattr(made, "transform", None), key) and "ssd" not in name:
                        setattr(made.transform, key, value)
            return made

        yield name, (build if part == "detection" else lambda build=build: _bare(build)), example


def _timm() -> Iterator[Case]:
    timm = importlib.import_module("timm")
    known = set(timm.list_models())
    for name in TIMM:
        if name not in known:
            print(f"timm has no {name}", file=sys.stderr)
            continue
        cfg = timm.models.get_pretrained_cfg(name)
        yield name, (lambda name=name: _bare(lambda: timm.create_model(name))), torch.zeros(1, *cfg.input_size)


def _transformers() -> Iterator[Case]:
    hf = importlib.import_module("transformers")
    ids = torch.zeros(1, 8, dtype=torch.long)
    small: dict[str, Any] = {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 99,
    }  # fmt: skip
    grouped = small | {"num_key_value_heads": 2}
    picture = small | {"image_size": 32, "patch_size": 8}
    cases: list[tuple[str, str, str, dict[str, Any], dict[str, Any]]] = [
        ("BERT", "BertConfig", "BertForSequenceClassification", small, {"input_ids": ids, "attention_mask": ids + 1}),
        ("BERT MLM", "BertConfig", "BertForMaskedLM", small, {"input_ids": ids}),
        ("RoBERTa", "RobertaConfig", "RobertaForMaskedLM", small, {"input_ids": ids + 5}),
        ("DistilBERT", "DistilBertConfig", "DistilBertForMaskedLM",
         {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "vocab_size": 99}, {"input_ids": ids}),
        ("ALBERT", "AlbertConfig", "AlbertForMaskedLM", small | {"embedding_size": 16}, {"input_ids": ids}),
        ("ELECTRA", "ElectraConfig", "ElectraForPreTraining", small | {"embedding_size": 16}, {"input_ids": ids}),
        ("GPT-2", "GPT2Config", "GPT2LMHeadModel",
         {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 99}, {"input_ids": ids}),
        ("OPT", "OPTConfig", "OPTForCausalLM", small | {"ffn_dim": 64, "word_embed_proj_dim": 32}, {"input_ids": ids}),
        ("Llama", "LlamaConfig", "LlamaForCausalLM", grouped, {"input_ids": ids}),
        ("Qwen2", "Qwen2Config", "Qwen2ForCausalLM", grouped, {"input_ids": ids}),
        ("T5", "T5Config", "T5ForConditionalGeneration",
         {"d_model": 32, "d_kv": 8, "num_layers": 2, "num_heads": 4, "d_ff": 64, "vocab_size": 99},
         {"input_ids": ids, "decoder_input_ids": ids}),
        ("BART", "BartConfig", "BartForConditionalGeneration",
         {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
          "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "vocab_size": 99},
         {"input_ids": ids + 3}),
        ("ViT", "ViTConfig", "ViTForImageClassification", picture, {"pixel_values": torch.zeros(1, 3, 32, 32)}),
        ("DeiT", "DeiTConfig", "DeiTForImageClassification", picture, {"pixel_values": torch.zeros(1, 3, 32, 32)}),
        ("Swin", "SwinConfig", "SwinForImageClassification",
         {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4},
         {"pixel_values": torch.zeros(1, 3, 32, 32)}),
        ("CLIP", "CLIPConfig", "CLIPModel",
         {"text_config": small, "vision_config": picture, "projection_dim": 16},
         {"input_ids": ids, "pixel_values": torch.zeros(1, 3, 32, 32)}),
        ("Wav2Vec2", "Wav2Vec2Config", "Wav2Vec2ForCTC", small, {"input_values": torch.zeros(1, 4000)}),
        ("Whisper", "WhisperConfig", "WhisperForConditionalGeneration",
         {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
          "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "vocab_size": 99,
          "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1},
         {"input_features": torch.zeros(1, 80, 3000), "decoder_input_ids": ids}),
        ("Mamba", "MambaConfig", "MambaForCausalLM", small, {"input_ids": ids}),
    ]  # fmt: skip
    for name, config, model, options, example in cases:

        def build(config: str = config, model: str = model, options: dict[str, Any] = options) -> nn.Module:
            return getattr(hf, model)(getattr(hf, config)(**options))

        yield name, build, example


class _Language(nn.Module):
    """Embedding, LSTM and a head that shares the embedding's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.lstm = nn.LSTM(16, 16, num_layers=2, batch_first=True)
        self.head = nn.Linear(16, 50)
        self.head.weight = self.embedding.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Scores of the next symbol."""
        return self.head(self.lstm(self.embedding(ids))[0])


def _other() -> Iterator[Case]:
    yield "LSTM language model", _Language, torch.zeros(2, 7, dtype=torch.long)
    pair = (torch.zeros(5, 2, 16), torch.zeros(3, 2, 16))
    yield "nn.Transformer", lambda: nn.Transformer(16, 2, 2, 2, 32), pair
    yield "weight norm", lambda: nn.utils.parametrizations.weight_norm(nn.Conv2d(2, 3, 3)), torch.zeros(1, 2, 8, 8)
    try:
        gnn = importlib.import_module("torch_geometric.nn")
    except ImportError:
        return
    graph = {"x": torch.zeros(4, 8), "edge_index": torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])}
    for name in ("GCN", "GraphSAGE", "GAT", "GIN", "PNA"):
        if name == "PNA":
            options: dict[str, Any] = {
                "aggregators": ["mean", "max"],
                "scalers": ["identity"],
                "deg": torch.ones(3).long(),
            }
        else:
            options = {}
        yield f"PyG {name}", (lambda n=name, o=options: getattr(gnn, n)(8, 16, 2, 3, **o)), graph


GROUPS: dict[str, Callable[[], Iterator[Case]]] = {
    "torchvision": lambda: _torchvision("torchvision"),
    "detection": lambda: _torchvision("detection"),
    "segmentation": lambda: _torchvision("segmentation"),
    "video": lambda: _torchvision("video"),
    "optical_flow": lambda: _torchvision("optical_flow"),
    "timm": _timm,
    "transformers": _transformers,
    "other": _other,
}


def cases_of(groups: Sequence[str]) -> Iterator[tuple[str, list[Case]]]:
    """Groups with their models; one whose library is missing is left out with a line that says so."""
    for group in groups:
        try:
            yield group, list(GROUPS[group]())
        except ImportError as error:
            print(f"{group} is left out: {error}", file=sys.stderr)


@dataclass
class Row:
    """What became of one model."""

    name: str
    graph: Graph | None
    tensors: int
    seconds: float
    equal: bool
    error: str = ""


def examine(name: str, build: Callable[[], nn.Module], example: Any) -> Row:
    """Make the graph twice and count."""
    model = build()
    names = [key for key, _ in model.named_parameters()]
    start = time.process_time()
    keywords = dict(example) if isinstance(example, dict) else None
    try:
        graph = graph_of(model, () if keywords else example, kwargs=keywords)
    except Exception as error:
        return Row(name, None, len(names), time.process_time() - start, False, f"{type(error).__name__}: {error}")
    seconds = time.process_time() - start
    again = graph_of(model, () if keywords else example, kwargs=keywords)
    if sorted([*graph.parameters, *graph.unplaced]) != sorted(names):
        return Row(name, graph, len(names), seconds, False, "parameters are not accounted for")
    return Row(name, graph, len(names), seconds, again == graph and again.key == graph.key)


def table(groups: dict[str, list[Row]], models: bool) -> str:
    """Rows as Markdown."""
    lines = ["| group | models | run | tensors | placed | listed | equal | real run | median CPU s |", "|---" * 9 + "|"]
    for group, rows in groups.items():
        graphs = [row.graph for row in rows if row.graph]
        placed, listed = sum(len(g.parameters) for g in graphs), sum(len(g.unplaced) for g in graphs)
        lines.append(
            f"| {group} | {len(rows)} | {len(graphs)} | {sum(row.tensors for row in rows)} | {placed} | {listed} "
            f"| {sum(row.equal for row in rows)} | {sum(g.method == 'real' for g in graphs)} "
            f"| {statistics.median(row.seconds for row in rows):.3f} |"
        )
    if models:
        lines += ["", "| model | how | nodes | edges | attention | gates | sums | listed | CPU s |", "|---" * 9 + "|"]
        for row in (row for rows in groups.values() for row in rows):
            if row.graph is None:
                lines.append(f"| {row.name} | failed: {row.error[:200]} | | | | | | | {row.seconds:.3f} |")
                continue
            g = row.graph
            listed = "; ".join(sorted({f"{len(g.unplaced)}: {reason}" for reason in g.unplaced.values()}))
            lines.append(
                f"| {row.name} | {g.method} | {len(g.nodes)} | {len(g.edges)} | {g.count('msa')} | {g.count('cse')} "
                f"| {g.count('sum')} | {listed} | {row.seconds:.3f} |"
            )
    return "\n".join(lines)


def main() -> int:
    """Run the groups that are asked for and write the table; 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(GROUPS), default=list(GROUPS))
    parser.add_argument("--models", action="store_true", help="a row for every model, too")
    parser.add_argument("--out", type=Path, help="write the table here as well")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    groups: dict[str, list[Row]] = {}
    for group, cases in cases_of(options.only):
        groups[group] = []
        for case in cases:
            row = examine(*case)
            groups[group].append(row)
            if row.error or not row.equal:
                print(f"{group} {row.name}: {row.error or 'two graphs differ'}", file=sys.stderr)
    text = table(groups, options.models)
    print(text)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")
    return int(any(row.error or not row.equal for rows in groups.values() for row in rows))


if __name__ == "__main__":
    sys.exit(main())
