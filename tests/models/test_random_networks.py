"""Networks that draw random numbers, and those that predict symbols from the ones before."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from syncline.models.bert import Bert
from syncline.models.char_lstm import CharLstm
from syncline.models.draw import Draw
from syncline.models.gpt import Gpt

NUM_SYMBOLS = 11
TEXT = torch.randint(NUM_SYMBOLS, (2, 10), generator=torch.Generator().manual_seed(1))


@dataclass(frozen=True)
class Case:
    """A network with dropout, and its inputs."""

    build: Callable[[float], nn.Module]
    inputs: tuple[Tensor, ...]
    draws_always: bool = False  # in evaluation, too


TRANSFORMERS = pytest.mark.xdist_group("torchvision")  # which they import; it takes seconds
CASES = {
    "bert": Case(
        lambda dropout: Bert(NUM_SYMBOLS, 12, 16, 2, 2, 32, dropout=dropout),
        (TEXT, torch.ones_like(TEXT), torch.zeros_like(TEXT)),
    ),
    "char_lstm": Case(lambda dropout: CharLstm(NUM_SYMBOLS, 5, 7, 2, dropout=dropout), (TEXT,)),
    "char_lstm of one layer": Case(lambda dropout: CharLstm(NUM_SYMBOLS, 5, 7, 1, dropout=dropout), (TEXT,)),
    "draw": Case(
        lambda dropout: Draw(1, 6, 3, hidden_size=12, latent_size=4, read_size=2, write_size=3),
        (torch.zeros(2, 1, 6, 6),),
        draws_always=True,
    ),
    "gpt": Case(lambda dropout: Gpt(NUM_SYMBOLS, 12, 8, 2, 2, dropout=dropout), (TEXT,)),
}


def parametrized(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "case",
        [pytest.param(CASES[name], marks=TRANSFORMERS if name in ("bert", "gpt") else (), id=name) for name in names],
    )


def output(network: nn.Module, *inputs: Tensor, seed: int = 5) -> Tensor:
    torch.manual_seed(seed)
    found = network(*inputs)
    return found[0] if isinstance(found, tuple) else found


@parametrized(*CASES)
def test_weights_and_random_numbers_come_from_the_global_generator(case: Case) -> None:
    networks = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        networks.append(case.build(0.5))
    one, same, other = (output(network, *case.inputs) for network in networks)
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    network = networks[0]
    assert not torch.equal(output(network, *case.inputs, seed=6), one)
    network.eval()
    is_same = torch.equal(output(network, *case.inputs), output(network, *case.inputs, seed=6))
    assert is_same is not case.draws_always


@pytest.mark.parametrize("changed", [0, 4, 9])
@parametrized("char_lstm", "gpt")
def test_no_prediction_depends_on_a_later_symbol_and_all_later_ones_on_each(case: Case, changed: int) -> None:
    network = case.build(0.0).eval()
    others = TEXT.clone()
    others[:, changed] = (others[:, changed] + 1) % NUM_SYMBOLS
    one, other = output(network, TEXT), output(network, others)
    assert one.shape == (2, 10, NUM_SYMBOLS)
    assert torch.equal(one[:, :changed], other[:, :changed])
    assert (one[:, changed:] != other[:, changed:]).any(dim=2).all()
