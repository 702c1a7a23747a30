"""One run and its record, under any engine."""

import sys
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from runners.checkpoints import FileCheckpointer, RunState, read_checkpoint, report_restart
from runners.display import say
from runners.live import can_resume, run_live
from syncline.config import ConfigError, LiveConfig, ReplayConfig, RunConfig, SimulateConfig, from_plain, users_fault
from syncline.live.node.ranks import Place
from syncline.monitor import OnEvaluation, OnProgress
from syncline.records.environment import emulates_bfloat16, has_gpu
from syncline.records.lock import held
from syncline.records.snapshots import write_state
from syncline.records.store import (
    FINISHED,
    RecordError,
    inspected,
    is_write_error,
    made_in,
    read_run_config,
    read_summary,
    status,
)
from syncline.records.trackers.process import Tracker
from syncline.records.writer import RecordWriter, recover


def is_restarted(rerun: bool, was_killed: bool, folder: Path) -> bool:
    """Whether a coordinator of real processes begins the run anew, where a repetition is asked for.

    Args:
        was_killed: a coordinator was there before: it has begun, and perhaps finished, the repetition.
        folder: of the record.
    """
    return rerun and (not was_killed or made_in(folder).exists())


def check_possible(config: RunConfig) -> None:
    """Check that this machine can make the run.

    Raises:
        ConfigError: it cannot: real processes need Linux.
    """
    if isinstance(config.runner, LiveConfig) and sys.platform != "linux":
        raise ConfigError(
            f"runner={config.runner.name} starts real processes, which need Linux, and this is {sys.platform}; "
            "runner=simulate runs in virtual time"
        )


def slow_precision(configs: Iterable[RunConfig]) -> str:
    """One line that says so, if one of these runs takes much longer here for its precision; else empty."""
    devices = {config.device for config in configs if config.gradients and config.precision == "bfloat16"}
    if has_gpu():
        devices &= {"cpu"}
    if not devices or not emulates_bfloat16():
        return ""
    return "precision=bfloat16: this CPU has no instructions for it; a gradient takes several times that of float32"


def run_one(
    config: RunConfig,
    results: Path,
    on_progress: OnProgress,
    restart: bool = False,
    place: Place | None = None,
    cores: int = 1,
) -> dict[str, Any]:
    """Make one run and its record.

    A run that was interrupted resumes from its checkpoint if it has one, unless `restart`.

    Args:
        place: of the coordinator that this process is, for real processes; see `runners.torchrun.launch`.
        cores: that are free for a run in virtual time.

    Returns:
        The summary.

    Raises:
        Held: another process makes this run.
        RecordError: the record cannot be written, and stays unfinished.
        ValueError: bad input; the record shows the run as failed. Any other error likewise, with its traceback in
            log.txt.
        KeyboardInterrupt: the record stays unfinished.
    """
    check_possible(config)
    folder = results / config.identity
    with held(folder):
        recover(folder)
        if status(folder) == FINISHED and not restart:  # another process has finished it since it was planned
            return read_summary(folder)
        if damage := inspected(folder)[1]:
            say(f"{folder}: {damage}")
        if config.runner.name == "simulate":
            from syncline.assembly.memory import check_memory  # imports torch

            check_memory(config)
        plain = config.as_dict()
        record, state = _open(config, folder, plain, restart)
        with record, Tracker(plain["tracker"], record.folder, folder, say) as tracker:

            def on_evaluation(row: Mapping[str, Any]) -> None:
                record.evaluation(row)
                tracker.on_evaluation()

            try:
                record.finish(_run(config, record, on_evaluation, on_progress, state, place, cores))
            except Exception as error:
                if isinstance(error, OSError) and is_write_error(folder, error):
                    raise  # the record says so in one line
                record.fail(traceback.format_exc())
                if _is_out_of_memory(error):
                    cause = str(error).partition("\n")[0]
                    raise ConfigError(f"out of memory; batch_size or the model must be smaller: {cause}") from error
                if (told := users_fault(config.strategy, error)) is not None:
                    raise ConfigError(told) from error
                raise
    return read_summary(record.folder)


def _run(
    config: RunConfig,
    record: RecordWriter,
    on_evaluation: OnEvaluation,
    on_progress: OnProgress,
    state: RunState | None,
    place: Place | None,
    cores: int,
) -> dict[str, Any]:
    """The summary of the run, by the engine that its runner chooses."""
    if isinstance(config.runner, ReplayConfig):
        from syncline.simulation.replay import replay  # imports torch

        folder = record.folder.parent / config.runner.source
        source = replace(from_plain(read_run_config(folder)), device="cpu")
        return replay(config, source, folder, on_evaluation, on_progress)
    if not isinstance(config.runner, SimulateConfig):
        assert place is not None
        return run_live(config, record, on_evaluation, on_progress, place)
    from syncline.simulation.run import simulate  # imports torch

    def save(name: str, tensors: Mapping[str, Any], about: Mapping[str, Any]) -> None:
        write_state(record.folder / name, tensors, about)

    checkpointer = FileCheckpointer(record, config.runner.checkpoint_every_s)
    save_parameters, at_once = save if config.runner.parameters else None, config.runner.workers_at_once or cores
    return simulate(config, on_evaluation, on_progress, record.events, checkpointer, state, save_parameters, at_once)


def _is_out_of_memory(error: Exception) -> bool:
    """NumPy, CUDA and torch's allocator for CPUs each raise another error; torch may not be imported here."""
    by_torch = "can't allocate memory" in str(error) or type(error).__name__ == "OutOfMemoryError"
    return by_torch or isinstance(error, MemoryError)


def _open(
    config: RunConfig, folder: Path, plain: dict[str, Any], restart: bool
) -> tuple[RecordWriter, RunState | None]:
    """The record, and the checkpoint from which a run in virtual time resumes, if it does."""
    if config.runner.name != "simulate":  # the others write their own events and checkpoints
        go_on = isinstance(config.runner, LiveConfig) and not restart and can_resume(config, folder)
        return RecordWriter(folder, plain, with_events=False, resumes=go_on), None
    with_events = config.runner.events
    state = None if restart else read_checkpoint(folder, with_events)
    if state is not None:
        try:
            record = RecordWriter(folder, plain, with_events, resumes=True, log=state[1]["log"])
        except RecordError as error:
            report_restart(error)
        else:
            for row in state[1]["observer"]["rows"]:
                record.evaluation(row)
            return record, state
    return RecordWriter(folder, plain, with_events), None


def lacks_parameters(config: RunConfig, results: Path) -> bool:
    """The run is finished, but its parameters were not saved, and are wanted now."""
    folder = results / config.identity
    are_wanted = isinstance(config.runner, SimulateConfig) and config.runner.parameters
    return are_wanted and status(folder) == FINISHED and "parameters" not in read_summary(folder)


def resolved(config: RunConfig, results: Path) -> RunConfig:
    """The config that a run is made with.

    Of a replay it is that of its source, except for the runner and keys outside the identity.

    Raises:
        ConfigError: the results have no such finished run.
    """
    if not isinstance(config.runner, ReplayConfig):
        return config
    folder = results / config.runner.source
    if not config.runner.source or status(folder) != FINISHED:
        raise ConfigError(f"from must be the identity of a finished run in {results}, got {config.runner.source!r}")
    source = from_plain(read_run_config(folder))
    return replace(source, runner=config.runner, tracker=config.tracker, device="cpu", threads=source.threads)
