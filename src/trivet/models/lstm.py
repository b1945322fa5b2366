"""A word-level language model: embedding, LSTM layers, linear output.

    x_t = E[w_t];   h_t, c_t = LSTM(x_t, h_{t-1}, c_{t-1});   logits_t = W h_t + b

with dropout behind the embedding and behind every layer. It has the sizes and the initialisation of the usual
language model of the Penn Treebank: embedding and output uniform in ±0.1, biases of the output 0. On a CPU the LSTM
computes in float32 also under autocast, because torch has no bfloat16 kernel for it on many CPUs.

Not covered: dropout of weights or states, sampled and adaptive softmax.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

State = tuple[Tensor, Tensor]
"""Hidden and cell state of every layer, each [layers, batch, hidden]."""

INITIAL_RANGE = 0.1


class LSTMLanguageModel(nn.Module):
    """Predicts the next word from those before.

    Examples:
        >>> model = LSTMLanguageModel(100, hidden=8)
        >>> logits, state = model(torch.zeros(2, 5, dtype=torch.int64))
        >>> logits.shape, state[0].shape
        (torch.Size([2, 5, 100]), torch.Size([1, 2, 8]))
    """

    def __init__(
        self,
        vocabulary: int,
        *,
        hidden: int = 800,
        embedding: int = 0,
        layers: int = 1,
        dropout: float = 0.5,
        tied: bool = False,
    ) -> None:
        """Args: sizes; `embedding=0` is `hidden`; `dropout` in [0, 1); `tied`: output and embedding share weights.

        Raises:
            ValueError: A size below 1, a dropout outside [0, 1), or tied weights of different sizes.
        """
        super().__init__()
        embedding = embedding or hidden
        sizes = {"vocabulary": vocabulary, "hidden": hidden, "embedding": embedding, "layers": layers}
        for name, value in sizes.items():
            if value < 1:
                raise ValueError(f"`{name}={value}` must be ≥ 1")
        if not 0 <= dropout < 1:
            raise ValueError(f"`dropout={dropout}` must lie in [0, 1); 0 drops nothing")
        if tied and embedding != hidden:
            raise ValueError(f"`tied=True` needs `embedding={embedding}` equal to `hidden={hidden}`")
        self.dropout = nn.Dropout(dropout)
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden, layers, batch_first=True, dropout=dropout if layers > 1 else 0.0)
        self.output = nn.Linear(hidden, vocabulary)
        nn.init.uniform_(self.embedding.weight, -INITIAL_RANGE, INITIAL_RANGE)
        if tied:
            self.output.weight = self.embedding.weight
        else:
            nn.init.uniform_(self.output.weight, -INITIAL_RANGE, INITIAL_RANGE)
        nn.init.zeros_(self.output.bias)

    def forward(self, words: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Scores of the next word at every place, and the state behind the last one.

        Args:
            words: int64 [batch, length].
            state: What an earlier call has returned for the words before; zeros when left out.

        Returns:
            Logits [batch, length, vocabulary], and the state.
        """
        x = self.dropout(self.embedding(words))
        if x.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
            with torch.autocast("cpu", enabled=False):
                hidden, state = self.lstm(x.float(), state)
        else:
            hidden, state = self.lstm(x, state)
        return self.output(self.dropout(hidden)), state
