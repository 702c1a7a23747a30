"""Mirrors of the record for people who watch many runs. A tracker that fails is dropped with one warning."""

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol


class Tracker(Protocol):
    def evaluation(self, row: Mapping[str, Any]) -> None: ...

    def finish(self, summary: Mapping[str, Any]) -> None: ...


class NoTracker:
    def evaluation(self, row: Mapping[str, Any]) -> None:
        pass

    def finish(self, summary: Mapping[str, Any]) -> None:
        pass


class Wandb:
    """Weights & Biases, offline unless told otherwise; its files lie in the record's folder."""

    def __init__(self, folder: Path, identity: str, config: Mapping[str, Any], project: str, mode: str) -> None:
        import wandb

        self._run = wandb.init(
            project=project,
            id=identity,
            name=identity,
            config=dict(config),
            dir=str(folder),
            mode=mode,  # type: ignore[arg-type]
            resume="allow",
            settings=wandb.Settings(silent=True),
        )
        for axis in ("epoch", "time_s", "updates"):
            self._run.define_metric(axis)
        self._run.define_metric("*", step_metric="time_s")

    def evaluation(self, row: Mapping[str, Any]) -> None:
        self._run.log(dict(row))

    def finish(self, summary: Mapping[str, Any]) -> None:
        self._run.summary.update(dict(summary))
        self._run.finish()


class Guarded:
    """A tracker whose failures never harm the run."""

    def __init__(self, start: Callable[[], Tracker]) -> None:
        self._tracker: Tracker = NoTracker()
        self._try(lambda: setattr(self, "_tracker", start()))

    def evaluation(self, row: Mapping[str, Any]) -> None:
        self._try(lambda: self._tracker.evaluation(row))

    def finish(self, summary: Mapping[str, Any]) -> None:
        self._try(lambda: self._tracker.finish(summary))

    def _try(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # whatever a foreign service raises
            warnings.warn(f"the tracker failed and is left out: {type(error).__name__}: {error}", stacklevel=3)
            self._tracker = NoTracker()


def start_tracker(options: Mapping[str, Any], folder: Path, identity: str, config: Mapping[str, Any]) -> Tracker:
    """The tracker that the config's `tracker` group asks for."""
    if options["name"] == "none":
        return NoTracker()
    return Guarded(lambda: Wandb(folder, identity, config, options["project"], options["mode"]))
