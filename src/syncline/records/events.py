"""The event log of a run: one schema for every engine, an Arrow IPC stream that is readable after a crash.

| kind | at (seconds) | worker | shard | push | version | value | because |
|---|---|---|---|---|---|---|---|
| started | the worker begins a gradient | yes | -1 | -1 | it computes at | seconds it will take | |
| computed | the gradient is finished | yes | -1 | -1 | computed at | loss | |
| pushed | it arrived | yes | yes | yes | its tag: computed at | the worker's own count of gradients, from 0 | |
| applied | it was part of an update | yes | yes | yes | made by the update | staleness | why |
| discarded | it will never be applied | yes | yes | yes | computed at | 0 | why |
| granted | the worker may go on | yes | yes | -1 | granted | 0 | why |
| held | the worker waits | yes | yes | -1 | current | 0 | why |
| repeated | the worker may go on at the version it has | yes | yes | -1 | current | 0 | why |
| interrupted | the worker is to cancel its gradient | yes | yes | -1 | current | 0 | why |
| dropped | the gradient is cancelled | yes | -1 | -1 | computed at | seconds not computed | how |
| pulled | its blocks are chosen | yes | yes, or -1 | -1 | the oldest | its number, from 0 | their versions |
| timer | a moment that the strategy asked for | -1 | yes | -1 | current | 0 | |
| waits_for | from now on an update waits for this number of gradients | -1 | yes | -1 | current | the number | why |
| joined | a worker is here (again) | yes | yes | -1 | -1 | 0 | |
| left | a worker is gone | yes | yes | -1 | -1 | 0 | why |
| delayed | an injected delay begins | yes | its message's, or -1 | -1 | -1 | seconds | compute, slow, push or pull |

`pulled` is written where a worker does not wait for all blocks. Each shard of a real run notes it with the push, giving
the version of its own block; there a push carries its worker's tag, which may be newer than the blocks were. Only runs
of real processes write the last three kinds; collectives in virtual time write `delayed`, too. In real runs `started`
and `computed` come with the push: where a worker was killed, or its push was cancelled, they are missing.
"""

from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute

from syncline.records.store import RecordError

KINDS = (
    "started",
    "computed",
    "pushed",
    "applied",
    "discarded",
    "granted",
    "held",
    "repeated",
    "interrupted",
    "dropped",
    "pulled",
    "timer",
    "waits_for",
    "joined",
    "left",
    "delayed",
)
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
    ]
)


class Row(NamedTuple):
    """One line of a log; see the table above."""

    at: float
    kind: str
    worker: int
    shard: int
    push: int
    version: int
    value: float
    because: str


class EventLog:
    """Appends rows; every `BATCH_ROWS` of them reach the file.

    Args:
        path: of the file, which is replaced, at once if something of it is kept.
        keep_rows: so many rows of the log that is there come first.
        rows: and then these, which were not in the file yet.

    Raises:
        RecordError: the log that is there has not so many rows.
    """

    def __init__(self, path: Path, keep_rows: int = 0, rows: Sequence[Sequence[Any]] = ()) -> None:
        kept = read_events(path).slice(0, keep_rows) if keep_rows else pa.Table.from_batches([], SCHEMA)
        if kept.num_rows < keep_rows:
            raise RecordError(f"{path}: {kept.num_rows} events, but {keep_rows} were there at the checkpoint")
        self.num_rows = keep_rows + len(rows)
        # Dictionaries may differ between batches: a new reason appears when it appears.
        draft = path.with_suffix(".draft")
        self._file = pa.OSFile(str(draft if keep_rows else path), "wb")
        self._writer = pa.ipc.new_stream(self._file, SCHEMA)
        self._rows: list[Sequence[Any]] = list(rows)
        for batch in [_batch(()), *kept.to_batches()]:
            self._writer.write_batch(batch)  # from now on the file is a log, if an empty one
        if keep_rows:
            draft.replace(path)

    def state_dict(self) -> dict[str, Any]:
        """`keep_rows` and `rows` of a log that goes on from here and becomes the same file in every bit."""
        return {"keep_rows": self.num_rows - len(self._rows), "rows": list(self._rows)}

    def append(
        self, at: float, kind: str, worker: int, shard: int, push: int, version: int, value: float, because: str
    ) -> None:
        """One row; see the table above."""
        self._rows.append((at, kind, worker, shard, push, version, value, because))
        self.num_rows += 1
        if len(self._rows) == BATCH_ROWS:
            self.flush()

    def close(self) -> None:
        """Write what is left and end the stream."""
        try:
            self.flush()
            self._writer.close()
        finally:
            self._file.close()

    def flush(self) -> None:
        """Bring all rows to the file."""
        if not self._rows:
            return
        self._writer.write_batch(_batch(self._rows))
        self._rows.clear()


# Arrays are made from buffers: `pa.array` imports pandas, half a second, to see that a list is none of its series.
_CODES = {pa.int8(): "b", pa.int16(): "h", pa.int32(): "i", pa.int64(): "q", pa.float64(): "d"}


def _batch(rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    columns: Iterable[Sequence[Any]] = zip(*rows, strict=True) if rows else [()] * len(SCHEMA)
    arrays = [
        _words(column, field.type) if pa.types.is_dictionary(field.type) else _numbers(column, field.type)
        for column, field in zip(columns, SCHEMA, strict=True)
    ]
    return pa.record_batch(arrays, schema=SCHEMA)


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
    """All whole batches of a log, also of one whose writer was killed.

    Raises:
        RecordError: it is no event log at all.
    """
    batches = []
    try:
        with pa.OSFile(str(path), "rb") as file, pa.ipc.open_stream(file) as reader:
            if not reader.schema.equals(SCHEMA):
                raise RecordError(f"{path}: not an event log: its columns are {', '.join(reader.schema.names)}")
            try:
                while True:
                    batches.append(reader.read_next_batch())
            except (StopIteration, pa.ArrowInvalid, OSError):
                pass  # the end, or the place where the writer was stopped
    except (pa.ArrowInvalid, OSError) as error:
        raise RecordError(f"{path}: not an event log: {error}") from None
    return pa.Table.from_batches(batches, SCHEMA)


def merge_events(parts: list[Path], path: Path) -> None:
    """One log of the logs of several shards, ordered by time; rows of one log that are level stay in their order."""
    table = pa.concat_tables([read_events(part) for part in parts], promote_options="permissive").unify_dictionaries()
    order = pa.compute.sort_indices(table, sort_keys=[("at", "ascending")])
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, SCHEMA) as writer:
        writer.write_table(table.take(order), max_chunksize=BATCH_ROWS)
