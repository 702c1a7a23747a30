"""Weights & Biases."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from syncline.records.drawing import draw, trace_events, write_trace
from syncline.records.spans import Timeline, time_kind, window_of
from syncline.records.store import read_config
from syncline.records.trackers.histograms import histograms_of, short_timeline


class Wandb:
    """A run of Weights & Biases; offline, its files are in the folder of the record."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="wandb-", ignore_cleanup_errors=True)
        for name in ("WANDB_CACHE_DIR", "WANDB_DATA_DIR"):  # else each run leaves files in the home folder
            os.environ.setdefault(name, self._scratch.name)
        import wandb

        for name in ("matplotlib.backends.backend_agg", "PIL.Image"):  # now, as the run waits for us at its end
            import_module(name)
        wandb.setup()
        self._wandb, self._options = wandb, options
        self.is_live = options["mode"] == "online"  # can show a run in progress
        self._run: Any = None

    def begin(self, folder: Path) -> None:
        """Start an empty run; one with the same name is replaced."""
        self.end(False)
        config = read_config(folder)
        self._axis = f"{time_kind(config)}_time_s"
        root = Path(self._scratch.name) if self.is_live else folder
        self._folder = root / "wandb"
        shutil.rmtree(self._folder, ignore_errors=True)
        identity = folder.name.removesuffix(".rerun")
        self._run = self._wandb.init(
            project=self._options["project"],
            id=identity,  # without `resume`: replaces an earlier attempt
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
                x_disable_stats=True,  # statistics of this process, not of the run
                init_timeout=self._options["wait_s"],
            ),
        )
        for axis in ("epoch", "updates", self._axis):
            self._run.define_metric(axis)
        self._run.define_metric("*", step_metric=self._axis)
        self._run.define_metric("K", step_metric=f"K_{self._axis}")

    def log_evaluation(self, row: Mapping[str, Any]) -> None:
        """Add one line of metrics.jsonl."""
        known = {key: value for key, value in row.items() if value is not None}
        self._run.log({self._axis: known.pop("time_s"), **known})

    def log_result(self, folder: Path, summary: Mapping[str, Any]) -> None:
        """Add what is known once the run has finished."""
        for time_s, updates, count in summary["waits_for"]:
            self._run.log({"K": count, f"K_{self._axis}": time_s, "K_updates": updates})
        timeline = short_timeline(folder)
        histograms = histograms_of(summary, timeline)
        for key, (counts, edges) in histograms.items():
            self._run.log({key: self._wandb.Histogram(np_histogram=(np.array(counts), np.array(edges)))})
        self._run.summary.update({key: summary[key] for key in summary if key not in ("staleness", "waits_for")})
        files = [folder / name for name in ("config.json", "environment.json", "metrics.jsonl", "summary.json")]
        if timeline is not None:
            files += timeline_files(timeline, folder, self._folder)
            self._run.log({"timeline": self._wandb.Image(str(self._folder / "timeline.png"))})
        artifact = self._wandb.Artifact(f"record-{folder.name}", "record")
        for path in files:  # offline they stay in place until they are sent
            artifact.add_file(str(path.absolute()), policy="immutable", skip_cache=True)
        self._run.log_artifact(artifact)

    def end(self, is_finished: bool) -> None:
        """Close the run."""
        if self._run is not None:
            self._run.finish(exit_code=0 if is_finished else 1)


def group_of(config: Mapping[str, Any]) -> str:
    """A name shared by runs that differ in their seed only."""
    shared = {key: value for key, value in config.items() if key not in ("seed", "tracker")}
    digest = hashlib.sha256(json.dumps(shared, sort_keys=True).encode()).hexdigest()[:8]
    return "-".join([*(config[key]["name"] for key in ("strategy", "model", "dataset")), digest])


def timeline_files(timeline: Timeline, folder: Path, output: Path) -> list[Path]:
    """The picture and the trace of the first window, as `python -m syncline timeline` writes them."""
    window, picture = window_of(timeline, None, None), output / "timeline.png"
    draw(timeline, folder.name, time_kind(read_config(folder)), *window, [picture])
    return [picture, write_trace(output / "timeline.json", trace_events(timeline, *window))]
