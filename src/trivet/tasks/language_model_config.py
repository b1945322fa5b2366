"""Options of the task language-model. Torch-free.

The defaults are the published setting: an LSTM of one layer, 800 cells and embeddings of 800, 35 words of back-
propagation, dropout 0.5 (code of arXiv 2403.02243).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from trivet.core.errors import MissingDataError, Problem, TrivetError
from trivet.tasks.task_config import TaskConfig, said

if TYPE_CHECKING:
    from trivet.tasks.config import RunConfig
    from trivet.tasks.data.text import TextData

MAX_HIDDEN = 16_384
MAX_LAYERS = 16
MAX_BPTT = 100_000
"""Largest sizes; more is a slip of the pen, or more memory than a machine has."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LanguageModelConfig(TaskConfig):
    """The `task` section of a run that learns to predict the next word of a text.

    Examples:
        >>> LanguageModelConfig(data="kjv.txt", hidden=200).embedding
        200
    """

    reported: ClassVar[tuple[str, ...]] = (
        "test_perplexity",
        "test_loss",
        "valid_perplexity",
        "valid_loss",
        "train_loss",
    )

    name: Literal["", "language-model"] = ""
    """language-model."""
    data: str = ""
    """Path of a text file, of a folder of .txt files, or of a folder with train.txt, valid.txt and test.txt; a relative
    one is looked for here and then in the data roots."""
    model: Literal["lstm"] = "lstm"
    """lstm, see `trivet.models.LSTMLanguageModel`."""
    hidden: int = 800
    """Cells of each LSTM layer."""
    embedding: int = 0
    """Numbers that stand for a word; 0 takes as many as `hidden`."""
    layers: int = 1
    """LSTM layers."""
    dropout: float = 0.5
    """Share of the numbers dropped behind the embedding and behind each layer in training."""
    tied: bool = False
    """Whether embedding and output share their weights; needs `embedding` equal to `hidden`."""
    bptt: int = 35
    """Words over which a step back-propagates; the state is carried on from step to step."""
    split_by: Literal["words", "spaces"] = "words"
    """How a line becomes words: lower-case `words` and marks of punctuation, or cut at `spaces` alone, for a text that
    is prepared already, such as PTB."""
    vocabulary: int = 0
    """Most words told apart, `<unk>` and `<eos>` included; 0 for no limit."""
    min_count: int = 1
    """Fewest occurrences in the training part of a word that is told apart."""
    train_tokens: int = 0
    """Words of the training part used, the first ones; 0 uses all."""
    held_out: float = 0.1
    """Share of the text for validation, and as much again for the test, where it is not split already; rounded to
    hundredths."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", "language-model")
        if not self.data:
            raise ValueError("`data` is missing; give the path of a text file or folder, such as `data: kjv.txt`")
        object.__setattr__(self, "embedding", self.embedding or self.hidden)
        _within("hidden", self.hidden, 1, MAX_HIDDEN, "200 is usual for a small text")
        _within("embedding", self.embedding, 1, MAX_HIDDEN, "0 takes as many as `hidden`")
        _within("layers", self.layers, 1, MAX_LAYERS, "1 or 2 are usual")
        _within("bptt", self.bptt, 1, MAX_BPTT, "35 is usual")
        _within("min_count", self.min_count, 1, 10**9, "1 keeps every word")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"`dropout={self.dropout}` must lie in [0, 1); 0 drops nothing")
        if not 0.01 <= self.held_out <= 0.4:
            raise ValueError(f"`held_out={self.held_out}` must lie in [0.01, 0.4]; 0.1 is usual")
        if self.vocabulary < 0 or self.vocabulary in (1, 2):
            raise ValueError(
                f"`vocabulary={self.vocabulary}` must be ≥ 3 (<unk>, <eos> and one word), or 0 for no limit; "
                "10000 is usual"
            )
        if self.train_tokens < 0:
            raise ValueError(f"`train_tokens={self.train_tokens}` must be ≥ 0; 0 uses all")
        if self.tied and self.embedding != self.hidden:
            raise ValueError(
                f"`tied=true` needs `embedding={self.embedding}` equal to `hidden={self.hidden}`; remove one of them"
            )

    def problems(self, run: RunConfig, file: str) -> list[Problem]:
        """Text that is missing, no text or too short; the text is read for it. See `TaskConfig.problems`."""
        try:
            text = self.load()
        except MissingDataError:
            raise
        except TrivetError as error:
            return [said(file, "task.data", repr(self.data), error)]
        if len(text.train) < self.train_tokens:
            allowed = f"at most {len(text.train)}, the words of the training part; 0 uses all"
            return [Problem(file, "task.train_tokens", str(self.train_tokens), allowed, "lower it")]
        batch = run.training.batch_size if run.training else 1
        return size_problems(len(text.train), batch, self.bptt, file)

    def load(self) -> TextData:
        """Read the text; see `trivet.tasks.data.text.load_text` for the errors."""
        from trivet.tasks.data.text import load_text

        return load_text(
            self.data,
            split_by=self.split_by,
            vocabulary=self.vocabulary,
            min_count=self.min_count,
            train_tokens=self.train_tokens,
            held_out=self.held_out,
        )


def size_problems(tokens: int, streams: int, bptt: int, file: str) -> list[Problem]:
    """A problem when the training part is too short for one step."""
    if tokens > streams * bptt:
        return []
    found = f"training.batch_size={streams} × task.bptt={bptt} = {streams * bptt:,} words a step"
    allowed = f"fewer than the {tokens:,} words of the training part"
    return [Problem(file, "task.bptt", found, allowed, "lower one of the two, or give a longer text")]


def _within(name: str, value: int, least: int, most: int, advice: str) -> None:
    if not least <= value <= most:
        raise ValueError(f"`{name}={value}` must lie in [{least}, {most}]; {advice}")
