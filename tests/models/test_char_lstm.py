"""The character language model: its inputs, initial weights and size."""

import pytest
import torch
from torch import nn

from syncline.models.char_lstm import CharLstm

NUM_SYMBOLS = 11


def network(num_layers: int = 2, dropout: float = 0.0) -> CharLstm:
    torch.manual_seed(0)
    return CharLstm(NUM_SYMBOLS, embedding_size=5, hidden_size=7, num_layers=num_layers, dropout=dropout)


def text(batch: int, length: int) -> torch.Tensor:
    return torch.randint(NUM_SYMBOLS, (batch, length), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("pieces", [[12], [5, 7], [1] * 12])
def test_piece_by_piece_with_the_state_is_one_long_pass(pieces: list[int]) -> None:
    lstm, symbols = network(), text(3, 12)
    whole, last = lstm(symbols)
    assert whole.shape == (3, 12, NUM_SYMBOLS)
    state, parts = None, []
    for piece in symbols.split(pieces, dim=1):
        logits, state = lstm(piece, state)
        parts.append(logits)
    torch.testing.assert_close(torch.cat(parts, dim=1), whole)
    assert state is not None
    for one, other in zip(state, last, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("num_layers", [1, 2, 3])
@pytest.mark.parametrize(("embedding", "hidden"), [(5, 7), (16, 8)])
def test_parameter_count(num_layers: int, embedding: int, hidden: int) -> None:
    lstm = CharLstm(NUM_SYMBOLS, embedding, hidden, num_layers)
    first = 4 * hidden * (embedding + hidden + 2)
    further = 4 * hidden * (hidden + hidden + 2)
    expected = NUM_SYMBOLS * embedding + first + (num_layers - 1) * further + (hidden + 1) * NUM_SYMBOLS
    assert sum(parameter.numel() for parameter in lstm.parameters()) == expected


@pytest.mark.parametrize("num_layers", [1, 3])
def test_forget_gates_start_with_bias_one(num_layers: int) -> None:
    """torch adds two biases; they must not add up to 2. The other gates start near 0."""
    lstm = network(num_layers).lstm
    for layer in range(num_layers):
        bias = getattr(lstm, f"bias_ih_l{layer}") + getattr(lstm, f"bias_hh_l{layer}")
        gates = bias.detach().unflatten(0, (4, 7))  # input, forget, cell, output
        assert torch.equal(gates[1], torch.ones(7))
        assert gates[[0, 2, 3]].abs().max() < 2 / 7**0.5


@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_what_is_dropped_does_not_depend_on_how_far_back_it_lies(num_layers: int) -> None:
    """Zaremba et al. 2014, section 3.2: dropout on L + 1 upward connections, none through time.

    With everything dropped the logits are the output layer's bias; no layer depends on those below it.
    """
    lstm = network(num_layers, dropout=1.0)
    logits, (hidden, _) = lstm(text(2, 6))
    torch.testing.assert_close(logits, lstm.linear.bias.expand(2, 6, NUM_SYMBOLS))
    assert hidden.abs().min() > 0  # biases still reach the state, and the state still carries over
    for layer in range(num_layers):
        nn.init.normal_(getattr(lstm.lstm, f"weight_ih_l{layer}"))
    assert torch.equal(hidden, lstm(text(2, 6))[1][0])
