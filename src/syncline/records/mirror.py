"""Shows a record in Weights & Biases or TensorBoard: python -m syncline.records.mirror <record folder>

How is said by the group `tracker` of the record's config. All that is told comes from the record: a run that goes on
from a checkpoint, goes back to one, or is told of again has each point once, under the same name. With --follow, the
process follows a record that grows: it looks at it for every byte that it reads, until there are no more. A service
that shows nothing before the run is over (wandb offline) is told everything then.
"""

import hashlib
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from syncline.records.drawing import draw
from syncline.records.spans import ANSWER, BLOCKS, WAITING, Timeline, read_timeline, time_kind, window_of
from syncline.records.store import FINISHED, RecordError, read_config, read_metrics, read_summary, status
from syncline.records.trace import trace_events, write_trace

MAX_EVENTS = 500_000  # of a log that are looked at for the waiting and the timeline: some 4 s
MAX_BINS = 64
WAITS = {WAITING: "waiting_held_s", BLOCKS: "waiting_for_blocks_s", ANSWER: "waiting_for_answer_s"}

Histogram = tuple[list[int], list[float]]  # counts, and one edge more


class Service(Protocol):
    is_live: bool  # shows a run that goes on

    def begin(self, folder: Path) -> None:
        """A run without points; one of the same name is replaced."""

    def point(self, row: Mapping[str, Any]) -> None:
        """An evaluation: a line of metrics.jsonl."""

    def result(self, folder: Path, summary: Mapping[str, Any]) -> None:
        """All that is known at the end."""

    def end(self, is_finished: bool) -> None: ...


class Wandb:
    """Weights & Biases; offline its files lie in the record's folder."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="wandb-", ignore_cleanup_errors=True)
        for name in ("WANDB_CACHE_DIR", "WANDB_DATA_DIR"):  # else it leaves something in the home folder for each run
            os.environ.setdefault(name, self._scratch.name)
        import wandb

        for name in ("matplotlib.backends.backend_agg", "PIL.Image"):  # now: at the end of the run somebody waits
            import_module(name)
        wandb.setup()
        self._wandb, self._options = wandb, options
        self.is_live = options["mode"] == "online"
        self._run: Any = None

    def begin(self, folder: Path) -> None:
        self.end(False)
        config = read_config(folder)
        self._axis = f"{time_kind(config)}_time_s"
        root = Path(self._scratch.name) if self.is_live else folder
        self._folder = root / "wandb"
        shutil.rmtree(self._folder, ignore_errors=True)
        identity = folder.name.removesuffix(".rerun")
        self._run = self._wandb.init(
            project=self._options["project"],
            id=identity,  # without `resume`: what the service has of an earlier attempt is replaced
            name=identity,
            group=self._options["group"] or group_of(config),
            tags=[*(config[key]["name"] for key in ("strategy", "model", "dataset", "runner")), *self._options["tags"]],
            config={**config, "identity": identity, "time_kind": time_kind(config)},
            dir=str(root),
            mode=self._options["mode"],
            settings=self._wandb.Settings(
                silent=True,
                console="off",
                disable_git=True,
                save_code=False,
                x_disable_stats=True,  # this process is not the run
                init_timeout=self._options["wait_s"],
            ),
        )
        for axis in ("epoch", "updates", self._axis):
            self._run.define_metric(axis)
        self._run.define_metric("*", step_metric=self._axis)
        self._run.define_metric("K", step_metric=f"K_{self._axis}")

    def point(self, row: Mapping[str, Any]) -> None:
        known = {key: value for key, value in row.items() if value is not None}
        self._run.log({self._axis: known.pop("time_s"), **known})

    def result(self, folder: Path, summary: Mapping[str, Any]) -> None:
        for time_s, updates, count in summary.get("waits_for", ()):
            self._run.log({"K": count, f"K_{self._axis}": time_s, "K_updates": updates})
        timeline = short_timeline(folder)
        histograms = histograms_of(summary, timeline)
        for key, (counts, edges) in histograms.items():
            self._run.log({key: self._wandb.Histogram(np_histogram=(np.array(counts), np.array(edges)))})
        self._run.summary.update({key: summary[key] for key in summary if key not in ("staleness", "waits_for")})
        files = [folder / name for name in ("config.yaml", "environment.json", "metrics.jsonl", "summary.json")]
        if timeline is not None:
            files += timeline_files(timeline, folder, self._folder)
            self._run.log({"timeline": self._wandb.Image(str(self._folder / "timeline.png"))})
        artifact = self._wandb.Artifact(f"record-{folder.name}", "record")
        for path in files:  # offline they stay where they are until they are sent
            artifact.add_file(str(path.absolute()), policy="immutable", skip_cache=True)
        self._run.log_artifact(artifact)

    def end(self, is_finished: bool) -> None:
        if self._run is not None:
            self._run.finish(exit_code=0 if is_finished else 1)


class TensorBoard:
    """TensorBoard's own files, in the record's folder; its steps are updates, its times those of the run."""

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

    def point(self, row: Mapping[str, Any]) -> None:
        known = {key: value for key, value in row.items() if value is not None}
        time_s = known.pop("time_s")
        self._write({self._axis: time_s, **known}, time_s, row["updates"])

    def result(self, folder: Path, summary: Mapping[str, Any]) -> None:
        for time_s, updates, count in summary.get("waits_for", ()):
            self._write({"K": count}, time_s, updates)
        for key, (counts, edges) in histograms_of(summary, short_timeline(folder)).items():
            histogram = self._histogram(
                min=edges[0], max=edges[-1], num=sum(counts), bucket_limit=edges[1:], bucket=counts
            )
            self._add(self._summary.Value(tag=key, histo=histogram), summary["time_s"], summary["updates"])

    def end(self, is_finished: bool) -> None:
        if self._writer is not None:
            self._writer.close()

    def _write(self, values: Mapping[str, float], time_s: float, step: int) -> None:
        for key, value in values.items():
            self._add(self._summary.Value(tag=key, simple_value=value), time_s, step)

    def _add(self, value: Any, time_s: float, step: int) -> None:
        self._writer.add_event(self._event(wall_time=time_s, step=step, summary=self._summary(value=[value])))


SERVICES: dict[str, type[Wandb] | type[TensorBoard]] = {"tensorboard": TensorBoard, "wandb": Wandb}


def mirror(service: Service, folder: Path, place: Path, looks: Iterable[object]) -> None:
    """Tell a service of a record, whose folder may become `place` when it is finished, at each of these looks."""
    told: list[dict[str, Any]] | None = None
    for _ in looks:
        folder = folder if folder.exists() else place
        rows = read_metrics(folder)
        if told is None or rows[: len(told)] != told:  # the run went back to a checkpoint
            service.begin(folder)
            told = []
        for row in rows[len(told) :]:
            service.point(row)
        told = rows
    if told is None:
        return
    is_finished = status(folder) == FINISHED
    if is_finished:
        service.result(folder, read_summary(folder))
    service.end(is_finished)


def looks_at(folder: Path, place: Path, is_live: bool, wait_s: float) -> Iterator[None]:
    """A look for what comes at standard input, and one when that ends."""
    while is_live and os.read(0, 1 << 16):
        yield
    while os.read(0, 1 << 16):
        pass
    signal.alarm(int(wait_s) + 1)  # if nobody is left who would end this
    if is_live or status(folder if folder.exists() else place) == FINISHED:
        yield


def group_of(config: Mapping[str, Any]) -> str:
    """A name that runs share which differ in their seed only."""
    shared = {key: value for key, value in config.items() if key not in ("seed", "tracker")}
    digest = hashlib.sha256(json.dumps(shared, sort_keys=True).encode()).hexdigest()[:8]
    return "-".join([*(config[key]["name"] for key in ("strategy", "model", "dataset")), digest])


def short_timeline(folder: Path) -> Timeline | None:
    """Of the first `MAX_EVENTS` events, if the record has any."""
    try:
        return read_timeline(folder, MAX_EVENTS)[0]
    except RecordError:
        return None


def timeline_files(timeline: Timeline, folder: Path, output: Path) -> list[Path]:
    """The picture and the trace of its beginning, as `python -m syncline timeline` makes them."""
    window, picture = window_of(timeline, None, None), output / "timeline.png"
    draw(timeline, folder.name, time_kind(read_config(folder)), *window, [picture])
    return [picture, write_trace(output / "timeline.json", trace_events(timeline, *window))]


def histograms_of(summary: Mapping[str, Any], timeline: Timeline | None) -> dict[str, Histogram]:
    """Staleness of the gradients used; how long the workers waited, each time that they did, by what for."""
    made = {}
    if stale := {int(value): count for value, count in summary["staleness"].items()}:
        made["staleness_of_gradients"] = histogram(list(stale), list(stale.values()), is_whole=True)
    spans = [span for lane in timeline.workers for span in lane] if timeline is not None else []
    for kind, key in WAITS.items():
        if waits := [span.end_s - span.begin_s for span in spans if span.kind == kind]:
            made[key] = histogram(waits, [1] * len(waits), is_whole=False)
    return made


def histogram(values: Sequence[float], weights: Sequence[int], is_whole: bool) -> Histogram:
    """In at most `MAX_BINS` bins of equal width from 0 on, each of whole numbers where the values are such."""
    most = max(values)
    if is_whole:
        width = float(-(-(int(most) + 1) // MAX_BINS))
        edges = np.arange(0, most + 1 + width, width) - 0.5
    else:
        edges = np.linspace(0, most, MAX_BINS + 1)
    counts, _ = np.histogram(values, edges, weights=weights)
    return [int(count) for count in counts], [float(edge) for edge in edges]


def main(arguments: list[str]) -> int:
    follows, folders = arguments[:1] == ["--follow"], [Path(word) for word in arguments if word != "--follow"]
    try:
        if len(folders) != 1 + follows:
            raise RecordError("the folder of one record must be given")
        folder, place = folders[0], folders[-1]
        options = read_config(folder)["tracker"]
        if options["name"] not in SERVICES:
            raise RecordError(f"{folder} was made with tracker={options['name']}; needed: {', '.join(SERVICES)}")
        service = SERVICES[options["name"]](options)
        looks = looks_at(folder, place, service.is_live, options["wait_s"]) if follows else iter([None])
        mirror(service, folder, place, looks)
    except Exception as error:  # whatever a foreign service raises
        said = str(error).strip().partition("\n")[0]
        print(f"error: {type(error).__name__}: {said}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
