"""`dataset.sharing=shared`: all workers take batches from one order of all samples."""

from collections import Counter
from functools import partial

import numpy as np
import pytest
from simulations import config_of, logged

from benchmarks.measuring import simulated
from syncline.config import DigitsConfig
from syncline.datasets.images import LabelledSource
from syncline.datasets.sharding import WorkerShare
from syncline.simulation.run import build_replicas
from syncline.strategies.asp import AspOptions
from syncline.strategies.bsp import BspOptions
from syncline.strategies.ds_sync import DsSyncOptions
from syncline.strategies.k_sync import KSyncOptions
from syncline.strategies.psp import PspOptions
from syncline.timing.cluster import ClusterConfig

SIZE, BATCH = 200, 8  # 25 batches an epoch
SHARED = DigitsConfig(train_size=SIZE, sharing="shared")
UNEQUAL = ClusterConfig(workers=4, gradient_s=[1.0, 1.3, 2.9, 5.1])
ORDER = WorkerShare(SIZE, 1, 0, BATCH, seed=0)
NUMBERS = {ORDER.batch(number).tobytes(): number for number in range(1000)}  # of each batch of the order


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of all training batches that are taken from now on."""
    numbers = list[int]()
    take = LabelledSource.take

    def noting(self, indices, generator):
        numbers.append(NUMBERS[indices.tobytes()])
        return take(self, indices, generator)

    monkeypatch.setattr(LabelledSource, "take", noting)
    return numbers


shared = partial(config_of, dataset=SHARED, cluster=UNEQUAL, batch_size=BATCH, max_updates=110)
STRATEGIES = [AspOptions(), BspOptions(), PspOptions(c=2, tag="newest")]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda options: options.name)
def test_whoever_begins_a_gradient_takes_the_next_batch(strategy, taken, tmp_path):
    """So on workers of which one is five times slower, every sample is taken once an epoch."""
    events = logged(shared(strategy), tmp_path)[1].to_pandas()
    begun = events[events.kind == "started"].worker.tolist()  # of batch 0, 1, ...
    batches = {worker: iter([number for number, who in enumerate(begun) if who == worker]) for worker in range(4)}
    computed = events[events.kind == "computed"].worker
    assert taken == [next(batches[worker]) for worker in computed]
    assert len(set(begun[:25])) == 4
    whole_epochs = min(set(range(len(begun))) - set(taken)) // 25
    assert whole_epochs >= 3
    for epoch in range(whole_epochs):
        samples = np.concatenate([ORDER.batch(25 * epoch + number) for number in range(25)])
        assert sorted(samples) == list(range(SIZE))
        assert set(range(25 * epoch, 25 * epoch + 25)) <= set(taken)


def test_the_batch_of_a_cancelled_gradient_is_the_workers_next(taken):
    """The slowest of four workers is always cancelled: it keeps its first batch, and no other batch is left out."""
    cluster = ClusterConfig(workers=4, gradient_s=[1.0, 1.0, 1.5, 5.0])
    simulated(shared(KSyncOptions(k=2), cluster=cluster))
    assert Counter(taken) == Counter(dict.fromkeys(range(len(taken) + 2), 1) | {2: 0, 3: 0})


@pytest.mark.parametrize("strategy", [BspOptions(topology="allreduce"), DsSyncOptions()], ids=lambda each: each.name)
def test_the_workers_of_a_collective_take_the_next_batches_in_order_of_rank(strategy, taken):
    config = shared(strategy, max_updates=20)
    replicas = build_replicas(config)
    for step in range(20):
        replicas.step(step, step % strategy.collective.turns(4), 0.01)
    assert taken == list(range(80))
