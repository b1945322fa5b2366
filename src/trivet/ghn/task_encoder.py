"""A hypernetwork that knows its task: a few labelled images become a state of the task and one of each class.

A small convolutional network φ looks at every image of the support set; with the images S_c of class c

    e_c = norm(mean of φ(x) over x in S_c)                 one embedding a class,
    t = g(mean of f(e_c) over c)                           one of the task, f and g of two layers.

t is added to the state of every node before the graph is encoded. The classifier's row and bias of class c are decoded
from the state of the classifier's node and e_c − mean e, with one decoder for all classes. So the order of the images
and of the classes does not matter to t, and classes in another order give the same rows in that order: that labels
could be permuted is no task of its own, and nothing has to be learned about it. Means over a set as in Zaheer et al.,
"Deep Sets" (2017); a class as the mean of its embedded images as in Snell, Swersky, Zemel, "Prototypical Networks"
(2017).

Not covered: labels other than classes, and images whose class is not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trivet.ghn.config import GHNConfig, Head
from trivet.ghn.targets import head_of

if TYPE_CHECKING:
    from trivet.graph.graph import Graph

Task = tuple[Tensor, Tensor]
"""Images as the network takes them, float [N, 1 or 3, H, W], and their labels 0, 1, …, int64 [N]."""

CHANNELS = (16, 32, 64)
"""Of the layers of φ; each halves height and width."""
SMALLEST = 8
"""Least height and width of an image."""


@dataclass(frozen=True, slots=True)
class TaskStates:
    """What a batch of graphs is told of its tasks."""

    nodes: Tensor
    """t of the task that each node's graph is for, [nodes, hid]."""
    owners: Tensor
    """Graph of each node, int64 [nodes]."""
    classes: tuple[Tensor, ...]
    """e_c of each graph's task, [classes, hid]."""

    def classes_of(self, nodes: Tensor) -> Tensor:
        """Class embeddings of the tasks of some nodes, whose numbers of classes are equal: [n, classes, hid]."""
        return torch.stack([self.classes[graph] for graph in self.owners[nodes].tolist()])


class TaskEncoder(nn.Module):
    """From support sets to states.

    Args:
        config: Of the hypernetwork.

    Examples:
        >>> encoder = TaskEncoder(GHNConfig(hid=8, task="set"))
        >>> states = encoder([(torch.rand(6, 1, 28, 28), torch.tensor([0, 1, 2, 0, 1, 2]))], counts=(4,))
        >>> states.nodes.shape, states.classes[0].shape
        (torch.Size([4, 8]), torch.Size([3, 8]))
    """

    def __init__(self, config: GHNConfig) -> None:
        super().__init__()
        d = config.hid
        layers: list[nn.Module] = []
        for before, after in zip((3, *CHANNELS), CHANNELS, strict=False):
            layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.GroupNorm(4, after), nn.ReLU()]
        self.look = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * CHANNELS[-1], d))
        self.norm = nn.LayerNorm(d)
        self.each = nn.Sequential(nn.Linear(d, 2 * d), nn.ReLU(), nn.Linear(2 * d, d))
        self.all = nn.Sequential(nn.Linear(d, 2 * d), nn.ReLU(), nn.Linear(2 * d, d))

    def forward(self, tasks: Sequence[Task], counts: Sequence[int]) -> TaskStates:
        """States of tasks that are for graphs of so many nodes, one task a graph."""
        classes = tuple(self._classes(tasks))
        states = self.all(torch.stack([self.each(own).mean(0) for own in classes]))
        owners = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts)).to(states.device)
        return TaskStates(states[owners], owners, classes)

    def _classes(self, tasks: Sequence[Task]) -> list[Tensor]:
        device = self.norm.weight.device
        images = [pixels.to(device, torch.float32).expand(-1, 3, -1, -1) for pixels, _ in tasks]
        if len({pixels.shape[1:] for pixels in images}) == 1:  # all in one go
            seen = list(self.look(torch.cat(images)).split([len(pixels) for pixels in images]))
        else:
            seen = [self.look(pixels) for pixels in images]
        return [self.norm(_means(found, labels.to(device))) for found, (_, labels) in zip(seen, tasks, strict=True)]


class ClassDecoder(nn.Module):
    """Rows and biases of a classifier, each from its node's state and the embedding of its class.

    With a straight way from the embedding to the row, as a class's mean is a good row where channels mean the same in
    every network (`anchor.py`).

    Args:
        config: Of the hypernetwork.

    Examples:
        >>> decoder = ClassDecoder(GHNConfig(hid=8, task="set", max_shape=(16, 16, 3, 3)))
        >>> state, classes = torch.rand(1, 8), torch.rand(1, 5, 8)
        >>> decoder.weights(state, classes, 12).shape, decoder.biases(state, classes).shape
        (torch.Size([1, 5, 12, 1, 1]), torch.Size([1, 5]))
    """

    def __init__(self, config: GHNConfig) -> None:
        super().__init__()
        d, wide = config.hid, 4 * config.hid
        self.state = nn.Linear(d, wide)
        self.kind = nn.Linear(d, wide, bias=False)
        self.hidden = nn.Linear(wide, wide)
        self.row = nn.Linear(wide, config.max_shape[1])
        self.straight = nn.Linear(d, config.max_shape[1], bias=False)
        self.bias = nn.Linear(wide, 1)

    def weights(self, x: Tensor, classes: Tensor, inputs: int) -> Tensor:
        """Weights [n, classes, inputs, 1, 1] from states [n, hid] and class embeddings [n, classes, hid]."""
        rows = self.row(self._features(x, classes)) + self.straight(_centered(classes))
        return rows[..., :inputs, None, None].contiguous()

    def biases(self, x: Tensor, classes: Tensor) -> Tensor:
        """Biases [n, classes], from the same of the bias's node."""
        return self.bias(self._features(x, classes)).squeeze(-1)

    def _features(self, x: Tensor, classes: Tensor) -> Tensor:
        mixed = F.relu(self.state(x).unsqueeze(1) + self.kind(_centered(classes)))
        return F.relu(self.hidden(mixed))


def check_tasks(config: GHNConfig, graphs: Sequence[Graph], head: Head, tasks: Sequence[Task] | None) -> None:
    """Refuse tasks that do not fit a hypernetwork or its graphs.

    Raises:
        ValueError: A task is missing, damaged, or given to a hypernetwork that knows none.

    Examples:
        >>> check_tasks(GHNConfig(task="set"), [], "predict", None)
        Traceback (most recent call last):
        ...
        ValueError: this hypernetwork predicts for a task; give `task=(images, labels)`, ...
    """
    if config.task == "none":
        if tasks is not None:
            raise ValueError("this hypernetwork was trained for one task and takes no other; leave `task` out")
        return
    if tasks is None:
        raise ValueError(
            "this hypernetwork predicts for a task; give `task=(images, labels)`, a few labelled images of each class"
        )
    if len(tasks) != len(graphs):
        raise ValueError(f"there are {len(graphs)} graphs and {len(tasks)} `tasks`; give one task for each graph")
    for graph, task in zip(graphs, tasks, strict=True):
        classes = count_classes(task)
        _check_input(graph, task[0])
        pair = head_of(graph)
        if pair and head == "predict" and graph.nodes[pair[0]].shape[0] != classes:
            weight = graph.nodes[pair[0]]
            raise ValueError(
                f"the classifier `{weight.parameters[0]}` has {weight.shape[0]} classes and the task {classes}; give "
                "images of as many classes, or `head='keep'` to leave the classifier as it is"
            )


def count_classes(task: Task) -> int:
    """Number of classes of a task, with everything checked that does not depend on a graph.

    Raises:
        ValueError: The images are no batch of gray or color images, or a class has none.

    Examples:
        >>> count_classes((torch.rand(4, 3, 32, 32), torch.tensor([0, 1, 1, 2])))
        3
    """
    images, labels = task
    shape = list(images.shape)
    if images.ndim != 4 or shape[1] not in (1, 3) or min(shape[2:]) < SMALLEST or not images.is_floating_point():
        raise ValueError(
            f"the images of the task are {images.dtype} {shape}; they must be floating-point numbers as the network "
            f"takes them, [N, 1 or 3, H, W] of at least {SMALLEST} × {SMALLEST} pixels"
        )
    if labels.shape != images.shape[:1] or labels.is_floating_point() or labels.is_complex():
        raise ValueError(
            f"the labels of the task are {labels.dtype} {list(labels.shape)}; they must be whole numbers, one for each "
            f"of the {shape[0]} images"
        )
    if not len(labels):
        raise ValueError("the task has no images; give a few of each class")
    present = torch.unique(labels).tolist()
    if present != list(range(len(present))):
        raise ValueError(f"the task's labels are {present}; they must be 0, 1, 2, … with an image of every class")
    if len(present) < 2:
        raise ValueError("the task has one class; give images of two or more")
    return len(present)


def _check_input(graph: Graph, images: Tensor) -> None:
    """The images must be of the size that the network was traced with, where that is known."""
    for node in (graph.nodes[index] for index in graph.inputs):
        if len(node.output) == 4 and node.output[1:] != tuple(images.shape[1:]):
            have, want = ("×".join(map(str, shape)) for shape in (images.shape[1:], node.output[1:]))
            raise ValueError(f"the images of the task are {have} and the network takes {want}; give them that size")


def _means(values: Tensor, labels: Tensor) -> Tensor:
    """Mean of the values [N, d] of each label: [classes, d]."""
    chosen = F.one_hot(labels.long()).to(values.dtype)
    return (chosen.T @ values) / chosen.sum(0).unsqueeze(1)


def _centered(classes: Tensor) -> Tensor:
    return classes - classes.mean(-2, keepdim=True)
