"""Trackers mirror a record and may fail as they like: the run goes on."""

import json
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from runners.one import run_one
from syncline.config import compose
from syncline.records.store import FINISHED, read_metrics, read_summary, status
from syncline.records.trackers import Guarded, NoTracker, Tracker, Wandb, start_tracker

ROW = {"epoch": 1.0, "time_s": 0.5, "updates": 45, "accuracy": 0.5, "train_loss": None}
OFFLINE = {"name": "wandb", "project": "syncline", "mode": "offline"}


class Service:
    """A service that notes what it is told and breaks down at the n-th call."""

    def __init__(self, breaks_at: int) -> None:
        self.told: list[Mapping[str, Any]] = []
        self._breaks_at = breaks_at

    def evaluation(self, row: Mapping[str, Any]) -> None:
        self.told.append(row)
        if len(self.told) >= self._breaks_at:
            raise ConnectionError("the service is down")

    def finish(self, summary: Mapping[str, Any]) -> None:
        self.evaluation(summary)


@pytest.fixture(autouse=True)
def wandb_keeps_to_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What wandb keeps about its user goes to a folder of the test."""
    for name in ("WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "wandb_home"))
    for name in ("WANDB_MODE", "WANDB_DIR", "WANDB_PROJECT", "WANDB_DISABLED"):
        monkeypatch.delenv(name, raising=False)


def test_a_tracker_that_works_is_told_everything_and_nothing_is_said() -> None:
    service = Service(breaks_at=10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        guarded = Guarded(lambda: service)
        guarded.evaluation({"epoch": 0})
        guarded.evaluation({"epoch": 1})
        guarded.finish({"status": "finished"})
    assert service.told == [{"epoch": 0}, {"epoch": 1}, {"status": "finished"}]


def whole_run(start: Callable[[], Tracker]) -> None:
    guarded = Guarded(start)
    for epoch in range(3):
        guarded.evaluation({"epoch": epoch})
    guarded.finish({"status": "finished"})


@pytest.mark.parametrize("breaks_at", [1, 2, 4])
def test_a_tracker_that_raises_is_left_out_with_one_warning(breaks_at: int) -> None:
    service = Service(breaks_at)
    with pytest.warns(UserWarning, match="the tracker failed and is left out: ConnectionError") as said:
        whole_run(lambda: service)
    assert len(said) == 1
    assert len(service.told) == breaks_at


def test_a_tracker_that_does_not_even_start_is_left_out_with_one_warning() -> None:
    def start() -> Tracker:
        raise OSError("no route to host")

    with pytest.warns(UserWarning, match="no route to host") as said:
        whole_run(start)
    assert len(said) == 1


def test_ctrl_c_during_tracking_is_no_failure_of_the_tracker() -> None:
    def start() -> Tracker:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Guarded(start)


def test_no_tracker_is_asked_for_by_none(tmp_path: Path) -> None:
    tracker = start_tracker({"name": "none"}, tmp_path, "x", {})
    assert type(tracker) is NoTracker
    tracker.evaluation(ROW)
    tracker.finish({})
    assert list(tmp_path.iterdir()) == []


def test_a_true_wandb_that_cannot_start_does_not_harm_the_run(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="the tracker failed and is left out") as said:
        tracker = start_tracker({**OFFLINE, "mode": "nonsense"}, tmp_path, "x", {})
    assert len(said) == 1
    tracker.evaluation(ROW)
    tracker.finish({})


def test_wandb_offline_mirrors_a_true_run_in_the_records_folder(tmp_path: Path) -> None:
    config, _ = compose(["tracker=wandb", "epochs=2", "dataset.train_size=200", "dataset.test_size=50"])
    summary = run_one(config, tmp_path, lambda progress: None)
    record = tmp_path / config.identity
    assert status(record) == FINISHED
    assert len(read_metrics(record)) >= 2
    (offline,) = (record / "wandb").glob("offline-run-*")
    (log,) = offline.glob("*.wandb")
    assert config.identity in log.name
    wanted = (b"accuracy", b"train_loss", b"mean_staleness", config.identity.encode())
    until = time.monotonic() + 20  # wandb's own process writes the file a moment later
    while time.monotonic() < until and not all(key in log.read_bytes() for key in wanted):
        time.sleep(0.05)
    assert [key for key in wanted if key not in log.read_bytes()] == []
    assert json.dumps(summary) == json.dumps(read_summary(record))


def test_a_tracked_run_gives_the_same_numbers_as_an_untracked_one(tmp_path: Path) -> None:
    words = ["gradients=false", "epochs=1", "dataset.train_size=200"]
    tracked, plain = compose(["tracker=wandb", *words])[0], compose(words)[0]
    assert tracked.identity == plain.identity
    one = run_one(tracked, tmp_path / "one", lambda progress: None)
    other = run_one(plain, tmp_path / "other", lambda progress: None)
    assert {**one, "wall_s": 0} == {**other, "wall_s": 0}
    assert not (tmp_path / "other" / plain.identity / "wandb").exists()


def test_wandb_takes_rows_and_a_summary_with_gaps(tmp_path: Path) -> None:
    tracker = Wandb(tmp_path, "x", {"seed": 0}, "syncline", "offline")
    tracker.evaluation(ROW)
    tracker.finish({"final": None, "best": {"accuracy": {"value": 1.0}}, "used_by_worker": [1, 2]})
    assert list((tmp_path / "wandb").glob("offline-run-*/*.wandb"))
