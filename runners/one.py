"""One run and its record, whatever engine makes it."""

import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from runners.live import can_go_on, run_live
from runners.replay import run_replay
from syncline.config import LiveConfig, RunConfig
from syncline.records.lock import held
from syncline.records.store import FINISHED, RecordWriter, read_summary, status
from syncline.records.trackers import start_tracker

OnEvaluation = Callable[[Mapping[str, Any]], None]
OnProgress = Callable[[Any], None]
Engine = Callable[[RunConfig, RecordWriter, OnEvaluation, OnProgress], dict[str, Any]]


def _simulate(
    config: RunConfig, record: RecordWriter, on_evaluation: OnEvaluation, on_progress: OnProgress
) -> dict[str, Any]:
    from syncline.simulation.run import simulate  # imports torch

    return simulate(config, on_evaluation, on_progress, record.events)


ENGINES: dict[str, Engine] = {
    "local": run_live,
    "multinode": run_live,
    "replay": run_replay,
    "simulate": _simulate,
}


def run_one(config: RunConfig, results: Path, on_progress: OnProgress, anew: bool = False) -> dict[str, Any]:
    """Make one run and its record.

    A run of real processes that was broken off goes on from its checkpoint, unless it is to begin anew; any other
    begins anew.

    Returns:
        The summary.

    Raises:
        Held: somebody else makes this run.
        ValueError: bad input, the record shows as failed; any other error likewise, with its traceback in log.txt.
        KeyboardInterrupt: the record stays unfinished.
    """
    plain = config.as_dict()
    folder = results / config.identity
    engine = config.runner.name
    with_events = config.runner.events and engine == "simulate"  # the others bring their own
    with held(folder):
        if status(folder) == FINISHED and not anew:  # by somebody else, since it was planned here
            return read_summary(folder)
        go_on = isinstance(config.runner, LiveConfig) and not anew and can_go_on(config, folder)
        with RecordWriter(folder, plain, with_events, go_on) as record:
            try:
                tracker = start_tracker(plain["tracker"], record.folder, config.identity, plain)

                def on_evaluation(row: Mapping[str, Any]) -> None:
                    record.evaluation(row)
                    tracker.evaluation(row)

                summary = ENGINES[engine](config, record, on_evaluation, on_progress)
                record.finish(summary)
                tracker.finish(summary)
            except OSError:
                raise  # said in one line by the record
            except Exception:
                record.fail(traceback.format_exc())
                raise
    return read_summary(record.folder)
