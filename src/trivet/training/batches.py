"""Batches of a data set that fits in memory, drawn on the device, as a pure function of (seed, step).

Nothing here has state: the batch of step k is the same whether the run reached k in one go or was resumed there,
and the same on every device, because every random number is drawn by a generator on the CPU that is
seeded by what it is for. No worker processes, no data loader.

Not covered: augmentation other than shift and flip (crops of pictures in files: `trivet.tasks.data.crops`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from trivet.core.seeding import derive


def keyed_generator(seed: int, *names: str | int) -> torch.Generator:
    """A generator on the CPU whose numbers depend on the seed and the names alone.

    Examples:
        >>> draw = lambda: torch.rand(2, generator=keyed_generator(0, "a", 1))
        >>> torch.equal(draw(), draw())
        True
    """
    return torch.Generator().manual_seed(derive(seed, *names))


class BatchOrder:
    """Which examples each step takes: a new permutation an epoch, cut into batches of equal size.

    Step k takes positions [k·B, (k+1)·B) of the permutations of epochs 0, 1, 2 … laid end to end, so a batch may
    hold the end of one epoch and the start of the next, and every example is taken once an epoch.

    Examples:
        >>> order = BatchOrder(num_examples=5, batch_size=2, seed=0)
        >>> sorted(torch.cat([order.indices(0), order.indices(1), order.indices(2)[:1]]).tolist())
        [0, 1, 2, 3, 4]
    """

    def __init__(self, *, num_examples: int, batch_size: int, seed: int, device: torch.device | str = "cpu") -> None:
        """Args: num_examples, batch_size: sizes ≥ 1; seed: of the run; device: where the indices are wanted."""
        if num_examples < 1 or batch_size < 1:
            raise ValueError(f"`num_examples={num_examples}` and `batch_size={batch_size}` must be ≥ 1")
        self.num_examples = num_examples
        self.batch_size = batch_size
        self.seed = seed
        self.device = torch.device(device)
        self._kept: dict[int, Tensor] = {}

    def indices(self, step: int) -> Tensor:
        """Example numbers of one step, int64 [batch_size], on the device."""
        if step < 0:
            raise ValueError(f"`step={step}` must be ≥ 0")
        parts: list[Tensor] = []
        first = step * self.batch_size
        last = first + self.batch_size
        while first < last:
            epoch, offset = divmod(first, self.num_examples)
            taken = min(self.num_examples - offset, last - first)
            parts.append(self._permutation(epoch)[offset : offset + taken])
            first += taken
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _permutation(self, epoch: int) -> Tensor:
        if epoch not in self._kept:
            order = torch.randperm(self.num_examples, generator=keyed_generator(self.seed, "order", epoch))
            kept = {number: tensor for number, tensor in self._kept.items() if number >= epoch - 1}
            self._kept = {**kept, epoch: order.to(self.device)}
        return self._kept[epoch]


def augment(
    images: Tensor, *, shift: int, flip: bool, seed: int, step: int, part: tuple[int, int] | None = None
) -> Tensor:
    """Move each image by up to `shift` pixels in both directions and mirror about half of them.

    Pixels that come in from outside are 0.

    Args:
        images: [N, C, H, W], any type.
        shift: Largest movement in pixels, 0 for none; each offset of the (2·shift + 1)² is equally likely.
        flip: Mirror left to right with probability 1/2.
        seed: Seed of the run.
        step: Step the images are for.
        part: Of which larger batch these are a part, as (first, count): they are changed as they would be inside it.

    Returns:
        A tensor like `images`; `images` itself when nothing is asked for.

    Raises:
        ValueError: `shift` is negative.

    Examples:
        >>> images = torch.ones(2, 1, 4, 4)
        >>> augment(images, shift=1, flip=True, seed=0, step=3).shape
        torch.Size([2, 1, 4, 4])
    """
    if shift < 0:
        raise ValueError(f"`shift={shift}` must be ≥ 0; it counts pixels")
    if not shift and not flip:
        return images
    count, _, height, width = images.shape
    first, drawn = part or (0, count)
    generator = keyed_generator(seed, "augment", step)
    offsets = torch.randint(2 * shift + 1, (2, drawn), generator=generator)[:, first : first + count]
    mirrored = (torch.rand(drawn, generator=generator) < 0.5)[first : first + count]
    if shift:
        offsets = offsets.to(images.device)
        padded = torch.nn.functional.pad(images, (shift, shift, shift, shift))
        windows = padded.unfold(2, height, 1).unfold(3, width, 1)  # [N, C, 2s+1, 2s+1, H, W], a view
        images = windows[torch.arange(count, device=images.device), :, offsets[0], offsets[1]]
    if flip:
        images = torch.where(mirrored.to(images.device).view(-1, 1, 1, 1), images.flip(3), images)
    return images
