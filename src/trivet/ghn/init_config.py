"""The `init` section of a run: what a model's parameters are before it is trained. Torch-free.

Not covered: initial parameters from a checkpoint of the user's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

from trivet.core.errors import unknown_name
from trivet.core.tensorfile import check_tensor_file
from trivet.ghn.config import Head
from trivet.ghn.folder import WEIGHTS, find_folder, read_config, weights_digest

Method = Literal["default", "orthogonal", "tiled", "anchor", "orthogonalized"]
_NEED_GHN = ("tiled", "anchor", "orthogonalized")


@dataclass(frozen=True, kw_only=True, slots=True)
class InitConfig:
    """Where initial parameters come from. Empty: the model's own random initialization.

    Examples:
        >>> InitConfig().is_random
        True
        >>> InitConfig(head="keep")
        Traceback (most recent call last):
        ...
        ValueError: `head=keep` has no effect without a `ghn`; name one, or remove it
    """

    ghn: str = ""
    """Hypernetwork that predicts them: the name of one that comes with the package, or a folder."""
    head: Head = "predict"
    """The classifier: `predict` it (as many classes as the hypernetwork knows), `resize` or `keep` (random)."""

    method: Method = "default"
    """`default`: what the hypernetwork predicts, or the model's own random values without one. `orthogonal`: orthogonal
    weights, without a hypernetwork. With one, what its prediction is compared with: `tiled` (random values, repeated
    and sized as predicted), `anchor` (its anchors alone); and `orthogonalized`: the prediction, made orthogonal."""
    digest: str = ""
    """Which weights it has, as `weights_digest` gives it. Studies fill it in: a hypernetwork that was trained on under
    the same name is another arm, and never half of one. Empty takes what is there."""

    def __post_init__(self) -> None:
        if self.head not in get_args(Head):
            raise ValueError(unknown_name("head", str(self.head), get_args(Head)))
        if self.method not in get_args(Method):
            raise ValueError(unknown_name("method", str(self.method), get_args(Method)))
        if self.method in _NEED_GHN and not self.ghn:
            raise ValueError(f"`method={self.method}` needs a `ghn`, whose prediction it starts from; name one")
        if self.method == "orthogonal" and self.ghn:
            raise ValueError(
                f"`method=orthogonal` uses no hypernetwork and `ghn={self.ghn}` is named; remove it, or use "
                "`method: orthogonalized`"
            )
        if self.digest and not self.ghn:
            raise ValueError(f"`digest={self.digest}` has no effect without a `ghn`; name one, or remove it")
        if self.head != "predict" and not self.ghn:
            raise ValueError(f"`head={self.head}` has no effect without a `ghn`; name one, or remove it")

    @property
    def is_random(self) -> bool:
        """Whether the model keeps its own random initialization."""
        return not self.ghn and self.method == "default"

    def pinned(self) -> InitConfig:
        """The same with the digest of the weights that are there now; as it is where there are none to be found.

        Examples:
            >>> InitConfig().pinned() == InitConfig()
            True
        """
        if not self.ghn or self.digest:
            return self
        try:
            return replace(self, digest=weights_digest(find_folder(self.ghn)))
        except ValueError:  # `check` says so
            return self

    def check(self, *, num_classes: int = 0) -> None:
        """Refuse a hypernetwork that is not there, is damaged, or knows another number of classes.

        Args:
            num_classes: Classes of the data; 0 if that is not known yet.

        Raises:
            ValueError: What is wrong, and what can be done.
        """
        if not self.ghn:
            return
        folder = find_folder(self.ghn)
        known = read_config(folder).num_classes
        found = weights_digest(folder)
        if self.digest and self.digest != found:
            raise ValueError(
                f"the hypernetwork {self.ghn!r} has other weights now ({found}) than this run was planned with "
                f"({self.digest}); put them back, or plan the study again"
            )
        check_tensor_file(folder / WEIGHTS)
        if self.head == "predict" and num_classes and known != num_classes:
            raise ValueError(
                f"the hypernetwork {self.ghn!r} predicts classifiers of {known} classes and the data have "
                f"{num_classes}; add `head: resize` to decode the classifier like any other layer, or `head: keep` to "
                "leave it random"
            )
