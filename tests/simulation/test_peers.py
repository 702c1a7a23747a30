"""Asynchronous peers in virtual time: against closed forms, and against a few lines of numpy."""

import heapq
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
import simulations
import torch
from log_checks import Rows
from simulations import logged

from benchmarks.measuring import simulated
from benchmarks.simulator import NullObserver
from syncline.config import DigitsConfig, ModelConfig, ResnetConfig, RunConfig, SgdConfig
from syncline.config.optimizers import ScheduleConfig
from syncline.datasets.streams import Purpose, stream
from syncline.learning.peer_replica import BLOCK, Choices, PeerReplica, average
from syncline.learning.sgd import Sgd
from syncline.progress import Limits
from syncline.records.spans import timeline_of
from syncline.records.time_use import time_use_of
from syncline.simulation.peers import PeerReplicas, PeerSimulation
from syncline.simulation.replay import ReplayError, _ReplayOfPeers
from syncline.simulation.run import build_replicas
from syncline.strategies.ad_psgd import AdPsgdOptions
from syncline.strategies.gossip import GossipOptions
from syncline.timing.cluster import Cluster, ClusterConfig, ScenarioConfig
from syncline.timing.network import NetworkConfig

config_of = partial(
    simulations.config_of, strategy=AdPsgdOptions(), max_updates=20, dataset=DigitsConfig(train_size=320, test_size=50)
)
RATE, SECONDS = 0.25, (1.0, 1.3, 3.1)


def timing_of(**changes) -> dict:
    """The summary of a run without gradients."""
    return simulated(config_of(gradients=False, **changes))


def replica(*weights: float, num_workers: int = 2) -> PeerReplica:
    tensor = torch.tensor(weights)
    return PeerReplica(tensor, tensor * 10, Sgd(0.0, 0.0), lambda samples, updates: samples, num_workers)


# One averaging.


def test_after_an_averaging_both_replicas_are_their_mean_with_all_that_they_have():
    one, other = replica(1.0, 2.0), replica(4.0, -2.0)
    one.counts[:] = torch.tensor([8, 1])
    average(one, other)
    for peer in (one, other):
        assert peer.weights.tolist() == [2.5, 0.0]
        assert peer.buffers.tolist() == [25.0, 0.0]
        assert peer.counts.tolist() == [4, 0.5]


def test_averaging_keeps_the_mean_and_the_counts_sum_to_those_of_the_run():
    chance = np.random.default_rng(0)
    peers = [replica(*chance.integers(-8, 8, 4).astype(float), num_workers=8) for _ in range(8)]
    mean = torch.stack([peer.weights for peer in peers]).mean(0)
    for step in range(20):
        one, other = chance.choice(8, 2, replace=False)
        average(peers[one], peers[other])
        peers[one].counts.add_(torch.tensor([16, 1]))
        torch.testing.assert_close(torch.stack([peer.weights for peer in peers]).mean(0), mean)
        assert sum(peer.counts for peer in peers).tolist() == pytest.approx([16 * (step + 1), step + 1])


def test_a_step_goes_by_what_the_replica_knows_of_all():
    peer = replica(1.0, num_workers=4)
    peer.counts[:] = torch.tensor([2.5, 0.5])
    peer.computed(torch.tensor([1.0]), peer.read_buffers)
    peer.step(8)
    assert peer.weights.item() == 1 - 10  # at a rate of 4 times 2.5 samples
    assert peer.counts.tolist() == [10.5, 1.5]


def test_statistics_count_as_if_they_had_been_there_when_the_replica_was_read():
    """Of batch norm: a variance that has fallen to a tenth stays positive, however often it was averaged."""
    ours, told = replica(1.0), replica(1.0)
    ours.read()
    told.buffers[:] = 1.0  # what the pass leaves of 10, told at once
    for value in (0.0, 0.5):
        other = replica(value), replica(value)
        average(ours, other[0])
        average(told, other[1])
    ours.computed(torch.zeros(1), torch.tensor([1.0]))
    ours.take_statistics(num_averaged=2)
    assert ours.buffers.tolist() == pytest.approx(told.buffers.tolist())


def test_choices_are_uniform_and_keyed_by_seed_worker_and_iteration():
    def choices(seed: int, graph: str = "complete", num_workers: int = 4) -> Choices:
        return Choices(AdPsgdOptions(graph=graph).neighbours, num_workers, seed)

    chosen = [choices(3).peer(1, iteration) for iteration in range(600)]
    assert {worker: 160 <= chosen.count(worker) <= 240 for worker in (0, 2, 3)} == {0: True, 2: True, 3: True}
    again = choices(3)
    assert [again.peer(1, iteration) for iteration in range(600)] == chosen
    assert chosen != [choices(4).peer(1, iteration) for iteration in range(600)]
    assert {choices(0, "ring", 5).peer(0, iteration) for iteration in range(50)} == {1, 4}


# A run.


class Quadratics(PeerReplicas):
    """Worker i has the loss |x - target_i|^2 / 2."""

    def __init__(self, targets: np.ndarray) -> None:
        self.targets = torch.from_numpy(targets).float()
        size = self.targets.shape[1]
        zeros = [(torch.zeros(size), torch.zeros(0)) for _ in targets]
        self.peers = [PeerReplica(*each, Sgd(0.0, 0.0), lambda samples, updates: RATE, len(targets)) for each in zeros]

    def begin(self, worker: int, iteration: int, due: float) -> None:
        pass

    def computed(self, worker: int) -> float:
        peer = self.peers[worker]
        gradient = peer.read_weights - self.targets[worker]
        peer.computed(gradient, peer.read_buffers)
        return float(gradient.square().sum()) / 2


def trajectory(targets: np.ndarray, updates: int) -> tuple[np.ndarray, list[int]]:
    """Replicas after so many updates, and who made each: algorithm 1 by itself."""
    num = len(targets)
    weights = np.zeros_like(targets)
    read, steps, who = weights.copy(), [0] * num, []
    due = [(SECONDS[worker], worker) for worker in range(num)]
    while len(who) < updates:
        now, worker = heapq.heappop(due)
        numbers = stream(Purpose.PEER, worker, steps[worker] // BLOCK, 0).integers(num - 1, size=BLOCK)
        peer = (worker + 1 + numbers[steps[worker] % BLOCK]) % num
        weights[[worker, peer]] = (weights[worker] + weights[peer]) / 2
        weights[worker] -= RATE * (read[worker] - targets[worker])
        read[worker] = weights[worker]
        steps[worker] += 1
        who.append(worker)
        heapq.heappush(due, (now + SECONDS[worker], worker))
    return weights, who


def test_three_workers_of_unequal_speeds_follow_the_algorithm_on_quadratics():
    targets = np.random.default_rng(1).normal(size=(3, 4))
    cluster = Cluster(ClusterConfig(workers=3, gradient_s=list(SECONDS), jitter=None), ScenarioConfig(), 0)
    learning, log = Quadratics(targets), Rows()
    simulation = PeerSimulation(
        cluster=cluster,
        choices=Choices(AdPsgdOptions().neighbours, 3, 0),
        exchange_s=lambda pair: 0.0,
        batch_size=1,
        limits=Limits(updates=40),
        observer=NullObserver(),
        learning=learning,
        log=log.append,
    )
    assert simulation.run() == "max_updates"
    weights, who = trajectory(targets, 40)
    assert [row.worker for row in log if row.kind == "applied"] == who
    np.testing.assert_allclose([peer.weights.numpy() for peer in learning.peers], weights, rtol=1e-5, atol=1e-6)


def test_a_slow_worker_delays_nobody():
    """In 100.5 s one of 1 s a gradient makes 100 steps, one of 10 s makes 10; with gossip both make 10."""
    cluster = ClusterConfig(workers=2, gradient_s=[1.0, 10.0], jitter=None)
    ours = timing_of(cluster=cluster, max_updates=None, max_time_s=100.5)
    theirs = timing_of(strategy=GossipOptions(), cluster=cluster, max_updates=None, max_time_s=100.5)
    assert ours["used_by_worker"] == [100, 10]
    assert theirs["used_by_worker"] == [10, 10]
    assert ours["ended_by"] == "max_time_s"
    assert ours["busy_by_worker"] == [1.0, 1.0]
    assert ours["max_lead"] == 90
    # At 10, 20, ... s worker 1 comes first: of ten gradients of worker 0 one is averaged by both exchanges, and each of
    # worker 1 by ten of worker 0 and its own; no exchange of worker 0 is before its first by 0 s.
    assert ours["staleness"] == {"1": 90, "2": 10, "10": 1, "11": 9}


def test_a_replica_is_in_one_exchange_at_a_time(tmp_path):
    """Two workers of 1 s whose exchange takes 0.25 s: that of worker 1 is queued behind that of worker 0."""
    network = NetworkConfig(latency_s=0.125)
    cluster = ClusterConfig(workers=2, gradient_s=[1.0], jitter=None, network=network, update_s=0.125)
    summary, events = logged(config_of(gradients=False, cluster=cluster, max_updates=4), tmp_path)
    rows = events.to_pylist()
    assert [(row["at"], row["worker"]) for row in rows if row["kind"] == "averaged"] == [
        *((1.25, 0), (1.5, 1)),
        *((2.5, 0), (2.75, 1)),
    ]
    assert summary["time_shares"] == pytest.approx(
        {
            "computing": (2 + 2 + 0.25) / 5.5,  # the last one computes again from 2.5 s on
            "sending": 1.0 / 5.5,
            "queueing": 0.25 / 5.5,
            "waiting": 0.0,
            "absent": 0.0,
        }
    )
    logged_use = time_use_of(timeline_of(events, summary["time_s"]))
    assert logged_use.computing_s == pytest.approx(4.25)
    assert logged_use.sending_s == pytest.approx(1.25)  # the log does not tell queueing from it


@pytest.mark.parametrize("graph", ["complete", "ring"])
@pytest.mark.parametrize("latency_s", [0.0, 0.3])
def test_the_log_orders_all_that_happens_to_each_replica(graph, latency_s, tmp_path):
    cluster = ClusterConfig(workers=5, gradient_s=[1.0, 1.7], network=NetworkConfig(latency_s=latency_s))
    config = config_of(strategy=AdPsgdOptions(graph=graph), gradients=False, cluster=cluster, max_updates=200)
    summary, events = logged(config, tmp_path)
    versions, read, stale = [[0] for _ in range(5)], [0] * 5, []
    for row in events.to_pylist():
        worker = row["worker"]
        if row["kind"] == "started":
            assert row["version"] == versions[worker][-1]
            read[worker] = row["version"]
        elif row["kind"] == "averaged":
            for end, version in zip((worker, int(row["value"])), row["versions"], strict=True):
                versions[end].append(version)
        elif row["kind"] == "applied":
            assert row["value"] == versions[worker][-1] - read[worker]
            stale.append(int(row["value"]))
            versions[worker].append(row["version"])
    for found in versions:
        assert all(after == before + 1 for before, after in pairwise(found))
    assert summary["staleness"] == {str(value): stale.count(value) for value in sorted(set(stale))}
    assert sum(len(found) - 1 for found in versions) == 3 * 200  # an averaging counts for both


CHANGING = ScheduleConfig(kind="cosine", end_epoch=3.0)


def test_a_log_is_enough_to_compute_a_run_again(tmp_path):
    """As of real processes; in virtual time exchanges are queued, or under way, when the run ends."""
    cluster = ClusterConfig(workers=4, gradient_s=[1.0, 2.5], network=NetworkConfig(latency_s=0.4))
    model, optimizer = ResnetConfig(depth=8, width=4), SgdConfig(lr=0.05, momentum=0.9, schedule=CHANGING)
    config = config_of(model=model, optimizer=optimizer, cluster=cluster, max_updates=40)
    summary, events = logged(config, tmp_path)
    _, _, states = simulations.finished(config)
    learning = build_replicas(config)
    again = _ReplayOfPeers(config, learning, ended(events))
    assert list(again.steps())[-1] == 1.0
    for state, weights, buffers in zip(states, learning.weights, learning.buffers, strict=True):
        assert torch.equal(state["weights"], weights)
        assert torch.equal(state["buffers"], buffers)
    assert again.num_gradients == again.totals.updates == 40
    keys = ("staleness", "used_by_worker", "samples")
    assert [again.totals.summary()[key] for key in keys] == [summary[key] for key in keys]


@pytest.mark.parametrize("kind", ["averaged", "applied"])
def test_a_log_that_lacks_a_row_is_refused(kind, tmp_path):
    _, events = logged(config_of(gradients=False, cluster=ClusterConfig(workers=3)), tmp_path)
    rows = ended(events).to_pylist()
    del rows[[row["kind"] for row in rows].index(kind)]
    config = config_of(cluster=ClusterConfig(workers=3))
    again = _ReplayOfPeers(config, build_replicas(config), pa.Table.from_pylist(rows, events.schema))
    with pytest.raises(ReplayError, match=r"the log says .* worker 0.s replica has version 1"):
        list(again.steps())


def ended(events: pa.Table) -> pa.Table:
    """The log without the gradients that are not over, which real processes do not log."""
    rows = events.to_pylist()
    last = {row["worker"]: number for number, row in enumerate(rows) if row["kind"] == "started"}
    return pa.Table.from_pylist([row for number, row in enumerate(rows) if number not in last.values()], events.schema)


def run_of(config: RunConfig) -> tuple[dict, list[dict], list[dict]]:
    return simulations.finished(config)


def test_the_mean_is_evaluated_and_batch_norm_averaged():
    """With momentum, and statistics that differ from replica to replica."""
    about = {"model": ResnetConfig(depth=8, width=4), "optimizer": SgdConfig(lr=0.05), "eval_every_epochs": 0.25}
    config = config_of(cluster=ClusterConfig(workers=4, gradient_s=[1.0, 2.5]), **about)
    summary, rows, states = run_of(config)
    assert len(states) == 4
    assert rows[0]["divergence"] == 0
    assert all(row["divergence"] > 0 for row in rows[1:])
    mean = {key: torch.stack([state[key] for state in states]).mean(0) for key in ("weights", "buffers")}
    metrics = build_replicas(config).evaluator([mean["weights"]], mean["buffers"])
    assert metrics["loss"] == pytest.approx(rows[-1]["loss"], rel=1e-4)
    assert summary["updates"] == summary["gradients_used"] == 20


def test_it_learns():
    _, rows, _ = run_of(config_of(cluster=ClusterConfig(workers=4, gradient_s=[1.0, 3.0]), max_updates=150))
    assert rows[-1]["accuracy"] > 0.5 > rows[0]["accuracy"]


def test_a_run_that_diverges_says_so():
    summary, _, _ = run_of(config_of(optimizer=SgdConfig(lr=1e9), model=ModelConfig(), max_updates=200))
    assert summary["ended_by"] == "diverged"
