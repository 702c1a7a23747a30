"""What the simulator costs: against a plain PyTorch loop for the same gradients, and with times alone."""

import time
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from benchmarks.measuring import Spread, cpu_s, simulated
from syncline.assembly.problem import build_problem
from syncline.config import DigitsConfig, GlyphsConfig, ModelConfig, ResnetConfig, RunConfig, SgdConfig
from syncline.progress import Limits, Totals
from syncline.simulation.loop import Simulation
from syncline.simulation.run import build_server_training
from syncline.strategies import STRATEGIES
from syncline.strategies.asp import AspOptions
from syncline.strategies.protocol import StrategyOptions
from syncline.timing.cluster import Cluster, ClusterConfig, ScenarioConfig
from syncline.timing.distributions import Normal

DATASET = GlyphsConfig(train_size=2000, test_size=10)
SGD = SgdConfig(lr=0.01, momentum=0.9, weight_decay=1e-4)
BATCH = 32
STEPS = 400_000  # gradients used, of a run with times alone


class NullObserver:
    """Evaluates nothing: the observer of simulations that only run."""

    def updated(self, totals: Totals) -> tuple[int, str | None]:
        return 1 << 62, None


def against_a_plain_loop(model: ModelConfig | ResnetConfig, steps: int, pairs: int) -> Spread:
    """CPU seconds of the simulator / of a plain loop, for `steps` gradients of batch 32 each, in alternation.

    The simulator runs ASP with four unequal workers (stale snapshots, five versions alive); the loop is torch.optim.SGD
    on the same model, data and batch size.
    """
    cluster = ClusterConfig(workers=4, gradient_s=[0.02, 0.02, 0.03, 0.06])
    config = RunConfig(
        model=model, dataset=DATASET, optimizer=SGD, strategy=AspOptions(), cluster=cluster, batch_size=BATCH, epochs=1
    )
    learning = build_server_training(config)

    def ours() -> None:
        Simulation(
            strategies=[AspOptions().start(4)],
            cluster=Cluster(cluster, ScenarioConfig(), seed=0),
            block_bytes=[0],
            batch_size=BATCH,
            limits=Limits(updates=steps),
            observer=NullObserver(),
            learning=(learning.shards, learning.worker_gradients),
        ).run()

    alone = replace(config, cluster=ClusterConfig(workers=1))
    problem = build_problem(alone, torch.device("cpu"))
    module = deepcopy(problem.flat.module)  # an ordinary one: its tensors are no views
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    batches = problem.batches(alone, 0)

    def plain() -> None:
        for iteration in range(steps):
            inputs, labels = batches.take(iteration).samples
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(module(inputs), labels)
            loss.backward()  # type: ignore[no-untyped-call]
            loss.item()
            optimizer.step()

    for warm_up in (ours, plain):
        warm_up()
    return Spread(tuple(cpu_s(ours) / cpu_s(plain) for _ in range(pairs)))


def options_of(strategy: str, num_workers: int) -> StrategyOptions:
    """A row of the table as it might be used with so many workers."""
    some = {"k": max(1, num_workers // 2)}
    given: dict[str, dict[str, Any]] = {
        "backup": {"backups": max(1, num_workers // 20)},  # backup.txt, section 3: "say 5% more"
        "psp": {"c": num_workers * 7 // 8},  # 28 of 32
        **dict.fromkeys(("k_sync", "k_batch_sync", "k_async", "k_batch_async", "rennala"), some),
        "ringmaster": {"r": max(1, num_workers // 2)},
    }
    return STRATEGIES[strategy](**given.get(strategy, {}))


def steps_per_cpu_second(strategies: Sequence[str], num_workers: int, repeats: int) -> list[Spread]:
    """Millions of worker-steps (gradients begun) per CPU second with times alone, of each strategy, in alternation.

    The strategy's own object, messages that take no time, 10 % normal jitter; setting up counts.
    """
    cluster = ClusterConfig(workers=num_workers, gradient_s=[1.0, 1.3, 1.7], jitter=Normal(mean=1.0, std=0.1))
    rates: list[list[float]] = [[] for _ in strategies]
    for _ in range(repeats):
        for strategy, found in zip(strategies, rates, strict=True):
            config = RunConfig(
                dataset=DigitsConfig(train_size=1000),
                strategy=options_of(strategy, num_workers),
                cluster=cluster,
                batch_size=1,
                epochs=STEPS / 1000,
                gradients=False,
            )
            begun = time.process_time()
            summary = simulated(config)
            spent = time.process_time() - begun
            kinds = ("gradients_used", "gradients_discarded", "gradients_interrupted")
            found.append(sum(summary[kind] for kind in kinds) / spent / 1e6)
    return [Spread(tuple(found)) for found in rates]
