"""syncline timeline, and the errors of commands in one line."""

import json
from importlib import metadata
from pathlib import Path

import pytest

import syncline
from runners.commands import main
from syncline.records import rows
from syncline.records.events import EventLog
from syncline.records.writer import RecordWriter

FILES = ["timeline.json", "timeline.svg", "timeline.png"]


def log_steps(log: EventLog, shard: int = 0) -> None:
    for i in range(5):
        log.append(rows.started(1.0 * i, 0, i, 0.5, ""))
        log.append(rows.computed(i + 0.5, 0, i, 0.0))
        log.append(rows.pushed(i + 0.6, 0, shard, i, i, 0))
        log.append(rows.answer(i + 0.7, "granted", 0, shard, i + 1, "free"))


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Records: a finished run, one without events, one with an empty log, an interrupted one of real processes."""
    results = tmp_path / "results"
    with RecordWriter(results / "good", {"runner": {"name": "simulate"}}, with_events=True) as record:
        assert record.events is not None
        log_steps(record.events)
        record.finish({"time_kind": "virtual", "time_s": 5.25})
    with RecordWriter(results / "without", {"runner": {"name": "simulate"}}, with_events=False) as record:
        record.finish({"time_kind": "virtual", "time_s": 5.0})
    with RecordWriter(results / "empty", {"runner": {"name": "simulate"}}, with_events=True):
        pass
    with RecordWriter(results / "interrupted", {"runner": {"name": "local"}}, with_events=False):
        for shard in range(2):
            log = EventLog(results / "interrupted" / f"events-{shard}.arrow")
            log_steps(log, shard)
            log.append(rows.left(6.0, 0, shard, "killed"))
            log.close()
    return results


def test_a_timeline_is_made_of_an_identity(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["timeline", "good", "--results", str(results)]) == 0
    files = [results / "good" / name for name in FILES]
    assert capsys.readouterr().out.split() == ["written:", *map(str, files)]
    assert all(path.stat().st_size > 0 for path in files)
    svg = files[1].read_text()
    assert ">good: all of 5.25 s virtual</text>" in svg
    assert ">virtual time (s)</text>" in svg


def test_a_timeline_is_made_of_a_folder_and_written_elsewhere(results: Path, tmp_path: Path) -> None:
    before = sorted((results / "good").iterdir())
    assert main(["timeline", str(results / "good"), "--output", str(tmp_path / "a" / "b")]) == 0
    assert sorted(path.name for path in (tmp_path / "a" / "b").iterdir()) == sorted(FILES)
    assert sorted((results / "good").iterdir()) == before


def test_a_window_cuts_trace_and_picture(results: Path) -> None:
    assert main(["timeline", str(results / "good"), "--from", "1.1", "--to", "1.4"]) == 0
    assert ">good: 1.100 to 1.400 s of 5.250 s virtual</text>" in (results / "good" / "timeline.svg").read_text()
    events = json.loads((results / "good" / "timeline.json").read_text())["traceEvents"]
    assert [event["name"] for event in events if event["ph"] != "M"] == ["computing"]


def test_an_interrupted_run_of_real_processes_has_a_timeline_in_wall_time(results: Path) -> None:
    assert main(["timeline", "interrupted", "--results", str(results)]) == 0
    svg = (results / "interrupted" / "timeline.svg").read_text()
    for expected in ("wall time (s)", "shard 1", "not recorded"):
        assert f">{expected}</text>" in svg


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["timelime"], "unknown command 'timelime'; there are run, race, tune, judge"),
        (["timeline"], "syncline timeline: the following arguments are required: record"),
        (["timeline", "good", "--form", "1"], "syncline timeline takes no --form; its options are "),
        (["timeline", "good", "--from", "one"], "syncline timeline: argument --from: invalid float value: 'one'"),
        (["timeline", "bad"], "no such record: neither RESULTS/bad nor bad is the folder of one"),
        (["timeline", "without"], "RESULTS/without: no events; runner.events=true"),
        (["timeline", "empty"], "RESULTS/empty/events.arrow: no events so far"),
        (["timeline", "good", "--from", "3", "--to", "2"], "--from 3 --to 2: outside the run"),
        (["timeline", "good", "--from", "9"], "--from 9: outside the run, which goes from 0 to 5.25 s"),
        (["timeline", "good", "--output", "/dev/null/x"], "/dev/null/x: Not a directory"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_one_line(results: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    code = main([*words, "--results", str(results)] if words[1:] else words)
    out, err = capsys.readouterr()
    assert (code, out) == (1, "")
    (line,) = err.splitlines()
    assert line.startswith("error: " + said.replace("RESULTS", str(results)))


@pytest.mark.parametrize("words", [["clean"], ["new", "model", "net"]], ids=" ".join)
def test_ctrl_c_is_one_line(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("syncline.operations.clean.find", interrupted)
    monkeypatch.setattr("runners.new.main", interrupted)
    assert main(words) == 130
    assert capsys.readouterr() == ("", "interrupted\n")


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"syncline {metadata.version('syncline')}\n"
    assert syncline.__version__ == metadata.version("syncline")
    assert not hasattr(syncline, "__author__")


def test_a_checkout_that_was_never_installed_has_the_version_of_its_project_file(monkeypatch: pytest.MonkeyPatch):
    installed = syncline.__version__

    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert syncline.__version__ == installed
