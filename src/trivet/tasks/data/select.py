"""Choosing examples without a random generator: by the SHA-256 of their position.

A generator's stream may change between library versions; a hash does not, so a selection made this way can be made
again anywhere. Not for anything that should differ between seeds of a study.
"""

from __future__ import annotations

import hashlib

import numpy as np


def hash_ranked(members: np.ndarray, salt: str) -> np.ndarray:
    """The same positions, ordered by the SHA-256 of the text `salt/position`.

    Args:
        members: Whole numbers [N].
        salt: Text that makes selections for different purposes independent.

    Examples:
        >>> hash_ranked(np.array([0, 1, 2, 3]), "2017/train").tolist()
        [1, 0, 3, 2]
    """
    ranked = sorted(members.tolist(), key=lambda index: hashlib.sha256(f"{salt}/{index}".encode()).digest())
    return np.array(ranked, np.int64)


def split_by_class(labels: np.ndarray, *, test_share: float, salt: str) -> tuple[np.ndarray, np.ndarray]:
    """Positions of a train and a test part with the same share of every class, each in ascending order.

    Args:
        labels: Class of each example [N].
        test_share: Part of each class that becomes test, rounded to whole examples.
        salt: See `hash_ranked`.

    Examples:
        >>> train, test = split_by_class(np.repeat([0, 1], 10), test_share=0.2, salt="x")
        >>> len(train), len(test)
        (16, 4)
    """
    train: list[np.ndarray] = []
    test: list[np.ndarray] = []
    for label in np.unique(labels):
        ranked = hash_ranked(np.flatnonzero(labels == label), salt)
        cut = round(test_share * len(ranked))
        test.append(ranked[:cut])
        train.append(ranked[cut:])
    return np.sort(np.concatenate(train)), np.sort(np.concatenate(test))
