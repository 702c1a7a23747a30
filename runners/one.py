"""One run and its record, whatever engine makes it."""

import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from runners.checkpoints import Checkpoints, State, begin_anew, read_checkpoint
from runners.display import say
from runners.live import can_go_on, run_live
from runners.replay import run_replay
from syncline.config import ConfigError, LiveConfig, RunConfig, SimulateConfig
from syncline.live.supervisor import Supervisor
from syncline.records.lock import held
from syncline.records.snapshots import write_state
from syncline.records.store import FINISHED, RecordError, read_summary, status
from syncline.records.trackers.process import check_installed, start_tracker
from syncline.records.writer import RecordWriter

OnEvaluation = Callable[[Mapping[str, Any]], None]
OnProgress = Callable[[Any], None]


def check_possible(config: RunConfig) -> None:
    """This machine can make the run.

    Raises:
        ConfigError: real processes need Linux; or the tracker is not installed.
    """
    if isinstance(config.runner, LiveConfig) and sys.platform != "linux":
        raise ConfigError(
            f"runner={config.runner.name} starts real processes, which need Linux, and this is {sys.platform}; "
            "runner=simulate runs in virtual time"
        )
    check_installed(vars(config.tracker))


def run_one(
    config: RunConfig,
    results: Path,
    on_progress: OnProgress,
    restart: bool = False,
    supervisor: Supervisor | None = None,
) -> dict[str, Any]:
    """Make one run and its record.

    A run that was broken off goes on from its checkpoint, if it has one, unless it is to restart.

    Args:
        supervisor: of this machine, for real processes; None: it is started here.

    Returns:
        The summary.

    Raises:
        Held: somebody else makes this run.
        ValueError: bad input, the record shows as failed; any other error likewise, with its traceback in log.txt.
        KeyboardInterrupt: the record stays unfinished.
    """
    check_possible(config)
    plain = config.as_dict()
    folder = results / config.identity
    with held(folder):
        if status(folder) == FINISHED and not restart:  # by somebody else, since it was planned here
            return read_summary(folder)
        if config.runner.name == "simulate":
            from syncline.assembly import check_memory  # imports torch

            check_memory(config)
        record, state = _open(config, folder, plain, restart)
        with record, start_tracker(plain["tracker"], record.folder, folder, say) as tracker:

            def on_evaluation(row: Mapping[str, Any]) -> None:
                record.evaluation(row)
                tracker.on_evaluation()

            try:
                if config.runner.name == "simulate":
                    summary = _simulate(config, record, on_evaluation, on_progress, state)
                elif config.runner.name == "replay":
                    summary = run_replay(config, record, on_evaluation, on_progress)
                else:
                    summary = run_live(config, record, on_evaluation, on_progress, supervisor)
                record.finish(summary)
            except OSError:
                raise  # said in one line by the record
            except Exception as error:
                record.fail(traceback.format_exc())
                if _is_out_of_memory(error):
                    cause = str(error).partition("\n")[0]
                    raise ConfigError(f"out of memory; batch_size or the model must be smaller: {cause}") from error
                raise
    return read_summary(record.folder)


def _is_out_of_memory(error: Exception) -> bool:
    """NumPy, CUDA and torch's allocator for CPUs each say it their own way; torch may not be imported here."""
    told = "can't allocate memory" in str(error) or type(error).__name__ == "OutOfMemoryError"
    return told or isinstance(error, MemoryError)


def _open(config: RunConfig, folder: Path, plain: dict[str, Any], restart: bool) -> tuple[RecordWriter, State | None]:
    """The record, and what a run in virtual time goes on from, if it does."""
    if config.runner.name != "simulate":  # the others bring their own events and checkpoints
        go_on = isinstance(config.runner, LiveConfig) and not restart and can_go_on(config, folder)
        return RecordWriter(folder, plain, with_events=False, resumes=go_on), None
    with_events = config.runner.events
    state = None if restart else read_checkpoint(folder, with_events)
    if state is not None:
        try:
            record = RecordWriter(folder, plain, with_events, resumes=True, log=state[1]["log"])
        except RecordError as error:
            begin_anew(error)
        else:
            for row in state[1]["course"]["rows"]:
                record.evaluation(row)
            return record, state
    return RecordWriter(folder, plain, with_events), None


def _simulate(
    config: RunConfig,
    record: RecordWriter,
    on_evaluation: OnEvaluation,
    on_progress: OnProgress,
    state: State | None,
) -> dict[str, Any]:
    from syncline.simulation.run import simulate  # imports torch

    assert isinstance(config.runner, SimulateConfig)
    keeper = Checkpoints(record, config.runner.checkpoint_every_s)

    def save(name: str, tensors: Mapping[str, Any], about: Mapping[str, Any]) -> None:
        write_state(record.folder / name, tensors, about)

    wanted = save if config.runner.parameters else None
    return simulate(config, on_evaluation, on_progress, record.events, keeper, state, wanted)


def lacks_parameters(config: RunConfig, results: Path) -> bool:
    """The run is finished, but was made without the parameters that are asked for now."""
    folder = results / config.identity
    is_asked = isinstance(config.runner, SimulateConfig) and config.runner.parameters
    return is_asked and status(folder) == FINISHED and "parameters" not in read_summary(folder)
