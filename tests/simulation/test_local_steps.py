"""Local steps in virtual time, against plain PyTorch loops and closed forms."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import simulations
import torch
from recurrences import asp_pushes_s, first_compute_s
from simulations import ended
from torch import Tensor, nn

from benchmarks.measuring import simulated
from runners.commands import call
from runners.racing import declared_races
from syncline.assembly.local_steps import build_local_steps
from syncline.assembly.problem import Problem, build_problem
from syncline.config import RunConfig, SgdConfig, choices, from_plain
from syncline.config.local_steps import LocalStepsConfig
from syncline.config.optimizers import AdamWConfig, ScheduleConfig
from syncline.config.updates import ElasticConfig
from syncline.learning.local_steps import LocalRule, LocalSteps
from syncline.strategies.asp import AspOptions
from syncline.strategies.backup import BackupOptions
from syncline.strategies.bsp import BspOptions
from syncline.strategies.ds_sync import DsSyncOptions
from syncline.strategies.k_sync import KBatchSyncOptions
from syncline.strategies.protocol import StrategyOptions
from syncline.strategies.psp import PspOptions
from syncline.timing.cluster import Cluster, ClusterConfig, ScenarioConfig
from syncline.timing.distributions import Exponential
from syncline.timing.network import NetworkConfig

PLAIN = SgdConfig(lr=0.05, momentum=0.0)
NOISY = ClusterConfig(workers=4, gradient_s=[0.02, 0.03, 0.05], jitter=Exponential(1.0))
config_of = partial(simulations.config_of, optimizer=PLAIN, cluster=NOISY, max_updates=16)
CPU = torch.device("cpu")
KINDS: list[StrategyOptions] = [  # that differ in what a worker does after a push
    AspOptions(),
    BspOptions(),
    BackupOptions(backups=1),
    KBatchSyncOptions(k=3),
    PspOptions(c=2, tau1=0.006),
    PspOptions(c=1, tag="newest"),
]
QUICKLY = ("model=softmax_regression", "dataset.test_size=20", "max_updates=1")
DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "local-steps.md").read_text()
COMMANDS = re.findall(r"^python run\.py (.*)$", PAGE + (DOCS / "compression.md").read_text(), re.MULTILINE)


def plain_sgd(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05)


def plain_round(
    problem: Problem,
    config: RunConfig,
    weights: torch.Tensor,
    worker: int,
    number: int,
    steps: int,
    make: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
) -> torch.Tensor:
    """The weights after a round of torch's optimizer from these weights."""
    flat, batches = problem.flat, problem.batches(config, worker)
    parameter = nn.Parameter(weights.clone())
    optimizer = make([parameter])
    for place in range(number * steps, (number + 1) * steps):
        _, gradient, _ = problem.gradient([parameter.detach()], flat.buffers.clone(), batches.take(place))
        parameter.grad = gradient.clone()
        optimizer.step()
    return parameter.detach()


@pytest.mark.parametrize("strategy", [BspOptions(), BspOptions(topology="allreduce")], ids=["server", "allreduce"])
def test_bsp_averages_the_weights_of_all_workers_every_h_steps(strategy: BspOptions) -> None:
    """Local SGD (Stich 2019, algorithm 1), with weight decay, written out with torch.optim."""
    optimizer = replace(PLAIN, weight_decay=0.01)
    config = config_of(strategy, optimizer=optimizer, local=LocalStepsConfig(steps=5), max_updates=3)
    problem = build_problem(config, CPU)
    weights = problem.flat.weights.clone()
    for number in range(3):
        ends = [
            plain_round(
                problem,
                config,
                weights,
                worker,
                number,
                5,
                lambda each: torch.optim.SGD(each, lr=0.05, weight_decay=0.01),
            )
            for worker in range(4)
        ]
        weights = torch.stack(ends).mean(0)
    found, summary = ended(config)
    torch.testing.assert_close(found, weights, rtol=1e-5, atol=1e-6)
    assert (summary["updates"], summary["samples"]) == (3, 3 * 4 * 5 * 8)


@pytest.mark.parametrize("strategy", [BspOptions(), BspOptions(topology="allreduce")], ids=["server", "allreduce"])
def test_diloco_steps_with_nesterov_momentum_on_the_mean_change(strategy: BspOptions) -> None:
    """Douillard et al. 2023, algorithm 1: the inner AdamW of each worker keeps its state."""
    inner = AdamWConfig(lr=0.01, weight_decay=0.1)
    outer = SgdConfig(lr=0.7, momentum=0.9, nesterov=True)
    config = config_of(strategy, optimizer=outer, local=LocalStepsConfig(steps=4, optimizer=inner), max_updates=3)
    problem = build_problem(config, CPU)
    shared = nn.Parameter(problem.flat.weights.clone())
    slow = torch.optim.SGD([shared], lr=0.7, momentum=0.9, nesterov=True)
    own = [nn.Parameter(shared.detach().clone()) for _ in range(4)]
    fast = [torch.optim.AdamW([each], lr=0.01, weight_decay=0.1) for each in own]
    batches = [problem.batches(config, worker) for worker in range(4)]
    for number in range(3):
        for worker in range(4):
            own[worker].data.copy_(shared.detach())
            for place in range(4 * number, 4 * number + 4):
                _, gradient, _ = problem.gradient(
                    [own[worker].detach()], problem.flat.buffers.clone(), batches[worker].take(place)
                )
                own[worker].grad = gradient.clone()
                fast[worker].step()
        shared.grad = torch.stack([shared.detach() - each.detach() for each in own]).mean(0)
        slow.step()
    torch.testing.assert_close(ended(config)[0], shared.detach(), rtol=1e-5, atol=1e-6)


def test_elastic_averaging_draws_replica_and_server_to_each_other() -> None:
    """Zhang et al. 2015, algorithm 1: four workers of unequal speed, each pushing after three steps of its own."""
    alpha, pushes = 0.2, 24
    local = LocalStepsConfig(steps=3, keep=(1 - 2 * alpha) / (1 - alpha), optimizer=PLAIN)
    about = {"optimizer": SgdConfig(lr=1.0, momentum=0.0), "local": local, "max_updates": pushes}
    config = config_of(AspOptions(), update=ElasticConfig(strength=alpha), **about)
    seconds = first_compute_s(Cluster(NOISY, ScenarioConfig(), 0), 3 * pushes)
    ends = asp_pushes_s(seconds.reshape(4, pushes, 3).sum(axis=2))
    order = sorted((end, worker) for worker, row in enumerate(ends) for end in row)[:pushes]
    problem = build_problem(config, CPU)
    center, numbers = problem.flat.weights.clone(), [0] * 4
    replicas = [center.clone() for _ in range(4)]
    for _, worker in order:
        replica = plain_round(problem, config, replicas[worker], worker, numbers[worker], 3, plain_sgd)
        numbers[worker] += 1
        moved = alpha * (replica - center)
        replicas[worker], center = replica - moved, center + moved
    assert min(numbers) < max(numbers)
    torch.testing.assert_close(ended(config)[0], center, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize(("shards", "num"), [(1, 3), (2, 3), (1, 2)])
def test_streaming_diloco_exchanges_one_fragment_a_round(shards: int, num: int, overlap: bool) -> None:
    """Douillard et al. 2025, algorithm 2: several fragments, each with an outer optimizer of its own.

    With overlap what a round ends with is mixed in after the next one.
    """
    inner, keep = SgdConfig(lr=0.05, momentum=0.9), 0.25
    about = {"optimizer": SgdConfig(lr=0.7, momentum=0.9, nesterov=True), "max_updates": 8}
    local = LocalStepsConfig(steps=2, keep=keep, fragments=num, overlap=overlap, optimizer=inner)
    config = config_of(BspOptions(), cluster=replace(NOISY, shards=shards), local=local, **about)
    problem = build_problem(config, CPU)
    n = problem.flat.weights.numel()
    edges = [n * shard // shards for shard in range(shards + 1)]
    fragment = torch.empty(n, dtype=torch.long)
    for begin, end in pairwise(edges):
        for part in range(num):
            first, last = (begin + (end - begin) * each // num for each in (part, part + 1))
            fragment[first:last] = part
    places = [(fragment == part).nonzero().flatten() for part in range(num)]
    shared = [nn.Parameter(problem.flat.weights[place].clone()) for place in places]
    slow = [torch.optim.SGD([each], lr=0.7, momentum=0.9, nesterov=True) for each in shared]
    own = [nn.Parameter(problem.flat.weights.clone()) for _ in range(4)]
    fast = [torch.optim.SGD([each], lr=0.05, momentum=0.9) for each in own]
    batches = [problem.batches(config, worker) for worker in range(4)]
    for number in range(8):
        for worker in range(4):
            for step in range(2 * number, 2 * number + 2):
                _, gradient, _ = problem.gradient(
                    [own[worker].detach()], problem.flat.buffers.clone(), batches[worker].take(step)
                )
                own[worker].grad = gradient.clone()
                fast[worker].step()
        part = number % num
        outer, place = shared[part], places[part]
        outer.grad = torch.stack([outer.detach() - each.detach()[place] for each in own]).mean(0)
        slow[part].step()
        answered = number - 1 if overlap else number
        if answered >= 0:
            came, place = shared[answered % num].detach(), places[answered % num]
            for each in own:
                each.data[place] = keep * each.data[place] + (1 - keep) * came
    expected = torch.empty(n)
    for place, outer in zip(places, shared, strict=True):
        expected[place] = outer.detach()
    torch.testing.assert_close(ended(config)[0], expected, rtol=1e-5, atol=1e-6)


def test_an_asynchronous_fragment_is_compared_with_what_the_worker_was_sent_of_it_last() -> None:
    """Two fragments under ASP: other workers move a fragment while this one exchanges the other."""
    pushes = 24
    local = LocalStepsConfig(steps=3, fragments=2, optimizer=PLAIN)
    about = {"optimizer": SgdConfig(lr=0.5, momentum=0.0), "local": local, "max_updates": pushes}
    config = config_of(AspOptions(), **about)
    seconds = first_compute_s(Cluster(NOISY, ScenarioConfig(), 0), 3 * pushes)
    ends = asp_pushes_s(seconds.reshape(4, pushes, 3).sum(axis=2))
    order = sorted((end, worker) for worker, row in enumerate(ends) for end in row)[:pushes]
    problem = build_problem(config, CPU)
    center, numbers = problem.flat.weights.clone(), [0] * 4
    half = center.numel() // 2
    places = [slice(0, half), slice(half, None)]
    sent, replicas = [center.clone() for _ in range(4)], [center.clone() for _ in range(4)]
    for _, worker in order:
        place = places[numbers[worker] % 2]
        replica = plain_round(problem, config, replicas[worker], worker, numbers[worker], 3, plain_sgd)
        numbers[worker] += 1
        center[place] -= 0.5 * (sent[worker] - replica)[place]
        replica[place] = sent[worker][place] = center[place]
        replicas[worker] = replica
    assert min(numbers) < max(numbers)
    torch.testing.assert_close(ended(config)[0], center, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("gbps", [0.01, 0.1])  # messages take longer than gradients, or less
@pytest.mark.parametrize("overlap", [False, True])
def test_a_message_is_of_one_fragment(overlap: bool, gbps: float) -> None:
    """A round takes two gradients and two messages of a quarter of the bytes, and the number of the fragment."""
    network = NetworkConfig(bandwidth_gbps=gbps, latency_s=0.001)
    cluster = ClusterConfig(workers=1, gradient_s=[0.02], network=network, message_bytes=400_000)
    local = LocalStepsConfig(steps=2, fragments=4, overlap=overlap, optimizer=PLAIN)
    about = {"cluster": cluster, "local": local, "gradients": False}
    some, more = (simulated(config_of(AspOptions(), **about, max_updates=num)) for num in (8, 18))
    messages_s = 2 * (0.001 + 8 * 100_008 / (gbps * 1e9))
    round_s = max(0.04, messages_s) if overlap else 0.04 + messages_s
    assert more["time_s"] - some["time_s"] == pytest.approx(10 * round_s, rel=1e-9)
    sending_s = max(0.0, messages_s - 0.04) if overlap else messages_s
    computing, sending = (
        more["time_shares"][share] * more["time_s"] - some["time_shares"][share] * some["time_s"]
        for share in ("computing", "sending")
    )
    assert (computing, sending) == (pytest.approx(0.4, rel=1e-9), pytest.approx(10 * sending_s, abs=1e-9))


def test_an_optimizer_of_ones_own_makes_the_local_steps_and_keeps_its_state() -> None:
    """One worker, and a server that takes its weights: torch's optimizer over all its mini-batches in turn."""
    local = LocalStepsConfig(steps=4, optimizer={"_target_": "torch.optim.NAdam", "lr": 0.01, "momentum_decay": 0.01})
    about = {"optimizer": SgdConfig(lr=1.0, momentum=0.0), "local": local, "max_updates": 5}
    config = config_of(AspOptions(), cluster=ClusterConfig(workers=1), **about)
    problem = build_problem(config, CPU)
    parameter = nn.Parameter(problem.flat.weights.clone())
    optimizer, batches = torch.optim.NAdam([parameter], lr=0.01, momentum_decay=0.01), problem.batches(config, 0)
    for place in range(20):
        _, gradient, _ = problem.gradient([parameter.detach()], problem.flat.buffers.clone(), batches.take(place))
        parameter.grad = gradient.clone()
        optimizer.step()
    torch.testing.assert_close(ended(config)[0], parameter.detach(), rtol=1e-5, atol=1e-6)
    plain = json.loads(json.dumps(config.as_dict()))
    assert from_plain(plain).identity == config.identity


@pytest.mark.parametrize("strategy", [*KINDS, BspOptions(topology="allreduce"), DsSyncOptions()], ids=repr)
def test_one_step_of_plain_sgd_and_an_update_of_rate_one_is_the_ordinary_run(strategy: StrategyOptions) -> None:
    """Times in every bit, weights to rounding; under noise, with several shards where they are allowed."""
    shards = 1 if strategy.single_server or not strategy.has_server else 2
    cluster = replace(NOISY, shards=shards, network=NetworkConfig(latency_s=0.004))
    about = {"cluster": cluster, "max_updates": 12}
    weights, plain = ended(config_of(strategy, **about))
    local = LocalStepsConfig(optimizer=SgdConfig(lr=0.05, momentum=0.0))
    found, again = ended(config_of(strategy, **about, optimizer=SgdConfig(lr=1.0, momentum=0.0), local=local))
    for key in ("time_s", "updates", "samples", "used_by_worker"):
        assert again[key] == plain[key], key
    torch.testing.assert_close(found, weights, rtol=0, atol=1e-6)


def test_a_replica_makes_its_steps_and_then_averages_over_its_group() -> None:
    """DS-Sync: rows at even steps, columns at odd ones."""
    config = config_of(DsSyncOptions(), local=LocalStepsConfig(steps=3), max_updates=2)
    problem = build_problem(config, CPU)
    own = [problem.flat.weights.clone() for _ in range(4)]
    for number, groups in enumerate([[(0, 1), (2, 3)], [(0, 2), (1, 3)]]):
        own = [plain_round(problem, config, own[worker], worker, number, 3, plain_sgd) for worker in range(4)]
        for group in groups:
            mean = torch.stack([own[worker] for worker in group]).mean(0)
            for worker in group:
                own[worker] = mean
    torch.testing.assert_close(ended(config)[0], torch.cat(own), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("strategy", [BspOptions(), BspOptions(topology="allreduce")], ids=["server", "allreduce"])
@pytest.mark.parametrize("after", [0.0, 2.0])
def test_a_push_takes_the_time_of_all_its_mini_batches(strategy: BspOptions, after: float) -> None:
    """BSP without a network: an update at the slowest worker's sum; ordinary updates first with `after_epochs`."""
    local = LocalStepsConfig(steps=7, after_epochs=after)
    config = config_of(strategy, local=local, gradients=False, max_updates=150)
    rounds = config.rounds(200)
    assert rounds.single == (13 if after else 0), "of 200 samples four workers have 6.25 mini-batches of 8 an epoch"
    drawn = first_compute_s(Cluster(NOISY, ScenarioConfig(), 0), rounds.batches(150).start)
    ends = np.stack([drawn[:, rounds.batches(step)].sum(axis=1) for step in range(150)]).max(axis=1)
    summary = simulated(config)
    assert summary["time_s"] == pytest.approx(ends.sum(), rel=1e-12)
    assert summary["samples"] == 4 * 8 * rounds.batches(150).start


def test_the_rate_of_local_steps_follows_the_workers_own_epochs() -> None:
    """The schedule drops to 0 after one epoch of the worker's own share: later rounds change nothing."""
    schedule = ScheduleConfig(at_epochs=[1.0], factor=1e-12)
    inner = SgdConfig(lr=0.05, momentum=0.0, schedule=schedule)
    about = {"optimizer": SgdConfig(lr=1.0, momentum=0.0), "local": LocalStepsConfig(steps=5, optimizer=inner)}
    one_worker = ClusterConfig(workers=1)
    first, _ = ended(config_of(AspOptions(), cluster=one_worker, max_updates=5, **about))  # 25 of 25 mini-batches
    later, _ = ended(config_of(AspOptions(), cluster=one_worker, max_updates=9, **about))
    torch.testing.assert_close(first, later, rtol=0, atol=1e-9)
    before, _ = ended(config_of(AspOptions(), cluster=one_worker, max_updates=4, **about))
    assert not torch.equal(before, first)


@pytest.mark.xdist_group("forked_runs")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_a_page_runs(command: str, tmp_path: Path) -> None:
    """As written, but for a small network, an update and a folder of its own."""
    assert call(["run", *command.split(), *QUICKLY, f"results={tmp_path}"]) == 0


def test_the_race_of_the_page_is_one_of_each_strategy_and_number_of_steps() -> None:
    (command,) = re.findall(r"^syncline race (.*)$", PAGE, re.MULTILINE)
    assert len(declared_races(command.split())[0][0].study.entrants) == 3 * 2  # type: ignore[attr-defined]


def test_the_page_names_every_key_and_preset() -> None:
    for each in fields(LocalStepsConfig):
        assert each.name == "name" or f"`local.{each.name}`" in PAGE
    assert [name for name in choices("local") if name != "none" and f"| `{name}` |" not in PAGE] == []


def test_by_speed_all_pushes_take_about_as_long() -> None:
    """The fastest makes 12 steps of 1 s, the others as many as fit: 6, 3, 2 of 5 s, and 4 of 3 s, slowed down."""
    cluster = ClusterConfig(workers=5, gradient_s=[1.0, 2.0, 4.0, 5.0, 1.5])
    scenario, local = ScenarioConfig(slow={4: 2.0}), LocalStepsConfig(steps=12, by_speed=True)
    config = config_of(AspOptions(), cluster=cluster, scenario=scenario, local=local, max_time_s=24.0, max_updates=None)
    assert config.rounds(200).by_worker == (12, 6, 3, 2, 4)
    summary = simulated(config)
    assert summary["used_by_worker"] == [2, 2, 2, 2, 2]
    assert summary["samples"] == 2 * (12 + 6 + 3 + 2 + 4) * config.batch_size


@dataclass(eq=False, slots=True)
class Drift(LocalRule):
    """Each worker's pushes are less the mean of its own so far."""

    _sum: Tensor | None = field(default=None, init=False)
    _pushes: int = field(default=0, init=False)

    def push(self, change: Tensor, weights: Tensor, sent: Tensor) -> None:
        self._sum = change.clone() if self._sum is None else self._sum + change
        self._pushes += 1
        change.sub_(self._sum, alpha=0.5 / self._pushes)


def test_what_a_rule_keeps_is_in_the_state_of_the_local_steps() -> None:
    config = config_of(AspOptions(), local=LocalStepsConfig(steps=2, optimizer=AdamWConfig()))
    problem = build_problem(config, CPU)
    batches, start = problem.batches(config, 0), problem.flat.weights.clone()
    first, second, fresh = (replace(build_local_steps(config, problem, 0), rule=Drift()) for _ in range(3))

    def pushed(local: LocalSteps, number: int) -> Tensor:
        return local([start], problem.flat.buffers.clone(), batches, number)[1].clone()

    for number in range(2):
        pushed(first, number)
    kept = {name: tensor.clone() for name, tensor in first.state_dict().items()}
    second.load_state_dict(kept)
    assert torch.equal(pushed(first, 2), pushed(second, 2))
    second.load_state_dict({})
    assert torch.equal(pushed(second, 0), pushed(fresh, 0))
