"""syncline check: holds the parts of a run to what the engines rely on, above all those of one's own."""

import argparse
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from runners.planning import is_experiment
from syncline.config import ConfigError, RunConfig, SimulateConfig, compose
from syncline.config.folders import use
from syncline.targets import fault

NUM_UPDATES = 50
OTHER_HASHES = "20260101"  # a seed by which Python orders sets
FAULT = "FAULT: "  # before each
WIDTH = 10  # of the name of a part


def main(asked: argparse.Namespace) -> int:
    """Returns 0 if every part keeps its rules, else 1; each fault is told."""
    use(*asked.config_dir)
    if experiments := [word for word in asked.words if is_experiment(word)]:
        raise ConfigError(f"check takes the words of one run, got {experiments[0]}")
    config, _ = compose(asked.words)
    is_sound = [_check("strategy", _strategy, config) and _check("", _times, config)]
    if config.gradients:
        is_sound.append(_check("model", _learning, config))
        is_sound.append(all(is_sound) and _check("run", _run, config))
    print("no fault was found" if all(is_sound) else "a fault was found")
    return 0 if all(is_sound) else 1


def _check(name: str, check: Callable[[RunConfig], list[str]], config: RunConfig) -> bool:
    """Print what a check found. Returns whether it found no fault."""
    try:
        lines = check(config)
    except Exception as error:
        if isinstance(error, OSError):
            raise
        lines = [f"{FAULT}{_told(error)}"]
    for place, line in enumerate(lines):
        print(f"{'' if place else name:{WIDTH}}{line}", flush=True)
    return not any(line.startswith(FAULT) for line in lines)


def _told(error: Exception) -> str:
    if isinstance(error, ValueError | AssertionError):
        return str(error).replace("\n", "\n" + " " * WIDTH)
    return fault(error) or "".join(traceback.format_exception(error)).rstrip()


def _strategy(config: RunConfig) -> list[str]:
    from syncline.checking.strategy import check_strategy

    found = check_strategy(config.strategy)
    sizes = ", ".join(map(str, found.sizes))
    return [f"{config.strategy.name} keeps the contract: {found.num_events:,} events; accepts {sizes} workers"]


def _times(config: RunConfig) -> list[str]:
    """Times alone, which need no data, and with two shards where the strategy allows them."""
    from syncline.simulation.run import simulate

    lines, fixed = [], replace(config.cluster, message_bytes=config.cluster.message_bytes or 10**6)
    num_train = config.dataset.known_num_train or 10 * config.batch_size * config.cluster.workers
    for num_shards in (1, 2):
        slow = {shard: seconds for shard, seconds in config.scenario.slow_shards.items() if shard < num_shards}
        try:
            config.strategy.check_cluster(config.cluster.workers, num_shards)
        except ValueError as error:
            lines.append(f"with {num_shards} shards: {error}")
            continue
        alone = replace(
            _short(config),
            gradients=False,
            cluster=replace(fixed, shards=num_shards),
            target=replace(config.target, value=None),
            scenario=replace(config.scenario, slow_shards=slow),
            dataset=replace(config.dataset, train_size=num_train, validation=None),
        )
        summary = simulate(alone, lambda row: None, lambda progress: None)
        used, lost = summary["gradients_used"], summary["gradients_discarded"]
        shards = "1 shard" if num_shards == 1 else f"{num_shards} shards"
        if not summary["updates"]:
            raise ConfigError(f"{shards}: {NUM_UPDATES} updates were asked for, none was made")
        made = f"{summary['updates']} updates in {summary['time_s']:.3g} s virtual"
        stale = f"mean staleness {summary['mean_staleness']:.2f}"
        lines.append(f"times alone, {shards}: {made}, {used} gradients used, {lost} discarded, {stale}")
    return lines


def _short(config: RunConfig) -> RunConfig:
    return replace(config, runner=SimulateConfig(events=False), max_updates=NUM_UPDATES, epochs=None, max_time_s=None)


def _learning(config: RunConfig) -> list[str]:
    from syncline.checking.learning import NUM_STEPS, NUM_TIMED, check_learning

    found = check_learning(config, _with_real_processes if sys.platform == "linux" else None)
    (median, spread), (before, after) = found.gradient_s, found.losses
    parts = f"{config.model.name} on {config.dataset.name}, {config.task_name}"
    metrics = ", ".join(f"{name} {value:.4g}" for name, value in found.metrics.items())
    what, other = (max(map(len, column)) for column in list(zip(*found.compared, strict=True))[:2])
    return [
        f"{parts}: {found.num_parameters:,} parameters in {found.num_tensors} tensors, buffers of {found.num_buffers}",
        f"{found.num_train:,} training samples; a mini-batch of {config.batch_size} is made in {found.batch_s:.2g} s",
        f"a gradient takes {median:.3g} ± {spread:.1g} s here (median and quartiles, n = {NUM_TIMED}, {config.threads} "
        "thread)",
        f"{NUM_STEPS} steps of one worker take the loss from {before:.4g} to {after:.4g}",
        f"initial weights, test set, {found.evaluation_s:.2g} s: {metrics}",
        f"memory of this process: {found.peak_bytes / 1e6:,.0f} MB at most",
        f"{'compared':{what}}  {'with':{other}}  largest difference",
        *(f"{one:{what}}  {another:{other}}  {apart:.2g}" for one, another, apart in found.compared),
        *(f"note: {note}" for note in found.notes),
        *(f"{FAULT}{told}" for told in found.faults),
    ]


def _with_real_processes(config: RunConfig) -> tuple[Any, Mapping[str, float]]:
    """The parameters at the end of a run, and its metrics. The processes order sets in another way than this one."""
    from runners.torchrun import make_run_anew
    from syncline.config import LocalConfig
    from syncline.records.snapshots import read_state

    with tempfile.TemporaryDirectory(prefix="syncline-check-") as results:
        live = replace(config, runner=LocalConfig(events=False))
        summary = make_run_anew(live, Path(results), PYTHONHASHSEED=OTHER_HASHES)
        tensors, _ = read_state(Path(results, live.identity, "parameters-0.safetensors"))
    return tensors["weights"], summary["final"] or {}


def _run(config: RunConfig) -> list[str]:
    from syncline.simulation.run import simulate

    summary = simulate(_short(config), lambda row: None, lambda progress: None)
    final = ", ".join(f"{name} {value:.4g}" for name, value in (summary["final"] or {}).items()) or "diverged"
    return [f"{summary['updates']} updates in virtual time, {summary['wall_s']:.2g} s: {final}"]
