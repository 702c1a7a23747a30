"""The event log of a run: one schema for every engine, an Arrow IPC stream that is readable after a crash.

| kind | at (seconds) | worker | shard | push | version | value | because |
|---|---|---|---|---|---|---|---|
| started | the worker begins a gradient | yes | -1 | -1 | it computes at | seconds it will take | |
| computed | the gradient is finished | yes | -1 | -1 | computed at | loss | |
| pushed | it arrived | yes | yes | yes | computed at | loss | |
| applied | it was part of an update | yes | yes | yes | made by the update | staleness | why |
| discarded | it will never be applied | yes | yes | yes | computed at | 0 | why |
| granted | the worker may go on | yes | yes | -1 | granted | 0 | why |
| held | the worker waits | yes | yes | -1 | current | 0 | why |
"""

from pathlib import Path

import pyarrow as pa

KINDS = ("started", "computed", "pushed", "applied", "discarded", "granted", "held")
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


class EventLog:
    """Appends rows; every `BATCH_ROWS` of them reach the file."""

    def __init__(self, path: Path) -> None:
        # Dictionaries may differ between batches: a new reason appears when it appears.
        self._file = pa.OSFile(str(path), "wb")
        self._writer = pa.ipc.new_stream(self._file, SCHEMA)
        self._rows: list[tuple[float, str, int, int, int, int, float, str]] = []
        self._writer.write_table(SCHEMA.empty_table())  # from now on the file is a log, if an empty one

    def append(
        self, at: float, kind: str, worker: int, shard: int, push: int, version: int, value: float, because: str
    ) -> None:
        """One row; see the table above."""
        self._rows.append((at, kind, worker, shard, push, version, value, because))
        if len(self._rows) == BATCH_ROWS:
            self._flush()

    def close(self) -> None:
        """Write what is left and end the stream."""
        try:
            self._flush()
            self._writer.close()
        finally:
            self._file.close()

    def _flush(self) -> None:
        if not self._rows:
            return
        columns = [
            pa.array(column, field.type.value_type).dictionary_encode().cast(field.type)
            if pa.types.is_dictionary(field.type)
            else pa.array(column, field.type)
            for column, field in zip(zip(*self._rows, strict=True), SCHEMA, strict=True)
        ]
        self._writer.write_batch(pa.record_batch(columns, schema=SCHEMA))
        self._rows.clear()


def read_events(path: Path) -> pa.Table:
    """All whole batches of a log, also of one whose writer was killed.

    Raises:
        RecordError: it is no event log at all.
    """
    from syncline.records.store import RecordError

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
