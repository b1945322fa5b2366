"""A Hugging Face text encoder with a classifier behind it, read from a folder; nothing is downloaded.

| pooling | logits |
|---|---|
| head | those of the library's own class for classification (for BERT: W tanh(P h₀ + p) + b of the first token) |
| mean | W dropout(mean of the last hidden states of all tokens but padding) + b |

Input: token numbers, attention mask and, where the model has them, segment numbers, as tensors [N, L]. The classifier
is new, drawn from torch's generator as the library does; everything else has the folder's weights, or is drawn too.

transformers is imported when the first model is made.

Not covered: weights in other forms than safetensors, code that comes with a model (trust_remote_code), adapters.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Generator, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from trivet.models.encoder_files import EncoderFiles, NoEncoderError, check_text_library

Pooling = Literal["head", "mean"]


class TextClassifier(nn.Module):
    """An encoder and a classifier.

    Examples:
        >>> from transformers import BertConfig, BertModel
        >>> config = BertConfig(vocab_size=9, hidden_size=4, num_hidden_layers=1, num_attention_heads=2)
        >>> model = TextClassifier(BertModel(config, add_pooling_layer=False), num_classes=3)
        >>> model(torch.ones(2, 5, dtype=torch.int64), torch.ones(2, 5, dtype=torch.int64)).shape
        torch.Size([2, 3])
    """

    def __init__(self, encoder: nn.Module, num_classes: int = 0) -> None:
        """Args: encoder: of transformers; num_classes: of a classifier on the mean, 0 where `encoder` has a head."""
        super().__init__()
        config: Any = encoder.config
        self.encoder = encoder
        self.has_segments = getattr(config, "type_vocab_size", 0) > 1
        self.dropout = nn.Dropout(_dropout(config))
        self.classifier: nn.Linear | None = None
        if num_classes:
            self.classifier = nn.Linear(config.hidden_size, num_classes)
            nn.init.normal_(self.classifier.weight, std=getattr(config, "initializer_range", 0.02))
            nn.init.zeros_(self.classifier.bias)

    def forward(self, tokens: Tensor, mask: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        """Logits [N, K] of token numbers [N, L]; `mask` is 1 at tokens and 0 at padding, None without padding."""
        given: dict[str, Tensor] = (
            {"input_ids": tokens} if mask is None else {"input_ids": tokens, "attention_mask": mask}
        )
        if segments is not None and self.has_segments:
            given["token_type_ids"] = segments
        found: Any = self.encoder(**given)
        if self.classifier is None:
            return found.logits
        weight = torch.ones_like(tokens) if mask is None else mask
        weight = weight[..., None].to(found.last_hidden_state.dtype)
        mean = (found.last_hidden_state * weight).sum(1) / weight.sum(1)
        return self.classifier(self.dropout(mean))


def load_text_classifier(
    files: EncoderFiles,
    num_classes: int,
    *,
    pooling: Pooling = "head",
    layers: int = 0,
    pretrained: bool = True,
    train_embeddings: bool = True,
) -> TextClassifier:
    """Build the model of a folder.

    Args:
        files: From `find_encoder`.
        num_classes: Classes that the new classifier tells apart.
        pooling: See the module.
        layers: Use the first so many layers; 0 for all.
        pretrained: Whether the folder's weights are read; otherwise all are drawn at random.
        train_embeddings: Whether the tables of embeddings are trained, or stay as they are.

    Raises:
        NoEncoderError: transformers cannot make an encoder of it, or it has fewer layers.
        MissingExtraError: transformers is not installed.
    """
    check_text_library()
    import transformers

    kind: Any = transformers.AutoModelForSequenceClassification if pooling == "head" else transformers.AutoModel
    with _quiet():
        try:
            config = transformers.AutoConfig.from_pretrained(files.path, local_files_only=True, num_labels=num_classes)
            available = getattr(config, "num_hidden_layers", 0)
            if layers > available:
                raise NoEncoderError(f"{files.path}: found {available} layers; allowed as `layers`: at most that")
            if layers:
                config.num_hidden_layers = layers
            if pretrained:
                encoder = kind.from_pretrained(
                    files.path, config=config, local_files_only=True, use_safetensors=True, dtype=torch.float32
                )
            else:
                encoder = kind.from_config(config, dtype=torch.float32)
        except (ValueError, KeyError, OSError, RuntimeError, ImportError) as error:
            raise NoEncoderError(f"{files.path}: transformers cannot make a {files.kind} encoder: {error}") from error
    if pooling == "mean" and getattr(encoder, "pooler", None) is not None:
        encoder.pooler = None  # never used, so it would be a layer that never runs
    model = TextClassifier(encoder, 0 if pooling == "head" else num_classes)
    if not train_embeddings:
        for module in model.modules():
            if isinstance(module, nn.Embedding):
                module.requires_grad_(False)
    return model.train()  # transformers hands out models in evaluation mode


def token_numbers(
    files: EncoderFiles, texts: Sequence[str], pairs: Sequence[str] = (), max_length: int = 0
) -> tuple[list[list[int]], list[list[int]]]:
    """Token numbers of every text, or pair of texts, with the marks the model expects around them.

    Args:
        files: From `find_encoder`.
        texts: Documents, or the first of each pair.
        pairs: The second of each pair; nothing where documents are single.
        max_length: Cut after so many tokens, of a pair from the longer text first; 0 cuts nothing.

    Returns:
        Numbers and segments (0, and 1 for the second of a pair) of each.

    Raises:
        NoEncoderError: The tokenizer cannot be read.
        MissingExtraError: transformers is not installed.
    """
    tokenizer = load_tokenizer(files)
    given = (list(texts), list(pairs)) if pairs else (list(texts),)
    with _quiet():  # it warns of texts that are longer than the model takes
        cut = {"truncation": True, "max_length": max_length} if max_length else {}
        found = tokenizer(*given, return_token_type_ids=True, return_attention_mask=False, **cut)
    return found["input_ids"], found["token_type_ids"]


def load_tokenizer(files: EncoderFiles) -> Any:
    """The tokenizer of a folder.

    Raises:
        NoEncoderError: It cannot be read.
        MissingExtraError: transformers is not installed.
    """
    check_text_library()
    from transformers import AutoTokenizer

    with _quiet():
        try:
            return AutoTokenizer.from_pretrained(files.path, local_files_only=True)
        except (ValueError, KeyError, OSError, RuntimeError, ImportError, TypeError) as error:
            raise NoEncoderError(f"{files.path}: the tokenizer cannot be read: {error}") from error


def _dropout(config: Any) -> float:
    names = ("classifier_dropout", "hidden_dropout_prob", "dropout")
    found = [getattr(config, name, None) for name in names]
    return next((float(value) for value in found if isinstance(value, (int, float))), 0.0)


@contextlib.contextmanager
def _quiet() -> Generator[None]:
    """Without the library's progress bars and its report that the classifier is new."""
    from transformers.utils import logging as library

    level, bars = library.get_verbosity(), library.is_progress_bar_enabled()
    library.set_verbosity(logging.ERROR)
    library.disable_progress_bar()
    try:
        yield
    finally:
        library.set_verbosity(level)
        if bars:
            library.enable_progress_bar()
