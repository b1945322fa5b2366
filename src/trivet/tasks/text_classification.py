"""Text classification: a pretrained encoder is fine-tuned to tell the classes of texts, or of pairs of texts.

Texts are cut into tokens once, before training. A batch is as long as its longest text, and texts of like length share
one (`text_batches.py`). Loss: mean cross-entropy. Metrics of the validation and the test part, at the precision that
the configuration declares: `…_accuracy` (share that is right) and `…_loss` (mean cross-entropy).

At few bits, everything that multiplies is quantized, the classifier too, and both products of attention, as published;
embeddings, norms and softmax stay in full precision. Ranges are those of whole batches, padding included.

Seeds differ in the new classifier's parameters, the order of the texts, dropout and the rounding of gradients; the
encoder's own parameters are the folder's, unless `pretrained: false`.

Not covered: several labels a text, grades, text larger than memory, encoders of two towers.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trivet.core.errors import ConfigError
from trivet.core.seeding import derive, seed_everything
from trivet.models.encoder_files import EncoderFiles
from trivet.models.text_encoder import TextClassifier, load_text_classifier, load_tokenizer, token_numbers
from trivet.precision.bitops import LayerCost
from trivet.precision.cost import layer_macs
from trivet.tasks.config import RunConfig
from trivet.tasks.data.documents import Documents, Part, subset
from trivet.tasks.initialize import initialize
from trivet.tasks.precision import RunPrecision
from trivet.tasks.task_config import options_of
from trivet.tasks.text_batches import Batch, LengthBuckets, VaryingCost, padded
from trivet.tasks.text_classification_config import DEFAULT_TOKENS, TextClassificationConfig
from trivet.training.job import Job
from trivet.training.ranks import own_part

logger = logging.getLogger(__name__)

EVALUATION_BATCH = 100
"""Texts evaluated at a time, in the order of their lengths; changes the last bits of losses, so it is fixed."""


def import_libraries() -> None:
    """What the warm server calls before the first run of this task is forked."""
    import transformers

    for name in ("AutoModel", "AutoModelForSequenceClassification", "AutoTokenizer"):
        getattr(transformers, name)


def build_job(run: RunConfig, device: torch.device) -> Job:
    """Read the texts and the encoder, and say how to train and evaluate it.

    Args:
        run: A run of the task text-classification.
        device: Where it trains.

    Raises:
        ConfigError: Sizes do not fit.
        MissingDataError: Texts or encoder are not on this machine.
        UnusableDataError: The texts cannot be used.
        NoEncoderError: The encoder cannot.
        MissingExtraError: transformers is not installed.
    """
    task, training = options_of(run, TextClassificationConfig), run.training
    if training is None:
        raise ValueError("`training` is missing; give at least `steps`")
    problems = task.problems(run, "")
    if problems:
        raise ConfigError(problems)
    documents, files = task.load(), task.files()
    logger.info("documents %s", documents.describe())
    texts = Texts(task, files, documents)
    seed_everything(derive(run.seed, "init"))
    model = _model(task, files, documents).to(device)
    buckets = LengthBuckets(texts.lengths("train"), batch_size=training.batch_size, seed=derive(run.seed, "batches"))
    example = tuple(tensor.to(device) for tensor in _example(buckets.length(0)))
    initial = initialize(run, model, example)
    precision = RunPrecision(run, model, example, quantizes)
    cost = VaryingCost(
        functools.partial(_layers, model, device), buckets.length, precision.schedule, precision.grad_bits,
        training.batch_size,
    )  # fmt: skip
    seed_everything(derive(run.seed, "training"))

    def loss(forward: nn.Module, step: int) -> Tensor:
        chosen = buckets.indices(step)
        *inputs, labels = own_part(*texts.batch("train", chosen.tolist()), texts.labels["train"][chosen])
        logits = forward(*(tensor.to(device) for tensor in inputs))
        return F.cross_entropy(logits.float(), labels.to(device))

    def evaluate() -> Mapping[str, float]:
        with precision.evaluation():
            found: dict[str, float] = {}
            for part in ("test", "valid"):
                found |= {f"{part}_{name}": value for name, value in texts.figures(model, part, device).items()}
            return found

    def observe(step: int) -> Mapping[str, float]:
        return {**precision.observe(step), "bitops": cost(step)}

    return Job(model=model, loss=loss, evaluate=evaluate, observe=observe, steppers=precision.steppers, extra=initial)


def quantizes(module: nn.Module, name: str) -> bool:
    """Which layers compute at few bits: all that multiply, also the classifier, but no embedding."""
    return not isinstance(module, nn.Embedding)


def counted(run: RunConfig) -> tuple[nn.Module, Any]:
    """The model of a run and one text of the mean length of its batches, for counting multiply-accumulates.

    A run itself counts every batch at its own length.
    """
    task, training = options_of(run, TextClassificationConfig), run.training
    documents, files = task.load(), task.files()
    lengths = Texts(task, files, documents, parts=("train",)).lengths("train")
    batch, steps = (training.batch_size, min(training.steps, 1_000)) if training else (1, 1)
    buckets = LengthBuckets(lengths, batch_size=min(batch, len(lengths)), seed=derive(run.seed, "batches"))
    mean = sum(buckets.length(step) for step in range(steps)) / steps
    return _model(task, files, documents), _example(round(mean))


def _model(task: TextClassificationConfig, files: EncoderFiles, documents: Documents) -> TextClassifier:
    return load_text_classifier(
        files,
        len(documents.classes),
        pooling=task.pooling,
        layers=task.layers,
        pretrained=task.pretrained,
        train_embeddings=task.train_embeddings,
    )


def _example(length: int) -> Batch:
    """One text of so many tokens."""
    ones = torch.ones(1, length, dtype=torch.int64)
    return ones, ones, torch.zeros_like(ones)


def _layers(model: nn.Module, device: torch.device, length: int) -> Sequence[LayerCost]:
    return layer_macs(model, _example(length)[0].to(device))


class Texts:
    """The documents of a run as token numbers."""

    def __init__(
        self,
        task: TextClassificationConfig,
        files: EncoderFiles,
        documents: Documents,
        parts: Sequence[str] = ("train", "valid", "test"),
    ) -> None:
        """Args: task: the options; files: of the encoder; documents: all; parts: those that are wanted."""
        chosen = {part: self._subset(task, part, getattr(documents, part)) for part in parts}
        self.labels = {part: torch.from_numpy(found.labels) for part, found in chosen.items()}
        numbers = {part: token_numbers(files, found.texts, found.pairs) for part, found in chosen.items()}
        longest = max(map(len, numbers["train"][0]))
        limits = (task.max_length, files.max_length) if task.max_length else (longest, DEFAULT_TOKENS, files.max_length)
        self.max_length = min(limit for limit in limits if limit)
        for part, (tokens, _) in numbers.items():
            longer = sum(len(text) > self.max_length for text in tokens)
            if longer:
                logger.info("%s: %d of %d texts are cut to %d tokens", part, longer, len(tokens), self.max_length)
                found = chosen[part]
                numbers[part] = token_numbers(files, found.texts, found.pairs, self.max_length)
        self.numbers = numbers
        self.padding = load_tokenizer(files).pad_token_id or 0

    @staticmethod
    def _subset(task: TextClassificationConfig, part: str, found: Part) -> Part:
        count = task.train_examples if part == "train" else task.held_out_examples
        return subset(found, count, f"{part}_examples")

    def lengths(self, part: str) -> list[int]:
        """Tokens of each text."""
        return [len(text) for text in self.numbers[part][0]]

    def batch(self, part: str, chosen: Sequence[int]) -> Batch:
        """Some texts of a part, padded to the longest of them."""
        tokens, segments = self.numbers[part]
        return padded([tokens[i] for i in chosen], [segments[i] for i in chosen], self.padding)

    def figures(self, model: nn.Module, part: str, device: torch.device) -> dict[str, float]:
        """Accuracy and mean cross-entropy of a part."""
        labels = self.labels[part]
        order = torch.tensor(self.lengths(part)).argsort(stable=True)
        right = torch.zeros((), dtype=torch.int64, device=device)
        total = torch.zeros((), dtype=torch.float64, device=device)
        for chosen in order.split(EVALUATION_BATCH):
            logits = model(*(tensor.to(device) for tensor in self.batch(part, chosen.tolist()))).float()
            wanted = labels[chosen].to(device)
            right += (logits.argmax(1) == wanted).sum()
            total += F.cross_entropy(logits, wanted, reduction="none").double().sum()
        return {"accuracy": right.item() / len(labels), "loss": total.item() / len(labels)}
