"""Tensors that changed between the forward pass that saved them and the backward pass that reads them.

Autograd keeps tensors of the forward pass and reads them again in backward. It notices when a torch operation has
changed one in between, by a version counter, and refuses. It cannot notice a write from outside: `torch.from_numpy`
shares memory with the array, and whoever fills that array with the next frame before `backward()` silently changes the
gradient, while every logged loss stays right. `alias` compares a checksum of each saved tensor (`saved_tensors_hooks`)
when it is saved and when it is read; memory that is not torch's own is copied and compared element by element.

Not covered: regions with saved-tensor hooks of their own (`save_on_cpu`, the inside of `checkpoint`), `torch.func`
transforms, which refuse such hooks, sparse and other unusual tensors (counted in `skipped`), writes that happen before
the tensor is saved, such as to pinned memory during a non-blocking copy.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from trivet.audit.checksum import Unreadable, checksum, flat_bytes
from trivet.audit.finding import Finding
from trivet.audit.leaves import tensor_difference
from trivet.audit.modules import ModuleStack, user_line
from trivet.audit.reference import shares_memory

COPY_LIMIT = 1 << 26
"""Bytes of the largest tensor in foreign memory that is copied; larger ones get a checksum."""
COPY_TOTAL = 1 << 30
"""Bytes that one audit copies in all; what comes later gets checksums."""

HOW = {
    "foreign": "a write from outside torch to memory that it shares (numpy, memory map, another process)",
    "own": "a write that autograd cannot see, through `.data` or an extension",
    "in-place": "an in-place operation of torch; without the audit backward() raises a RuntimeError",
}
ADVICE = {
    "foreign": "give each step memory of its own: torch.tensor(array) or torch.from_numpy(array).clone() in place of "
    "from_numpy(array), as_tensor(array) or asarray(array)",
    "own": "clone the tensor before it is written to, or write by an operation that autograd sees",
    "in-place": "use the operation's out-of-place form, or clone the tensor first",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class AliasFinding(Finding):
    """A saved tensor that backward read with other contents."""

    module: str
    """Path of the module that saved it, with its class; "" outside of all, where losses are."""
    operation: str
    """The operation that saved it, by autograd's name, such as `MseLossBackward0`."""
    role: str
    """What it is to that operation, such as `target`; "" where autograd does not say."""
    line: str
    """Line of the user's code, such as "train.py:31 in step"."""
    shape: tuple[int, ...]
    """Of the tensor."""
    dtype: str
    """Of the tensor, such as `float32`."""
    device: str
    """Where it is."""
    how: str
    """`foreign`: written from outside torch; `own`: unseen write to torch's memory; `in-place`: by an operation."""
    buffer: int
    """Number of its block of memory among those found, from 0: equal numbers are one and the same memory."""


class _Saved:
    """A saved tensor, and what it held."""

    __slots__ = ("checksum", "content", "foreign", "line", "module", "seen", "tensor", "version")

    def __init__(self, tensor: Tensor, module: str, allowance: int) -> None:
        # A tensor with a history must not be held by what is part of that history.
        self.tensor = tensor if tensor.is_leaf else tensor.detach()
        self.version = tensor._version
        self.module = module
        self.line = user_line()
        self.seen = False
        self.foreign = shares_memory(tensor)
        self.content: np.ndarray[Any, Any] | None = None
        self.checksum = 0
        size = tensor.numel() * tensor.element_size()
        if self.foreign and not tensor.requires_grad and size <= min(COPY_LIMIT, allowance):
            self.content = flat_bytes(tensor).numpy().copy()
        else:
            self.checksum = checksum(tensor)

    def changed(self) -> bool:
        """Whether the tensor holds anything else now."""
        if self.content is not None:
            return not np.array_equal(self.content, flat_bytes(self.tensor).numpy())
        return self.checksum != checksum(self.tensor)


class AliasAudit:
    """What `alias` returns: a context manager, and afterwards what it found.

    Attributes:
        findings: Saved tensors that had changed when backward read them, in the order of reading.
        saved: How many tensors were saved.
        checked: How many of them were read by backward and compared.
        skipped: Kind of tensor that could not be compared → how many.
    """

    def __init__(self, model: nn.Module | None = None) -> None:
        self.findings: list[AliasFinding] = []
        self.saved = 0
        self.checked = 0
        self.skipped: Counter[str] = Counter()
        self._stack = ModuleStack(model)
        self._hooks: Any = None
        self._copied = 0
        self._buffers: dict[int, int] = {}
        self._asked: list[_Saved] | None = None

    def __enter__(self) -> AliasAudit:
        if self._hooks is not None:
            raise RuntimeError("this audit is entered already; call audit.alias() again for another one")
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)
        self._stack.__enter__()
        self._hooks.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hooks.__exit__(kind, error, trace)
        self._stack.__exit__(kind, error, trace)
        self._hooks = None

    def _pack(self, tensor: Tensor) -> _Saved | Tensor:
        self.saved += 1
        try:
            saved = _Saved(tensor, self._stack.current, COPY_TOTAL - self._copied)
        except Unreadable as error:
            self.skipped[str(error)] += 1
            return tensor if tensor.is_leaf else tensor.detach()
        if saved.content is not None:
            self._copied += saved.content.nbytes
        return saved

    def _unpack(self, saved: _Saved | Tensor) -> Tensor:
        if not isinstance(saved, _Saved):
            return saved
        if self._asked is not None:  # `_role` wants to know which tensor an attribute stands for
            self._asked.append(saved)
            return saved.tensor
        self.checked += not saved.seen
        in_place = saved.tensor._version != saved.version
        if not saved.seen and (in_place or saved.changed()):
            self._report(saved, in_place)
        saved.seen = True
        return saved.tensor

    def _report(self, saved: _Saved, in_place: bool) -> None:
        node: Any = torch._C._current_autograd_node()
        operation = node.name() if node is not None else ""
        role = self._role(node, saved)
        if not in_place and _changed_by_itself(node, operation, role, saved):
            return
        tensor = saved.tensor
        how = "in-place" if in_place else "foreign" if saved.foreign else "own"
        place = saved.module or "outside any module"
        named = f"{place}, {role or 'a tensor'} of {_readable(operation)}"
        self.findings.append(
            AliasFinding(
                check="alias",
                what=f"a tensor changed between forward and backward by {HOW[how]}",
                where=f"{named}, saved at {saved.line}" if saved.line else named,
                size=_size(saved),
                advice=ADVICE[how],
                module=saved.module,
                operation=operation,
                role=role,
                line=saved.line,
                shape=tuple(tensor.shape),
                dtype=str(tensor.dtype).removeprefix("torch."),
                device=str(tensor.device),
                how=how,
                buffer=self._buffers.setdefault(tensor.untyped_storage().data_ptr(), len(self._buffers)),
            )
        )

    def _role(self, node: Any, saved: _Saved) -> str:
        """The attribute of the operation that is this tensor: reading one calls `_unpack` once more."""
        names = [name for name in dir(node) if name.startswith("_saved_")] if node is not None else []
        try:
            for name in names:
                self._asked = []
                try:
                    getattr(node, name)
                except RuntimeError:
                    continue
                if any(other is saved for other in self._asked):
                    return name.removeprefix("_saved_")
        finally:
            self._asked = None
        return ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON takes them."""
        return {
            "saved": self.saved,
            "checked": self.checked,
            "skipped": dict(self.skipped),
            "findings": [finding.to_dict() for finding in self.findings],
        }

    def __str__(self) -> str:
        skipped = "".join(f"; {count} not compared: {kind}" for kind, count in self.skipped.items())
        head = f"alias: {self.saved} tensors saved, {self.checked} read by backward and compared{skipped}"
        if not self.findings:
            nothing = "nothing was compared: both forward and backward() belong inside the block"
            return f"{head}; {'none changed' if self.checked else nothing}"
        groups: dict[tuple[Any, ...], list[AliasFinding]] = {}
        for found in self.findings:
            groups.setdefault((found.module, found.operation, found.role, found.line, found.how), []).append(found)
        parts = [f"{head}; {len(self.findings)} changed"]
        for same in groups.values():
            memory = len({found.buffer for found in same})
            blocks = f"{memory} block{'s' * (memory > 1)} of memory"
            first = same[0]
            kind = f"{first.dtype} {list(first.shape)}"
            parts.append(f"{first}\n  tensors: {len(same)} like this ({kind}) in {blocks}")
        return "\n".join(parts)


def alias(model: nn.Module | None = None) -> AliasAudit:
    """Find tensors that change between forward and backward, in any loop: put forward and backward in the block.

    The gradients are the same with and without it, but for one thing: where torch raises because of an in-place
    operation, the audit lists the tensor and goes on.

    Args:
        model: Its module paths are used in the findings; by default those of the outermost module that is called.

    Returns:
        The context manager; `findings` is empty where nothing changed.

    Examples:
        >>> import numpy as np
        >>> from trivet import audit
        >>> model, buffer, loss = nn.Linear(3, 1), np.zeros((1, 3), np.float32), 0.0
        >>> with audit.alias() as a:
        ...     for frame in range(4):
        ...         buffer[:] = frame
        ...         loss = loss + model(torch.from_numpy(buffer)).square().sum()
        ...     loss.backward()
        >>> [(found.module, found.role, found.shape, found.how, found.size) for found in a.findings][:1]
        [('Linear', 'mat1', (1, 3), 'foreign', '3 of 3 elements, relative L2 0.5')]
        >>> len(a.findings), {found.buffer for found in a.findings}
        (3, {0})
    """
    return AliasAudit(model)


def _changed_by_itself(node: Any, operation: str, role: str, saved: _Saved) -> bool:
    """Whether an operation changes what it has saved, rightly.

    Batch norm saves its running statistics, changes them, and in training never reads them; the noise of `rrelu` is
    saved before it is drawn (in place and on a view, autograd wraps the operation and does not name its tensors).
    """
    if operation.startswith("RreluWithNoise"):
        return role == "noise"
    if operation.endswith("CopySlices"):
        return "RReLU" in saved.module and not saved.foreign
    return role in ("running_mean", "running_var") and bool(getattr(node, "_saved_training", False))


def _size(saved: _Saved) -> str:
    """How much of a changed tensor changed, as far as that is known."""
    tensor = saved.tensor
    total = tensor.numel()
    if saved.content is None:
        amount = f"{total:,} elements, {total * tensor.element_size():,} bytes"
        return f"some of {amount} (a checksum does not say how many)"
    return tensor_difference(torch.from_numpy(saved.content).view(tensor.dtype), flat_bytes(tensor).view(tensor.dtype))


def _readable(operation: str) -> str:
    """The operation's name as in torch.

    Examples:
        >>> _readable("MseLossBackward0"), _readable("")
        ('mse_loss', 'an operation')
    """
    stem = re.sub(r"Backward\d*$", "", operation.rpartition("::")[2])
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", stem).lower() or "an operation"
