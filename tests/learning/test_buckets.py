"""Parts of a gradient: each handed over once, in order, complete, and as soon as the backward pass allows it."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from syncline.learning.buckets import Buckets, ready_shares
from syncline.learning.flat import FlatModule


class Chain(nn.Module):
    """Layers one after another, the last of them last in the flat vector; one may take no part in the loss."""

    def __init__(self, sizes: list[int], unused: int | None = None) -> None:
        super().__init__()
        self.layers = nn.ParameterList(nn.Parameter(torch.full((size,), 0.5)) for size in sizes)
        self.unused, self.order = unused, list[int]()

    def forward(self) -> Tensor:
        value = torch.ones(())
        for number, layer in enumerate(self.layers):
            if number != self.unused:
                value = (value * layer).sum()
                value.register_hook(lambda _, number=number: self.order.append(number))
        return value


def handed_over(module: Chain, size: int) -> tuple[FlatModule, list[tuple[Tensor, int]]]:
    """The parts of one gradient, each with the number of layers whose gradient was being computed then."""
    flat, parts = FlatModule(module), list[tuple[Tensor, int]]()
    buckets = Buckets(flat, size, lambda place: parts.append((flat.gradient[place].clone(), len(module.order))))
    module().backward()
    assert parts == [], "before `begin` nothing is handed over"
    module.order.clear()
    flat.gradient.zero_()
    buckets.begin()
    module().backward()
    buckets.complete()
    return flat, parts


@given(st.lists(st.integers(1, 7), min_size=1, max_size=6), st.integers(1, 12), st.data())
def test_the_parts_are_the_gradient_from_its_end(sizes: list[int], size: int, data: st.DataObject) -> None:
    unused = data.draw(st.none() | st.integers(0, len(sizes) - 1)) if len(sizes) > 1 else None
    flat, parts = handed_over(Chain(sizes, unused), size)
    assert torch.equal(torch.cat([part for part, _ in reversed(parts)]), flat.gradient)
    assert [len(part) for part, _ in parts[:-1]] == [size] * (len(parts) - 1)
    assert 1 <= len(parts[-1][0]) <= size


def test_a_part_is_handed_over_once_the_layers_that_it_overlaps_are_done() -> None:
    """Layers of 3, 4 and 5 elements in parts of 4: [8, 12) is layer 2, [4, 8) layers 2 and 1, [0, 4) 1 and 0."""
    _, parts = handed_over(Chain([3, 4, 5]), 4)
    # The gradient of layer k is there before the hook of the value that comes before it.
    assert [done for _, done in parts] == [1, 2, 3]


def test_the_next_gradient_is_handed_over_again_only_if_it_is_begun() -> None:
    module, places = Chain([2, 2]), list[slice]()
    flat = FlatModule(module)
    buckets = Buckets(flat, 2, places.append)
    for begun in (True, False, True):
        if begun:
            buckets.begin()
        module().backward()
        buckets.complete()
    assert places == 2 * buckets.places == 2 * [slice(2, 4), slice(0, 2)]


@pytest.mark.parametrize("points", [1, 2, 4])
def test_shares_are_those_of_a_clock_that_ticks_with_each_layer(points: int) -> None:
    """Four equal layers: half of the time forward, then one after another."""
    module = Chain([10] * 4)
    flat = FlatModule(module)
    forward = 4.0

    def clock() -> float:
        return forward * has_begun[0] + len(module.order)

    has_begun = [0]

    def compute() -> None:
        value = module()
        has_begun[0] += 1
        value.backward()

    shares = ready_shares(flat, compute, clock, points=points, repeats=3)
    assert len(shares) == points + 1
    assert all(low <= high for low, high in itertools.pairwise(shares))
    assert shares[-1] == 1.0
    if points == 4:
        assert shares[1:] == pytest.approx([5 / 8, 6 / 8, 7 / 8, 1.0])
        assert shares[0] == pytest.approx(4 / 8)
