"""Collectives in virtual time: what they learn, against plain sums; when they do, against a recurrence."""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
import simulations
import torch
from log_checks import leads
from recurrences import first_compute_s
from simulations import logged

from benchmarks.measuring import simulated
from syncline.config import DigitsConfig, ModelConfig, ResnetConfig, RunConfig, SgdConfig
from syncline.learning.evaluate import evaluated_parts
from syncline.records.rows import Row
from syncline.simulation.replicas import Replicas
from syncline.simulation.run import build_replicas, simulate
from syncline.strategies import STRATEGIES
from syncline.strategies.bsp import BspOptions
from syncline.strategies.collective import Averaging, Collective
from syncline.strategies.ds_sync import DsSyncOptions
from syncline.strategies.gossip import GRAPHS, GossipOptions
from syncline.timing.cluster import Cluster, ClusterConfig, ScenarioConfig
from syncline.timing.network import NetworkConfig

ALL_REDUCE = BspOptions(topology="allreduce")
EPOCH = DsSyncOptions(parity="epoch")
SGD = SgdConfig(lr=0.02, momentum=0.9, weight_decay=1e-3)
EXPONENTIAL = {"name": "exponential", "mean": 1.0}


config_of = partial(
    simulations.config_of,
    dataset=DigitsConfig(train_size=320, test_size=50),  # five steps of four workers an epoch
    optimizer=SGD,
    strategy=DsSyncOptions(),
    cluster=ClusterConfig(workers=4, gradient_s=[1.0]),
    batch_size=16,
    max_updates=10,
)


def run_of(config: RunConfig) -> tuple[dict, list[dict]]:
    """Summary and rows of metrics."""
    rows: list[dict] = []
    return simulate(config, rows.append, lambda progress: None), rows


def timing_of(**changes) -> dict:
    """The summary of a run without gradients."""
    return simulated(config_of(gradients=False, **changes))


def replicas_after(config: RunConfig, steps: int):
    """The replicas after this many steps, without the simulator."""
    replicas = build_replicas(config)
    samples = config.batch_size * config.cluster.workers
    for step in range(steps):
        turn = step % config.strategy.collective.turns(config.cluster.workers)
        replicas.step(step, turn, replicas.rate(step * samples, step))
    return replicas


# What is learned.


@pytest.mark.parametrize("model", [ModelConfig(), ResnetConfig(depth=8, width=4)], ids=["lenet", "resnet8"])
def test_bsp_by_all_reduce_learns_what_bsp_learns_by_a_server(model):
    """To rounding: the server adds gradients in the order of arrival. Every row of metrics and all times agree, too."""
    cluster = ClusterConfig(workers=4, gradient_s=[1.0, 2.0, 1.5])
    changes = {"model": model, "cluster": cluster, "epochs": 2, "max_updates": None, "eval_every_epochs": 0.5}
    changes |= {"optimizer": SgdConfig(lr=0.01, momentum=0.5)}
    (ours, our_rows), (theirs, their_rows) = (
        run_of(config_of(strategy=strategy, **changes)) for strategy in (ALL_REDUCE, BspOptions())
    )
    for mine, other in zip(our_rows, their_rows, strict=True):
        assert mine["loss"] == pytest.approx(other["loss"], rel=1e-4)
        assert mine["train_loss"] == (other["train_loss"] and pytest.approx(other["train_loss"], rel=1e-4))
        keys = ("time_s", "epoch", "updates", "samples", "learning_rate")
        assert [mine[key] for key in keys] == [other[key] for key in keys]
    keys = ("time_s", "ended_by", "updates", "samples", "gradients_used", "staleness", "used_by_worker", "max_lead")
    assert [ours[key] for key in keys] == [theirs[key] for key in keys]
    assert ours["busy_by_worker"] == pytest.approx(theirs["busy_by_worker"])


def test_a_worker_steps_by_itself_and_then_its_group_averages_weights_and_statistics_but_no_momentum():
    """Lines 4-19 of Algorithm 1, written out with torch.optim on four models."""
    config = config_of(model=ResnetConfig(depth=8, width=4), optimizer=SgdConfig(lr=0.05, momentum=0.9))
    ours = replicas_after(config, 3)
    plain = build_replicas(config)
    flat, states = plain._local[0].gradient.flat, [None] * 4
    weights, buffers = [list(tensors) for tensors in (plain.weights, plain.buffers)]
    for step in range(3):
        for worker in range(4):
            batch = plain.executor.batches[worker].take(step).samples
            flat.load([weights[worker]], buffers[worker])
            optimizer = torch.optim.SGD([torch.nn.Parameter(weights[worker].clone())], lr=0.05, momentum=0.9)
            if states[worker] is not None:
                optimizer.load_state_dict(states[worker])
            flat.gradient.zero_()
            torch.nn.functional.cross_entropy(flat.module(batch[0]), batch[1]).backward()
            (parameter,) = optimizer.param_groups[0]["params"]
            parameter.grad = flat.gradient.clone()
            optimizer.step()
            weights[worker], buffers[worker] = parameter.detach().clone(), flat.buffers.clone()
            states[worker] = optimizer.state_dict()
        for one, other in ((0, 1), (2, 3)) if step % 2 == 0 else ((0, 2), (1, 3)):
            for tensors in (weights, buffers):
                tensors[one] = tensors[other] = (tensors[one] + tensors[other]) / 2
    for worker in range(4):
        assert torch.equal(ours.weights[worker], weights[worker])
        assert torch.equal(ours.buffers[worker], buffers[worker])


def test_before_forward_differs_only_in_when_it_averages():
    """As if each step had the groups of the next one, and the last step none."""
    first = replicas_after(config_of(strategy=DsSyncOptions(average="before_forward")), 4)
    shifted = build_replicas(config_of())
    shifted._turns.append([Averaging([worker], [worker]) for worker in range(4)])
    for step, turn in enumerate((1, 0, 1, 2)):
        shifted.step(step, turn, shifted.rate(step * 64, step))
    for ours, theirs in zip(first.weights, shifted.weights, strict=True):
        assert torch.equal(ours, theirs)
    assert len({weights.sum().item() for weights in first.weights}) == 4  # no averaging after the last step


@pytest.mark.parametrize("graph", [graph for graph in GRAPHS if graph != "random"])
@pytest.mark.parametrize("num_workers", [4, 5])
def test_gossip_multiplies_the_stepped_replicas_by_the_matrix_of_its_graph(graph, num_workers):
    """X <- W(t) (X - rate G), with the gradients of plain PyTorch, and the matrices written out."""
    cluster = ClusterConfig(workers=num_workers, gradient_s=[1.0])
    config = config_of(strategy=GossipOptions(graph=graph), cluster=cluster, optimizer=SgdConfig(lr=0.05, momentum=0.0))
    ours, plain = replicas_after(config, 6), build_replicas(config)
    gradient = plain._local[0].gradient
    weights = torch.stack(plain.weights)
    for step in range(6):
        for worker in range(num_workers):
            batch = plain.executor.batches[worker].take(step)
            weights[worker] -= 0.05 * gradient([weights[worker].clone()], plain.buffers[worker], batch)[1]
        weights = matrix_of(graph, step, num_workers) @ weights
    torch.testing.assert_close(torch.stack(ours.weights), weights, rtol=1e-5, atol=1e-6)


def matrix_of(graph: str, step: int, num_workers: int) -> torch.Tensor:
    identity = torch.eye(num_workers)
    if graph == "ring":
        return (identity + identity.roll(1, 0) + identity.roll(-1, 0)) / 3
    if graph == "exponential":
        return (identity + identity.roll((1, 2, 4)[step % math.ceil(math.log2(num_workers))], 0)) / 2
    rounds = num_workers - 1 + num_workers % 2
    others = {worker: (step - worker) % rounds for worker in range(rounds)}
    if num_workers % 2 == 0:
        (alone,) = (worker for worker, other in others.items() if worker == other)
        others |= {alone: num_workers - 1, num_workers - 1: alone}
    return (identity + identity[[others[worker] for worker in range(num_workers)]]) / 2


def test_on_a_random_graph_gossip_is_stochastic_gradient_push():
    """Algorithm 1 of Assran et al. 2019 with x, w and z apart, heavy-ball momentum, and a matrix of each step."""
    num, rate, momentum = 5, 0.05, 0.9
    cluster, optimizer = ClusterConfig(workers=num, gradient_s=[1.0]), SgdConfig(lr=rate, momentum=momentum)
    strategy = GossipOptions(graph="random")
    config = config_of(strategy=strategy, cluster=cluster, optimizer=optimizer)
    ours, plain = replicas_after(config, 12), build_replicas(config)
    gradient = plain._local[0].gradient
    x, w = torch.stack(plain.weights), torch.ones(num)
    z, u = x.clone(), torch.zeros_like(x)
    for step in range(12):
        for worker in range(num):
            batch = plain.executor.batches[worker].take(step)
            u[worker] = momentum * u[worker] + gradient([z[worker].clone()], plain.buffers[worker], batch)[1]
            x[worker] -= rate * u[worker]
        receives = torch.eye(num)
        for worker, senders in enumerate(strategy.peers(step, num)):
            receives[worker, senders] = 1
        assert receives.sum(0).tolist() == [2] * num  # each sends to one
        x, w = receives @ x / 2, receives @ w / 2
        z = x / w[:, None]
    assert not torch.allclose(w, torch.ones(num))
    torch.testing.assert_close(torch.tensor(ours._push_sum.weights, dtype=torch.float32), w)
    torch.testing.assert_close(torch.stack(ours.weights), z, rtol=1e-5, atol=1e-5)
    (evaluated,), _, about = ours.current()
    torch.testing.assert_close(evaluated, x.mean(0), rtol=1e-5, atol=1e-5)
    assert about["divergence"] == pytest.approx((z - x.mean(0)).norm(dim=1).max().item(), rel=1e-3)
    weights, _, divergence = evaluated_parts(ours.final_states(), True)  # of files
    assert torch.equal(weights[0], evaluated)
    assert divergence == about["divergence"]


def test_the_consensus_is_evaluated_and_the_divergence_reported():
    config = config_of(max_updates=8, eval_every_epochs=0.1)
    summary, rows = run_of(config)
    assert rows[0]["divergence"] == 0
    assert all(row["divergence"] > 0 for row in rows[1:])
    assert summary["divergence"] == rows[-1]["divergence"]
    replicas = replicas_after(config, 8)
    weights = np.stack([weights.numpy() for weights in replicas.weights]).astype(np.float64)
    mean = weights.mean(axis=0)
    assert np.linalg.norm(weights - mean, axis=1).max() == pytest.approx(rows[-1]["divergence"], rel=1e-4)
    metrics = replicas.evaluator([torch.from_numpy(mean).float()], replicas.buffers[0])
    assert metrics["loss"] == pytest.approx(rows[-1]["loss"], rel=1e-5)


def test_the_divergence_is_that_of_the_replicas_also_where_their_averages_are_evaluated():
    (_, rows), (_, of_averages) = (
        run_of(config_of(max_updates=8, optimizer=SgdConfig(lr=0.1, average_decay=decay))) for decay in (None, 0.99)
    )
    assert of_averages[-1]["divergence"] == rows[-1]["divergence"] > 0
    assert of_averages[-1]["loss"] != rows[-1]["loss"]


@pytest.mark.parametrize("average", ["after_step", "before_forward"])
def test_the_first_replica_is_evaluated_where_that_is_asked_for(average):
    """Only what is evaluated changes: the run is the same, and so is the divergence of all replicas."""
    asked = [DsSyncOptions(average=average, evaluate=evaluate) for evaluate in ("mean", "first")]
    about = {"max_updates": 7, "eval_every_epochs": 0.1}
    (_, of_mean), (_, of_first) = (run_of(config_of(strategy=strategy, **about)) for strategy in asked)
    replicas = replicas_after(config_of(strategy=asked[1], **about), 7)
    metrics = replicas.evaluator([replicas.weights[0]], replicas.buffers[0])
    assert {key: of_first[-1][key] for key in metrics} == metrics
    keys = ("updates", "train_loss", "divergence", "learning_rate")
    assert [[row[key] for key in keys] for row in of_first] == [[row[key] for key in keys] for row in of_mean]
    assert of_first[0]["loss"] == of_mean[0]["loss"]
    assert all(ours["loss"] != theirs["loss"] for ours, theirs in zip(of_first[1:], of_mean[1:], strict=True))


def test_a_replica_that_is_not_evaluated_may_have_diverged():
    """The last step leaves it infinite, so no loss shows it: the divergence does."""
    replicas = replicas_after(config_of(strategy=DsSyncOptions(evaluate="first")), 2)
    replicas.weights[3].fill_(math.inf)
    weights, _, about = replicas.current()
    assert weights[0].isfinite().all()
    assert not math.isfinite(about["divergence"])


def test_bsp_keeps_one_replica_and_reports_no_divergence():
    summary, rows = run_of(config_of(strategy=ALL_REDUCE, max_updates=2))
    assert "divergence" not in summary
    assert all("divergence" not in row for row in rows)
    assert len(build_replicas(config_of(strategy=ALL_REDUCE)).weights) == 1


def test_a_target_ends_a_run_at_the_evaluation_that_reaches_it():
    config = config_of(max_updates=None, epochs=20, eval_every_epochs=0.2)
    summary, rows = run_of(replace(config, target=replace(config.target, value=0.5)))
    assert summary["ended_by"] == "target"
    assert rows[-1]["accuracy"] >= 0.5 > rows[-2]["accuracy"]
    assert summary["updates"] == rows[-1]["updates"]


@pytest.mark.parametrize("strategy", [ALL_REDUCE, DsSyncOptions()], ids=lambda options: options.name)
def test_a_loss_that_is_not_finite_stops_the_run(strategy):
    summary, _ = run_of(config_of(model=ModelConfig(), strategy=strategy, optimizer=SgdConfig(lr=1e9), max_updates=500))
    assert summary["status"] == "diverged"
    assert summary["updates"] < 500


@pytest.mark.parametrize("strategy", [ALL_REDUCE, DsSyncOptions()], ids=lambda options: options.name)
def test_equal_seeds_give_equal_bits_and_other_seeds_do_not(strategy):
    cluster = ClusterConfig(workers=4, gradient_s=[1.0], jitter=EXPONENTIAL)
    config = config_of(strategy=strategy, cluster=cluster, max_updates=10)
    first, again, other = (run_of(replace(config, seed=seed))[0] for seed in (0, 0, 1))
    for summary in (first, again, other):
        del summary["wall_s"]
    assert first == again
    assert first["time_s"] != other["time_s"]
    assert first["final"] != other["final"]


# When.


def recurrence(
    strategy, cluster: Cluster, steps: int, exchange_s, steps_an_epoch: Fraction = Fraction(10)
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Start, end of the computation and end of the exchange of every step, each [steps, workers].

    By the definition: a group starts its exchange when its last member is ready.
    """
    num_workers = cluster.num_workers
    begun, computed, exchanged = (np.zeros((steps, num_workers)) for _ in range(3))
    now = [0.0] * num_workers
    schedule = strategy.collective.schedule(num_workers, steps_an_epoch)
    for step in range(steps):

        def exchange(times, step=step):
            ends = [0.0] * num_workers
            for members, receivers in schedule.turns[schedule.turn(step)]:
                for worker in receivers:
                    ends[worker] = max(times[member] for member in members) + exchange_s(len(members))
            return ends

        if strategy.collective.averages_first:
            now = exchange(now)
        begun[step] = now
        now = [at + cluster.compute_s(worker) for worker, at in enumerate(now)]
        computed[step] = now
        if not strategy.collective.averages_first:
            now = exchange(now)
        exchanged[step] = now
    return begun, computed, exchanged


DS_SYNC = [(4, DsSyncOptions()), (6, DsSyncOptions()), (12, DsSyncOptions(group_size=4)), (6, EPOCH)]


@pytest.mark.parametrize(
    ("num_workers", "strategy"),
    [
        *DS_SYNC,
        *((number, replace(options, average="before_forward")) for number, options in DS_SYNC),
        *((7, GossipOptions(graph=graph)) for graph in GRAPHS),
    ],
)
def test_times_are_those_of_the_recurrence_with_random_times_and_delays(tmp_path, num_workers, strategy):
    """Every row of the log at its exact time, over more than one block of draws; rows in the order of time."""
    cluster = ClusterConfig(
        workers=num_workers,
        gradient_s=[1.0, 2.0],
        jitter=EXPONENTIAL,
        network=NetworkConfig(latency_s=0.1, bandwidth_gbps=1.0),
        message_bytes=125_000_000,
    )
    delay = {"name": "constant", "value": 3.0, "probability": 0.2}
    scenario = ScenarioConfig(compute_delay=delay, slow={1: 2.0})
    steps = 150
    config = config_of(strategy=strategy, cluster=cluster, scenario=scenario, gradients=False, max_updates=steps)
    summary, log = logged(config, tmp_path)
    times = Cluster(cluster, scenario, config.seed)
    has_peers = strategy.collective.peers is not None
    least = 2 if strategy == GossipOptions(graph="random") else 1  # each sends a message, also if it receives none
    begun, computed, exchanged = recurrence(
        strategy,
        times,
        steps,
        lambda size: (
            (max(size, least) > 1) * 0.1 + max(size, least) - 1 if has_peers else 2 * (size - 1) * (0.1 + 1.0 / size)
        ),
        Fraction(320, 16 * num_workers),
    )
    events = log.to_pandas()
    assert (events["at"].diff().dropna() >= 0).all()
    for kind, expected in (("started", begun), ("computed", computed), ("pushed", computed), ("applied", exchanged)):
        rows = events[events.kind == kind].sort_values(["worker", "at"], kind="stable")
        np.testing.assert_allclose(rows["at"].to_numpy().reshape(num_workers, steps).T, expected, rtol=1e-12)
    granted = events[events.kind == "granted"].sort_values(["worker", "at"], kind="stable")
    expected = begun[1:] if strategy.collective.averages_first else exchanged
    np.testing.assert_allclose(granted["at"].to_numpy().reshape(num_workers, -1).T, expected, rtol=1e-12)
    assert set(events[events.kind == "granted"].because) == {"peers" if has_peers else "all-reduce"}
    assert sorted(events[events.kind == "applied"].push) == list(range(steps * num_workers))
    delayed = events[events.kind == "delayed"]
    assert 0 < len(delayed) < steps * num_workers
    assert set(delayed.value) == {3.0}
    assert summary["time_s"] == pytest.approx(exchanged.max())
    busy = (computed - begun).sum(axis=0) / exchanged.max()
    assert summary["busy_by_worker"] == pytest.approx(busy.tolist())
    assert summary["max_lead"] == max(leads([Row(*row) for row in events.itertuples(index=False)], num_workers))
    if has_peers:
        assert 1 < summary["max_lead"] <= strategy.spread(num_workers)
    else:
        assert summary["max_lead"] == 2 or (strategy.parity == "epoch" and summary["max_lead"] == 3)


def test_times_of_bsp_are_those_of_the_slowest():
    cluster = ClusterConfig(workers=5, gradient_s=[1.0, 2.0], jitter=EXPONENTIAL)
    summary = timing_of(strategy=ALL_REDUCE, cluster=cluster, max_updates=200)
    assert summary["time_s"] == pytest.approx(
        first_compute_s(Cluster(cluster, ScenarioConfig(), 0), 200).max(axis=0).sum()
    )
    assert summary["max_lead"] == 1
    assert summary["staleness"] == {"0": 1000}
    assert summary["used_by_worker"] == [200] * 5


@dataclass(frozen=True, slots=True)
class InAndOut(GossipOptions):
    """Worker 0 sends to all others, then these send to it."""

    name: str = "in_and_out"

    @property
    def collective(self) -> Collective:
        def peers(turn: int, num: int) -> list[list[int]]:
            return [[*range(1, num)], *[[]] * (num - 1)] if turn else [[], *[[0]] * (num - 1)]

        return Collective(peers=peers, turns=lambda num: 2, spread=lambda num: 3, replicas=True)


def test_whoever_sends_or_receives_several_messages_is_as_long_busy_with_them(monkeypatch):
    """Each takes 1 s of a NIC. The first exchange takes 3.1 s for all; the next for worker 0, and 1.1 s for others."""
    monkeypatch.setitem(STRATEGIES, "in_and_out", InAndOut)
    network = NetworkConfig(latency_s=0.1, bandwidth_gbps=1.0)
    cluster = ClusterConfig(workers=4, gradient_s=[1.0], network=network, message_bytes=125_000_000)
    summary = timing_of(strategy=InAndOut(), cluster=cluster, max_updates=2)
    assert summary["time_s"] == pytest.approx(2 * (1 + 3.1))
    assert summary["time_shares"]["sending"] == pytest.approx((5 * 3.1 + 3 * 1.1) / (4 * 8.2))


def test_where_the_parity_restarts_each_epoch_rows_meet_twice_at_its_border(monkeypatch):
    seen = []
    step = Replicas.step
    monkeypatch.setattr(
        Replicas, "step", lambda self, number, turn, rate: seen.append(turn) or step(self, number, turn, rate)
    )
    three_steps = DigitsConfig(train_size=192)  # an epoch
    run_of(config_of(dataset=three_steps, strategy=EPOCH, max_updates=9))
    assert seen == [0, 1, 0] * 3


LIMITED = [(4.0, 10.0, DsSyncOptions()), *((9.0, limit_s, EPOCH) for limit_s in (9.5, 21.0, 28.3, 40.1))]


@pytest.mark.parametrize(
    ("slow_s", "limit_s", "strategy"),
    [
        *LIMITED,
        *((slow_s, limit_s, replace(options, average="before_forward")) for slow_s, limit_s, options in LIMITED),
        (9.0, 40.1, GossipOptions()),
    ],
)
def test_a_time_limit_ends_a_run_before_the_update_that_would_be_late(slow_s, limit_s, strategy):
    """Two workers are slow; the work of all steps under way counts, and what the fast ones wait does not."""
    num_workers = 4 if isinstance(strategy, DsSyncOptions) else 12
    cluster = ClusterConfig(workers=num_workers, gradient_s=[1.0] * (num_workers - 2) + [slow_s, slow_s])
    dataset = DigitsConfig(train_size=48 * num_workers)
    summary = timing_of(dataset=dataset, strategy=strategy, cluster=cluster, max_updates=None, max_time_s=limit_s)
    times = Cluster(cluster, ScenarioConfig(), 0)
    begun, computed, exchanged = recurrence(strategy, times, 12, lambda size: 0.0, Fraction(3))
    assert (summary["ended_by"], summary["time_s"]) == ("max_time_s", limit_s)
    assert summary["updates"] == (exchanged.max(axis=1) <= limit_s).sum()
    busy = np.clip(limit_s - begun, 0, computed - begun).sum(axis=0) / limit_s
    assert summary["busy_by_worker"] == pytest.approx(busy.tolist())
    counts = [(computed <= at).sum(axis=0) for at in computed[computed <= limit_s]]
    assert summary["max_lead"] == max(count.max() - count.min() for count in counts)


@pytest.mark.parametrize("strategy", [ALL_REDUCE, DsSyncOptions()], ids=lambda options: options.name)
def test_one_all_reduce_per_tensor_pays_the_latency_as_many_times(strategy):
    network = NetworkConfig(latency_s=0.5, bandwidth_gbps=1.0)
    cluster = ClusterConfig(gradient_s=[1.0], network=network, message_bytes=125_000_000, message_tensors=7)
    naive = replace(strategy, impl="naive")
    members = 2 if strategy.has_replicas else 4
    for options, times in ((strategy, 1), (naive, 7)):
        exchange_s = 2 * (members - 1) * (0.5 * times + 1.0 / members)
        assert timing_of(strategy=options, cluster=cluster, max_updates=10)["time_s"] == pytest.approx(
            10 * (1 + exchange_s)
        )
    # By default the number of tensors is the model's: LeNet has ten.
    default = replace(cluster, message_tensors=None)
    about = {"model": ModelConfig(), "strategy": naive, "cluster": default, "max_updates": 2}
    lenet = timing_of(**about)["time_s"]
    assert lenet == pytest.approx(2 * (1 + 2 * (members - 1) * (0.5 * 10 + 1.0 / members)))
    learned = run_of(config_of(**about))[0]
    assert learned["time_s"] == pytest.approx(lenet)


def test_times_do_not_depend_on_what_is_learned():
    cluster = ClusterConfig(workers=4, gradient_s=[1.0], jitter=EXPONENTIAL, message_bytes=1000)
    config = config_of(cluster=cluster, max_updates=100, batch_size=4)
    timed, learned = (run_of(replace(config, gradients=learns))[0] for learns in (False, True))
    for key in ("time_s", "busy_by_worker", "max_lead", "samples", "updates"):
        assert timed[key] == learned[key]
