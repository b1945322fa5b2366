"""The order in which a tensor lies in memory, so that passes over it read forward and nothing is copied.

Not covered: layouts other than contiguous and channels_last; they work, slower.
"""

from __future__ import annotations

import torch


def in_memory_order(x: torch.Tensor) -> torch.Tensor:
    """A view with the dimensions in the order of memory: channels last, if the tensor is laid out so.

    Examples:
        >>> x = torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last)
        >>> in_memory_order(x).shape, in_memory_order(x).is_contiguous()
        (torch.Size([2, 4, 5, 3]), True)
    """
    return x.movedim(1, -1) if _channels_last(x) else x


def as_laid_out(flat: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A flat tensor as a view with the shape and the order in memory of another.

    Examples:
        >>> like = torch.zeros(1, 2, 1, 2).to(memory_format=torch.channels_last)
        >>> as_laid_out(torch.arange(4), like).tolist()
        [[[[0, 2]], [[1, 3]]]]
    """
    if not _channels_last(like):
        return flat.view(like.shape)
    moved = (like.shape[0], *like.shape[2:], like.shape[1])
    return flat.view(moved).movedim(-1, 1)


def convolves_channels_last(x: torch.Tensor, weight: torch.Tensor) -> bool:
    """Whether a two-dimensional convolution of torch gives its result in channels-last layout.

    It does where the input or the weight lies so. A tensor with one channel, or with one pixel, fits both layouts; its
    strides tell, as in torch.

    Examples:
        >>> x, weight = torch.zeros(2, 1, 8, 8), torch.zeros(4, 3, 3, 3)
        >>> convolves_channels_last(x, weight), convolves_channels_last(x, weight.to(memory_format=torch.channels_last))
        (False, True)
    """
    return any(_has_strides_of_channels_last(tensor) for tensor in (x, weight))


def _has_strides_of_channels_last(x: torch.Tensor) -> bool:
    if x.dim() != 4:
        return False
    _, channels, height, width = x.shape
    last = (channels * height * width, 1, channels * width, channels)
    return x.stride() == last != (channels * height * width, height * width, width, 1)


def _channels_last(x: torch.Tensor) -> bool:
    if x.is_contiguous():
        return False
    if x.dim() == 4:
        return x.is_contiguous(memory_format=torch.channels_last)
    return x.dim() == 5 and x.is_contiguous(memory_format=torch.channels_last_3d)
