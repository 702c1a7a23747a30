"""The coordinator of a run of real processes, a process of rank 0.

The keepers of all ranks start the processes (syncline/live/node/keeper.py). The coordinator watches them (attempt.py),
has their snapshots evaluated (observer.py) and writes the record.

If a part of the run is lost that the others need (a shard, a worker of BSP or DS-Sync), the run restarts from its last
checkpoint. An error in a process ends the run, and is shown.
"""

from contextlib import closing
from pathlib import Path
from typing import Any

from runners.attempt import Attempt, Outcome
from runners.checkpoints import report_restart
from runners.display import say
from runners.failures import Restart, RunFailed
from runners.observer import Evaluator, LiveObserver
from runners.stop import StopRequested
from syncline.config import RunConfig
from syncline.live.checkpoints import newest_checkpoint, num_parts
from syncline.live.node.ranks import Announcement, Place
from syncline.monitor import OnEvaluation, OnProgress, RunMonitor
from syncline.records.events import merge_events, read_events
from syncline.records.spans import timeline_of
from syncline.records.store import FAILED, STOPPED, UNFINISHED, RecordError, read_config, status
from syncline.records.time_use import TimeUse, time_use_of, time_use_of_collective
from syncline.records.writer import RecordWriter


def can_resume(config: RunConfig, folder: Path) -> bool:
    """This record is of a run that was interrupted or failed, and has a checkpoint of every part, or had ended.

    Else a line says why it cannot be resumed, if it has a checkpoint; one that is broken is named in any case.
    """
    if status(folder) not in (UNFINISHED, FAILED):
        return False
    if Outcome.read(folder) is None and newest_checkpoint(config, folder, say) is None:
        return False
    logged = read_config(folder)["runner"]["events"]
    if logged == config.live.events:
        return True
    report_restart(RecordError(f"{folder}: made with runner.events={str(logged).lower()}"))
    return False


def run_live(
    config: RunConfig, record: RecordWriter, on_evaluation: OnEvaluation, on_progress: OnProgress, place: Place
) -> dict[str, Any]:
    """Make a run of real processes; see `runners.one.run_one`.

    Args:
        place: of this coordinator.

    Raises:
        ConfigError: a file that the config names is not there.
        RunFailed: a process failed, or the run was restarted too often.
        KeyboardInterrupt: the run was asked to stop; a StopRequested says what can be resumed.
    """
    monitor = RunMonitor(config, on_evaluation, on_progress)
    folder = record.folder
    (folder / "log").mkdir(exist_ok=True)
    for path in [*(folder / "log").glob("failure-*.json"), *folder.glob("attempt-*"), folder / STOPPED]:
        path.unlink(missing_ok=True)  # of a coordinator that was killed or stopped
    with closing(LiveObserver(config, record, monitor, Evaluator(place.line, folder))) as observer:
        try:
            outcome = Outcome.read(folder)
            if outcome is None:
                outcome = _attempts(config, record, observer, place)
            else:
                Announcement(place.ranks).set(folder.name)
                observer.evaluate_ended(outcome.observed)
            try:
                ended_by = observer.finish(outcome.ended_by)
            except StopRequested as stop:
                raise StopRequested(stop.number, f"{folder.name} trained, and not evaluated yet") from None
        except KeyboardInterrupt as stop:
            (folder / STOPPED).write_text(str(stop))  # for the keepers of all ranks, and who has started the job
            raise
    time_use = None
    if config.live.events:
        merge_events(sorted(folder.glob("events-*.arrow")), folder / "events.arrow")
        time_use = _time_use(config, folder, outcome.totals.time_s, monitor.num_train)
    parameters = [f"parameters-{part}.safetensors" for part in range(num_parts(config))]
    summary = monitor.summary("live", outcome.totals, ended_by, time_use)
    return summary | observer.state_dict() | {"parameters": parameters}


def _time_use(config: RunConfig, folder: Path, end_s: float, num_train: int) -> TimeUse:
    """Where the time went, from the event log."""
    events = read_events(folder / "events.arrow")
    timeline = timeline_of(events, end_s, is_logged_late=True, overlap=config.local.overlap)
    collective = config.strategy.collective
    if collective is None:
        return time_use_of(timeline)
    schedule = collective.schedule(config.cluster.workers, config.steps_an_epoch(num_train))
    later = int(collective.averages_first)  # the exchange that follows a gradient is the next step's
    return time_use_of_collective(timeline, events, schedule.turns, lambda step: schedule.turn(step + later))


def _attempts(config: RunConfig, record: RecordWriter, observer: LiveObserver, place: Place) -> Outcome:
    """Restart the run until an attempt succeeds.

    Raises:
        RunFailed: a process failed, or the run was restarted too often.
    """
    restarts = 0
    while True:
        attempt = Attempt(config, record.folder, place.words, observer, place.ranks, restarts)
        try:
            return attempt.run()
        except Restart as why:
            observer.lost()
            restarts += 1
            if restarts > config.live.max_restarts:
                raise RunFailed(f"{why}; the run was restarted {restarts - 1} times before") from None
            record.restarted()
            is_first = newest_checkpoint(config, record.folder, say) is None
            say(f"{why}; the run restarts from {'the beginning' if is_first else 'its last checkpoint'}")
        finally:
            attempt.end()
