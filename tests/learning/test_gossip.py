"""Compressed averaging: the mean stays, replicas come together, and everything sent is the mean itself."""

import pytest
import torch
from torch import Tensor

from syncline.learning.compression import Compression, Int8, RandK, Sign, TopK
from syncline.learning.gossip import Gossip, mean_of

N = 200
SCHEMES: list[tuple[Compression, float]] = [(TopK(0.2), 0.2), (RandK(0.3), 0.1), (Int8(), 1.0), (Sign(), 0.2)]


def vectors(seed: int, count: int = 4) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(N, generator=generator) for _ in range(count)]


def group_of(scheme: Compression, step: float, initial: Tensor) -> list[Gossip]:
    return [Gossip(scheme, initial, step, worker, seed=1) for worker in range(4)]


def average(group: list[Gossip], weights: list[Tensor], number: int) -> None:
    pairs = list(zip(group, weights, strict=True))
    mean = mean_of([member.send(own, number)[1] for member, own in pairs])
    for member, own in pairs:
        member.offset_from_mean.add_(mean)
        member.step(own)


@pytest.mark.parametrize(("scheme", "step"), SCHEMES, ids=repr)
def test_replicas_come_together_at_their_mean(scheme: Compression, step: float) -> None:
    """A gossip alone, without gradients: nothing is lost, however little is sent at a time."""
    weights = vectors(0)
    mean = torch.stack(weights).double().mean(0)
    group = group_of(scheme, step, torch.zeros(N))

    def spread() -> float:
        return float((torch.stack(weights).double() - mean).norm())

    at_first = spread()
    for number in range(150):
        average(group, weights, number)
        if number % 50 == 0:
            torch.testing.assert_close(torch.stack(weights).double().mean(0), mean, rtol=0, atol=1e-4)
    assert spread() < 0.05 * at_first


@pytest.mark.parametrize("scheme", [TopK(1.0), RandK(1.0)], ids=repr)
def test_with_everything_sent_a_whole_step_is_the_mean(scheme: Compression) -> None:
    group = group_of(scheme, 1.0, vectors(9, count=1)[0])
    for number in range(5):
        weights = vectors(number)
        mean = torch.stack(weights).mean(0)
        average(group, weights, number)
        for own in weights:
            torch.testing.assert_close(own, mean, rtol=0, atol=1e-6)


def test_what_was_sent_tells_another_process_the_rest() -> None:
    """The bytes stand for the change that the sender adds to what the others know of it."""
    scheme = TopK(0.1)
    (member, *_), (own, *_) = group_of(scheme, 0.1, torch.zeros(N)), vectors(3)
    sent, change = member.send(own, 0)
    decoded = torch.empty(N)
    scheme.decode(sent, decoded)
    assert torch.equal(decoded, change)
    assert torch.equal(member.state_dict()["own"], change)


def test_a_restored_member_goes_on_in_every_bit() -> None:
    weights, group = vectors(0), group_of(RandK(0.05), 0.1, torch.zeros(N))
    for number in range(5):
        average(group, weights, number)
    again = group_of(RandK(0.05), 0.1, torch.ones(N))
    for member, restored in zip(group, again, strict=True):
        restored.load_state_dict({name: tensor.clone() for name, tensor in member.state_dict().items()})
    copies = [own.clone() for own in weights]
    for number in range(5, 9):
        average(group, weights, number)
        average(again, copies, number)
    assert all(map(torch.equal, weights, copies))
