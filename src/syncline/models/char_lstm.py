"""A language model that reads and predicts one character at a time."""

from torch import Tensor, nn

State = tuple[Tensor, Tensor]  # hidden and cell, each [L, B, H]


class CharLstm(nn.Module):
    """Embedding, L layers of LSTM, linear: the logits of the next symbol after each symbol.

    Args:
        num_symbols: size V of the alphabet; 256 for bytes.
        embedding_size: length of a symbol's vector.
        hidden_size: units H of each LSTM layer.
        num_layers: L, >= 1.
        dropout: in [0, 1), on the L + 1 connections between layers, not between steps.

    Source: Chen et al. 2016 (backup workers), section 5, trains a character language model on the One Billion Word
    Benchmark: the pre-trained word model of Jozefowicz et al. 2016, its last layer replaced by a smaller LSTM that
    spells the next word (their section 5.5). Its authors published the word model with its softmax, not the form with
    the LSTM. Departure: this is a plain character LSTM, trained from scratch, that reads characters and predicts the
    next one. It also reads and predicts any word, so its word perplexity is comparable, but it is a far smaller model.
    Dropout: Zaremba et al. 2014, section 3.2. Forget gates start with bias 1: Jozefowicz et al. 2015, "An empirical
    exploration of recurrent network architectures".
    """

    def __init__(
        self, num_symbols: int, embedding_size: int, hidden_size: int, num_layers: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_symbols, embedding_size)
        self.dropout = nn.Dropout(dropout)
        # torch's LSTM applies dropout between layers only, and warns for a single layer.
        between = dropout if num_layers > 1 else 0.0
        self.lstm = nn.LSTM(embedding_size, hidden_size, num_layers, batch_first=True, dropout=between)
        self.linear = nn.Linear(hidden_size, num_symbols)
        forget = slice(hidden_size, 2 * hidden_size)  # torch's order of gates: input, forget, cell, output
        for name, parameter in self.lstm.named_parameters():
            # The sum of two biases counts: one starts with 1, the other with 0.
            if name.startswith("bias_ih"):
                nn.init.ones_(parameter.data[forget])
            elif name.startswith("bias_hh"):
                nn.init.zeros_(parameter.data[forget])

    def forward(self, symbols: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Symbols int64 [B, T] -> logits [B, T, V] and the state after the last; without a state it starts at zero."""
        out, state = self.lstm(self.dropout(self.embedding(symbols)), state)
        logits: Tensor = self.linear(self.dropout(out))
        return logits, state
