"""The event log of a run: one schema for every engine, an Arrow IPC stream that is readable after a crash.

The rows are those of records/rows.py.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute

from syncline.records.rows import Row
from syncline.records.store import RecordError, check_file

BATCH_ROWS = 8192

SCHEMA = pa.schema(
    [
        ("at", pa.float64()),
        ("kind", pa.dictionary(pa.int8(), pa.string())),
        ("worker", pa.int32()),
        ("shard", pa.int16()),
        ("push", pa.int64()),
        ("version", pa.int64()),
        ("value", pa.float64()),
        ("because", pa.dictionary(pa.int32(), pa.string())),
        ("versions", pa.list_(pa.int64())),
    ]
)


class EventLog:
    """Appends rows to a file, in batches of `BATCH_ROWS`.

    Args:
        path: of the file; an existing one is replaced, atomically if rows of it are kept.
        keep_rows: the number of rows of the existing file to keep.
        rows: rows that follow these, which were not in the file yet.

    Raises:
        RecordError: the existing file has fewer rows.
    """

    def __init__(self, path: Path, keep_rows: int = 0, rows: Sequence[Sequence[Any]] = ()) -> None:
        kept = read_events(path).slice(0, keep_rows) if keep_rows else pa.Table.from_batches([], SCHEMA)
        if kept.num_rows < keep_rows:
            raise RecordError(f"{path}: {kept.num_rows} events, but {keep_rows} were there at the checkpoint")
        self.num_rows = keep_rows + len(rows)
        # Each batch has its own dictionaries, as new reasons may appear at any time.
        draft = path.with_suffix(".draft")
        self._file = pa.OSFile(str(draft if keep_rows else path), "wb")
        self._writer = pa.ipc.new_stream(self._file, SCHEMA)
        self._rows: list[Sequence[Any]] = list(rows)
        for batch in [_batch(()), *kept.to_batches()]:
            self._writer.write_batch(batch)  # from now on the file is a valid log
        if keep_rows:
            draft.replace(path)

    def state_dict(self) -> dict[str, Any]:
        """The arguments `keep_rows` and `rows` with which a log resumes from here, to the same file in every bit."""
        return {"keep_rows": self.num_rows - len(self._rows), "rows": list(self._rows)}

    def append(self, row: Row) -> None:
        self._rows.append(row)
        self.num_rows += 1
        if len(self._rows) == BATCH_ROWS:
            self.flush()

    def close(self) -> None:
        """Flush, and end the stream."""
        try:
            self.flush()
            self._writer.close()
        finally:
            self._file.close()

    def flush(self) -> None:
        """Write all rows to the file."""
        if not self._rows:
            return
        self._writer.write_batch(_batch(self._rows))
        self._rows.clear()


# Arrays are built from buffers: `pa.array` would import pandas, which takes half a second.
_CODES = {pa.int8(): "b", pa.int16(): "h", pa.int32(): "i", pa.int64(): "q", pa.float64(): "d"}


def _batch(rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    columns: Iterable[Sequence[Any]] = zip(*rows, strict=True) if rows else [()] * len(SCHEMA)
    arrays = [_column(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)]
    return pa.record_batch(arrays, schema=SCHEMA)


def _column(values: Sequence[Any], of: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(of):
        return _words(values, of)
    if pa.types.is_list(of):
        ends = _numbers(accumulate(map(len, values), initial=0), pa.int32())
        return pa.ListArray.from_arrays(ends, _numbers(chain.from_iterable(values), of.value_type), type=of)
    return _numbers(values, of)


def _numbers(values: Iterable[float], of: pa.DataType) -> pa.Array:
    numbers = array(_CODES[of], values)
    return pa.Array.from_buffers(of, len(numbers), [None, pa.py_buffer(numbers)])


def _words(values: Sequence[str], of: pa.DictionaryType) -> pa.DictionaryArray:
    places: dict[str, int] = {}
    indices = _numbers([places.setdefault(word, len(places)) for word in values], of.index_type)
    words, ends = b"", [0]
    for word in places:
        words += word.encode()
        ends.append(len(words))
    dictionary = pa.StringArray.from_buffers(len(places), pa.py_buffer(array("i", ends)), pa.py_buffer(words))
    return pa.DictionaryArray.from_arrays(indices, dictionary)


def read_events(path: Path) -> pa.Table:
    """All complete batches of a log, also of one whose writer was killed.

    Raises:
        RecordError: it is not an event log, or of a finished record and not as it was.
    """
    check_file(path)
    batches = []
    try:
        with pa.OSFile(str(path), "rb") as file, pa.ipc.open_stream(file) as reader:
            if not reader.schema.equals(SCHEMA):
                raise RecordError(f"{path}: not an event log: its columns are {', '.join(reader.schema.names)}")
            try:
                while True:
                    batches.append(reader.read_next_batch())
            except (StopIteration, pa.ArrowInvalid, OSError):
                pass  # the end, or where the writer was killed
    except (pa.ArrowInvalid, OSError) as error:
        raise RecordError(f"{path}: not an event log: {error}") from None
    return pa.Table.from_batches(batches, SCHEMA)


def rows_of(events: pa.Table) -> Iterator[Row]:
    """The rows of a log, in its order."""
    for *values, versions in zip(*(column.to_pylist() for column in events.columns), strict=True):
        yield Row._make((*values, tuple(versions)))


def merge_events(parts: list[Path], path: Path) -> None:
    """Merge the logs of several shards into one, ordered by time; rows at the same time stay in order."""
    table = pa.concat_tables([read_events(part) for part in parts], promote_options="permissive").unify_dictionaries()
    order = pa.compute.sort_indices(table, sort_keys=[("at", "ascending")])
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, SCHEMA) as writer:
        writer.write_table(table.take(order), max_chunksize=BATCH_ROWS)
