"""GPT: the published size, and that it predicts each symbol from those before it."""

import math
from pathlib import Path

import pytest
import torch
import yaml

from syncline.models.gpt import Gpt

pytestmark = pytest.mark.xdist_group("torchvision")  # which transformers imports; it takes seconds

CONF = Path(__file__).parents[2] / "conf" / "model"
NUM_SYMBOLS = 11


def small(**changed: float) -> Gpt:
    torch.manual_seed(0)
    sizes = {"num_symbols": NUM_SYMBOLS, "max_length": 12, "hidden_size": 8, "num_layers": 2, "num_heads": 2}
    return Gpt(**sizes | changed).eval()


@pytest.mark.parametrize("changed", [0, 4, 9])
def test_no_prediction_depends_on_a_later_symbol_and_all_later_ones_on_each(changed: int) -> None:
    network = small()
    symbols = torch.randint(NUM_SYMBOLS, (2, 10), generator=torch.Generator().manual_seed(1))
    others = symbols.clone()
    others[:, changed] = (others[:, changed] + 1) % NUM_SYMBOLS
    one, other = network(symbols), network(others)
    assert one.shape == (2, 10, NUM_SYMBOLS)
    assert torch.equal(one[:, :changed], other[:, :changed])
    assert (one[:, changed:] != other[:, changed:]).any(dim=2).all()


@pytest.mark.slow
def test_the_smallest_has_the_published_size() -> None:
    """117 M in the paper, which its authors corrected to 124 M."""
    options = yaml.safe_load((CONF / "gpt2.yaml").read_text())
    del options["name"]
    with torch.device("meta"):
        network = Gpt(50_257, 1024, **options)
    assert sum(parameter.numel() for parameter in network.parameters()) == 124_439_808


def test_initial_weights_have_the_published_spread() -> None:
    network = small(hidden_size=128, num_layers=8)
    spread = {name: parameter.std().item() for name, parameter in network.named_parameters() if parameter.ndim == 2}
    for name, found in spread.items():
        expected = 0.02 / math.sqrt(2 * 8) if name.endswith("c_proj.weight") else 0.02
        assert found == pytest.approx(expected, rel=0.1), name


def test_dropout_is_drawn_from_the_global_generator() -> None:
    network = small(dropout=0.5).train()
    symbols = torch.zeros(1, 5, dtype=torch.int64)
    torch.manual_seed(3)
    first = network(symbols)
    assert not torch.equal(network(symbols), first)
    torch.manual_seed(3)
    assert torch.equal(network(symbols), first)
