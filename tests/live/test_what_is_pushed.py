"""Real processes with local steps, compressed pushes, update rules: replayed in every bit, and as in virtual time."""

import pytest
import torch
from live.here import Launcher, has_snapshot

from benchmarks.live_run import kill, pid_of
from syncline.config import compose
from syncline.live.checkpoints import newest_checkpoint
from syncline.live.shard.elastic import CANCELLED

SHORT = ["epochs=null", "batch_size=8", "eval_every_epochs=1000", "dataset.train_size=400", "model=lenet"]
COMPRESSED = [*SHORT, "cluster.workers=2", "cluster.shards=2", "cluster.gradient_s=[0.01,0.02]", "local.steps=2"]
COMPRESSED += ["max_updates=20", "optimizer.momentum=0"]
RULE = ["model=softmax_regression", "cluster.workers=3", "epochs=null", "max_updates=24"]
EASGD = ["local=easgd", "update=elastic", "optimizer.lr=1", "optimizer.momentum=0"]
STREAMING = ["local=streaming_diloco", "local.fragments=3", "optimizer.lr=0.7"]
ADAMW = "local.optimizer={name: adamw, lr: 0.002}"
NADAM = "local.optimizer={_target_: torch.optim.NAdam, lr: 0.002}"


@pytest.mark.processes
@pytest.mark.parametrize("inner", [ADAMW, NADAM], ids=["ours", "one's own"])
def test_workers_that_keep_an_optimizer_are_replayed_in_every_bit(launch: Launcher, inner: str):
    """Two shards; ordinary pushes at first."""
    words = [
        "strategy=asp",
        "cluster.workers=2",
        "cluster.shards=2",
        "cluster.gradient_s=[0.01,0.02]",
        "max_updates=24",
    ]
    local = ["local.steps=3", "local.after_epochs=0.1", inner, "optimizer.lr=0.7", "optimizer.nesterov=true"]
    run = launch(*SHORT, *words, *local)
    run.replayed()
    started = run.log[run.log.kind == "started"]
    longest = max((list(own.because) for _, own in started.groupby("worker")), key=len)  # one may begin late
    assert longest[:4] == [""] * 3 + ["3 local steps"]  # 0.1 epochs of 200 samples
    applied = run.log[(run.log.kind == "applied") & (run.log.shard == 0)]
    singles = sum(min(3, int((applied.worker == worker).sum())) for worker in (0, 1))
    assert run.summary["samples"] == 8 * (3 * 24 - 2 * singles)


@pytest.mark.processes
@pytest.mark.parametrize(
    "words",
    [
        # What each push left out. A worker waits for its block, or takes some of those that have come. Top-k is in the
        # runs that are stopped.
        [*COMPRESSED, "strategy=asp", "compress=int8"],
        [*COMPRESSED, "strategy=psp", "strategy.b=50", "compress=randk", "compress.pulls=true"],
        # Rules that need the weights of a push: of blocks of several versions, of pushes that wait for others, of
        # replicas at the workers.
        [*RULE, "strategy=psp", "strategy.c=1", "strategy.b=50", "cluster.shards=2", "update=delay_compensated"],
        [*RULE, "strategy=k_async", "strategy.k=2", "update=gap_aware", "local.steps=4", "local.by_speed=true"],
        [*RULE, *EASGD, "strategy=asp", "local.steps=2"],
        [*COMPRESSED, *STREAMING, "local.overlap=false", "strategy=asp"],
        [*COMPRESSED, *STREAMING, "strategy=asp", "model=resnet8"],
    ],
    ids=["int8", "randk both ways", "delay_compensated", "gap_aware", "elastic", "fragments", "fragments overlapped"],
)
def test_what_a_push_needs_is_replayed_in_every_bit(words, launch: Launcher):
    run = launch(*words)
    assert run.config.update.name == "mean" or sum(map(int, run.summary["staleness"])) > 0, "some pushes are stale"
    run.replayed()


@pytest.mark.processes
def test_a_fragment_is_exchanged_while_the_next_steps_are_computed(launch: Launcher):
    """Under BSP, with a slow worker: the other one begins its next round before the update that answers its push."""
    words = ["strategy=bsp", "cluster.workers=2", "cluster.gradient_s=[0.01,0.05]", "runner.pace=absolute"]
    run = launch(*SHORT, *words, *STREAMING, "local.steps=2", "max_updates=8")
    fast = run.log[run.log.worker == 0]
    started, granted = (list(fast[fast.kind == kind]["at"]) for kind in ("started", "granted"))
    assert any(begin < answered for begin, answered in zip(started[1:], granted, strict=False))
    assert run.summary["time_shares"]["computing"] <= 1.0
    run.replayed()


@pytest.mark.processes
def test_what_interrupted_workers_keep_is_replayed_in_every_bit(launch: Launcher):
    """Interrupts end their local steps, or come when the push is under way: then it has changed what they keep."""
    words = ["strategy=k_sync", "strategy.k=2", "cluster.workers=4", "cluster.gradient_s=[0.01,0.0101,0.0102,0.0105]"]
    words += ["runner.pace=absolute", "compress=topk", "compress.pulls=true", "local.steps=2", ADAMW]
    run = launch(*SHORT, *words, "max_updates=40", "optimizer.lr=0.7")
    assert (run.log.kind == "stale").any()
    assert (run.log.because == CANCELLED).any()
    run.replayed()


@pytest.mark.processes
@pytest.mark.parametrize(
    "pushes",
    [
        ["strategy=asp", "compress=topk", "compress.pulls=true", ADAMW],
        ["strategy=ssp", "strategy.staleness=1", *STREAMING, "local.overlap=false"],
        ["strategy=ssp", "strategy.staleness=1", *STREAMING],
    ],
    ids=["compressed", "fragments", "fragments overlapped"],
)
def test_workers_keep_what_they_kept_when_a_run_is_resumed_but_not_when_they_are_killed(pushes, launch: Launcher):
    """With two shards, whose checkpoints are of different moments. The replay says what the workers had kept."""
    words = ["cluster.workers=2", "cluster.shards=2", "cluster.gradient_s=[0.02,0.03]"]
    words += ["max_updates=120", "runner.pace=absolute", "runner.checkpoint_every_epochs=1", "eval_every_epochs=0.5"]
    words += [*pushes, "local.steps=2", "optimizer.lr=0.7"]
    words += ["epochs=null", "batch_size=8", "dataset.train_size=400", "model=lenet"]
    folder = launch.stopped(has_snapshot(1), *words)
    newest = newest_checkpoint(compose(["runner=local", *words])[0], folder)
    parts = sorted(path.name.partition("-")[2] for path in (folder / "checkpoint").glob(f"{newest}-*"))
    assert parts == ["0.safetensors", "1.safetensors", "worker0.safetensors", "worker1.safetensors"]
    again = launch(*words, during=[(has_snapshot(3), lambda folder: kill(pid_of(folder, "worker", 1)))])
    assert {"joined", "left"} <= set(again.log.kind)
    assert (again.log.kind == "resumed").any()
    again.replayed()


@pytest.mark.processes
@pytest.mark.parametrize(
    "words",
    [
        ["strategy=bsp", "strategy.topology=allreduce", "compress=none"],
        ["strategy=ds_sync", "compress=topk"],
        ["strategy=gossip", "strategy.graph=exponential"],
        ["strategy=gossip", "strategy.graph=random"],
        ["strategy=gossip"],
    ],
    ids=" ".join,
)
def test_members_of_a_collective_learn_what_they_do_in_virtual_time(words, launch: Launcher):
    words = [*SHORT, *words, "cluster.workers=4", "local.steps=3", "local.after_epochs=0.2", ADAMW]
    words += ["max_updates=8", "optimizer.lr=0.7"]
    run = launch(*words)
    summary, rows, states = run.in_virtual_time()
    assert (run.summary["updates"], run.summary["samples"]) == (summary["updates"], summary["samples"])
    assert run.rows[-1]["loss"] == pytest.approx(rows[-1]["loss"], rel=1e-4)
    for state, other in zip(run.states, states, strict=True):
        if run.config.strategy.name == "bsp":  # an all-reduce adds in an order of its own
            torch.testing.assert_close(state["weights"], other["weights"], rtol=1e-4, atol=1e-6)
        else:
            assert torch.equal(state["weights"], other["weights"])
