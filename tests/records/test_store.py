"""The record of a run: when it counts as finished, and the errors of a broken one."""

import gc
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from full_disk import files_no_larger_than

import syncline
from syncline.records.environment import _commit, emulates_bfloat16, environment
from syncline.records.events import read_events, rows_of
from syncline.records.rows import applied
from syncline.records.store import (
    ABSENT,
    FAILED,
    FINISHED,
    FORMAT,
    UNFINISHED,
    RecordError,
    read_config,
    read_metrics,
    read_summary,
    status,
    write_file,
)
from syncline.records.writer import RecordWriter, recover
from tests.refusals import refusal

CONFIG: dict[str, Any] = {"seed": 3, "model": {"name": "lenet"}, "sizes": (1, 2), "slow": {0: 3.0}}
SUMMARY = {"identity": "x", "status": "finished", "final": {"accuracy": 0.5}}
ROW = applied(0.5, 1, 0, 7, 3, 2, "lead 1")


def finished(folder: Path) -> Path:
    with RecordWriter(folder, CONFIG, with_events=True) as record:
        record.evaluation({"epoch": 0.0})
        record.finish(SUMMARY)
    return folder


def line_of(read: Callable[[Path], object], folder: Path) -> str:
    """The error of reading this record; it must be one line with the folder's path."""
    line = refusal(RecordError, read, folder)
    assert str(folder) in line
    return line


# Made and read back.


def test_a_finished_record_holds_what_it_was_given(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "in" / "x"
    with RecordWriter(folder, CONFIG, with_events=True) as record:
        assert record.events is not None
        record.events.append(ROW)
        for epoch in range(3):
            record.evaluation({"epoch": epoch, "accuracy": 0.1 * epoch, "train_loss": None})
        record.finish(SUMMARY)
    assert {path.name for path in folder.iterdir()} == {
        "config.json",
        "environment.json",
        "events.arrow",
        "metrics.jsonl",
        "summary.json",
    }
    assert read_summary(folder) == {"format": FORMAT, **SUMMARY, "restarts": 0}
    assert read_config(folder) == {**CONFIG, "sizes": [1, 2], "slow": {"0": 3.0}}
    assert json.loads((folder / "config.json").read_text())["format"] == FORMAT
    assert [row["epoch"] for row in read_metrics(folder)] == [0, 1, 2]
    assert read_metrics(folder)[1] == {"epoch": 1, "accuracy": 0.1, "train_loss": None}
    assert list(rows_of(read_events(folder / "events.arrow"))) == [ROW]


def test_the_environment_names_versions_hardware_and_the_command(tmp_path: Path) -> None:
    RecordWriter(tmp_path / "x", CONFIG, with_events=False).close()
    facts = json.loads((tmp_path / "x" / "environment.json").read_text())
    assert facts == environment()
    assert {"torch", "numpy", "hydra-core", "pyarrow"} <= set(facts["packages"])
    assert facts["python"] == ".".join(map(str, sys.version_info[:3]))
    assert facts["cores"] == len(os.sched_getaffinity(0))
    assert facts["processor"]
    assert facts["command"] == sys.argv


def test_the_environment_is_known_while_torch_is_being_imported(tmp_path: Path) -> None:
    """As when a run of real processes begins again while a thread of the coordinator makes its first evaluation."""
    (tmp_path / "torch.py").write_text("from syncline.records.environment import environment\nfacts = environment()\n")
    script = "import json, torch; print(json.dumps(torch.facts))"
    paths = os.pathsep.join([str(tmp_path), str(Path(syncline.__file__).parents[1])])
    said = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True
    )
    assert said.returncode == 0, said.stderr
    assert "gpu" not in json.loads(said.stdout)


@pytest.mark.skipif(platform.machine() != "x86_64" or sys.platform != "linux", reason="asks Linux on x86-64")
def test_torch_agrees_on_whether_it_emulates_bfloat16() -> None:
    import torch

    assert emulates_bfloat16() is not torch.ops.mkldnn._is_mkldnn_bf16_supported()


def test_the_environment_knows_the_commit_wherever_it_is_asked_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def commit_of(name: str) -> subprocess.CompletedProcess[str]:
        git = ["git", "-C", str(Path(__file__).parents[2]), "rev-parse", f"{name}^0"]
        return subprocess.run(git, capture_output=True, text=True, check=False)

    head = commit_of("HEAD")
    if head.returncode:
        pytest.skip("not in a git checkout")
    monkeypatch.chdir(tmp_path)
    named = environment()["commit"].removesuffix("-dirty")  # a tag may stand in front
    assert commit_of(named).stdout == head.stdout


def test_the_commit_is_known_in_a_checkout_of_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a container that mounts it."""
    own = _commit()
    if own is None:
        pytest.skip("not in a git checkout")
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    assert _commit() == own


# Finished, failed, unfinished, absent.


def test_summary_json_is_what_makes_a_record_finished(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    assert status(folder) == ABSENT
    with RecordWriter(folder, CONFIG, with_events=False) as record:
        assert (status(folder), record.events) == (UNFINISHED, None)
        for epoch in range(3):
            record.evaluation({"epoch": epoch})
            assert [row["epoch"] for row in read_metrics(folder)] == list(range(epoch + 1)), "on disk at once"
        assert status(folder) == UNFINISHED
        record.finish(SUMMARY)
        assert status(folder) == FINISHED
    assert (status(folder), (folder / "events.arrow").exists()) == (FINISHED, False)
    (folder / "summary.json").unlink()
    assert status(folder) == UNFINISHED


def test_the_summary_is_written_last_and_all_at_once(tmp_path: Path) -> None:
    folder = finished(tmp_path / "x")
    last = (folder / "summary.json").stat().st_mtime_ns
    assert all(path.stat().st_mtime_ns <= last for path in folder.iterdir())
    assert not list(folder.glob("*.draft"))
    (folder / "summary.json").rename(folder / "summary.json.draft")  # killed while it was written
    assert status(folder) == UNFINISHED


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_a_file_that_several_processes_write_at_once_is_always_whole(tmp_path: Path) -> None:
    path, length = tmp_path / "plan.json", 100_000
    write_file(path, "0" * length)
    writers = list[int]()
    for letter in "abcd":
        if not (pid := os.fork()):
            code = 1
            with suppress(OSError):
                for _ in range(25):
                    write_file(path, letter * length)
                code = 0
            os._exit(code)
        writers.append(pid)
    codes = dict[int, int]()
    while len(codes) < len(writers):
        content = path.read_text()
        assert content == content[0] * length
        codes |= dict(os.waitpid(pid, os.WNOHANG) for pid in writers if pid not in codes)
        codes.pop(0, None)  # one that has not ended
    assert set(codes.values()) == {0}
    assert [entry.name for entry in tmp_path.iterdir()] == ["plan.json"]


def test_what_an_interrupt_leaves_of_a_finished_record_is_removed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    folder = tmp_path / "x"
    with RecordWriter(folder, CONFIG, with_events=False) as record:
        (folder / "checkpoint").mkdir()
        monkeypatch.setattr("shutil.rmtree", interrupt)
        with pytest.raises(KeyboardInterrupt):
            record.finish(SUMMARY)
    monkeypatch.undo()
    assert status(folder) == FINISHED
    assert (folder / "checkpoint").exists()
    recover(folder)
    assert not (folder / "checkpoint").exists()


def test_a_failed_run_keeps_its_traceback_and_what_it_had(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    with RecordWriter(folder, CONFIG, with_events=True) as record:
        assert record.events is not None
        record.events.append(ROW)
        record.fail("Traceback: it went wrong\n")
    assert status(folder) == FAILED
    assert (folder / "log.txt").read_text() == "Traceback: it went wrong\n"
    assert read_events(folder / "events.arrow").num_rows == 1


@pytest.mark.parametrize("before", ["unfinished", "failed"])
def test_anything_left_in_the_folder_is_replaced(tmp_path: Path, before: str) -> None:
    folder = tmp_path / "x"
    with RecordWriter(folder, {"seed": 99}, with_events=True) as record:
        record.evaluation({"epoch": 77})
        if before == "failed":
            record.fail("it went wrong")
    (folder / "left").mkdir()
    (folder / "left" / "over").write_text("x")
    with RecordWriter(folder, CONFIG, with_events=False) as record:
        assert status(folder) == UNFINISHED
    assert {path.name for path in folder.iterdir()} == {"config.json", "environment.json", "metrics.jsonl"}
    assert read_metrics(folder) == []
    assert read_config(folder)["seed"] == 3


@pytest.mark.parametrize("outcome", ["unfinished", "failed", "finished"])
def test_a_finished_record_is_replaced_only_by_the_next_finished_one(tmp_path: Path, outcome: str) -> None:
    folder = finished(tmp_path / "x")
    (folder / "left").write_text("x")
    with RecordWriter(folder, CONFIG | {"seed": 4}, with_events=True) as record:
        assert status(folder) == FINISHED
        if outcome == "failed":
            record.fail("it went wrong")
        elif outcome == "finished":
            record.finish(SUMMARY)
    assert status(folder) == FINISHED
    assert read_config(folder)["seed"] == (4 if outcome == "finished" else 3)
    assert (folder / "left").exists() is (outcome != "finished")
    if outcome == "finished":
        assert {path.name for path in tmp_path.iterdir()} == {"x"}


# Broken, newer, missing.


@pytest.mark.parametrize(
    ("read", "name", "contents"),
    [
        (read_summary, "summary.json", [b"", b"{", b'{"a": 1}', b"[]", b"3", b"null", b"\xff\xfe\x00"]),
        (read_config, "config.json", [b"", b"[]", b"seed: 3", b"3", b"\xff\xfe\x00"]),
        (read_metrics, "metrics.jsonl", [b'{"epoch": 0}\n{"ep\n{"epoch": 2}\n', b"\xff\n", b"\n\n", b"[1, 2]\n"]),
    ],
)
def test_a_broken_file_is_refused(
    tmp_path: Path, read: Callable[[Path], object], name: str, contents: list[bytes]
) -> None:
    folder = finished(tmp_path / "x")
    for content in contents:
        (folder / name).write_bytes(content)
        line = line_of(read, folder)
        assert ("damaged record" if name == "summary.json" else "broken record") in line
    (folder / name).unlink()
    assert ("no finished record" if name == "summary.json" else "broken record") in line_of(read, folder)


def test_a_newer_format_is_refused_with_both_numbers(tmp_path: Path) -> None:
    folder = finished(tmp_path / "x")
    (folder / "summary.json").write_text(json.dumps({"format": FORMAT + 1, **SUMMARY}))
    line = line_of(read_summary, folder)
    assert f"record format {FORMAT + 1}" in line
    assert f"this version reads {FORMAT}" in line


def test_the_last_line_of_metrics_cut_by_a_crash_is_left_out(tmp_path: Path) -> None:
    folder = finished(tmp_path / "x")
    for cut in ("", "{", '{"epoch": 2, "accu', '{"epoch": 2}'):
        (folder / "metrics.jsonl").write_text('{"epoch": 0}\n{"epoch": 1}\n' + cut)
        assert read_metrics(folder) == [{"epoch": 0}, {"epoch": 1}]


# Where nothing can be written.


def test_a_regular_file_in_the_place_of_the_record_or_its_folder_is_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    for folder in (tmp_path / "file" / "x", tmp_path / "file"):
        line = line_of(lambda folder: RecordWriter(folder, CONFIG, with_events=True), folder)
        assert "cannot write the record" in line
        assert "results=<folder>" in line
    assert (tmp_path / "file").read_text() == "precious"


def test_no_space_at_the_start_is_one_line(tmp_path: Path) -> None:
    with files_no_larger_than(30):
        line = line_of(lambda folder: RecordWriter(folder, CONFIG, with_events=True), tmp_path / "x")
    assert "File too large" in line
    assert status(tmp_path / "x") == UNFINISHED


@pytest.mark.parametrize("what", ["metrics", "events", "summary"])
def test_no_space_during_the_run_is_one_line_and_leaves_it_unfinished(tmp_path: Path, what: str) -> None:
    def run(folder: Path) -> None:
        with files_no_larger_than(2000), RecordWriter(folder, CONFIG, with_events=True) as record:
            assert record.events is not None
            if what == "metrics":
                for epoch in range(1000):
                    record.evaluation({"epoch": epoch})
            if what == "events":
                for _ in range(30_000):
                    record.events.append(ROW)
            record.finish({**SUMMARY, "many": list(range(1000))})

    line = line_of(run, tmp_path / "x")
    gc.collect()  # a file that was left open is a warning, and so an error, here
    assert "cannot write the record" in line
    assert "File too large" in line
    assert status(tmp_path / "x") == UNFINISHED
