"""States on disk: when they are due, what is kept, and that a failed write is reported."""

from pathlib import Path

import pytest
import torch

from syncline.config import LocalConfig, RunConfig
from syncline.live.checkpoints import Checkpointer, Schedule, State, read_checkpoint
from syncline.live.control import RunContext
from syncline.live.messages import SnapshotWritten
from syncline.records.snapshots import latest, numbers


def context(folder: Path, resume: float | None = None) -> RunContext:
    config = RunConfig(runner=LocalConfig(), epochs=1)
    return RunContext(config, folder, b"", None, control_address="", listen_at="", resume=resume)


def checkpointer(folder: Path, resume: float | None = None, samples: int = 0, send=lambda message: None):
    """Of part 0, with a snapshot and a checkpoint every 100 samples."""
    return Checkpointer(context(folder, resume), 0, 100, samples, send)


def state(value: float, released: list[float]) -> State:
    return State({"weights": torch.full((3,), value)}, {"value": value}, lambda: released.append(value))


def test_a_state_is_due_after_its_samples_and_numbers_are_skipped_not_repeated():
    schedule = Schedule(10.0, 1)
    assert not schedule.is_due(9)
    assert schedule.is_due(10)
    assert (schedule.advance(10), schedule.number) == (1, 2)
    assert (schedule.advance(45), schedule.number) == (2, 5)


def test_a_fresh_run_begins_with_a_snapshot_and_a_resumed_one_continues_with_the_next(tmp_path):
    fresh = checkpointer(tmp_path)
    assert (fresh.snapshots.number, fresh.checkpoints.number) == (0, 1)
    resumed = checkpointer(tmp_path, resume=2.5, samples=250)
    assert (resumed.snapshots.number, resumed.checkpoints.number) == (3, 3)


def test_the_last_two_checkpoints_are_kept_and_tensors_are_released_once_they_are_on_disk(tmp_path):
    released, sent = [], []
    made = checkpointer(tmp_path, send=sent.append)
    made.save_snapshot(state(0.0, released), 0)
    for samples in (100, 200, 300):
        made.save_checkpoint(state(samples, released), samples)
    made.save_checkpoint(state(350.0, released), samples=None)
    made.save_parameters(state(351.0, released))
    made.finish()
    assert released == [0.0, 100, 200, 300, 350.0, 351.0]
    assert sent == [SnapshotWritten(0)]
    assert numbers(tmp_path / "checkpoint", 0) == [3.0, 3.5]
    assert latest(tmp_path / "checkpoint", 1) == 3.5
    assert latest(tmp_path / "checkpoint", 2) is None
    assert read_checkpoint(context(tmp_path), 0) is None
    tensors, values = read_checkpoint(context(tmp_path, 3.5), 0)
    assert (tensors["weights"].tolist(), values["value"]) == ([350.0] * 3, 350.0)
    assert (tmp_path / "parameters-0.safetensors").exists()


def test_a_failed_write_is_reported_with_the_next_state_or_at_the_end(tmp_path):
    (tmp_path / "checkpoint").write_text("not a folder")
    made = checkpointer(tmp_path)
    made.save_checkpoint(state(1.0, []), 100)
    with pytest.raises(OSError, match="checkpoint"):
        made.finish()
