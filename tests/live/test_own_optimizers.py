"""An optimizer of one's own in real processes: each shard steps whole tensors, and a replay finds the same bits."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from live.here import Launcher
from own import using, write

pytestmark = pytest.mark.processes

NORMED = """
import torch


class Normed(torch.optim.Optimizer):
    \"\"\"Divides by the norm of each tensor; its count is in the group.\"\"\"

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr, "count": 0})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            group["count"] += 1
            for p in group["params"]:
                p -= group["lr"] / group["count"] * p.grad / (1 + p.grad.norm() * p.shape[0])
"""


WORDS = ["optimizer=normed", "model=softmax_regression", "cluster.workers=2", "epochs=null", "max_updates=8"]


@pytest.fixture(autouse=True)
def _my_folder(tmp_path: Path) -> Iterator[None]:
    files = {"normed.py": NORMED, "optimizer/normed.yaml": "_target_: normed.Normed\nlr: 0.5\n"}
    with using(write(tmp_path / "my", files)):
        yield


def test_two_shards_step_a_tensor_each_and_a_replay_finds_the_same_bits(launch: Launcher) -> None:
    made = launch(*WORDS, "strategy=psp", "cluster.shards=2")
    made.replayed()
    assert sorted(state["weights"].numel() for state in made.states) == [10, 640]


def test_members_of_an_all_reduce_end_where_virtual_time_does(launch: Launcher) -> None:
    made = launch(*WORDS, "strategy=bsp", "strategy.topology=allreduce", "strategy.impl=overlap")
    _, _, states = made.in_virtual_time()
    assert torch.equal(made.states[0]["weights"], states[0]["weights"])
