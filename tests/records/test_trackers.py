"""Trackers mirror a record and may fail in any way: the run continues."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from commands import cli, made, record_of
from hypothesis import given
from hypothesis import strategies as st

import runners.one
from runners.one import run_one
from syncline.config import compose
from syncline.records.spans import ANSWER, BLOCKS, WAITING, read_timeline
from syncline.records.store import FINISHED, read_config, read_metrics, read_summary, status
from syncline.records.trackers import process
from syncline.records.trackers.__main__ import mirror
from syncline.records.trackers.histograms import MAX_BINS, WAITS, histogram, histograms_of
from syncline.records.trackers.process import Tracker
from syncline.records.trackers.wandb import group_of
from syncline.records.writer import RecordWriter

TINY = ["epochs=2", "dataset.train_size=200", "dataset.test_size=50"]
OFFLINE = {"name": "wandb", "project": "syncline", "mode": "offline", "group": "", "tags": [], "wait_s": 30.0}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module", autouse=True)
def no_settings(home: Path) -> Iterator[None]:
    """None get in, and what wandb keeps about its user goes to a folder of the tests."""
    import matplotlib

    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("WANDB_")]:
            patch.delenv(name)
        patch.setenv("MPLCONFIGDIR", matplotlib.get_cachedir())  # a list of fonts, which takes seconds to make
        patch.setenv("HOME", str(home))
        yield


ADAPTIVE = [*TINY, "strategy=adasync", "strategy.k=2", "strategy.interval=0.02"]


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Of two true runs with an adaptive K, seeds 3 and 4, that were made and tracked at once."""
    results = tmp_path_factory.mktemp("results")
    words = [*ADAPTIVE, "tracker=wandb", "tracker.tags=[mine]", "tracker.wait_s=300", "jobs=2", f"results={results}"]
    said = cli("-m", "seed=3,4", *words)
    assert said.code == 0, said.err
    assert "tracker" not in said.err
    return [record_of(results, *ADAPTIVE, f"seed={seed}") for seed in (3, 4)]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines that a run prints about its tracker."""
    lines: list[str] = []
    monkeypatch.setattr(runners.one, "say", lines.append)
    return lines


def tracked(results: Path, *words: str) -> tuple[dict[str, Any], Path]:
    """A tiny run with wandb: its summary and the folder of its record."""
    config, _ = compose(["tracker=wandb", *TINY, *words])
    return run_one(config, results, lambda progress: None), results / config.identity


class Arrived:
    """What lies in the one file that wandb has written into a record, read with wandb's own messages.

    The file is a log of LevelDB's format: blocks of 32 KiB, in them pieces with checksum, length and kind.
    """

    def __init__(self, record: Path) -> None:
        from wandb.proto.wandb_internal_pb2 import Record

        (path,) = record.glob("wandb/offline-run-*/*.wandb")
        data, at, whole = path.read_bytes(), 7, b""
        assert data[:4] == b":W&B"
        self.rows: list[dict[str, Any]] = []
        self.summary: dict[str, Any] = {}
        while at + 7 <= len(data):
            if (room := 32768 - at % 32768) < 7:
                at += room
                continue
            length, kind = struct.unpack("<HB", data[at + 4 : at + 7])
            whole += data[at + 7 : at + 7 + length]
            at += 7 + length
            if kind in (1, 4):  # the only piece, or the last
                self._receive(Record.FromString(whole))
                whole = b""

    def _receive(self, record: Any) -> None:
        kind = record.WhichOneof("record_type")
        if kind == "history":
            self.rows.append({_key(item): json.loads(item.value_json) for item in record.history.item})
        elif kind == "summary":
            self.summary |= {_key(item): json.loads(item.value_json) for item in record.summary.update}
        elif kind == "run":
            self.run = record.run
            self.config = {item.key: json.loads(item.value_json) for item in record.run.config.update}
        elif kind == "artifact":
            self.artifact = {entry.path: Path(entry.local_path) for entry in record.artifact.manifest.contents}
        elif kind == "exit":
            self.exit_code = record.exit.exit_code

    def column(self, key: str) -> list[Any]:
        return [row[key] for row in self.rows if key in row]


def _key(item: Any) -> str:
    return item.key or "/".join(item.nested_key)


@pytest.mark.processes
@pytest.mark.xdist_group("tracked_run")
def test_wandb_offline_has_all_of_a_true_run(records: list[Path]) -> None:
    record, other = records
    arrived, rows, summary = Arrived(record), read_metrics(record), read_summary(record)
    assert (status(record), arrived.exit_code) == (FINISHED, 0)

    assert arrived.run.run_id == arrived.run.display_name == record.name
    assert arrived.run.run_group == group_of(read_config(record)) == Arrived(other).run.run_group, "seeds together"
    assert Arrived(other).run.run_id == other.name
    assert list(arrived.run.tags) == ["adasync", "lenet", "digits", "simulate", "mine"]
    assert arrived.config["time_kind"] == "virtual"
    assert {key: arrived.config[key] for key in read_config(record)} == read_config(record)

    evaluations = [row for row in arrived.rows if "accuracy" in row]
    expected = [{("virtual_time_s" if key == "time_s" else key): row[key] for key in row} for row in rows]
    kept = [{key: row.get(key) for key in wanted} for row, wanted in zip(evaluations, expected, strict=True)]
    assert kept == expected

    changes = zip(*map(arrived.column, ("K_virtual_time_s", "K_updates", "K")), strict=True)
    assert [list(change) for change in changes] == summary["waits_for"] != []
    histograms = histograms_of(summary, read_timeline(record)[0])
    assert set(histograms) == {"staleness_of_gradients", "waiting_held_s"}
    for key, (counts, edges) in histograms.items():
        assert (arrived.column(f"{key}/values"), arrived.column(f"{key}/bins")) == ([counts], [edges])
    assert arrived.summary["final"] == summary["final"]

    assert {"timeline.png", "timeline.json", "metrics.jsonl", "summary.json"} <= set(arrived.artifact)
    assert all(path.is_relative_to(record) and path.stat().st_size for path in arrived.artifact.values())
    assert arrived.column("timeline/_type") == ["image-file"]


@pytest.mark.processes
@pytest.mark.xdist_group("tracked_run")
def test_a_run_that_is_tracked_twice_is_stored_once(records: list[Path]) -> None:
    record = records[1]
    command = [sys.executable, "-m", "syncline.records.trackers", str(record)]
    again = subprocess.run(command, capture_output=True, text=True)
    assert (again.returncode, again.stderr) == (0, "")
    assert Arrived(record).column("accuracy") == [row["accuracy"] for row in read_metrics(record)]


@pytest.mark.processes
@pytest.mark.xdist_group("tracked_run")
def test_a_tracked_run_gives_the_same_numbers_as_an_untracked_one(
    records: list[Path], home: Path, tmp_path: Path
) -> None:
    other = made(tmp_path, *ADAPTIVE, "seed=3")
    assert {**read_summary(records[0]), "wall_s": 0} == {**read_summary(other), "wall_s": 0}
    assert not (other / "wandb").exists()
    assert [path for path in home.rglob("*") if path.is_file()] == [], "nothing is left in the home folder"


@pytest.mark.parametrize(("strategy", "kind"), [("bsp", WAITING), ("psp", BLOCKS), ("ds_sync", ANSWER)])
def test_all_that_workers_waited_is_in_a_histogram(tmp_path: Path, strategy: str, kind: str) -> None:
    record = made(tmp_path, f"strategy={strategy}", "gradients=false", *TINY)
    timeline = read_timeline(record)[0]
    waits = [span.end_s - span.begin_s for lane in timeline.workers for span in lane if span.kind == kind]
    made_of = histograms_of(read_summary(record), timeline)
    assert set(made_of) == {"staleness_of_gradients", WAITS[kind]}
    counts, edges = made_of[WAITS[kind]]
    assert sum(counts) == len(waits) > 0
    assert (edges[0], edges[-1]) == (0, pytest.approx(max(waits)))
    least = sum(count * edge for count, edge in zip(counts, edges, strict=False))
    most = sum(count * edge for count, edge in zip(counts, edges[1:], strict=True))
    assert least <= sum(waits) <= most


class FakeService:
    """A service that remembers its points."""

    is_live = True

    def __init__(self) -> None:
        self.points: list[Mapping[str, Any]] = []
        self.ended: list[bool] = []
        self.summary: Mapping[str, Any] = {}

    def begin(self, folder: Path) -> None:
        self.points = []

    def log_evaluation(self, row: Mapping[str, Any]) -> None:
        self.points.append(row)

    def log_result(self, folder: Path, summary: Mapping[str, Any]) -> None:
        self.summary = summary

    def end(self, is_finished: bool) -> None:
        self.ended.append(is_finished)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.booleans())), st.booleans())
def test_every_point_of_a_run_that_goes_back_is_there_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int, bool]], is_finished: bool
) -> None:
    """Each step: the record loses some rows, gains others, with the same values or not, and is read."""
    folder = tmp_path_factory.mktemp("record") / "x"
    service = FakeService()

    def course(record: RecordWriter) -> Iterator[None]:
        rows: list[dict[str, Any]] = []
        for back, on, is_same in steps:
            if back:
                rows = rows[: max(0, len(rows) - back)]
                record.restart_evaluations()
                for row in rows:
                    record.evaluation(row)
            for _ in range(on):
                rows.append({"updates": len(rows), "loss": 0 if is_same else back})
                record.evaluation(rows[-1])
            yield
            assert service.points == rows
        if is_finished:
            record.finish({"status": "finished"})
        yield

    with RecordWriter(folder, {}, with_events=False) as record:
        mirror(service, folder, folder, course(record))
    assert service.points == read_metrics(folder)
    assert service.ended == [is_finished]
    assert service.summary.get("status") == ("finished" if is_finished else None)


def test_a_finished_record_that_is_made_again_is_followed_to_its_place(tmp_path: Path) -> None:
    place, service = tmp_path / "x", FakeService()
    for loss in (1.0, 2.0):
        record = RecordWriter(place, {}, with_events=False)

        def looks(record: RecordWriter = record, loss: float = loss) -> Iterator[None]:
            record.evaluation({"loss": loss})
            yield
            record.finish({"loss": loss})
            yield

        mirror(service, record.folder, place, looks())
    assert (service.points, service.summary["loss"]) == ([{"loss": 2.0}], 2.0)


def test_wandb_that_is_disabled_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_DISABLED", "true")
    monkeypatch.setattr("subprocess.Popen", lambda *about, **more: pytest.fail("it was started"))
    said = list[str]()
    with Tracker({"name": "wandb", "wait_s": 1.0}, tmp_path, tmp_path, said.append) as tracker:
        tracker.on_evaluation()
    assert said == ["tracker=wandb: WANDB_DISABLED is set, so the run is not tracked"]


BROKEN = {
    "raises": ("raise OSError(28, 'No space left on device')", 300, "OSError: [Errno 28] No space left on device"),
    "exits": ("import os; os._exit(7)", 300, "it ended with exit code 7"),
    "hangs and cannot be interrupted": (
        "import signal, time\nsignal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\ntime.sleep(600)",
        1,
        "it had not ended 1 s after the run",
    ),
}


def broken_wandb(folder: Path, program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on this is what a new process imports as wandb."""
    folder.mkdir()
    (folder / "wandb.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *filter(None, sys.path)]))


@pytest.mark.parametrize("way", BROKEN)
def test_a_tracker_that_fails_is_reported_in_one_line_and_the_record_is_complete(
    way: str, tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program, wait_s, why = BROKEN[way]
    broken_wandb(tmp_path / "broken", program, monkeypatch)
    summary, record = tracked(tmp_path, "gradients=false", f"tracker.wait_s={wait_s}")
    (line,) = said
    assert why in line
    assert f"python -m syncline.records.trackers {record}" in line
    assert (status(record), read_summary(record)) == (FINISHED, summary)
    assert running(str(record)) == []


@pytest.mark.processes
def test_a_network_that_is_silent_does_not_harm_the_run(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
        summary, record = tracked(tmp_path, "gradients=false", "tracker.mode=online", "tracker.wait_s=2")
    (line,) = said
    assert "tracker=wandb failed, the run continues" in line
    assert (status(record), read_summary(record)) == (FINISHED, summary)
    assert running(str(record)) == []


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A record that asks for wandb, without an evaluation so far."""
    RecordWriter(tmp_path / "x", {"tracker": OFFLINE}, with_events=False).close()
    return tmp_path / "x"


def running(word: str) -> list[Path]:
    """Processes with this word in their command line; of those that are dead it is empty."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if word.encode() in path.read_bytes():
                found.append(path)
    return found


def test_a_tracker_that_hangs_is_never_waited_for_during_the_run(
    begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken_wandb(tmp_path / "broken", "import time; time.sleep(600)", monkeypatch)
    lines: list[str] = []
    with Tracker({**OFFLINE, "wait_s": 0.1}, begun, begun, lines.append) as tracker:
        for _ in range(100_000):  # more than the pipe holds
            tracker.on_evaluation()
        assert lines == []
    assert "not ended 0.1 s after the run" in "".join(lines)


def test_a_tracker_that_dies_is_reported_at_the_next_evaluation_and_only_then(
    begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken_wandb(tmp_path / "broken", "raise SyntaxError('what is this')", monkeypatch)
    lines: list[str] = []
    with Tracker(OFFLINE, begun, begun, lines.append) as tracker:
        ends = time.monotonic() + 120
        while not lines and time.monotonic() < ends:
            tracker.on_evaluation()
            time.sleep(0.02)
        assert "SyntaxError: what is this" in lines[0]
    assert len(lines) == 1


def test_a_run_that_fails_waits_only_briefly_for_its_tracker(
    begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would wait for ten minutes for that of a run that finishes."""
    monkeypatch.setattr(process, "ABORT_S", 0.1)
    broken_wandb(tmp_path / "broken", "import time; time.sleep(600)", monkeypatch)
    since = time.monotonic()
    with pytest.raises(KeyboardInterrupt), Tracker({**OFFLINE, "wait_s": 600.0}, begun, begun, lambda line: None):
        raise KeyboardInterrupt
    assert time.monotonic() - since < 300
    assert running(str(tmp_path)) == []


def test_a_tracker_ends_with_a_run_that_is_killed(begun: Path, tmp_path: Path) -> None:
    program = f"""
import os, pathlib, signal
from syncline.records.trackers.process import Tracker
folder = pathlib.Path({str(begun)!r})
Tracker({OFFLINE!r}, folder, folder, print)
os.kill(os.getpid(), signal.SIGKILL)
"""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    assert subprocess.run([sys.executable, "-c", program], env=env).returncode == -signal.SIGKILL
    ends = time.monotonic() + 120
    while running(str(tmp_path)) and time.monotonic() < ends:
        time.sleep(0.05)
    assert running(str(tmp_path)) == []


def test_a_group_is_all_but_the_seed_and_the_tracker() -> None:
    def group(*words: str) -> str:
        return group_of(compose(["tracker=wandb", *words])[0].as_dict())

    assert group("seed=1") == group("seed=2", "tracker.project=other")
    assert group() != group("optimizer.lr=0.5")


@given(st.lists(st.integers(0, 1000), min_size=1))
def test_a_histogram_of_whole_numbers_counts_each_in_its_bin(values: list[int]) -> None:
    counts, edges = histogram(values, [1] * len(values), is_whole=True)
    inside = [[value for value in values if low < value < high] for low, high in pairwise(edges)]
    assert [len(found) for found in inside] == counts
    assert sum(counts) == len(values)
    assert len(counts) <= MAX_BINS
