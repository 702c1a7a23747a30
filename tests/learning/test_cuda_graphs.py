"""By CUDA graphs a gradient has the bits that it has kernel by kernel."""

from dataclasses import replace

import pytest
import torch
from composing import compose

from syncline.assembly.device import configure_torch
from syncline.assembly.problem import build_problem
from syncline.learning.cuda_graphs import WARM_UP

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")

TINY = ["dataset.train_size=64", "dataset.test_size=8"]
CASES = {
    "char_lstm": ["model=char_lstm", "dataset=pydoc_text", "optimizer.clip_norm=0.5"],
    "lenet": ["model=lenet", "dataset=mnist_digits"],
    "resnet": ["model=resnet8", "dataset=glyphs10"],
    "resnet bfloat16": ["model=resnet8", "dataset=glyphs10", "precision=bfloat16"],
    "wide_resnet": ["model=wrn10_1", "dataset=glyphs10", "optimizer=nesterov"],
}


@pytest.mark.filterwarnings("ignore:RNN module weights:UserWarning")  # each call copies them into one piece
@pytest.mark.parametrize("words", CASES.values(), ids=CASES)
def test_a_gradient_has_the_same_bits(words):
    """Also at other weights, of batches of two shapes in turn, and of what batch norm leaves."""
    config, _ = compose([*TINY, *words])
    configure_torch(config)
    device = torch.device("cuda", 0)
    plain, recorded = (build_problem(config, device, in_graphs=in_graphs) for in_graphs in (False, True))
    assert recorded.gradient.in_graphs
    kinds = [
        [problem.batches(replace(config, batch_size=size), 0) for size in (8, 16)] for problem in (plain, recorded)
    ]
    weights, buffers = plain.flat.weights.clone(), plain.flat.buffers.clone()
    for step in range(4 + 2 * WARM_UP):
        found = []
        for problem, batches in zip((plain, recorded), kinds, strict=True):
            loss, gradient, after = problem.gradient([weights], buffers, batches[step % 2].take(step))
            found.append((loss, gradient.clone(), after.clone()))
        (loss, gradient, after), (again, same, left) = found
        assert loss == again
        assert torch.equal(gradient, same)
        assert gradient.count_nonzero() > 0
        assert torch.equal(after, left)
        weights.sub_(gradient, alpha=0.01)
        buffers.copy_(after)


def test_a_network_that_draws_numbers_is_not_recorded():
    config, _ = compose([*TINY, "model=wrn10_1", "dataset=glyphs10", "model.dropout=0.3"])
    assert not build_problem(config, torch.device("cuda", 0), in_graphs=True).gradient.in_graphs
