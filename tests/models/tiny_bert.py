"""A folder with a BERT of 16 numbers a token and a tokenizer of whole words, made on the spot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

WORDS = ("good", "fine", "great", "bad", "poor", "awful", "film", "book", "the", "a", "is", "was", "not", "very")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
POSITIONS = 16


def make_tiny_bert(folder: Path, **changes: Any) -> Path:
    """Write it; `changes` are of its configuration."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing
    from transformers import BertConfig, BertModel

    vocabulary = {word: number for number, word in enumerate((*SPECIAL, *WORDS))}
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=POSITIONS,
        initializer_range=0.3,  # with the usual 0.02, a network as narrow as this one learns nothing for long
    )
    torch.manual_seed(0)
    BertModel(config).save_pretrained(folder)
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": POSITIONS}
    (folder / "tokenizer_config.json").write_text(json.dumps(names | kind))
    if changes:
        written = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(written | changes))
    return folder
