"""What is left of a run of real processes when it goes back to a checkpoint."""

from collections.abc import Iterator
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest
import torch

from runners.failures import RunFailed
from runners.observer import Evaluator, LiveObserver
from syncline.assembly.data import shape_of
from syncline.assembly.network import build_flat
from syncline.config import RunConfig, compose
from syncline.learning.layout import blocks
from syncline.monitor import RunMonitor
from syncline.progress import Totals
from syncline.records.snapshots import state_path, write_state
from syncline.records.store import RecordError
from syncline.records.writer import RecordWriter


@cache
def config() -> RunConfig:
    return compose(["runner=local", "strategy=asp", "cluster.shards=2", "model=softmax_regression"])[0]


@pytest.fixture
def observer(tmp_path: Path, evaluator_here: Evaluator) -> Iterator[LiveObserver]:
    """Of a run with two shards."""
    monitor = RunMonitor(config(), lambda row: None, lambda progress: None)
    with (
        RecordWriter(tmp_path / "record", config().as_dict(), with_events=False) as record,
        closing(LiveObserver(config(), record, monitor, evaluator_here)) as made,
    ):
        (record.folder / "log").mkdir()
        yield made


def test_each_part_keeps_the_snapshots_before_its_own_checkpoint(observer: LiveObserver, tmp_path: Path) -> None:
    """One shard had made more updates at the checkpoint than the other, and so at the snapshot before it."""
    folder, monitor = tmp_path / "record", observer.monitor
    weights = build_flat(config(), shape_of(config()), torch.device("cpu")).weights
    for part, block in enumerate(blocks(weights.numel(), 2)):
        for number, updates in enumerate([0, 40 + part, 50 + part]):
            state = {"weights": weights[block].clone(), "buffers": torch.zeros(0)}
            totals = Totals(4, updates=updates)
            write_state(state_path(folder / "snapshots", float(number), part), state, totals.snapshot(rate=0.1))
        write_state(state_path(folder / "checkpoint", 1.0, part), {}, {"totals": {"updates": 40 + part}})
        write_state(folder / f"parameters-{part}.safetensors", state, Totals(4, updates=60).snapshot(rate=0.1))
    observer.rewind(1.0)
    left = {path.name for path in (folder / "snapshots").iterdir()}
    assert left == {f"{number}-{part}.safetensors" for number in (0.0, 1.0) for part in (0, 1)}
    observer.finish("epochs")
    assert [row["updates"] for row in monitor.curve.rows] == [0, 40, 60]


def test_an_evaluation_that_fails_ends_the_run(observer: LiveObserver, tmp_path: Path) -> None:
    for part in (0, 1):
        write_state(state_path(tmp_path / "record" / "snapshots", 0.0, part), {}, {"updates": 0})
        observer.snapshot_written(part, 0)
    with pytest.raises(RunFailed, match="evaluator 0: KeyError: 'weights'"):
        observer.finish("epochs")


def test_of_all_checkpoints_the_one_to_resume_from_is_left(observer: LiveObserver, tmp_path: Path) -> None:
    """Else a part of an older stop, or of a newer one that not all parts have written, could be taken for one of it."""
    folder = tmp_path / "record" / "checkpoint"
    for part, numbers in enumerate([(1.0, 2.0, 2.0001, 3.0), (1.0, 2.0, 2.0001)]):
        for number in numbers:
            write_state(state_path(folder, number, part), {}, {"totals": {"updates": 9}})
    state_path(folder, 4.0, 0).write_bytes(b"")
    with pytest.raises(RecordError, match="broken state"):
        observer.rewind(4.0)
    assert len(list(folder.iterdir())) == 8, "it is read before the others are removed"
    observer.rewind(2.0001)
    assert {path.name for path in folder.iterdir()} == {"2.0001-0.safetensors", "2.0001-1.safetensors"}
    observer.rewind(None)
    assert not list(folder.iterdir())
