"""Where tensors lie in a flat vector: blocks of whole tensors, and gradients that no pass has reached."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from syncline.learning.layout import UNREACHED, Layout
from syncline.learning.local_steps import LocalSteps
from syncline.learning.optimizer import OPTIMIZERS, Averaged, SkipsUnreached
from syncline.learning.parameters import Parameters, Version
from syncline.learning.sgd import Sgd
from syncline.learning.update import AppliedPush
from syncline.rounds import Rounds

SHAPES = {"matrix": (2, 3), "unused": (2,), "scale": ()}
LAYOUT = Layout.of({name: torch.zeros(shape) for name, shape in SHAPES.items()})
CASES = {
    "sgd": ({"momentum": 0.0, "weight_decay": 0.1}, torch.optim.SGD, {}),
    "sgd, momentum": ({"momentum": 0.9, "weight_decay": 0.1}, torch.optim.SGD, {"momentum": 0.9}),
    "sgd, nesterov": (
        {"momentum": 0.9, "weight_decay": 0.1, "nesterov": True},
        torch.optim.SGD,
        {"momentum": 0.9, "nesterov": True},
    ),
    "adam": ({"beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0.1}, torch.optim.Adam, {"betas": (0.9, 0.99)}),
    "adamw": (
        {"beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0.1},
        torch.optim.AdamW,
        {"betas": (0.9, 0.99)},
    ),
    "rmsprop": (
        {"alpha": 0.9, "eps": 1e-8, "momentum": 0.9, "weight_decay": 0.1},
        torch.optim.RMSprop,
        {"alpha": 0.9, "momentum": 0.9},
    ),
}


@given(st.lists(st.lists(st.integers(0, 3), max_size=3), min_size=1, max_size=6), st.data())
def test_matrices_are_told_from_other_tensors_also_in_a_block_that_cuts_them(shapes: list[list[int]], data) -> None:
    tensors = {str(number): torch.zeros(shape) for number, shape in enumerate(shapes)}
    expected = [tensor.ndim > 1 for tensor in tensors.values() for _ in range(tensor.numel())]
    begin, end = sorted(data.draw(st.tuples(*[st.integers(0, len(expected))] * 2)))
    stretches = Layout.of(tensors).within(slice(begin, end)).matrices()
    found = [is_matrix for place, is_matrix in stretches for _ in range(place.start, place.stop)]
    assert found == expected[begin:end]
    assert all(one[1] != other[1] for one, other in pairwise(stretches)), "no longer stretch could be made"


REACHED_IN = {"matrix": {0, 1, 2, 3, 4, 5}, "unused": set[int](), "scale": {1, 2, 4}}  # steps


def gradient_of(step: int) -> torch.Tensor:
    gradient = torch.randn(LAYOUT.size, generator=torch.Generator().manual_seed(step))
    for place in LAYOUT.places:
        if step not in REACHED_IN[place.name]:
            place.of(gradient).fill_(UNREACHED)
    return gradient


@given(st.lists(st.integers(0, 50), min_size=1, max_size=12), st.integers(1, 6))
def test_blocks_are_of_whole_tensors_and_cover_the_vector(sizes: list[int], num: int) -> None:
    layout = Layout.of({str(number): torch.zeros(size) for number, size in enumerate(sizes)})
    if sum(size > 0 for size in sizes) < num:
        with pytest.raises(ValueError, match=f"^{num} shards must each have a whole tensor"):
            layout.blocks(num)
        return
    blocks = layout.blocks(num)
    ends = {place.end for place in layout.places} | {0}
    assert [block.start for block in blocks] == [0, *(block.stop for block in blocks[:-1])]
    assert blocks[-1].stop == layout.size
    assert all(block.start < block.stop and {block.start, block.stop} <= ends for block in blocks)
    names = [place.name for block in blocks for place in layout.within(block).places if place.size]
    assert names == [place.name for place in layout.places if place.size]


def test_equal_tensors_make_equal_blocks() -> None:
    assert Layout.of({str(n): torch.zeros(10) for n in range(6)}).blocks(3) == [
        slice(0, 20),
        slice(20, 40),
        slice(40, 60),
    ]


def test_a_block_has_whole_tensors_in_their_shape_and_a_vector_of_one_that_it_cuts() -> None:
    parts = LAYOUT.within(slice(4, 8)).places
    assert [(place.name, place.begin, place.shape) for place in parts] == [("matrix", 0, (2,)), ("unused", 2, (2,))]


def test_a_mean_is_unreached_only_where_all_gradients_are() -> None:
    class Seen(SkipsUnreached):
        def step(self, weights, gradient, rate, out) -> None:
            seen.append(gradient.clone())

    one, other, seen = torch.ones(9), torch.zeros(9), list[torch.Tensor]()
    one[6:8] = other[6:8] = other[8] = UNREACHED
    none = torch.zeros(0)
    optimizer = Seen(lambda: Sgd(momentum=0.0, weight_decay=0.0), LAYOUT)
    rate = lambda samples, updates: 1.0  # noqa: E731
    shard = Parameters(slice(0, 9), Version(torch.zeros(9), none), optimizer, rate, num_workers=2)
    shard.apply([AppliedPush(each, none, 0, 0, 1, 1) for each in (one, other)], 1.0, 0, 0)
    assert [place.name for place in LAYOUT.unreached(seen[0])] == ["unused"]
    assert seen[0][8] == 0.5
    zeros = torch.zeros(9)
    assert LAYOUT.unreached(zeros) == [], "a gradient of zero is one"


@pytest.mark.parametrize("is_averaged", [False, True], ids=["plain", "averaged"])
@pytest.mark.parametrize("case", CASES)
def test_unreached_tensors_stay_as_those_of_torch_without_a_gradient(case: str, is_averaged: bool) -> None:
    """Whatever the step at which a tensor is reached first, and after a restart."""
    options, kind, torchs = CASES[case]
    named = {place.name: nn.Parameter(torch.linspace(-1, 1, place.size).view(place.shape)) for place in LAYOUT.places}
    ordinary = kind(named.values(), lr=0.1, weight_decay=0.1, **torchs)

    def ours():
        made = SkipsUnreached(lambda: OPTIMIZERS[case.partition(",")[0]](**options), LAYOUT)
        return Averaged(made, 0.9) if is_averaged else made

    optimizer, weights = ours(), torch.cat([each.detach().flatten() for each in named.values()])
    for step in range(6):
        for place, parameter in zip(LAYOUT.places, named.values(), strict=True):
            is_reached = step in REACHED_IN[place.name]
            parameter.grad = place.of(gradient_of(step)).clone() if is_reached else None
        ordinary.step()
        if step == 3:
            state, optimizer = optimizer.state_dict(), ours()
            optimizer.load_state_dict({name: tensor.clone() for name, tensor in state.items()})
        out = torch.empty_like(weights)
        optimizer.step(weights, gradient_of(step), 0.1, out=out)
        weights = out
        assert torch.equal(weights, torch.cat([each.detach().flatten() for each in named.values()])), step
    assert torch.equal(LAYOUT.places[1].of(weights), torch.linspace(-1, 1, 2)), "as it was"


class Fixed:
    """Stands in for the gradient function: the gradients of `gradient_of`."""

    def __init__(self) -> None:
        self.flat = self
        self.layout, self.weights, self.buffers = LAYOUT, torch.zeros(LAYOUT.size), torch.zeros(0)
        self.gradient = torch.zeros(LAYOUT.size)

    def load(self, weights, buffers) -> None:
        self.weights.copy_(weights[0])

    def __call__(self, weights, buffers, batch):
        self.gradient.copy_(gradient_of(batch))
        return 0.0, self.gradient, buffers


class Batches:
    def take(self, place: int) -> int:
        return place


@pytest.mark.parametrize("optimizer", [None, "sgd"])
def test_local_steps_push_what_none_of_them_has_reached_as_such_and_do_not_move_it(optimizer: str | None) -> None:
    made = None
    if optimizer is not None:
        made = SkipsUnreached(lambda: Sgd(momentum=0.0, weight_decay=0.1), LAYOUT)
    local = LocalSteps(Fixed(), Rounds(3, 0), lambda place: 0.1, 0.1, made, skips_unreached=True)  # type: ignore[arg-type]
    _, pushed, _ = local([torch.linspace(-1, 1, LAYOUT.size)], torch.zeros(0), Batches(), 0)  # type: ignore[arg-type]
    assert [place.name for place in LAYOUT.unreached(pushed)] == ["unused"], "`scale` is reached in the second step"
