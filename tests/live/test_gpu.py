"""Workers on a GPU push through pinned memory and learn what the CPU learns."""

import pytest
import torch

from benchmarks.live_run import LiveRun

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")


@pytest.mark.parametrize(
    "strategy",
    [
        ["strategy=bsp", "cluster.workers=2"],
        ["strategy=bsp", "strategy.topology=allreduce", "cluster.workers=2"],
        ["strategy=ds_sync", "cluster.workers=4"],
    ],
    ids=["bsp by a server", "bsp by all-reduce", "ds_sync"],
)
def test_a_gpu_learns_what_the_cpu_learns(tmp_path, strategy):
    words = [*strategy, "max_updates=30", "optimizer.lr=0.01"]
    losses = {}
    for device in ("cpu", "cuda"):
        run = LiveRun(tmp_path / device, *words, f"device={device}")
        run.wait()
        losses[device] = run.summary()["final"]["loss"]
    assert losses["cuda"] == pytest.approx(losses["cpu"], rel=1e-2)
