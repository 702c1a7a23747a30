"""Impossible options of a strategy, also on the given cluster, are one line: what was given, what is allowed."""

import pytest
from composing import assert_refused, composed

K_VARIANTS = ("k_sync", "k_async", "k_batch_sync", "k_batch_async")


@pytest.mark.parametrize(
    ("overrides", "allowed"),
    [
        ("strategy=ssp strategy.staleness=-1", ">= 0, got -1"),
        ("strategy=dssp strategy.s_lower=-1", ">= 0"),
        ("strategy=dssp strategy.r_max=-1", ">= 0"),
        ("strategy=dssp strategy.bound=soft", "one of paper, hard, catchup"),
        ("strategy=backup strategy.backups=-1", ">= 0"),
        ("strategy=backup strategy.aggregate=median", "one of mean, sum"),
        *((f"strategy={name} strategy.k=0", ">= 1") for name in (*K_VARIANTS, "adasync")),
        ("strategy=adasync strategy.variant=k_wait", "one of k_sync, k_batch_sync, k_async, k_batch_async"),
        ("strategy=adasync strategy.f0=first", "one of interval, start"),
        ("strategy=adasync strategy.interval=0", "> 0 seconds"),
        ("strategy=adasync strategy.interval=nan", "> 0 seconds"),
        ("strategy=adasync strategy.interval=inf", "> 0 seconds"),
        ("strategy=adasync strategy.k_cap=9", "null, or >= strategy.k = 1 on a K-batch variant"),
        ("strategy=adasync strategy.variant=k_batch_sync strategy.k=3 strategy.k_cap=2", ">= strategy.k = 3"),
        ("strategy=psp strategy.c=0", ">= 1 or null"),
        ("strategy=psp strategy.b=0", "in (0, 100] per cent"),
        ("strategy=psp strategy.b=101", "in (0, 100] per cent"),
        ("strategy=psp strategy.b=nan", "in (0, 100] per cent"),
        ("strategy=psp strategy.tau1=-1", ">= 0 seconds"),
        ("strategy=psp strategy.tau1=inf", ">= 0 seconds"),
        ("strategy=psp strategy.tau2=nan", ">= 0 seconds"),
        ("strategy=psp strategy.tag=latest", "one of step, newest"),
        ("strategy=ds_sync strategy.group_size=1", ">= 2 or null"),
        ("strategy=ds_sync strategy.average=never", "one of after_step, before_forward"),
        ("strategy=ds_sync strategy.evaluate=last", "one of mean, first"),
        ("strategy=ds_sync strategy.parity=odd", "one of continues, epoch"),
        ("strategy=ds_sync strategy.impl=fast", "one of flat, naive, overlap"),
        ("strategy=bsp strategy.impl=fast", "one of flat, naive, overlap"),
        ("strategy=bsp strategy.topology=ring", "one of server, allreduce"),
        # On a cluster of four workers.
        ("strategy=k_sync strategy.k=5", "<= cluster.workers = 4"),
        ("strategy=k_async strategy.k=5", "<= cluster.workers = 4"),
        ("strategy=adasync strategy.variant=k_batch_async strategy.k=5", "<= cluster.workers = 4"),
        ("strategy=psp strategy.c=5", "<= cluster.workers = 4"),
        ("strategy=backup strategy.backups=4", "< cluster.workers = 4, or no gradient is used"),
    ],
)
def test_an_option_out_of_range_is_refused_with_what_is_allowed_and_what_was_given(
    overrides: str, allowed: str
) -> None:
    *_, last = overrides.split()
    assert_refused(["cluster.workers=4", *overrides.split()], f"{last.partition('=')[0]} must be ", allowed, "got ")


@pytest.mark.parametrize("overrides", [*(f"cluster.workers={n}" for n in (1, 2, 3, 5, 7)), "strategy.group_size=3"])
def test_workers_that_are_no_grid_are_refused(overrides: str) -> None:
    rule = "cluster.workers must be 4, 6, 8, 9, ... and a multiple of the group size, got "
    assert_refused(["strategy=ds_sync", "cluster.workers=4", overrides], "strategy=ds_sync needs a grid", rule)


@pytest.mark.parametrize("name", ["dssp", "adasync", *K_VARIANTS])
def test_a_strategy_of_one_logical_server_is_refused_on_more_shards(name: str) -> None:
    words = [f"strategy={name}", "cluster.shards=3"]
    assert_refused(words, f"strategy={name} needs one logical server", "cluster.shards must be 1, got 3")


@pytest.mark.parametrize("overrides", ["strategy=ds_sync", "strategy=bsp strategy.topology=allreduce"])
def test_a_collective_is_refused_on_more_shards(overrides: str) -> None:
    first, *others = overrides.split()
    words = [first, *others, "cluster.shards=2"]
    assert_refused(words, f"{first} has no server", "cluster.shards must be 1, got 2")


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
        "strategy=bsp cluster.shards=2",
        "strategy=asp cluster.shards=2",
        "strategy=ssp cluster.shards=2",
        "strategy=backup strategy.backups=3 cluster.shards=3",
        "strategy=backup strategy.backups=0",
        "strategy=ds_sync strategy.group_size=2",
        "strategy=bsp strategy.topology=allreduce strategy.impl=naive",
    ],
)
def test_the_largest_allowed_value_is_accepted(overrides: str) -> None:
    config, _ = composed(*overrides.split(), "cluster.workers=4")
    config.strategy.check_cluster(4, config.cluster.shards)
