"""A run of real processes, computed again from its event log."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from syncline.config import ConfigError, ReplayConfig, RunConfig, from_plain
from syncline.monitor import OnEvaluation, OnProgress
from syncline.records.store import FINISHED, read_run_config, status
from syncline.records.writer import RecordWriter


def replay_config(config: RunConfig, results: Path) -> RunConfig:
    """The config of a replay: that of its source, except for the runner and keys outside the identity.

    Raises:
        ConfigError: there is no such finished run.
    """
    assert isinstance(config.runner, ReplayConfig)
    folder = results / config.runner.source
    if not config.runner.source or status(folder) != FINISHED:
        raise ConfigError(f"from must be the identity of a finished run in {results}, got {config.runner.source!r}")
    source = from_plain(read_run_config(folder))
    return replace(source, runner=config.runner, tracker=config.tracker, device="cpu", threads=source.threads)


def run_replay(
    config: RunConfig, record: RecordWriter, on_evaluation: OnEvaluation, on_progress: OnProgress
) -> dict[str, Any]:
    """See `runners.one.run_one` and `syncline.simulation.replay.replay`."""
    from syncline.simulation.replay import replay  # imports torch

    assert isinstance(config.runner, ReplayConfig)
    folder = record.folder.parent / config.runner.source
    source = replace(from_plain(read_run_config(folder)), device="cpu")
    return replay(config, source, folder, on_evaluation, on_progress)
