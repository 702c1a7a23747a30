"""Local steps and compressed pushes of real processes: replayed in every bit, and as in virtual time."""

import signal

import pytest
import torch

from benchmarks.live_run import LiveRun, kill
from syncline.config import compose
from syncline.learning.compression import TopK
from syncline.live.connections import GradientPool
from syncline.live.engine import CANCELLED
from syncline.live.links import Differences
from syncline.live.parts import newest_checkpoint
from syncline.live.transport import WireError
from syncline.records.events import read_events
from syncline.records.snapshots import read_state
from syncline.server.interpreter import RESUMED, STALE
from syncline.simulation.replay import replay
from syncline.simulation.run import simulate

pytestmark = pytest.mark.processes

SHORT = ["epochs=null", "batch_size=8", "eval_every_epochs=1000", "dataset.train_size=400", "model=lenet"]
ADAMW = "local.optimizer={name: adamw, lr: 0.002}"


def replayed(run: LiveRun) -> dict:
    return replay(run.config, run.config, run.folder, lambda row: None, lambda progress: None)["replay"]


def test_workers_that_keep_an_optimizer_are_replayed_in_every_bit(tmp_path):
    """Two shards; ordinary pushes at first."""
    words = [
        "strategy=asp",
        "cluster.workers=2",
        "cluster.shards=2",
        "cluster.gradient_s=[0.01,0.02]",
        "max_updates=40",
    ]
    local = ["local.steps=3", "local.after_epochs=0.2", ADAMW, "optimizer.lr=0.7", "optimizer.nesterov=true"]
    run = LiveRun(tmp_path, *SHORT, *words, *local)
    run.wait()
    assert replayed(run)["equal"]
    log = read_events(run.folder / "events.arrow").to_pandas()
    started = log[(log.kind == "started") & (log.worker == 0)]
    assert list(started.because[:6]) == [""] * 5 + ["3 local steps"]  # 0.2 epochs of 200 samples
    singles = sum(
        min(5, len(log[(log.kind == "applied") & (log.worker == worker) & (log.shard == 0)])) for worker in (0, 1)
    )
    assert run.summary()["samples"] == 8 * (3 * 40 - 2 * singles)
    assert run.has_ended_cleanly()


@pytest.mark.parametrize("compress", ["topk", "int8"])
def test_compressed_pushes_are_replayed_in_every_bit(compress, tmp_path):
    """Of two local steps each, to two shards, with what each push left out."""
    words = ["strategy=asp", "cluster.workers=2", "cluster.shards=2", "cluster.gradient_s=[0.01]", "max_updates=40"]
    run = LiveRun(tmp_path, *SHORT, *words, f"compress={compress}", "local.steps=2", "optimizer.momentum=0")
    run.wait()
    assert replayed(run)["equal"]
    assert run.has_ended_cleanly()


@pytest.mark.parametrize(
    "strategy",
    [
        ["strategy=asp", "cluster.shards=2", "compress=topk"],
        ["strategy=psp", "strategy.b=50", "cluster.shards=2", "compress=randk"],
    ],
    ids=" ".join,
)
def test_compressed_pulls_are_replayed_in_every_bit(strategy, tmp_path):
    """Where a worker waits for its block, or takes some of those that have come."""
    words = ["cluster.workers=2", "cluster.gradient_s=[0.01,0.03]", "max_updates=40", *strategy]
    run = LiveRun(tmp_path, *SHORT, *words, "compress.pulls=true", "optimizer.momentum=0")
    run.wait()
    assert replayed(run)["equal"]
    assert run.has_ended_cleanly()


def test_what_interrupted_workers_keep_is_replayed_in_every_bit(tmp_path):
    """Interrupts end their local steps, or come when the push is under way: then it has changed what they keep."""
    words = ["strategy=k_sync", "strategy.k=2", "cluster.workers=4", "cluster.gradient_s=[0.01,0.0101,0.0102,0.0105]"]
    words += [
        "runner.pace=absolute",
        "compress=topk",
        "compress.pulls=true",
        "local.steps=2",
        ADAMW,
        "optimizer.lr=0.7",
    ]
    run = LiveRun(tmp_path, *SHORT, *words, "max_updates=60")
    run.wait()
    because = read_events(run.folder / "events.arrow").to_pandas().because
    assert (because == STALE).any()
    assert (because == CANCELLED).any()
    assert replayed(run)["equal"]
    assert run.has_ended_cleanly()


def test_workers_keep_what_they_kept_when_a_run_is_resumed_but_not_when_they_are_killed(tmp_path):
    """With two shards, whose checkpoints are of different moments. The replay says what the workers had kept."""
    words = [
        "strategy=asp",
        "cluster.workers=2",
        "cluster.shards=2",
        "cluster.gradient_s=[0.02,0.03]",
        "max_updates=300",
    ]
    words += ["runner.pace=absolute", "runner.checkpoint_every_epochs=1", "compress=topk", "compress.pulls=true"]
    words += ["local.steps=2", ADAMW, "optimizer.lr=0.7", "eval_every_epochs=1"]
    run = LiveRun(tmp_path, *SHORT[:2], *SHORT[3:], *words)
    run.wait_for_snapshot(1)
    run.process.send_signal(signal.SIGINT)
    assert "interrupted" in run.wait(expected=130)
    parts = sorted(path.name.partition("-")[2] for path in (run.folder / "checkpoint").glob(f"{latest_of(run)}-*"))
    assert parts == ["0.safetensors", "1.safetensors", "worker0.safetensors", "worker1.safetensors"]
    again = LiveRun(tmp_path, *SHORT[:2], *SHORT[3:], *words)
    again.wait_for_snapshot(3)
    kill(again.pid("worker", 1))
    again.wait()
    log = read_events(again.folder / "events.arrow").to_pandas()
    assert {"joined", "left"} <= set(log.kind)
    assert (log.because == RESUMED).any()
    assert replayed(again)["equal"]
    assert again.has_ended_cleanly()


def latest_of(run: LiveRun) -> float:
    newest = newest_checkpoint(run.config, run.folder)
    assert newest is not None
    return newest


def test_a_compressed_push_of_no_block_ends_the_connection():
    """Of the right length, but with places beyond the block."""
    pool = GradientPool(size=10, num_buffers=0, count=1, compression=TopK(0.2))
    gradient = pool.take()
    assert [view.nbytes for view in gradient.views] == [16, 0]
    gradient.views[0][:8] = torch.tensor([3, 99], dtype=torch.int32).numpy().tobytes()
    with pytest.raises(WireError, match="a compressed PUSH: places that do not ascend"):
        pool.decode(gradient)


def test_a_compressed_block_of_no_change_ends_the_connection_and_changes_nothing():
    known = torch.ones(10)
    blocks = Differences(TopK(0.2), known)
    blocks.first(torch.full((10,), 2.0))
    blocks.incoming[:8] = torch.tensor([7, 7], dtype=torch.int32).view(torch.uint8)
    with pytest.raises(WireError, match="a compressed BLOCK: places that do not ascend"):
        blocks.add(known)
    assert torch.equal(known, torch.full((10,), 2.0))


def test_an_interrupt_ends_the_local_steps(tmp_path):
    """K-sync with K = 1: the slow worker is interrupted in every round, and begins the next with new weights."""
    words = ["strategy=k_sync", "strategy.k=1", "cluster.workers=2", "cluster.gradient_s=[0.01,0.05]", "max_updates=30"]
    run = LiveRun(tmp_path, *SHORT, *words, "local.steps=4", "runner.pace=absolute")
    run.wait()
    summary = run.summary()
    assert replayed(run)["equal"]
    log = read_events(run.folder / "events.arrow").to_pandas()
    assert len(log[(log.kind == "interrupted") & (log.worker == 1)]) == 29  # the last update ends the run
    assert summary["used_by_worker"] == [30, 0]
    assert summary["time_s"] >= 30 * 4 * 0.01, "the quick worker's local steps"
    assert run.has_ended_cleanly()


@pytest.mark.parametrize("compress", ["none", "topk", "randk"])
@pytest.mark.parametrize(
    "strategy", [["strategy=bsp", "strategy.topology=allreduce"], ["strategy=ds_sync"]], ids=" ".join
)
def test_members_of_a_collective_learn_what_they_do_in_virtual_time(strategy, compress, tmp_path):
    words = [*SHORT, *strategy, "cluster.workers=4", "local.steps=3", "local.after_epochs=0.2", ADAMW]
    words += ["max_updates=8", "optimizer.lr=0.7", f"compress={compress}"]
    run = LiveRun(tmp_path, *words)
    run.wait()
    parameters: dict[str, torch.Tensor] = {}

    def save(name, tensors, about) -> None:
        parameters[name] = tensors["weights"].clone()

    summary = simulate(compose(words)[0], lambda row: None, lambda progress: None, save_parameters=save)
    assert (run.summary()["updates"], run.summary()["samples"]) == (summary["updates"], summary["samples"])
    for name, weights in parameters.items():
        found = read_state(run.folder / name)[0]["weights"]
        if compress == "none":  # an all-reduce adds in an order of its own
            torch.testing.assert_close(found, weights, rtol=1e-4, atol=1e-6)
        else:
            assert torch.equal(found, weights)
    assert run.has_ended_cleanly()
