"""What is learned with cancelled, repeated and late work and with timers: equal bits, and no needless gradient."""

import math
from dataclasses import replace
from functools import partial

import pytest
import simulations
import torch
from log_checks import Rows
from simulations import DELAYS, check_counts, simulation_of

from syncline.config import RunConfig, SgdConfig
from syncline.progress import Totals
from syncline.records.rows import Row
from syncline.simulation.run import build_server_training
from syncline.strategies.backup import BackupOptions
from syncline.strategies.bsp import BspOptions
from syncline.strategies.k_sync import KBatchSyncOptions, KSyncOptions
from syncline.strategies.psp import PspOptions
from syncline.timing.cluster import ClusterConfig, ScenarioConfig
from syncline.timing.distributions import Uniform

SGD = SgdConfig(lr=0.02, momentum=0.9, weight_decay=1e-3)
FOUR = ClusterConfig(workers=4, gradient_s=[1.0, 1.3, 0.8], jitter=Uniform(0.5, 1.5))


config_of = partial(simulations.config_of, optimizer=SGD, cluster=FOUR, max_updates=25, device="cpu")


def learned(config: RunConfig, scenario: ScenarioConfig | None = None) -> tuple[torch.Tensor, Totals, Rows, int]:
    """Final weights, totals, log, and the gradients that were computed."""
    learning, rows, calls = build_server_training(config), Rows(), []
    compute = learning.worker_gradients.compute
    learning.worker_gradients.compute = lambda worker: (calls.append(worker), compute(worker))[1]  # type: ignore[method-assign]
    simulation = simulation_of(
        config.strategy,
        config.cluster,
        scenario,
        learning=learning,
        log=rows,
        batch_size=config.batch_size,
        updates=config.max_updates or math.inf,
    )
    assert simulation.run() == "max_updates"
    return torch.cat([shard.current.weights for shard in learning.shards]), simulation.totals, rows, len(calls)


def without_reasons(rows: Rows, *kinds: str) -> list[Row]:
    return [row._replace(because="") for row in rows.of(*kinds)]


@pytest.mark.parametrize("scenario", [ScenarioConfig(), DELAYS], ids=["at once", "delays"])
def test_psp_that_waits_for_all_is_bsp_at_as_many_times_the_rate(scenario):
    """Four workers: four times a float32 rate is exact."""
    psp = learned(config_of(PspOptions()), scenario)
    bsp = learned(config_of(BspOptions(), optimizer=replace(SGD, lr=4 * SGD.lr)), scenario)
    assert torch.equal(psp[0], bsp[0])
    assert without_reasons(psp[2], "pushed", "applied") == without_reasons(bsp[2], "pushed", "applied")


@pytest.mark.parametrize("scenario", [ScenarioConfig(), DELAYS], ids=["at once", "delays"])
@pytest.mark.parametrize("options", [KSyncOptions(k=1), KBatchSyncOptions(k=3)], ids=str)
def test_cancelled_gradients_are_never_computed(options, scenario):
    _, totals, rows, num_gradients = learned(config_of(options), scenario)
    cancelled = len(rows.of("dropped"))
    assert cancelled > 15
    assert num_gradients == len(rows.of("computed")) <= len(rows.of("started")) - cancelled
    check_counts(rows, totals, 4)


@pytest.mark.parametrize(("scenario", "shards"), [(ScenarioConfig(), 1), (DELAYS, 3)], ids=["at once", "delays"])
@pytest.mark.parametrize(
    "options",
    [PspOptions(c=1, b=60.0), PspOptions(c=1, b=30.0, tag="newest"), BackupOptions(backups=3)],
    ids=lambda options: f"{options.name} {getattr(options, 'tag', '')}",
)
def test_late_workers_learn_at_any_version_they_hold(options, scenario, shards):
    """One of four is always far behind; the memory of versions that no worker needs is used again."""
    cluster = replace(FOUR, shards=shards, gradient_s=[1.0, 2.5, 4.0, 9.0])
    weights, totals, rows, _ = learned(config_of(options, cluster=cluster, max_updates=60), scenario)
    assert torch.isfinite(weights).all()
    check_counts(rows, totals, 4, shards)
