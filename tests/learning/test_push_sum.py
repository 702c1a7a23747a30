"""Push-sum on irregular graphs, against products of column-stochastic matrices."""

import pytest
import torch
from torch import Tensor

from syncline.learning.gossip import mean_of
from syncline.learning.push_sum import PushSum, step_replica
from syncline.learning.sgd import Sgd
from syncline.strategies.collective import Averaging, Collective
from syncline.strategies.ds_sync import DsSyncOptions
from syncline.strategies.gossip import GRAPHS, GossipOptions

Turn = list[Averaging]
IN_AND_OUT = Collective(  # one worker sends to all others, then they to it
    peers=lambda turn, num: [[], *[[0]] * (num - 1)] if turn == 0 else [[*range(1, num)], *[[]] * (num - 1)],
    turns=lambda num: 2,
    spread=lambda num: 3,
    replicas=True,
)
RANDOM = GossipOptions(graph="random").collective


def matrix(turn: Turn) -> Tensor:
    """A_ij = 1 / (receivers of worker j, itself among them), if i receives from j [P, P]."""
    receives = torch.zeros(len(turn), len(turn), dtype=torch.float64)
    for members, (receiver,) in turn:
        receives[receiver, list(members)] = 1.0
    return receives / receives.sum(0)


@pytest.mark.parametrize("collective", [IN_AND_OUT, RANDOM], ids=["in and out", "random"])
def test_the_replicas_are_those_of_the_matrices_and_come_together_at_the_mean(collective: Collective) -> None:
    """Without gradients: x and w by matrices alone, z = x / w."""
    num, turns = 5, collective.all_turns(5)
    at_first = torch.randn(num, 30, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x, w, z, push_sum = at_first.clone(), torch.ones(num, 1, dtype=torch.float64), list(at_first), PushSum(num)
    seen = set[float]()
    for step in range(150):
        turn = step % len(turns)
        x, w = matrix(turns[turn]) @ x, matrix(turns[turn]) @ w
        received = push_sum.advance(turns[turn])
        z = [mean_of([z[j] for j in turns[turn][i].members], received[i]) for i in range(num)]
        seen |= set(push_sum.weights)
        torch.testing.assert_close(torch.tensor(push_sum.weights, dtype=torch.float64), w[:, 0])
        torch.testing.assert_close(torch.stack(z), x / w)
        assert sum(push_sum.weights) == pytest.approx(num)
        torch.testing.assert_close(mean_of(z, push_sum.weights), at_first.mean(0))
    assert min(seen) < 0.3
    torch.testing.assert_close(torch.stack(z), at_first.mean(0).expand(num, -1))


@pytest.mark.parametrize("num_workers", [2, 3, 7, 49, 50])
def test_on_regular_graphs_and_in_groups_all_weights_stay_1_and_means_are_plain(num_workers: int) -> None:
    """In every bit, for any number of workers: 49 / 49 is 1, 49 times the rounded 1 / 49 is not."""
    regular = [GossipOptions(graph=graph).collective for graph in GRAPHS if graph != "random"]
    grids = [DsSyncOptions().collective] if num_workers in (49, 50) else []
    for collective in (*regular, *grids, Collective(replicas=True)):
        push_sum = PushSum(num_workers)
        for averaged in collective.all_turns(num_workers):
            assert all(len(set(weights)) == 1 for weights in push_sum.advance(averaged))
            assert push_sum.weights == [1.0] * num_workers
    vectors = list(torch.randn(num_workers, 100, generator=torch.Generator().manual_seed(1)))
    assert torch.equal(mean_of(vectors, [1 / 3] * num_workers), sum(vectors[1:], vectors[0]) / num_workers)


def test_a_step_is_that_of_x() -> None:
    """Its momentum is not divided."""
    generator, optimizer, plain = torch.Generator().manual_seed(2), Sgd(0.9, 0.01), Sgd(0.9, 0.01)
    z = torch.randn(20, generator=generator)
    for weight in (1.0, 0.25, 3.0):
        gradient, before = torch.randn(20, generator=generator), z.clone()
        step_replica(optimizer, z, gradient.clone(), 0.1, weight)
        stepped = torch.empty_like(before)
        plain.step(before, gradient.clone(), 0.1, out=stepped)
        torch.testing.assert_close(weight * z, weight * before + (stepped - before))


def test_a_resumed_push_sum_continues_with_the_same_bits() -> None:
    turns = RANDOM.all_turns(6)
    whole, again = PushSum(6), PushSum(6)
    for turn in turns[:11]:
        whole.advance(turn)
    again.load_state_dict(whole.state_dict())
    for turn in turns[11:]:
        assert again.advance(turn) == whole.advance(turn)
    assert again.weights == whole.weights
    again.load_state_dict({})
    assert again.weights == [1.0] * 6
