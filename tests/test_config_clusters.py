"""Impossible options of a strategy, also on the given cluster, are one line: what was given, what is allowed."""

import pytest
from composing import composed, line_of

from syncline.strategies import STRATEGIES

SINGLE_SERVER = [name for name, kind in STRATEGIES.items() if kind.single_server]
K_VARIANTS = ("k_sync", "k_async", "k_batch_sync", "k_batch_async")


@pytest.mark.parametrize(
    ("overrides", "rule"),
    [
        ("strategy=backup strategy.backups=-1", "strategy.backups must be >= 0, got -1"),
        ("strategy=backup strategy.aggregate=median", "strategy.aggregate must be one of mean, sum, got 'median'"),
        *((f"strategy={name} strategy.k=0", "strategy.k must be >= 1, got 0") for name in (*K_VARIANTS, "adasync")),
        (
            "strategy=adasync strategy.variant=k_wait",
            "strategy.variant must be one of k_sync, k_batch_sync, k_async, k_batch_async, got 'k_wait'",
        ),
        ("strategy=adasync strategy.f0=first", "strategy.f0 must be one of interval, start, got 'first'"),
        ("strategy=adasync strategy.interval=0", "strategy.interval must be > 0 seconds, got 0.0"),
        ("strategy=adasync strategy.interval=nan", "strategy.interval must be > 0 seconds, got nan"),
        ("strategy=adasync strategy.interval=inf", "strategy.interval must be > 0 seconds, got inf"),
        (
            "strategy=adasync strategy.k_cap=9",
            "strategy.k_cap must be null, or >= strategy.k = 1 on a K-batch variant; got 9 on k_async",
        ),
        (
            "strategy=adasync strategy.variant=k_batch_sync strategy.k=3 strategy.k_cap=2",
            "strategy.k_cap must be null, or >= strategy.k = 3 on a K-batch variant; got 2 on k_batch_sync",
        ),
        ("strategy=psp strategy.c=0", "strategy.c must be >= 1 or null, got 0"),
        ("strategy=psp strategy.b=0", "strategy.b must be in (0, 100] per cent, got 0.0"),
        ("strategy=psp strategy.b=-5", "strategy.b must be in (0, 100] per cent, got -5.0"),
        ("strategy=psp strategy.b=101", "strategy.b must be in (0, 100] per cent, got 101.0"),
        ("strategy=psp strategy.b=nan", "strategy.b must be in (0, 100] per cent, got nan"),
        ("strategy=psp strategy.tau1=-1", "strategy.tau1 must be >= 0 seconds, got -1.0"),
        ("strategy=psp strategy.tau1=inf", "strategy.tau1 must be >= 0 seconds, got inf"),
        ("strategy=psp strategy.tau2=nan", "strategy.tau2 must be >= 0 seconds, got nan"),
        ("strategy=psp strategy.tag=latest", "strategy.tag must be one of step, newest, got 'latest'"),
        ("strategy=ds_sync strategy.group_size=1", "strategy.group_size must be >= 2 or null, got 1"),
        (
            "strategy=ds_sync strategy.average=never",
            "strategy.average must be one of after_step, before_forward, got 'never'",
        ),
        ("strategy=ds_sync strategy.evaluate=last", "strategy.evaluate must be one of mean, first, got 'last'"),
        ("strategy=ds_sync strategy.parity=odd", "strategy.parity must be one of continues, epoch, got 'odd'"),
        ("strategy=ds_sync strategy.impl=fast", "strategy.impl must be one of flat, naive, overlap, got 'fast'"),
        ("strategy=bsp strategy.impl=fast", "strategy.impl must be one of flat, naive, overlap, got 'fast'"),
        ("strategy=bsp strategy.topology=ring", "strategy.topology must be one of server, allreduce, got 'ring'"),
    ],
)
def test_an_option_out_of_range_is_refused(overrides: str, rule: str) -> None:
    assert line_of(*overrides.split()) == rule


@pytest.mark.parametrize(
    ("overrides", "rule"),
    [
        ("strategy=k_sync strategy.k=5", "strategy.k must be <= cluster.workers = 4, got 5"),
        ("strategy=k_async strategy.k=5", "strategy.k must be <= cluster.workers = 4, got 5"),
        ("strategy=adasync strategy.k=5", "strategy.k must be <= cluster.workers = 4, got 5"),
        (
            "strategy=adasync strategy.k=5 strategy.variant=k_batch_async",
            "strategy.k must be <= cluster.workers = 4, got 5",
        ),
        ("strategy=psp strategy.c=5", "strategy.c must be <= cluster.workers = 4, got 5"),
        (
            "strategy=backup strategy.backups=4",
            "strategy.backups must be < cluster.workers = 4, or no gradient is used; got 4",
        ),
        (
            "strategy=ds_sync strategy.group_size=3",
            "strategy=ds_sync needs a grid of workers, at least 2 x 2: cluster.workers must be 4, 6, 8, 9, ... "
            "and a multiple of the group size, got 4 with strategy.group_size=3",
        ),
    ],
)
def test_more_than_the_workers_of_the_cluster_is_refused(overrides: str, rule: str) -> None:
    assert line_of(*overrides.split(), "cluster.workers=4") == rule


@pytest.mark.parametrize("workers", [1, 2, 3, 5, 7])
def test_a_number_of_workers_that_is_no_grid_is_refused(workers: int) -> None:
    assert line_of("strategy=ds_sync", f"cluster.workers={workers}") == (
        "strategy=ds_sync needs a grid of workers, at least 2 x 2: cluster.workers must be 4, 6, 8, 9, ... "
        f"and a multiple of the group size, got {workers}"
    )


@pytest.mark.parametrize("name", SINGLE_SERVER)
def test_a_strategy_of_one_logical_server_is_refused_on_more_shards(name: str) -> None:
    rule = f"strategy={name} needs one logical server: cluster.shards must be 1, got 3"
    assert line_of(f"strategy={name}", "cluster.shards=3") == rule


@pytest.mark.parametrize("overrides", ["strategy=ds_sync", "strategy=bsp strategy.topology=allreduce"])
def test_a_collective_is_refused_on_more_shards(overrides: str) -> None:
    name = overrides.split()[0]
    rule = f"{name} has no server: cluster.shards must be 1, got 2"
    assert line_of(*overrides.split(), "cluster.shards=2") == rule


@pytest.mark.parametrize(
    "overrides",
    [
        "strategy=k_sync strategy.k=4",
        "strategy=k_async strategy.k=4",
        "strategy=k_batch_sync strategy.k=9",  # mini-batches, not workers
        "strategy=k_batch_async strategy.k=9",
        "strategy=adasync strategy.k=4",
        "strategy=adasync strategy.k=9 strategy.variant=k_batch_sync strategy.k_cap=9",
        "strategy=psp strategy.c=4 strategy.b=100 cluster.shards=7",
        "strategy=psp strategy.c=1 strategy.b=0.1 cluster.shards=7",
        "strategy=backup strategy.backups=3 cluster.shards=3",
        "strategy=backup strategy.backups=0",
        "strategy=ds_sync strategy.group_size=2",
        "strategy=bsp strategy.topology=allreduce strategy.impl=naive",
    ],
)
def test_the_largest_allowed_value_is_accepted(overrides: str) -> None:
    config, _ = composed(*overrides.split(), "cluster.workers=4")
    config.strategy.check_cluster(4, config.cluster.shards)


def test_every_strategy_of_one_logical_server_is_known() -> None:
    """BSP, ASP, SSP, backup workers and PSP run on any number of shards."""
    assert set(SINGLE_SERVER) == {"dssp", "adasync", *K_VARIANTS}
