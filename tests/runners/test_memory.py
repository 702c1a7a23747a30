"""A run needs memory, which is estimated before anything is built."""

import resource
from pathlib import Path

import pytest
import torch
from commands import Command
from composing import composed

from runners import one
from syncline.assembly import memory
from syncline.assembly.memory import least_bytes
from syncline.assembly.network import count_parameters


def test_the_least_memory_is_that_of_the_vectors_that_are_held() -> None:
    config, _ = composed("strategy=k_batch_sync", "strategy.k=7")
    assert least_bytes(config)["model"] == 4 * (2 + 7) * count_parameters(config)[0]
    assert least_bytes(config)["dataset"] == 1437 * 64
    replicas, _ = composed("strategy=ds_sync")
    assert least_bytes(replicas)["model"] == 4 * (2 * 4) * count_parameters(replicas)[0]
    assert set(least_bytes(composed("gradients=false")[0])) == {"cluster.workers"}
    kept = {"topk": 1, "topk_both": 3, "none": 0}
    for compress, vectors in kept.items():
        compressed = composed(f"compress={compress}")[0]
        size = 4 * compressed.cluster.workers * count_parameters(compressed)[0]
        assert least_bytes(compressed)["compress"] == vectors * size


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["model=resnet20", "model.width=4096"], "model"),
        (["strategy=k_batch_sync", "strategy.k=1000000"], "model"),
        (["dataset=glyphs10", "dataset.train_size=1000000000"], "dataset"),
        (["gradients=false", "strategy=bsp", "cluster.workers=100000", "cluster.shards=10000"], "cluster.workers"),
    ],
    ids=" ".join,
)
def test_what_cannot_fit_is_refused_before_it_is_built(
    words: list[str], part: str, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_memory_bytes", lambda: 4e9)
    said = command(*words, "max_updates=1", f"results={tmp_path / 'results'}")
    (line,) = said.err.splitlines()
    assert line.startswith("error: the run must fit into 4.0 GB of memory, got one that needs at least ")
    assert line.endswith(f" GB, most of it for {part}")
    assert not list((tmp_path / "results").glob("*"))


def test_the_memory_of_a_process_may_be_less_than_the_machines() -> None:
    machines = memory._memory_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (int(machines) - 1, hard))
    try:
        assert memory._memory_bytes() == int(machines) - 1
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def test_a_run_that_gets_no_memory_says_so_in_one_line(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def greedy(*_: object) -> None:
        torch.empty(1 << 55)

    monkeypatch.setattr(one, "_run", greedy)
    said = command("max_updates=1", f"results={tmp_path}")
    (line,) = said.err.splitlines()
    assert line.startswith("error: out of memory; batch_size or the model must be smaller: ")
