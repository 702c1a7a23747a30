"""What a worker keeps: taken together, and back to before a push."""

import torch

from syncline.learning.compression import PushCompressor, TopK
from syncline.learning.sgd import Sgd
from syncline.learning.worker_state import WorkerState

N = 20


def parts() -> tuple[Sgd, PushCompressor]:
    return Sgd(momentum=0.9, weight_decay=0.0), PushCompressor(TopK(0.1), [slice(0, N)], True, worker=0, seed=0)


def push(momentum: Sgd, compressor: PushCompressor, number: int) -> torch.Tensor:
    weights = torch.zeros(N)
    gradient = torch.randn(N, generator=torch.Generator().manual_seed(number))
    momentum.step(weights, gradient, 0.1, out=weights)
    compressor(weights, number)
    return weights


def test_a_push_that_is_undone_has_changed_nothing() -> None:
    first, second = parts(), parts()
    kept = WorkerState(dict(zip(("momentum", "compress"), first, strict=True)))
    for number in range(3):
        push(*first, number)
        push(*second, number)
    kept.begin()
    push(*first, 99)
    kept.undo()
    assert torch.equal(push(*first, 3), push(*second, 3))


def test_another_worker_continues_with_a_copy_of_it() -> None:
    first, second = parts(), parts()
    kept, other = (WorkerState(dict(zip(("momentum", "compress"), each, strict=True))) for each in (first, second))
    assert kept.state_dict() == {}
    push(*first, 0)
    state = kept.state_dict()
    assert sorted(state) == ["compress.residual", "momentum.momentum"]
    other.load_state_dict(state | {"weights": torch.zeros(1)})
    assert torch.equal(push(*first, 1), push(*second, 1))
    assert torch.equal(push(*first, 2), push(*second, 2)), "no tensor is shared"


def test_an_empty_state_is_that_at_first() -> None:
    first, second = parts(), parts()
    push(*first, 0)
    WorkerState(dict(zip(("momentum", "compress"), first, strict=True))).load_state_dict({})
    assert torch.equal(push(*first, 1), push(*second, 1))
