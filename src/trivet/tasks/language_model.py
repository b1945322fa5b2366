"""Language model: an LSTM learns to predict the next word of a text, by back-propagation through time.

The training part is cut into `batch_size` streams of equal length that are read side by side, `bptt` words a step; the
state is carried from step to step, without gradient, and starts at zero at every pass over the text. Words that
fill no whole step are left out, so that all steps cost the same. Loss: mean cross-entropy, in nats a word.

Metrics of the validation and the test part: `…_loss` (mean cross-entropy of *every* word, nats) and
`…_perplexity` = exp(loss), at the precision that the configuration declares. Both parts are read in ten streams; the
word before the first one of a stream is the text's, its state is zero.

At few bits, the LSTM's products and the output layer are quantized, the embedding is not, as published. The order of
the text is the same for every seed; seeds differ in initial parameters, dropout and the rounding of gradients.

Not covered: models other than the LSTM, several texts at once, sampling.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trivet.core.errors import ConfigError
from trivet.core.seeding import derive, seed_everything
from trivet.models.lstm import LSTMLanguageModel, State
from trivet.tasks.config import RunConfig
from trivet.tasks.initialize import initialize
from trivet.tasks.language_model_config import LanguageModelConfig, size_problems
from trivet.tasks.precision import RunPrecision
from trivet.tasks.task_config import options_of
from trivet.training.job import Job
from trivet.training.ranks import current, own_part

EVALUATION_STREAMS = 10
"""Streams of an evaluation; changes the figures a little, so it is fixed."""

END = 1
"""Number of `<eos>`, the word before the first one of a text."""

IGNORED = -100


def build_job(run: RunConfig, device: torch.device) -> Job:
    """Read the text, build the model, and say how to train and evaluate it.

    Args:
        run: A run of the task language-model.
        device: Where it trains.

    Raises:
        ConfigError: A step takes more words than the text has.
        MissingDataError: The text is not on this machine.
        UnusableDataError: It is no text.
    """
    task, training = options_of(run, LanguageModelConfig), run.training
    if training is None:
        raise ValueError("`training` is missing; give at least `steps`")
    text = task.load()
    problems = size_problems(len(text.train), training.batch_size, task.bptt, "")
    if problems:
        raise ConfigError(problems)
    streams = Streams(torch.from_numpy(text.train).long().to(device), training.batch_size, task.bptt)
    held_out = {
        name: torch.from_numpy(ids).long().to(device) for name, ids in (("test", text.test), ("valid", text.valid))
    }
    seed_everything(derive(run.seed, "init"))
    model, example = _model(task, len(text.vocabulary), device)
    initial = initialize(run, model, example)
    precision = RunPrecision(run, model, example, quantizes)
    seed_everything(derive(run.seed, "training"))
    carried = Carried()

    def loss(forward: nn.Module, step: int) -> Tensor:
        words, targets, first = streams.batch(step)
        words, targets = own_part(words, targets)
        logits, state = forward(words, None if first else carried.state)
        carried.keep(state)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def evaluate() -> Mapping[str, float]:
        with precision.evaluation():
            return _figures({name: mean_loss(model, words, task.bptt) for name, words in held_out.items()})

    steppers = {**precision.steppers, "state": carried}
    return Job(model=model, loss=loss, evaluate=evaluate, observe=precision.observe, steppers=steppers, extra=initial)


def quantizes(module: nn.Module, name: str) -> bool:
    """Which layers compute at few bits: all that multiply, also the output layer, but not the embedding."""
    return not isinstance(module, nn.Embedding)


def counted(run: RunConfig) -> tuple[nn.Module, Any]:
    """The model of a run and one example of its input, for counting multiply-accumulates."""
    task = options_of(run, LanguageModelConfig)
    return _model(task, len(task.load().vocabulary), torch.device("cpu"))


def _model(task: LanguageModelConfig, vocabulary: int, device: torch.device) -> tuple[LSTMLanguageModel, Tensor]:
    model = LSTMLanguageModel(
        vocabulary,
        hidden=task.hidden,
        embedding=task.embedding,
        layers=task.layers,
        dropout=task.dropout,
        tied=task.tied,
    )
    return model.to(device), torch.zeros(1, task.bptt, dtype=torch.int64, device=device)


class Streams:
    """A text as streams side by side, cut into steps.

    Examples:
        >>> streams = Streams(torch.arange(14), 2, 3)
        >>> streams.per_pass, streams.batch(1)[0].tolist(), streams.batch(1)[1].tolist()
        (2, [[3, 4, 5], [9, 10, 11]], [[4, 5, 6], [10, 11, 12]])
    """

    def __init__(self, words: Tensor, count: int, bptt: int) -> None:
        """Args: words: int64 [N], N > count × bptt; count: of the streams; bptt: words of a stream a step."""
        length = (len(words) - 1) // count
        self.per_pass = length // bptt
        if self.per_pass < 1:
            raise ValueError(f"{len(words)} words are too few for a step of {count} × {bptt}; allowed: more than that")
        self.bptt = bptt
        length = self.per_pass * bptt
        self.words = words[: count * length].view(count, length)
        self.targets = words[1 : count * length + 1].view(count, length)

    def batch(self, step: int) -> tuple[Tensor, Tensor, bool]:
        """Words and next words of a step, each int64 [count, bptt], and whether it begins a pass over the text."""
        place = step % self.per_pass
        part = slice(place * self.bptt, (place + 1) * self.bptt)
        return self.words[:, part], self.targets[:, part], place == 0


class Carried:
    """The state that a step leaves to the next one; part of every checkpoint.

    Examples:
        >>> carried = Carried()
        >>> carried.state_dict()
        {'state': None}
    """

    def __init__(self) -> None:
        self.state: State | None = None

    def keep(self, state: State) -> None:
        """Keep a state without its gradient."""
        self.state = (state[0].detach(), state[1].detach())

    def step(self) -> None:
        """Nothing to do: the loss has kept the state."""

    def state_dict(self) -> dict[str, Any]:
        """Both tensors, of the streams of all processes, or None."""
        return {"state": None if self.state is None else [current().whole(part, 1) for part in self.state]}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Take back what `state_dict` gave."""
        found = state["state"]
        self.state = None if found is None else (current().part(found[0], 1), current().part(found[1], 1))


def mean_loss(model: nn.Module, words: Tensor, bptt: int, streams: int = EVALUATION_STREAMS) -> float:
    """Mean cross-entropy of every word of a text, in nats.

    Args:
        model: `model(words, state)` → logits and state; in evaluation mode.
        words: int64 [N].
        bptt: Words of a stream at a time; changes the last bits alone.
        streams: Read side by side; fewer where the text is shorter.

    Examples:
        >>> round(mean_loss(LSTMLanguageModel(5, hidden=2, dropout=0.0), torch.tensor([2, 3, 4]), 2), 1)
        1.6
    """
    count = min(streams, len(words))
    length = -(-len(words) // count)
    rest = count * length - len(words)
    before = torch.cat((words.new_full((1,), END), words[:-1], words.new_full((rest,), END))).view(count, length)
    targets = torch.cat((words, words.new_full((rest,), IGNORED))).view(count, length)
    total = torch.zeros((), dtype=torch.float64, device=words.device)
    state = None
    for start in range(0, length, bptt):
        part = slice(start, start + bptt)
        logits, state = model(before[:, part], state)
        wanted = targets[:, part].flatten()
        losses = F.cross_entropy(logits.flatten(0, 1).float(), wanted, ignore_index=IGNORED, reduction="none")
        total += losses.double().sum()
    return total.item() / len(words)


def _figures(losses: Mapping[str, float]) -> dict[str, float]:
    figures: dict[str, float] = {}
    for name, loss in losses.items():
        figures[f"{name}_perplexity"] = math.exp(loss) if loss < 700 else math.inf
        figures[f"{name}_loss"] = loss
    return figures
