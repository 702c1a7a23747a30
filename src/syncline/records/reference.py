"""The reference: finished runs and their plans that ship with the project, a folder for each scale.

    reference/<scale>/plans/<stem>.json          a plan, as in the results (records/plans.py)
    reference/<scale>/runs/<number>-<hash>.parquet   runs, a row each; parts are added and never changed
    reference/<scale>/events/<identity>.parquet  the event log of a run whose report draws it, or its beginning
    reference/<scale>/durations/durations-*.txt  the measured durations that configs name, as in the records
    reference/studies/<stem>.json                studies, as in the results

Columns of a part, all of them text; zstd:

    identity      of the run; where two parts have it, the first one counts
    date          when the run was finished: 2026-11-23T09:38:04Z
    summary, config, environment   JSON of summary.json, of config.json and of environment.json without its command
    curve         JSON of metrics.jsonl by columns: {"time_s": [...], "accuracy": [...]}; a list of rows where their
                  keys differ

An absolute folder of data in a config is stored by its last name. Everything else is as in the record.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from syncline.records.events import SCHEMA
from syncline.records.plans import WrittenPlan, plan_of, plan_stems
from syncline.records.sources import REFERENCE, Record
from syncline.records.store import RecordError, check_format, write_file

FORMAT = 1  # of a part; a reader refuses another one
FORMAT_KEY = b"syncline_reference_format"
COLUMNS = ("identity", "date", "summary", "config", "environment", "curve")
DATE = "%Y-%m-%dT%H:%M:%SZ"
LEVEL = 19  # of zstd: the smallest; writing takes a second for a thousand runs
PAGE_BYTES = 1 << 26  # of a column before compression: runs have much in common, so that larger pages are smaller


class Part:
    """One Parquet file of runs; each column is read when it is first asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._columns: dict[str, list[str]] = {}

    def column(self, name: str) -> list[str]:
        """The texts of a column. Raises RecordError if the file is broken or of another format."""
        if name not in self._columns:
            self._columns[name] = _guarded(self.path, lambda: self._read(name))
        return self._columns[name]

    def _read(self, name: str) -> list[str]:
        with pq.ParquetFile(self.path) as file:
            found = int((file.schema_arrow.metadata or {})[FORMAT_KEY])
            if found != FORMAT:
                what = f"reference format {found}, this version reads {FORMAT}; use the version that wrote it"
                raise RecordError(f"{self.path}: {what}")
            texts: list[str] = file.read(columns=[name]).column(name).to_pylist()
            return texts


class Reference:
    """The plans and runs of one scale.

    Args:
        folder: `reference/<scale>`; it need not exist.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[type["Reference"], tuple[Path]]:
        """Another process reads the files itself."""
        return Reference, (self.folder,)

    @cached_property
    def parts(self) -> list[Part]:
        """In the order in which they were added."""
        return [Part(path) for path in sorted((self.folder / "runs").glob("*.parquet"))]

    @cached_property
    def _places(self) -> dict[str, tuple[Part, int]]:
        """Identity -> its part and row."""
        places: dict[str, tuple[Part, int]] = {}
        for part in self.parts:
            for row, identity in enumerate(part.column("identity")):
                places.setdefault(identity, (part, row))
        return places

    @property
    def identities(self) -> list[str]:
        return list(self._places)

    @property
    def stems(self) -> list[str]:
        """Of all plans, sorted."""
        return plan_stems(self.folder)

    def plan(self, stem: str) -> WrittenPlan | None:
        return plan_of(self.folder, stem)

    def record(self, identity: str) -> "ReferenceRecord | None":
        return ReferenceRecord(self, identity) if identity in self._places else None

    def text(self, identity: str, column: str) -> str:
        """One cell. Raises KeyError for an unknown identity."""
        part, row = self._places[identity]
        return part.column(column)[row]

    def parsed(self, identity: str, column: str) -> Any:
        """A cell of JSON."""
        part, row = self._places[identity]
        return _guarded(part.path, lambda: json.loads(part.column(column)[row]))

    def part_of(self, identity: str) -> Path:
        """The file that holds a run."""
        return self._places[identity][0].path

    def log_path(self, identity: str) -> Path:
        """Of the event log of a run, if it is stored."""
        return self.folder / "events" / f"{identity}.parquet"

    def durations_path(self, name: str) -> Path:
        """Of measured durations, by the name that a record gives its copy of them."""
        return self.folder / "durations" / name


@dataclass(frozen=True, slots=True)
class ReferenceRecord:
    """A run of the reference."""

    reference: Reference
    identity: str

    @property
    def origin(self) -> str:
        return REFERENCE

    @property
    def has_events(self) -> bool:
        return self.reference.log_path(self.identity).exists()

    def summary(self) -> dict[str, Any]:
        summary: dict[str, Any] = self.reference.parsed(self.identity, "summary")
        check_format(summary.get("format"), self.reference.part_of(self.identity))
        return summary

    def config(self) -> dict[str, Any]:
        config: dict[str, Any] = self.reference.parsed(self.identity, "config")
        return config

    def metrics(self) -> list[dict[str, Any]]:
        return rows_of(self.reference.parsed(self.identity, "curve"))

    def environment(self) -> dict[str, Any]:
        text = self.reference.text(self.identity, "environment")
        environment: dict[str, Any] = _guarded(self.reference.part_of(self.identity), lambda: _environment(text))
        return environment

    def date(self) -> float:
        return datetime.fromisoformat(self.reference.text(self.identity, "date")).timestamp()

    def events(self) -> pa.Table:
        path = self.reference.log_path(self.identity)
        if not path.exists():
            raise RecordError(
                f"{self.identity}: its event log is not in the reference; the command of its artefact makes it"
            )

        def read() -> pa.Table:
            with pq.ParquetFile(path) as file:  # pq.read_table would import pyarrow.dataset
                return file.read().cast(SCHEMA)

        return _guarded(path, read)


@cache
def _environment(text: str) -> dict[str, Any]:
    """From JSON; thousands of runs share a few texts."""
    environment: dict[str, Any] = json.loads(text)
    return environment


def columns_of(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Evaluations by columns, which compress better; the rows themselves where their keys differ."""
    keys = list(rows[0]) if rows else []
    if not keys or any(list(row) != keys for row in rows):
        return list(rows)
    return {key: [row[key] for row in rows] for key in keys}


def rows_of(stored: Any) -> list[dict[str, Any]]:
    """What `columns_of` was given."""
    if isinstance(stored, list):
        return stored
    return [dict(zip(stored, values, strict=True)) for values in zip(*stored.values(), strict=True)]


def write_runs(folder: Path, records: Sequence[Record]) -> Path:
    """Add a part with these runs, at least one, atomically. Returns the file.

    Args:
        folder: of the scale.

    Raises:
        RecordError: a record is broken.
        OSError: it cannot be written.
    """
    rows = [_row(record) for record in records]
    table = pa.table({name: pa.array([row[name] for row in rows], pa.string()) for name in COLUMNS})
    numbers = [int(path.name.partition("-")[0]) for path in (folder / "runs").glob("[0-9]*-*.parquet")]
    digest = sha256("".join(row["identity"] + row["summary"] for row in rows).encode()).hexdigest()
    path = folder / "runs" / f"{max(numbers, default=0) + 1:04}-{digest[:8]}.parquet"
    return _write_parquet(path, table.replace_schema_metadata({FORMAT_KEY: str(FORMAT).encode()}))


def write_log(path: Path, events: pa.Table, max_bytes: int) -> int:
    """Write an event log as Parquet, atomically: all of it, or the beginning of a log that takes more than max_bytes.

    Returns the number of rows written; 0, and there is no file, if not even one fits.
    """
    texts = [pa.field(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in SCHEMA]
    num_rows: int = events.num_rows
    plain = events.cast(pa.schema(texts))  # a slice of a dictionary would take all of it
    while num_rows:
        sink = pa.BufferOutputStream()
        pq.write_table(plain.slice(0, num_rows), sink, compression="zstd", compression_level=LEVEL)
        content = sink.getvalue().to_pybytes()
        if len(content) <= max_bytes:
            write_file(path, content)
            return num_rows
        num_rows = min(num_rows - 1, int(num_rows * 0.9 * max_bytes / len(content)))  # rows take about as much each
    return 0


def _write_parquet(path: Path, table: pa.Table) -> Path:
    sink = pa.BufferOutputStream()
    options = {"compression": "zstd", "compression_level": LEVEL, "use_dictionary": False, "write_statistics": False}
    pq.write_table(table, sink, data_page_size=PAGE_BYTES, row_group_size=max(1, table.num_rows), **options)
    write_file(path, sink.getvalue().to_pybytes())
    return path


def _row(record: Record) -> dict[str, str]:
    environment = {key: value for key, value in record.environment().items() if key != "command"}
    content = {
        "summary": record.summary(),
        "config": _without_places(record.config()),
        "environment": environment,
        "curve": columns_of(record.metrics()),
    }
    texts = {name: json.dumps(value, separators=(",", ":")) for name, value in content.items()}
    date = datetime.fromtimestamp(record.date(), UTC).strftime(DATE)
    return {"identity": record.identity, "date": date, **texts}


def _without_places(config: dict[str, Any]) -> dict[str, Any]:
    """The config with absolute folders of data by their last names: where data lie says nothing of the run."""
    return {key: dict(_shortened(value)) if isinstance(value, Mapping) else value for key, value in config.items()}


def _shortened(part: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in part.items():
        is_place = key in ("root", "cache") and isinstance(value, str) and Path(value).is_absolute()
        yield key, Path(value).name if is_place else value


def _guarded(path: Path, read: Callable[[], Any]) -> Any:
    """What `read` returns; RecordError with the path if the file is broken."""
    try:
        return read()
    except RecordError:
        raise
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        what = f"broken reference ({type(error).__name__})"
        raise RecordError(f"{path}: {what}; git checkout -- {path} restores it") from None
