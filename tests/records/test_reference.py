"""The reference: what goes in comes out, parts are only added, and a broken file is named in one line."""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.commands import call
from syncline.records.reference import COLUMNS, FORMAT_KEY, Reference, columns_of, rows_of, write_log, write_runs
from syncline.records.sources import FolderRecord, Record, provenance
from syncline.records.store import RecordError
from syncline.records.writer import RecordWriter
from tests.refusals import refusal

NUMBERS = st.one_of(st.none(), st.integers(), st.floats(allow_nan=False), st.text(max_size=3))
ROWS = st.lists(st.dictionaries(st.sampled_from("abc"), NUMBERS), max_size=5)


@given(ROWS)
def test_evaluations_by_columns_are_the_same_evaluations(rows: list[dict[str, Any]]) -> None:
    again = rows_of(json.loads(json.dumps(columns_of(rows))))
    assert again == rows
    assert [[type(value) for value in row.values()] for row in again] == [
        [type(value) for value in row.values()] for row in rows
    ]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[FolderRecord]:
    """A run that learns, with a log; and one of times alone."""
    results = tmp_path_factory.mktemp("results")
    assert call(["run", "max_updates=40", "strategy=adasync", "eval_every_epochs=0.25", f"results={results}"]) == 0
    assert call(["run", "max_updates=4", "gradients=false", "runner.events=false", f"results={results}"]) == 0
    return [FolderRecord(path.parent) for path in sorted(results.glob("*/summary.json"))]


def content_of(record: Record) -> dict[str, Any]:
    environment = {key: value for key, value in record.environment().items() if key != "command"}
    return {
        "identity": record.identity,
        "summary": record.summary(),
        "config": record.config(),
        "metrics": record.metrics(),
        "environment": environment,
        "date": math.floor(record.date()),
    }


def stored(reference: Reference, identity: str) -> Record:
    record = reference.record(identity)
    assert record is not None
    return record


def test_a_run_comes_out_as_it_went_in(made: list[FolderRecord], tmp_path: Path) -> None:
    write_runs(tmp_path, made)
    for record in made:
        again = stored(Reference(tmp_path), record.identity)
        assert content_of(again) == content_of(record)
        assert json.dumps(again.metrics()) == json.dumps(record.metrics()), "whole numbers stay whole"
        assert not again.has_events
        assert (record.origin, again.origin) == ("results", "reference")
    assert Reference(tmp_path).record("nobody-s0-0123456789") is None
    assert len(made[0].metrics()) > 2


def test_a_log_comes_out_as_it_went_in_and_of_a_large_one_its_beginning(
    made: list[FolderRecord], tmp_path: Path
) -> None:
    record = next(record for record in made if record.has_events)
    write_runs(tmp_path, made)
    reference = Reference(tmp_path)
    path, events = reference.log_path(record.identity), record.events()
    assert write_log(path, events, 1000) == 0
    assert not path.exists()
    with pytest.raises(RecordError, match=f"{record.identity}: its event log is not in the reference"):
        stored(reference, record.identity).events()
    assert write_log(path, events, 100_000) == events.num_rows
    assert stored(reference, record.identity).events().to_pylist() == events.to_pylist()
    room = 4 * path.stat().st_size // 5
    num_rows = write_log(path, events, room)
    assert 0.3 * events.num_rows < num_rows < events.num_rows
    assert path.stat().st_size <= room
    assert stored(reference, record.identity).events().to_pylist() == events.slice(0, num_rows).to_pylist()


def test_where_data_lie_is_not_stored(tmp_path: Path, written_record: Callable[..., Record]) -> None:
    record = written_record({"dataset": {"name": "cifar10", "root": "/home/me/data"}, "seed": 0})
    write_runs(tmp_path, [record])
    assert stored(Reference(tmp_path), record.identity).config() == {
        "dataset": {"name": "cifar10", "root": "data"}, "seed": 0,
    }  # fmt: skip


@pytest.fixture
def written_record(tmp_path: Path) -> Callable[..., Record]:
    """Makes a record of a config by hand; it replaces the last one."""
    folder = tmp_path / "results" / "a-b-c-s0-0123456789"

    def write(config: dict[str, Any], loss: float = 1.0) -> Record:
        with RecordWriter(folder, config, with_events=False) as record:
            record.evaluation({"time_s": 0.0, "loss": math.nan})
            record.evaluation({"time_s": 1.0, "loss": loss})
            record.finish({"wall_s": 1.0})
        return FolderRecord(folder)

    return write


def test_parts_are_added_and_the_first_counts(tmp_path: Path, written_record: Callable[..., Record]) -> None:
    first = write_runs(tmp_path, [written_record({}, loss=1.0)])
    content = first.read_bytes()
    second = write_runs(tmp_path, [written_record({}, loss=2.0)])
    assert [path.name.partition("-")[0] for path in (first, second)] == ["0001", "0002"]
    assert first.read_bytes() == content
    record = stored(Reference(tmp_path), "a-b-c-s0-0123456789")
    assert record.metrics()[1]["loss"] == 1.0
    assert math.isnan(record.metrics()[0]["loss"])
    assert not list(tmp_path.rglob("*.draft"))


def test_the_same_runs_give_the_same_bytes_which_pandas_reads(made: list[FolderRecord], tmp_path: Path) -> None:
    first, second = write_runs(tmp_path / "a", made), write_runs(tmp_path / "b", made)
    assert (first.name, first.read_bytes()) == (second.name, second.read_bytes())
    frame = pq.read_table(first).to_pandas()
    assert tuple(frame.columns) == COLUMNS
    assert json.loads(frame.summary[0])["identity"] == frame.identity[0]


def test_a_broken_part_is_named_in_one_line(made: list[FolderRecord], tmp_path: Path) -> None:
    path = write_runs(tmp_path, made)
    for content in (b"", b"PAR1", b"half a file"):
        path.write_bytes(content)
        line = refusal(RecordError, Reference(tmp_path).record, "a")
        assert re.search(f"{path}: broken reference .*; git checkout -- {path} ", line)


def test_a_part_of_another_format_or_origin_is_refused(made: list[FolderRecord], tmp_path: Path) -> None:
    path = write_runs(tmp_path, made)
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({FORMAT_KEY: b"99"}), path)
    with pytest.raises(RecordError, match="reference format 99, this version reads 1; use the version that wrote it"):
        Reference(tmp_path).record("a")
    pq.write_table(pa.table({"identity": ["a"]}), path)
    with pytest.raises(RecordError, match="broken reference"):
        Reference(tmp_path).record("a")


def test_a_record_of_another_format_is_refused(tmp_path: Path, written_record: Callable[..., Record]) -> None:
    record = written_record({})
    path = tmp_path / "results" / record.identity / "summary.json"
    write_runs(tmp_path / "current", [record])
    assert stored(Reference(tmp_path / "current"), record.identity).summary()["format"] == 2
    content = path.read_text()
    part = write_runs(tmp_path / "old", [record])
    table = pq.read_table(part)
    texts = pa.array([json.dumps(json.loads(content) | {"format": 1})])
    pq.write_table(table.set_column(table.column_names.index("summary"), "summary", texts), part)
    with pytest.raises(RecordError, match=f"{part}: record format 1, this version reads 2"):
        stored(Reference(tmp_path / "old"), record.identity).summary()


def test_a_broken_cell_is_named_in_one_line(made: list[FolderRecord], tmp_path: Path) -> None:
    path = write_runs(tmp_path, made)
    table = pq.read_table(path)
    column = table.column_names.index("curve")
    pq.write_table(table.set_column(column, "curve", pa.array(["{"] * table.num_rows)), path)
    record = stored(Reference(tmp_path), made[0].identity)
    assert record.summary() == made[0].summary()
    with pytest.raises(RecordError, match="broken reference"):
        record.metrics()


def test_a_reference_that_is_not_there_is_empty(tmp_path: Path) -> None:
    reference = Reference(tmp_path / "none")
    assert (reference.identities, reference.stems, reference.plan("a"), reference.record("a")) == ([], [], None, None)


def test_another_process_is_handed_a_path_and_no_content(made: list[FolderRecord], tmp_path: Path) -> None:
    import pickle

    write_runs(tmp_path, made)
    record = stored(Reference(tmp_path), made[0].identity)
    record.metrics()
    assert len(pickle.dumps(record)) < 1000
    assert pickle.loads(pickle.dumps(record)).metrics() == record.metrics()


def test_provenance_names_commits_machines_and_days(made: list[FolderRecord]) -> None:
    facts = made[0].environment()
    commit = facts["commit"] or "unknown"  # outside of a git checkout
    assert provenance(made).startswith(f"commit {commit}, {facts['processor']} with {facts['cores']} c")
