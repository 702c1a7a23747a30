"""TensorBoard."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from syncline.records.spans import time_kind
from syncline.records.store import read_config
from syncline.records.trackers.histograms import histograms_of, short_timeline


class TensorBoard:
    """TensorBoard's files, in the folder of the record; steps are updates, times are those of the run."""

    is_live = True

    def __init__(self, options: Mapping[str, Any]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._event, self._summary, self._histogram, self._open = Event, Summary, HistogramProto, EventFileWriter
        self._writer: Any = None

    def begin(self, folder: Path) -> None:
        self.end(False)
        shutil.rmtree(folder / "tensorboard", ignore_errors=True)
        self._writer = self._open(str(folder / "tensorboard"), flush_secs=5)
        self._axis = f"{time_kind(read_config(folder))}_time_s"

    def log_evaluation(self, row: Mapping[str, Any]) -> None:
        known = {key: value for key, value in row.items() if value is not None}
        time_s = known.pop("time_s")
        self._write({self._axis: time_s, **known}, time_s, row["updates"])

    def log_result(self, folder: Path, summary: Mapping[str, Any]) -> None:
        for time_s, updates, count in summary.get("waits_for", ()):
            self._write({"K": count}, time_s, updates)
        for key, (counts, edges) in histograms_of(summary, short_timeline(folder)).items():
            extent: Any = {"min": edges[0], "max": edges[-1], "num": sum(counts)}
            histogram = self._histogram(**extent, bucket_limit=edges[1:], bucket=counts)
            self._add(self._summary.Value(tag=key, histo=histogram), summary["time_s"], summary["updates"])

    def end(self, is_finished: bool) -> None:
        if self._writer is not None:
            self._writer.close()

    def _write(self, values: Mapping[str, float], time_s: float, step: int) -> None:
        for key, value in values.items():
            self._add(self._summary.Value(tag=key, simple_value=value), time_s, step)

    def _add(self, value: Any, time_s: float, step: int) -> None:
        self._writer.add_event(self._event(wall_time=time_s, step=step, summary=self._summary(value=[value])))
