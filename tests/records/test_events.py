"""The event log: what is written is read back, also from a log whose writer was stopped at any point."""

import math
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.records import events
from syncline.records.events import SCHEMA, EventLog, merge_events, read_events, rows_of
from syncline.records.rows import KINDS, Row, computed
from syncline.records.store import RecordError
from tests.refusals import refusal

rows_of_any_kind = st.lists(
    st.builds(
        Row,
        st.floats(allow_nan=False),
        st.sampled_from(KINDS),
        st.integers(0, 2**31 - 1),
        st.integers(-1, 2**15 - 1),
        st.integers(-1, 2**63 - 1),
        st.integers(-1, 2**63 - 1),
        st.floats(allow_nan=False),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
        st.lists(st.integers(0, 2**63 - 1), max_size=3).map(tuple),
    ),
    max_size=20,
)


def some(count: int, first: int = 0) -> list[Row]:
    """Rows as runs leave them; with new reasons at any time."""
    return [
        Row(0.01 * i, KINDS[i % len(KINDS)], i % 4, i % 3 - 1, i, i // 2, i / 3, f"lead {i // 7}", tuple(range(i % 3)))
        for i in range(first, first + count)
    ]


def write(path: Path, rows: list[Row]) -> None:
    log = EventLog(path)
    for row in rows:
        log.append(row)
    log.close()


def as_rows(table: pa.Table) -> list[Row]:
    assert table.schema == SCHEMA
    return list(rows_of(table))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("events")


@pytest.fixture
def batches_of_3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "BATCH_ROWS", 3)


@given(rows_of_any_kind)
def test_what_is_written_is_read_back(folder: Path, rows: list[Row]) -> None:
    write(folder / "any.arrow", rows)
    assert as_rows(read_events(folder / "any.arrow")) == rows


def test_nan_is_read_back_as_nan(tmp_path: Path) -> None:
    write(tmp_path / "log", [computed(0.0, 0, 0, math.nan)])
    (row,) = as_rows(read_events(tmp_path / "log"))
    assert math.isnan(row.value)


@pytest.mark.usefixtures("batches_of_3")
def test_each_batch_may_bring_kinds_and_reasons_of_its_own(tmp_path: Path) -> None:
    """The dictionaries of a stream are replaced between batches, and each batch keeps its own."""
    rows = [Row(float(i), kind, because=f"because of {kind}") for i, kind in enumerate(KINDS * 2)]
    write(tmp_path / "log", rows)
    table = read_events(tmp_path / "log")
    assert as_rows(table) == rows
    assert len([batch for batch in table.to_batches() if len(batch)]) == -(-2 * len(KINDS) // 3)
    assert set(table.to_pandas()["because"]) == {f"because of {kind}" for kind in KINDS}


def num_rows_or_error(path: Path) -> int | str:
    try:
        return read_events(path).num_rows
    except RecordError as error:
        return str(error)


@pytest.mark.usefixtures("batches_of_3")
def test_a_log_cut_anywhere_gives_all_whole_batches(tmp_path: Path) -> None:
    path, cut = tmp_path / "log", tmp_path / "cut"
    log, rows = EventLog(path), some(11)
    ends = []  # of each whole batch of three; the last two rows come with `close`
    for i, row in enumerate(rows, 1):
        log.append(row)
        if i % 3 == 0:
            ends.append(path.stat().st_size)
            assert as_rows(read_events(path)) == rows[:i], "a full batch is on disk during the run"
    log.close()
    content = path.read_bytes()
    sizes = {*range(0, len(content) + 1, 11), *ends, *(end - 1 for end in ends), *(end + 1 for end in ends)}
    for size in sorted(sizes):
        cut.write_bytes(content[:size])
        gave, whole = num_rows_or_error(cut), 3 * sum(size >= end for end in ends)
        if isinstance(gave, str):  # cut inside the schema
            assert size < ends[0]
            assert str(cut) in gave
            assert "\n" not in gave
        else:
            assert gave == whole or (gave == 11 and size > ends[-1]), f"cut at {size}"
    assert num_rows_or_error(path) == 11
    cut.write_bytes(content[: ends[1] + 7])
    assert as_rows(read_events(cut)) == rows[:6]


def test_what_is_no_event_log_is_refused_in_one_line(tmp_path: Path) -> None:
    """Other bytes, an Arrow stream with other columns, nothing, a folder."""
    for number, content in enumerate([b"", b"hello\nworld\n", b"\x00" * 100, b"\xff" * 100, b"ARROW1\x00\x00"]):
        (tmp_path / f"{number}.arrow").write_bytes(content)
    schema = pa.schema([("loss", pa.float64())])
    with pa.OSFile(str(tmp_path / "loss.arrow"), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
        writer.write_batch(pa.record_batch([pa.array([0.5] * 3)], schema=schema))
    for path in (*tmp_path.glob("*.arrow"), tmp_path / "absent", tmp_path):
        line = refusal(RecordError, read_events, path)
        assert "not an event log" in line
        assert str(path) in line


# A run that resumes from its checkpoint keeps the rows before it.


@given(st.lists(st.integers(1, 7), max_size=6), st.data())
def test_a_resumed_log_keeps_exactly_its_first_rows(folder: Path, sizes: list[int], data: st.DataObject) -> None:
    """In any batches and repeatedly: one crash may follow the other."""
    path, rows = folder / "kept.arrow", some(sum(sizes))
    log, end = EventLog(path), 0
    for size in sizes:
        for row in rows[end : end + size]:
            log.append(row)
        log.flush()
        end += size
    log.close()
    for _ in range(2):
        keep = data.draw(st.integers(0, len(rows)))
        new = some(data.draw(st.integers(0, 5)), first=1000 + len(rows))
        log = EventLog(path, keep)
        assert log.num_rows == keep
        assert as_rows(read_events(path)) == rows[:keep], "they are on disk at once"
        for row in new:
            log.append(row)
        assert log.num_rows == keep + len(new)
        log.close()
        rows = rows[:keep] + new
        assert as_rows(read_events(path)) == rows


def test_more_rows_than_there_are_cannot_be_kept_and_the_log_stays(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="not an event log"):
        EventLog(tmp_path / "log", 1)
    for there in (0, 6):
        path, rows = tmp_path / "log", some(there)
        write(path, rows)
        line = refusal(RecordError, EventLog, path, there + 1)
        assert f"{there} events, but {there + 1} were there" in line
        assert str(path) in line
        assert as_rows(read_events(path)) == rows


# One log of the logs of several shards.


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)), max_size=25), min_size=1, max_size=4),
    st.integers(1, 8),
)
def test_merged_logs_are_in_the_order_of_time_and_level_rows_stay_in_their_own(
    folder: Path, seconds_and_reasons: list[list[tuple[int, int]]], batch: int
) -> None:
    """Of one log, too: what a worker did is reported with its push, so rows need not be in order of time."""
    logs: list[list[Row]] = []
    for shard, own in enumerate(seconds_and_reasons):
        log = EventLog(folder / f"part-{shard}.arrow")
        logs.append([])
        for i, (at, reason) in enumerate(own):
            row = Row(float(at), KINDS[(i + shard) % 10], i % 3, shard, i, i, float(i), f"shard {shard}: {reason}")
            log.append(row)
            logs[-1].append(row)
            if i % batch == 0:
                log.flush()
        log.close()
    merge_events([folder / f"part-{shard}.arrow" for shard in range(len(logs))], folder / "merged.arrow")
    together = sorted((row for log in logs for row in log), key=lambda row: row[0])  # stable, as sorted is
    assert as_rows(read_events(folder / "merged.arrow")) == together


@pytest.mark.usefixtures("batches_of_3")
def test_a_merged_log_has_batches_of_the_same_size(tmp_path: Path) -> None:
    """All begin at one time, so that the first rows are level."""
    logs = [[Row(max(0.0, i - 4.0), KINDS[i], i, shard, i, i) for i in range(7)] for shard in range(3)]
    for shard, rows in enumerate(logs):
        write(tmp_path / f"events-{shard}.arrow", rows)
    merge_events([tmp_path / f"events-{shard}.arrow" for shard in range(3)], tmp_path / "events.arrow")
    merged = read_events(tmp_path / "events.arrow")
    assert as_rows(merged) == sorted((row for rows in logs for row in rows), key=lambda row: row[0])
    assert max(batch.num_rows for batch in merged.to_batches()) <= 3


def test_a_part_that_is_no_log_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    write(tmp_path / "log", some(3))
    with pytest.raises(RecordError, match="not an event log"):
        merge_events([tmp_path / "log", tmp_path / "absent"], tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_pandas_is_not_imported_to_write_a_log(tmp_path: Path) -> None:
    """It takes half a second of every shard and every run."""
    code = (
        "import sys; from pathlib import Path; from syncline.records.events import EventLog, merge_events\n"
        "from syncline.records.rows import left\n"
        "path = Path(sys.argv[1]); log = EventLog(path)\n"
        "log.append(left(0.0, 0, 0, 'why')); log.close()\n"
        "merge_events([path, path], path.with_name('both.arrow'))\n"
        "print('pandas' in sys.modules)"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "events.arrow")]
    assert subprocess.run(words, check=True, capture_output=True).stdout == b"False\n"
