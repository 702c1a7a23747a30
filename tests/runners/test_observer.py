"""What is left of a run of real processes when it goes back to a checkpoint."""

import shutil
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from leaks import pid_of_child

import runners.observer
from benchmarks.live_run import kill
from runners.observer import Evaluator, EvaluatorLost, LiveObserver
from syncline.assembly import build_flat, shape_of
from syncline.config import RunConfig, compose
from syncline.learning.server import blocks
from syncline.live.supervisor import SUPERVISOR, Supervisor
from syncline.monitor import RunMonitor
from syncline.progress import Totals
from syncline.records.snapshots import state_path, write_state
from syncline.records.store import RecordError
from syncline.records.writer import RecordWriter


@cache
def config() -> RunConfig:
    return compose(["runner=local", "strategy=asp", "cluster.shards=2", "model=softmax_regression"])[0]


@pytest.fixture
def observer(tmp_path: Path, supervisor_here: Any) -> Iterator[LiveObserver]:
    """Of a run with two shards."""
    monitor = RunMonitor(config(), lambda row: None, lambda progress: None)
    with (
        RecordWriter(tmp_path / "record", config().as_dict(), with_events=False) as record,
        closing(LiveObserver(config(), record, monitor, supervisor_here)) as made,
    ):
        (record.folder / "log").mkdir()
        yield made


@pytest.mark.parametrize("is_killed", [False, True], ids=["", "and the process that evaluates was killed"])
def test_each_part_keeps_the_snapshots_before_its_own_checkpoint(
    observer: LiveObserver, tmp_path: Path, is_killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    if is_killed:
        ask, asked = runners.observer.Evaluator._ask, list[object]()

        def killed_once(self: Evaluator, *request: object) -> object:
            asked.append(self)
            if len(asked) == 1:
                raise EvaluatorLost("killed")
            return ask(self, *request)

        monkeypatch.setattr(runners.observer.Evaluator, "_ask", killed_once)
    observer.finish("epochs")
    assert [row["updates"] for row in monitor.curve.rows] == [0, 40, 60]


def test_an_evaluation_that_is_killed_twice_ends_the_run(
    observer: LiveObserver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may need more memory than there is."""
    num_asked = []

    def row(self: Evaluator, paths: list[Path], wall_s: float) -> dict[str, object]:
        num_asked.append(self)
        raise EvaluatorLost("killed")

    monkeypatch.setattr(runners.observer.Evaluator, "row", row)
    for part in (0, 1):
        write_state(state_path(tmp_path / "record" / "snapshots", 0.0, part), {}, {"updates": 0})
        observer.snapshot_written(part, 0)
    with pytest.raises(EvaluatorLost):
        observer.finish("epochs")
    assert len(num_asked) == len({*num_asked}) == 2, "each by a process of its own"


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


@pytest.mark.processes
def test_what_a_killed_process_was_asked_to_evaluate_is_evaluated_by_the_next(tmp_path: Path) -> None:
    """The supervisor is killed, with the evaluator: until the launcher has noticed, nothing is started. Then the
    evaluator alone.
    """
    config, _ = compose(["runner=local", "strategy=asp", "model=softmax_regression", "runner.evaluate=during"])
    monitor = RunMonitor(config, lambda row: None, lambda progress: None)
    weights = build_flat(config, shape_of(config), torch.device("cpu")).weights
    with (
        closing(Supervisor()) as supervisor,
        RecordWriter(tmp_path / "record", config.as_dict(), with_events=False) as record,
        closing(LiveObserver(config, record, monitor, supervisor)) as observer,
    ):

        def snapshot(number: int) -> None:
            values = Totals(4, updates=10 * number).snapshot(rate=0.1)
            state = {"weights": weights.clone(), "buffers": torch.zeros(0)}
            write_state(state_path(record.folder / "snapshots", float(number), 0), state, values)
            observer.snapshot_written(0, number)

        (record.folder / "log").mkdir()
        supervisor.begin()
        supervisor.is_busy = True  # with the run
        snapshot(0)
        observer._await_evaluations()
        assert supervisor._process is not None
        kill(supervisor._process.pid)
        supervisor._process.wait()
        snapshot(1)
        observer.tick()
        assert [row["updates"] for row in monitor.curve.rows] == [0]
        ended = supervisor.wait()
        assert ended is not None
        assert ended.process == SUPERVISOR
        observer.lost()
        write_state(state_path(record.folder / "checkpoint", 1.0, 0), {}, {"totals": {"updates": 10}})
        observer.rewind(1.0)
        observer._await_evaluations()
        assert [row["updates"] for row in monitor.curve.rows] == [0, 10]
        kill(pid_of_child(supervisor))
        snapshot(2)
        shutil.copy(state_path(record.folder / "snapshots", 2.0, 0), record.folder / "parameters-0.safetensors")
        observer.finish("epochs")
        assert [row["updates"] for row in monitor.curve.rows] == [0, 10, 20]
