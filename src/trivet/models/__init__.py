"""Models that trivet trains by name: residual networks, a small CNN, an LSTM, PredNet, an autoencoder, graph nets.

Importing this package, and checking a name, does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trivet.core.lazy import attach

if TYPE_CHECKING:
    from trivet.models.autoencoder import Autoencoder
    from trivet.models.build import build_model
    from trivet.models.graph_net import GraphNet
    from trivet.models.lstm import LSTMLanguageModel
    from trivet.models.names import check_model_name, model_names
    from trivet.models.prednet import PredNet
    from trivet.models.resnet import (
        ResNet,
        resnet8,
        resnet20,
        resnet32,
        resnet38,
        resnet56,
        resnet74,
        resnet110,
        resnet152,
    )
    from trivet.models.small_cnn import SmallCNN

__all__ = [
    "Autoencoder",
    "GraphNet",
    "LSTMLanguageModel",
    "PredNet",
    "ResNet",
    "SmallCNN",
    "build_model",
    "check_model_name",
    "model_names",
    "resnet8",
    "resnet20",
    "resnet32",
    "resnet38",
    "resnet56",
    "resnet74",
    "resnet110",
    "resnet152",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "Autoencoder": ".autoencoder",
        "GraphNet": ".graph_net",
        "LSTMLanguageModel": ".lstm",
        "PredNet": ".prednet",
        "ResNet": ".resnet",
        "SmallCNN": ".small_cnn",
        "build_model": ".build",
        "check_model_name": ".names",
        "model_names": ".names",
        "resnet8": ".resnet",
        "resnet20": ".resnet",
        "resnet32": ".resnet",
        "resnet38": ".resnet",
        "resnet56": ".resnet",
        "resnet74": ".resnet",
        "resnet110": ".resnet",
        "resnet152": ".resnet",
    },
)
