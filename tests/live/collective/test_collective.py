"""Collectives of real processes against the same run in virtual time."""

import math
from array import array
from fractions import Fraction

import pytest
import torch
from live.here import Launcher, has_snapshot

from benchmarks.live_run import kill, pid_of
from syncline.live.collective import member
from syncline.live.collective.member import MemberTotals
from syncline.live.collective.member_control import StopAgreement
from syncline.progress import Totals
from syncline.records.snapshots import read_state
from syncline.records.store import UNFINISHED, status
from syncline.rounds import SINGLE
from syncline.strategies.bsp import BspOptions
from syncline.strategies.ds_sync import DsSyncOptions
from syncline.strategies.gossip import GRAPHS, GossipOptions

SMALL = ["model=resnet8", "model.width=4", "strategy.bucket_mb=0.004"]  # with batch norm, in several buckets
SHORT = ["epochs=null", "batch_size=8"]


def difference(states: list[dict], expected: list[dict]) -> float:
    """The largest of any weight or buffer of any replica from the same run in virtual time."""
    largest = 0.0
    for state, other in zip(states, expected, strict=True):
        largest = max(largest, (state["weights"] - other["weights"]).abs().max().item())
        buffers = other["buffers"]
        if buffers.numel():
            largest = max(largest, ((state["buffers"] - buffers) / (1 + buffers.abs())).abs().max().item())
    return largest


def lead_by_counting(log) -> int:
    counts, lead = [0] * (int(log.worker.max()) + 1), 0
    for worker in log[log.kind == "pushed"].sort_values("at", kind="stable").worker:
        counts[worker] += 1
        lead = max(lead, max(counts) - min(counts))
    return lead


IN_MAKE_TEST = [pytest.mark.core, pytest.mark.xdist_group("forkserver")]


@pytest.mark.processes
@pytest.mark.parametrize("average", ["after_step", pytest.param("before_forward", marks=IN_MAKE_TEST)])
def test_ds_sync_on_a_grid_of_four_equals_virtual_time(average, launch: Launcher):
    """after_step with an all-reduce of each bucket, before_forward with one of each tensor; and batch norm."""
    impl = "overlap" if average == "after_step" else "naive"
    words = [f"strategy.average={average}", f"strategy.impl={impl}", *SMALL, *SHORT, "cluster.workers=4"]
    words += ["max_updates=12", "eval_every_epochs=0.1", "optimizer.lr=0.02", "optimizer.momentum=0.9"]
    words += ["scenario.compute_delay={name: exponential, mean: 0.01}", "runner.checkpoint_every_epochs=0.1"]
    run = launch("strategy=ds_sync", *words)
    _, expected, states = run.in_virtual_time()
    assert difference(run.states, states) <= 1e-6
    assert {path.name for path in run.folder.iterdir()} == {
        *("config.json", "environment.json", "events.arrow", "log", "metrics.jsonl", "summary.json"),
        *(f"parameters-{rank}.safetensors" for rank in range(4)),
    }
    # The curve is that of virtual time, too: consensus, divergence and the mean loss of all members.
    assert [row["updates"] for row in run.rows] == [row["updates"] for row in expected]
    assert len(expected) > 2
    for mine, other in zip(run.rows, expected, strict=True):
        for key in ("divergence", "loss", "train_loss", "learning_rate"):
            assert mine[key] == (other[key] and pytest.approx(other[key], rel=1e-3)), key
    summary, log = run.summary, run.log
    assert summary["divergence"] == run.rows[-1]["divergence"] > 0
    assert summary["used_by_worker"] == [12] * 4
    assert summary["staleness"] == {"0": 48}
    assert all(0 < busy <= 1 for busy in summary["busy_by_worker"])
    assert summary["max_lead"] == lead_by_counting(log)
    assert sorted(log[log.kind == "applied"].push) == list(range(48))
    granted = log[log.kind == "granted"]
    assert set(granted.because) == {"all-reduce"}
    assert len(granted) == (48 if average == "after_step" else 44)
    averaged = range(12) if average == "after_step" else range(11)
    for step in averaged:  # no member continues before its group has computed
        for group in run.config.strategy.collective.groups(step if average == "after_step" else step + 1, 4):
            of_group = log[log.worker.isin(group)]
            computed = of_group[(of_group.kind == "computed") & (of_group.version == step)]["at"].max()
            assert (of_group[(of_group.kind == "granted") & (of_group.version == step + 1)]["at"] >= computed).all()


@pytest.mark.processes
def test_ds_sync_on_a_grid_of_two_rows_and_three_columns(launch: Launcher):
    """With five steps an epoch, each of which begins with the rows; the first replica is evaluated.

    Sums of three may differ in their last bit, which a rectifier near zero would amplify; the network has none.
    """
    words = ["cluster.workers=6", "strategy.group_size=3", "max_updates=15", *SHORT, "model=softmax_regression"]
    words += ["strategy.parity=epoch", "dataset.train_size=240", "strategy.evaluate=first"]
    run = launch("strategy=ds_sync", *words)
    _, expected, states = run.in_virtual_time()
    assert difference(run.states, states) <= 1e-6
    for mine, other in zip(run.rows, expected, strict=True):
        for key in ("updates", "loss", "divergence"):
            assert mine[key] == pytest.approx(other[key], rel=1e-3, abs=1e-6), key


@pytest.mark.processes
@pytest.mark.parametrize(
    "words",
    [[*SMALL, "strategy.impl=overlap"], ["dataset.sharing=shared", "model=softmax_regression"]],
    ids=["overlap", "one order of the samples"],
)
def test_bsp_by_all_reduce_equals_virtual_time(words, launch: Launcher):
    """Sums of two do not depend on their order, so an all-reduce of each bucket gives the same bits."""
    run = launch("strategy=bsp", "strategy.topology=allreduce", "cluster.workers=2", "max_updates=8", *SHORT, *words)
    assert run.summary["parameters"] == ["parameters-0.safetensors"]
    assert difference(run.states, run.in_virtual_time()[-1]) == 0


@pytest.mark.processes
def test_buckets_are_sent_as_late_as_slow_gradients_have_them(launch: Launcher):
    """Stretched to 0.1 s and 0.2 s, with a delay before the first: an update takes as long as its slowest gradient."""
    words = ["strategy=bsp", "strategy.topology=allreduce", "strategy.impl=overlap", "strategy.bucket_mb=0.02"]
    words += ["cluster.workers=2", "cluster.gradient_s=[0.1,0.2]", "runner.pace=absolute", "max_updates=8"]
    words += ["scenario.compute_delay={name: constant, value: 0.15}", "scenario.delayed_workers=[0]", "epochs=null"]
    run = launch(*words)
    log, seconds = run.log, run.summary["time_s"] / 8
    slow, quick = (busy * seconds for busy in run.summary["busy_by_worker"])
    assert slow > 0.24
    assert quick > 0.19
    assert seconds >= 0.25
    for version in range(8):  # none waits for the other's
        of_step = log[log.version == version]
        begun, ended = (of_step[of_step.kind == kind]["at"] for kind in ("started", "computed"))
        assert (len(begun), len(ended)) == (2, 2)
        assert begun.max() < ended.min()
    delayed = log[(log.kind == "delayed") & (log.worker == 0)].groupby("because").value.sum()
    assert delayed["compute"] == pytest.approx(8 * 0.15)
    assert 0 < delayed["slow"] < 8 * 0.1


@pytest.mark.processes
@pytest.mark.parametrize(
    "sent",
    [
        ["strategy=ds_sync", "compress=topk"],
        ["strategy=gossip", "strategy.graph=random", "optimizer.momentum=0.9"],
        ["strategy=bsp", "strategy.topology=allreduce", "compress=topk", "local.optimizer={name: adamw, lr: 0.002}"],
    ],
    ids=" ".join,
)
def test_a_collective_stopped_and_resumed_and_then_killed_ends_as_if_uninterrupted(sent, launch: Launcher):
    """Sums of two do not depend on their order, so all bits agree, also with the run in virtual time."""
    words = ["cluster.workers=4", "max_updates=60", "epochs=null", "batch_size=16", "dataset.train_size=320"]
    words += ["cluster.gradient_s=[0.03]", "runner.pace=absolute", "runner.checkpoint_every_epochs=2", *sent]
    folder = launch.stopped(has_snapshot(1), *words)
    assert status(folder) == UNFINISHED
    left = [read_state(path)[1]["totals"]["updates"] for path in (folder / "checkpoint").iterdir()]
    assert left.count(max(left)) == 4  # all after the same step
    again = launch(*words, during=[(has_snapshot(6), lambda folder: kill(pid_of(folder, "worker", 2)))])
    assert "restarts from its last checkpoint" in again.said
    assert again.summary["restarts"] == 2
    assert difference(again.states, again.in_virtual_time()[-1]) == 0
    log = again.log
    assert log[log.kind == "applied"].groupby("version").size().tolist() == [4] * 60
    assert sorted(log[log.kind == "pushed"].push) == list(range(240))
    for worker in range(4):
        assert (log[log.worker == worker]["at"].diff().dropna() >= 0).all()
    updates = [row["updates"] for row in again.rows]
    assert updates == sorted(set(updates))


@pytest.mark.processes
def test_a_step_that_a_stop_drops_leaves_no_trace_in_the_statistics_of_batch_norm(launch: Launcher):
    """Its mini-batches are used again when the run is resumed."""
    words = ["strategy=bsp", "strategy.topology=allreduce", *SMALL, *SHORT, "cluster.workers=2", "max_updates=20"]
    words += ["cluster.gradient_s=[0.1]", "runner.pace=absolute", "eval_every_epochs=0.05"]
    again = launch.resumed_after_a_stop(has_snapshot(1), *words)
    assert again.summary["restarts"] == 1
    assert difference(again.states, again.in_virtual_time()[-1]) == 0


@pytest.mark.processes
def test_a_target_ends_all_members_at_the_same_step(launch: Launcher):
    words = ["cluster.workers=4", "cluster.gradient_s=[0.02]", "runner.pace=absolute", "epochs=1000", "batch_size=16"]
    words += ["runner.evaluate=during", "target.value=0.5", "eval_every_epochs=0.5", "model=softmax_regression"]
    run = launch("strategy=ds_sync", *words)
    assert run.summary["ended_by"] == "target"
    applied = run.log[run.log.kind == "applied"].groupby("worker").version.max()
    assert applied.tolist() == [run.summary["updates"]] * 4
    states = [read_state(run.folder / name)[1]["updates"] for name in run.summary["parameters"]]
    assert states == [run.summary["updates"]] * 4


def test_the_lead_of_replicas_is_counted_however_far_it_goes(monkeypatch):
    """When the other one has its first gradient, this one has four."""
    totals = MemberTotals(Totals(2), [0, 0], array("d", range(1, 7)), 0, 8, SINGLE, True, torch.device("cpu"))
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    others = torch.arange(6, dtype=torch.float64) + 4.5
    monkeypatch.setattr(member, "all_reduce", lambda computed: computed[:, 1].add_(others))
    assert totals._shared_lead() == 4


@pytest.mark.parametrize("first", [0, 1, 2])
@pytest.mark.parametrize(
    ("strategy", "num_members"),
    [(DsSyncOptions(), n) for n in (4, 6, 12, 25)]
    + [(DsSyncOptions(parity="epoch"), 6), (BspOptions(topology="allreduce"), 3)]
    + [(GossipOptions(graph=graph), n) for graph in GRAPHS for n in (2, 7, 8)],
)
def test_all_members_end_with_the_same_step(strategy, num_members, first):
    """Without processes: the sums of the exchanges, from an even and from an odd step on."""
    schedule = strategy.collective.schedule(num_members, Fraction(3))
    exchanges = schedule.spread
    agreements = [StopAgreement(exchanges) for _ in range(num_members)]
    last = []
    for step in range(first, first + exchanges + 2):
        if step > first:
            agreements[0].propose("target")
            agreements[0].propose("stop")  # too late
        encoded = [agreement.encode() for agreement in agreements]
        for members, receivers in schedule.turns[schedule.turn(step)]:
            sums = [math.fsum(column) for column in zip(*(encoded[member] for member in members), strict=True)]
            last += [(step, member) for member in receivers if agreements[member].decode(sums)]
        if last:
            break
    assert sorted(last) == [(first + exchanges, member) for member in range(num_members)]
    assert {agreement.reason for agreement in agreements} == {"target"}
