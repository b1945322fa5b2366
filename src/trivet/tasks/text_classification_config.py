"""Options of the task text-classification. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from trivet.core.errors import MissingDataError, Problem, TrivetError
from trivet.tasks.task_config import TaskConfig, said

if TYPE_CHECKING:
    from trivet.models.encoder_files import EncoderFiles
    from trivet.tasks.config import RunConfig
    from trivet.tasks.data.documents import Documents

MAX_TOKENS = 1_000_000
"""Longest input; more is a slip of the pen."""

DEFAULT_TOKENS = 128
"""Longest input unless said otherwise, as published for fine-tuning."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TextClassificationConfig(TaskConfig):
    """The `task` section of a run that fine-tunes a text encoder to classify texts or pairs of texts.

    Examples:
        >>> TextClassificationConfig(data="mnli", model="bert", text_column="premise", pair_column="hypothesis").pooling
        'head'
    """

    reported: ClassVar[tuple[str, ...]] = ("test_accuracy", "test_loss", "valid_accuracy", "valid_loss", "train_loss")

    name: Literal["", "text-classification"] = ""
    """text-classification."""
    data: str = ""
    """Path of a .csv, .tsv, .jsonl or .json file, or of a folder with train.csv and test.csv; a relative one is looked
    for here and then in the data roots."""
    model: str = ""
    """Folder of a Hugging Face encoder, or `package:NAME/PATH` for one inside an installed package."""
    text_column: str = "text"
    """Column of the text, or of the first of a pair."""
    pair_column: str = ""
    """Column of the second text of a pair; empty where texts are single."""
    label_column: str = "label"
    """Column of the class."""
    max_length: int = 0
    """Tokens after which a text is cut; 0 takes the longest of training, at most 128 and what the model takes."""
    pooling: Literal["head", "mean"] = "head"
    """`head`: the library's own classifier, as published; `mean`: a linear one on the mean over the tokens."""
    layers: int = 0
    """Use the first so many layers of the encoder; 0 uses all."""
    pretrained: bool = True
    """Whether training starts from the folder's weights; otherwise from random ones."""
    train_embeddings: bool = True
    """Whether the tables of embeddings are trained too; they are half of a small encoder's parameters."""
    train_examples: int = 0
    """Training examples used, the same ones for every seed; 0 uses all."""
    held_out_examples: int = 0
    """Examples of the validation and of the test part used, each; the same ones for every seed; 0 uses all."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", "text-classification")
        if not self.data:
            raise ValueError("`data` is missing; give the path of a file or folder, such as `data: reviews.csv`")
        if not self.model:
            raise ValueError("`model` is missing; give the folder of an encoder, such as `model: bert-base-uncased`")
        if not self.text_column or not self.label_column:
            raise ValueError("`text_column` and `label_column` must name a column; such as text and label")
        given = [name for name in (self.text_column, self.pair_column, self.label_column) if name]
        if len(set(given)) < len(given):
            raise ValueError(f"`text_column`, `pair_column`, `label_column` must differ; found {', '.join(given)}")
        if self.max_length and not 4 <= self.max_length <= MAX_TOKENS:
            raise ValueError(f"`max_length={self.max_length}` must lie in [4, {MAX_TOKENS}]; 0 takes it from the data")
        for name in ("layers", "train_examples", "held_out_examples"):
            if getattr(self, name) < 0:
                raise ValueError(f"`{name}={getattr(self, name)}` must be ≥ 0; 0 uses all")

    def problems(self, run: RunConfig, file: str) -> list[Problem]:
        """Documents or an encoder that cannot be used, sizes that do not fit; the documents are read for it.

        See `TaskConfig.problems`.
        """
        from trivet.models.encoder_files import check_text_library

        check_text_library()
        found: list[Problem] = []
        try:
            files = self.files()
            longest = files.max_length
            if 0 < files.layers < self.layers:
                allowed = f"at most {files.layers}, those of {self.model}; 0 uses all"
                found.append(Problem(file, "task.layers", str(self.layers), allowed, "lower it"))
            if 0 < longest < self.max_length:
                allowed = f"at most {longest}, what {self.model} takes; 0 takes it from the data"
                found.append(Problem(file, "task.max_length", str(self.max_length), allowed, "lower it"))
        except MissingDataError:
            raise
        except TrivetError as error:
            found.append(said(file, "task.model", repr(self.model), error))
        try:
            documents = self.load()
        except MissingDataError:
            raise
        except TrivetError as error:
            return [*found, said(file, "task.data", repr(self.data), error)]
        return [*found, *self._size_problems(len(documents.train.labels), run, file)]

    def _size_problems(self, available: int, run: RunConfig, file: str) -> list[Problem]:
        found: list[Problem] = []
        if self.train_examples > available:
            allowed = f"at most {available}, the texts of the training part; 0 uses all"
            found.append(Problem(file, "task.train_examples", str(self.train_examples), allowed, "lower it"))
        used = min(self.train_examples or available, available)
        if run.training is not None and run.training.batch_size > used:
            allowed = f"at most {used}, the number of training examples"
            found.append(Problem(file, "training.batch_size", str(run.training.batch_size), allowed, "lower it"))
        return found

    def files(self) -> EncoderFiles:
        """Find the encoder; see `trivet.models.encoder_files.find_encoder` for the errors."""
        from trivet.models.encoder_files import find_encoder
        from trivet.tasks.data.base import roots

        return find_encoder(self.model, tuple(roots(None)))

    def load(self) -> Documents:
        """Read the documents; see `trivet.tasks.data.documents.load_documents` for the errors."""
        from trivet.tasks.data.documents import load_documents

        return load_documents(self.data, text=self.text_column, pair=self.pair_column, label=self.label_column)
