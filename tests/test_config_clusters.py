"""Impossible options of a strategy, also on the given cluster, are one line: what was given, what is allowed."""

import pytest
from composing import assert_refused, composed

K_VARIANTS = ("k_sync", "k_async", "k_batch_sync", "k_batch_async")


# What is chosen -> values out of the range of their keys, on a cluster of four workers.
OUT_OF_RANGE = {
    "strategy=ssp": "strategy.staleness=-1",
    "strategy=dssp": "strategy.s_lower=-1 strategy.r_max=-1 strategy.bound=soft",
    "strategy=backup": "strategy.backups=-1 strategy.backups=4 strategy.aggregate=median",
    **{f"strategy={name}": "strategy.k=0" for name in K_VARIANTS if "batch" in name},
    **{f"strategy={name}": "strategy.k=0 strategy.k=5" for name in K_VARIANTS if "batch" not in name},
    "strategy=adasync": "strategy.k=0 strategy.variant=k_wait strategy.f0=first strategy.interval=0 "
    "strategy.interval=nan strategy.interval=inf strategy.k_cap=9",
    "strategy=adasync strategy.variant=k_batch_sync strategy.k=3": "strategy.k_cap=2",
    "strategy=adasync strategy.variant=k_batch_async": "strategy.k=5",
    "strategy=psp": "strategy.c=0 strategy.c=5 strategy.b=0 strategy.b=101 strategy.b=nan strategy.tau1=-1 "
    "strategy.tau1=inf strategy.tau2=nan strategy.tag=latest",
    "strategy=rennala": "strategy.k=0",
    "strategy=ringmaster": "strategy.r=0",
    "strategy=sync_switch": "strategy.after=-1 strategy.scale=0 strategy.scale=inf",
    "strategy=gossip": "strategy.graph=star",
    "strategy=ds_sync": "strategy.group_size=1 strategy.average=never strategy.evaluate=last strategy.parity=odd "
    "strategy.impl=fast",
    "strategy=bsp": "strategy.impl=fast strategy.topology=ring",
}


@pytest.mark.parametrize(
    ("chosen", "word"), [(chosen, word) for chosen, words in OUT_OF_RANGE.items() for word in words.split()]
)
def test_an_option_out_of_range_is_refused_with_its_key_and_what_was_given(chosen: str, word: str) -> None:
    words = ["cluster.workers=4", *chosen.split(), word]
    assert_refused(words, f"{word.partition('=')[0]} must be ", "got ")


@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        ("strategy=adasync strategy.variant=k_batch_sync strategy.k=3 strategy.k_cap=2", ">= strategy.k = 3"),
        ("strategy=psp strategy.b=101", "in (0, 100]"),
        ("strategy=k_async strategy.k=5", "<= cluster.workers = 4"),
        ("strategy=backup strategy.backups=4", "< cluster.workers = 4, or no gradient is used"),
    ],
)
def test_an_option_out_of_range_is_refused_with_what_is_allowed(words: str, allowed: str) -> None:
    *_, last = words.split()
    assert_refused(["cluster.workers=4", *words.split()], f"{last.partition('=')[0]} must be ", allowed)


@pytest.mark.parametrize("overrides", [*(f"cluster.workers={n}" for n in (1, 2, 3, 5, 7)), "strategy.group_size=3"])
def test_workers_that_are_no_grid_are_refused(overrides: str) -> None:
    rule = "cluster.workers must be 4, 6, 8, 9, ... and a multiple of the group size, got "
    assert_refused(["strategy=ds_sync", "cluster.workers=4", overrides], "strategy=ds_sync needs a grid", rule)


@pytest.mark.parametrize("name", ["dssp", "adasync", "rennala", "ringmaster", *K_VARIANTS])
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
