"""A made-up graph inside the package, so that the graph task runs without any file: a stochastic block model.

    P(edge between i and j) = p_in if they have the same label, else p_out
    P(word w of node i)     = p_own if w is one of the words of i's class, else p_any

1,000 nodes in five classes, 200 words, as in a small network of citations. The numbers come from numpy's `RandomState`,
whose stream is frozen, so the graph is the same everywhere. Twenty nodes of each class are learned from, 200 nodes
are for validation, 500 for the test. Neither words nor edges alone tell much of a node's class.

Not covered: other sizes; a graph of your own goes into an `.npz` file.
"""

from __future__ import annotations

from typing import Any

import numpy as np

NODES, CLASSES, WORDS = 1000, 5, 200
P_IN, P_OUT = 0.016, 0.0014
P_OWN, P_ANY = 0.09, 0.03
TRAIN_A_CLASS, VALID, TEST = 20, 200, 500


def sbm_graph(seed: int = 0) -> dict[str, Any]:
    """The graph as arguments of `checked_graph`.

    Args:
        seed: Another one gives another graph of the same kind.

    Examples:
        >>> graph = sbm_graph()
        >>> graph["features"].shape, int((graph["labels"] == 0).sum())
        ((1000, 200), 200)
    """
    random = np.random.RandomState(seed)
    labels = np.arange(NODES) % CLASSES
    same = labels[:, None] == labels[None, :]
    upper = np.triu(random.random_sample((NODES, NODES)) < np.where(same, P_IN, P_OUT), 1)
    own = labels[:, None] == np.arange(WORDS)[None, :] % CLASSES
    features = (random.random_sample((NODES, WORDS)) < np.where(own, P_OWN, P_ANY)).astype(np.float32)
    learned = TRAIN_A_CLASS * CLASSES
    return {
        "features": features,
        "edges": np.stack(np.nonzero(upper)),
        "labels": labels,
        "parts": {
            "train": np.arange(learned),
            "valid": np.arange(learned, learned + VALID),
            "test": np.arange(NODES - TEST, NODES),
        },
    }
