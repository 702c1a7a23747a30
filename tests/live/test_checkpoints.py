"""States on disk: when they are due, what is kept, and that a failed write is reported."""

import os
from pathlib import Path

import pytest
import torch

from syncline.config import LocalConfig, RunConfig, compose
from syncline.live.checkpoints import DueStates, PartState, StateWriter, drop_old, newest_checkpoint, read_checkpoint
from syncline.live.node.control import RunContext
from syncline.live.wire.control_messages import SnapshotWritten
from syncline.records.snapshots import complete, numbers, state_path, stop_number, write_state


def context(folder: Path, resume: float | None = None) -> RunContext:
    config = RunConfig(runner=LocalConfig(), epochs=1)
    return RunContext(config, folder, b"", "", "", local_rank=0, local_size=1, resume=resume, num_present=1)


def writer(
    folder: Path,
    resume: float | None = None,
    samples: int = 0,
    send=lambda message: None,
    part: int = 0,
    ahead: int = 0,
):
    """With a snapshot and a checkpoint every 100 samples; another part is so many samples ahead."""
    return StateWriter(context(folder, resume), part, 100, samples, samples + ahead, send)


def state(value: float, released: list[float]) -> PartState:
    return PartState({"weights": torch.full((3,), value)}, {"value": value}, lambda: released.append(value))


def test_a_state_is_due_after_its_samples_and_numbers_are_skipped_not_repeated():
    schedule = DueStates(10.0, 1)
    assert not schedule.is_due(9)
    assert schedule.is_due(10)
    assert (schedule.advance(10), schedule.number) == (1, 2)
    assert (schedule.advance(45), schedule.number) == (2, 5)


def test_a_fresh_run_begins_with_a_snapshot_and_a_resumed_one_continues_with_the_next(tmp_path):
    fresh = writer(tmp_path)
    assert (fresh.snapshots.number, fresh.checkpoints.number) == (0, 1)
    resumed = writer(tmp_path, resume=2.5, samples=250)
    assert (resumed.snapshots.number, resumed.checkpoints.number) == (3, 3)
    behind = writer(tmp_path, resume=3.0001, samples=290, ahead=20)  # another part had passed the third
    assert behind.checkpoints.number == 4
    assert not behind.checkpoints.is_due(399)
    assert behind.checkpoints.is_due(400)


def test_checkpoints_that_are_less_frequent_once_the_run_is_resumed_go_on_at_once(tmp_path):
    """With one every 10 samples, the 25th was the last; now one is due every 100. All parts have the same numbers."""
    for samples, ahead, due in ((250, 0, 300), (250, 60, 400), (310, 0, 400)):
        resumed = writer(tmp_path, resume=25.0001, samples=samples, ahead=ahead).checkpoints
        assert resumed.number == 26
        assert not resumed.is_due(due - 1)
        assert resumed.is_due(due)
        assert resumed.advance(due) == 26
        assert not resumed.is_due(due + 99)
        assert resumed.is_due(due + 100)


def test_the_last_two_checkpoints_are_kept_and_tensors_are_released_once_they_are_on_disk(tmp_path):
    released, sent = [], []
    made = writer(tmp_path, send=sent.append)
    made.save_snapshot(state(0.0, released), 0)
    for samples in (100, 200, 300):
        made.save_checkpoint(state(samples, released), samples)
    stopped = 3.0001
    made.write_checkpoint(state(350.0, released), stopped)
    made.save_parameters(state(351.0, released))
    made.finish()
    assert released == [0.0, 100, 200, 300, 350.0, 351.0]
    assert sent == [SnapshotWritten(0)]
    assert numbers(tmp_path / "checkpoint", 0) == [2.0, 3.0, stopped]
    assert complete(tmp_path / "checkpoint", 1)[-1] == stopped
    assert complete(tmp_path / "checkpoint", 2) == []
    assert read_checkpoint(context(tmp_path), 0) is None
    tensors, values = read_checkpoint(context(tmp_path, stopped), 0)
    assert (tensors["weights"].tolist(), values["value"]) == ([350.0] * 3, 350.0)
    assert (tmp_path / "parameters-0.safetensors").exists()


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (["strategy=asp", "cluster.shards=2"], [0, 1]),
        (["strategy=asp", "cluster.shards=2", "compress=topk"], [0, 1, "worker0", "worker2"]),
        (["strategy=asp", "local=diloco"], [0, "worker0", "worker2"]),
        (["strategy=bsp", "strategy.topology=allreduce", "optimizer.momentum=0"], [0]),
        (["strategy=bsp", "strategy.topology=allreduce", "compress=topk"], [0, 1, 2]),
        (["strategy=ds_sync", "cluster.workers=4"], [0, 1, 2, 3]),
    ],
    ids=str,
)
def test_the_newest_checkpoint_is_one_of_which_each_part_is_there(overrides, parts, tmp_path):
    """Workers that had left when a shard wrote its part (here 1) have none."""
    config = compose(["cluster.workers=3", "runner=local", *overrides])[0]
    folder, about = tmp_path / "checkpoint", {"active": [0, 2], "iterations": [5, 3, 4]}
    its = {0: about, 1: about, "worker0": {"iteration": 5}, "worker2": {"iteration": 4}}
    assert newest_checkpoint(config, tmp_path) is None
    for part in parts:
        for number in (1.0, 2.0):
            write_state(state_path(folder, number, part), {}, its.get(part, {}))
    assert newest_checkpoint(config, tmp_path) == 2.0
    for part in parts:
        state_path(folder, 2.0, part).unlink()
        assert newest_checkpoint(config, tmp_path) == 1.0, part
        write_state(state_path(folder, 2.0, part), {}, its.get(part, {}))


@pytest.mark.parametrize(("strategy", "first"), [("asp", 5), ("psp", 6)])
def test_a_checkpoint_counts_once_a_worker_has_written_what_it_kept_before_the_push_it_begins_with(
    strategy, first, tmp_path
):
    """It has done so for one shard, but was lost before it did so for the other, which has received another push."""
    words = ["cluster.workers=1", "cluster.shards=2", "runner=local", f"strategy={strategy}", "compress=topk"]
    config, folder = compose(words)[0], tmp_path / "checkpoint"
    for number, iterations in ((1.0, [2, 2]), (2.0, [5, 6])):
        for shard, iteration in enumerate(iterations):
            write_state(state_path(folder, number, shard), {}, {"active": [0], "iterations": [iteration]})
    write_state(state_path(folder, 1.0, "worker0"), {}, {"iteration": 2})
    write_state(state_path(folder, 2.0, "worker0"), {}, {"iteration": 11 - first})
    assert newest_checkpoint(config, tmp_path) == 1.0
    write_state(state_path(folder, 2.0, "worker0"), {}, {"iteration": first})
    assert newest_checkpoint(config, tmp_path) == 2.0


def test_a_checkpoint_with_a_broken_part_is_told_and_the_one_before_counts(tmp_path):
    """As after a power failure."""
    config, folder, told = compose(["strategy=asp", "cluster.shards=2", "runner=local"])[0], tmp_path / "checkpoint", []
    for number in (1.0, 2.0):
        for part in (0, 1):
            write_state(state_path(folder, number, part), {"weights": torch.zeros(3)}, {})
    state_path(folder, 2.0, 1).write_bytes(b"")
    assert newest_checkpoint(config, tmp_path, told.append) == 1.0
    (line,) = told
    assert line.startswith(f"{state_path(folder, 2.0, 1)}: broken state")
    assert line.endswith("; this checkpoint is not used")
    state_path(folder, 1.0, 0).write_bytes(b"")
    assert newest_checkpoint(config, tmp_path) is None


def test_a_state_is_on_disk_before_it_has_its_name(tmp_path, monkeypatch):
    path, synced = state_path(tmp_path / "checkpoint", 1.0, 0), []
    monkeypatch.setattr("os.fsync", lambda file: synced.append((os.fstat(file).st_size, path.exists())))
    write_state(path, {"weights": torch.zeros(3)}, {})
    assert synced == [(path.stat().st_size, False)]


def test_no_part_of_the_newest_complete_checkpoint_is_dropped(tmp_path):
    """A worker in a long gradient has written what it keeps for the first checkpoint of five only."""
    config = compose(["cluster.workers=1", "runner=local", "strategy=asp", "compress=topk"])[0]
    folder = tmp_path / "checkpoint"

    def write(part, number, about):
        write_state(state_path(folder, float(number), part), {}, about)
        drop_old(config, tmp_path, part)

    write(0, 1, {"active": [0], "iterations": [1]})
    write("worker0", 1, {"iteration": 1})
    for number in (2, 3, 4, 5):
        write(0, number, {"active": [0], "iterations": [1]})
        assert newest_checkpoint(config, tmp_path) == 1.0
    write("worker0", 5, {"iteration": 1})
    assert newest_checkpoint(config, tmp_path) == 5.0
    write(0, 6, {"active": [0], "iterations": [2]})
    assert numbers(folder, 0) == [5.0, 6.0]
    assert newest_checkpoint(config, tmp_path) == 5.0


def test_parts_of_different_stops_are_no_checkpoint(tmp_path):
    """The second part is killed at the second stop, before it writes."""
    folder, resume = tmp_path / "checkpoint", None
    for parts in ([0, 1], [0]):
        number = stop_number(folder)
        for part in parts:
            made = writer(tmp_path, resume, samples=50, part=part)
            made.write_checkpoint(state(50.0, []), number)
            made.finish()
        (resume,) = complete(folder, 2)
    assert resume < number < stop_number(folder)


def test_a_stop_is_a_checkpoint_though_one_part_is_further_than_another(tmp_path):
    """The first part has written its third checkpoint, the second one its second."""
    folder = tmp_path / "checkpoint"
    made = [writer(tmp_path, part=part) for part in (0, 1)]
    for part, samples in ((0, 100), (1, 100), (0, 200), (1, 200), (0, 300)):
        made[part].save_checkpoint(state(samples, []), samples)
    made[0].finish()
    number = stop_number(folder)
    made[0] = writer(tmp_path, 3.0, samples=300)
    for part in made:
        part.write_checkpoint(state(301, []), number)
        part.finish()
    assert complete(folder, 2)[-1] == number
    state_path(folder, number, 1).unlink()
    assert complete(folder, 2)[-1] == 2.0, "if a part is missing, the last one before counts"


def test_a_stop_is_the_newest_checkpoint_though_one_that_was_due_was_under_way(tmp_path):
    made = writer(tmp_path)
    made.save_checkpoint(state(100.0, []), 100)
    number = stop_number(tmp_path / "checkpoint")
    made.save_checkpoint(state(200.0, []), 200)
    made.write_checkpoint(state(201.0, []), number)
    made.finish()
    assert complete(tmp_path / "checkpoint", 1)[-1] == number
    resumed = writer(tmp_path, number, samples=201)
    assert not resumed.checkpoints.is_due(299)
    assert resumed.checkpoints.is_due(300)
    assert resumed.save_checkpoint(state(300.0, []), 300) > number


def test_a_failed_write_is_reported_with_the_next_state_or_at_the_end(tmp_path):
    (tmp_path / "checkpoint").write_text("not a folder")
    made = writer(tmp_path)
    made.save_checkpoint(state(1.0, []), 100)
    with pytest.raises(OSError, match="checkpoint"):
        made.finish()
