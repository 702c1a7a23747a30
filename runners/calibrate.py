"""syncline calibrate: measures a cluster, and writes its profile."""

import argparse
import math
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import yaml
from rich.console import Console

from reports.calibration import figure, table
from runners.display import say
from runners.measuring import (
    HELD_OUT,
    StreamRun,
    Taken,
    make,
    predicted_times,
    shares_ready,
    streams,
    taken,
    under,
    update_seconds,
    validate,
)
from syncline.config import CONF, ConfigError, Invocation, LiveConfig, RunConfig, compose, from_plain, split
from syncline.config.folders import VARIABLE, use
from syncline.operations.tables import counted
from syncline.records.environment import environment
from syncline.records.store import FINISHED, read_run_config, status
from syncline.timing.calibration import (
    Prediction,
    Stream,
    check_enough,
    fit_alone,
    fit_later_weight,
    fit_shared,
    memory,
    plain_profile,
    profile,
    residual_latency,
    seconds_of,
    seconds_text,
)
from syncline.timing.cluster import ClusterConfig
from syncline.timing.distributions import Array, Trace
from syncline.timing.network import NetworkConfig

SET_HERE = ("strategy", "epochs", "max_updates", "max_time_s", "target.value", "gradients", "eval_every_epochs")
SAID_ABOVE = 0.05  # error of a prediction
TOLERANCE = 0.05  # of the seconds of a message
LONG = 5  # measured gradients / memory, below which the memory is hardly measured


@dataclass(frozen=True, slots=True)
class Asked:
    """The words of the command line."""

    name: str
    folder: Path  # of the profile
    samples: int
    links: bool
    validate: bool
    source: str  # an identity, a CSV, or empty
    config: RunConfig  # of the run that is measured; with a source that is a record: its own
    invocation: Invocation

    @property
    def file(self) -> Path:
        return self.folder / f"{self.name}.yaml"

    @property
    def seconds_file(self) -> Path:
        return self.folder / f"{self.name}-seconds.csv"


@dataclass(frozen=True, slots=True)
class Findings:
    """What was measured."""

    seconds: list[Array]  # of each worker's gradients
    network: NetworkConfig
    messages: tuple[Array, Array] | None  # seconds, measured and foreseen
    update_s: float  # for which a shard is busy with a push
    streams: Sequence[Stream]
    run: Taken | None  # where the seconds are from; None: from a file
    ready: list[float] = field(default_factory=lambda: ClusterConfig().ready)  # of the profile


def asked_for(options: argparse.Namespace) -> Asked:
    """Raises ConfigError for words that are unknown or do not go together."""
    folders = options.config_dir or [*filter(None, [os.environ.get(VARIABLE, "").partition(os.pathsep)[0]])]
    if not folders:
        raise ConfigError(f"no folder for the profile: give --config-dir DIR, or set {VARIABLE}")
    for folder in folders:
        if Path(folder).is_dir():  # with parts of one's own
            use(folder)
    given, source = dict(map(split, options.words)), options.source
    for key in SET_HERE:
        if key in given:
            raise ConfigError(f"{key}={given[key]} cannot be given: calibrate sets {key}")
    if source and set(given) - {"results", "rerun"}:
        raise ConfigError("--from goes with results= and rerun= alone: no other key has an effect")
    if "runner" not in given and not source:
        given["runner"] = "local"
    config, invocation = compose([f"{key}={text}" for key, text in given.items()])
    asked = Asked(
        options.name,
        Path(folders[-1]) / "cluster",
        options.samples,
        not source if options.links is None else options.links,
        not source if options.validate is None else options.validate,
        source,
        _recorded(source, Path(invocation.results)) if source and not source.endswith(".csv") else config,
        invocation,
    )
    _check(asked)
    return asked


def _check(asked: Asked) -> None:
    """Raises ConfigError if there can be no such profile."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", asked.name):
        raise ConfigError(f"the name must be of small letters, digits and _, got {asked.name!r}")
    if asked.samples < 1:
        raise ConfigError(f"--samples must be >= 1, got {asked.samples}")
    if (CONF / "cluster" / f"{asked.name}.yaml").exists():
        raise ConfigError(f"{asked.name} is a profile that ships with Syncline; choose another")
    if asked.file.exists() and not asked.invocation.rerun:
        raise ConfigError(f"{asked.file} exists; rerun=true replaces it")
    there = next(folder for folder in (asked.folder, *asked.folder.absolute().parents) if folder.exists())
    if not (there.is_dir() and os.access(there, os.W_OK)):
        raise ConfigError(f"--config-dir: nothing can be written to {there}")
    if asked.source.endswith(".csv") and (asked.links or asked.validate):
        raise ConfigError("--links and --validate make runs: --from FILE.csv goes without them")
    strategy = asked.config.strategy
    if not strategy.has_server:
        raise ConfigError(f"--from {asked.source}: strategy={strategy.name} has no server here to calibrate")


def _recorded(identity: str, results: Path) -> RunConfig:
    folder = results / identity
    if status(folder) != FINISHED:
        raise ConfigError(f"--from must be a CSV or the identity of a finished run in {results}, got {identity!r}")
    return from_plain(read_run_config(folder))


def findings(asked: Asked) -> Findings:
    """Measure, or read what was measured.

    Raises:
        ValueError: there is too little of it.
    """
    config, results = asked.config, Path(asked.invocation.results)
    if asked.source.endswith(".csv"):
        return Findings(seconds_of(Path(asked.source)), NetworkConfig(), None, 0.0, [], None)
    if asked.source:
        run = taken(config, results / asked.source)
    else:
        say(f"measures gradients: {counted(config.cluster.workers, 'worker')} under strategy=asp")
        run = make(under(config, "asp", asked.samples * config.cluster.workers), results)
    seconds = run.times.gradient_s
    check_enough(seconds)
    networks: Iterable[NetworkConfig] = [NetworkConfig()]
    update_s, made = 0.0, list[StreamRun]()
    if asked.links:
        say("measures links: streams of small and large messages, of one worker and of all at once")
        update_s = update_seconds(config) if isinstance(config.runner, LiveConfig) else config.cluster.update_s
        made = streams(config, update_s, results)
        networks = _networks(made, update_s)
    found = _with_messages(run, networks, update_s, [each.stream for each in made])
    is_measured = asked.links and isinstance(config.runner, LiveConfig)
    return replace(found, ready=shares_ready(config)) if is_measured else found


def _networks(made: Sequence[StreamRun], update_s: float) -> Iterator[NetworkConfig]:
    """The network of a worker that sends alone, and, first, that of all if it is slower; fitted when asked for."""
    alone = fit_alone([each.stream for each in made if each.stream.senders == 1], update_s)
    at_once = [each for each in made if each.stream.senders > 1 and each.stream.evenness is None]
    shared = [fit_shared(alone, each.stream, each.foreseen_s) for each in at_once]
    for network in sorted([*shared, alone], key=lambda network: network.bandwidth_gbps or math.inf):
        fitted = network
        for each in made:
            if each.stream.evenness is not None:
                fitted = fit_later_weight(network, each.stream.evenness, each.foreseen_evenness)
        yield fitted


def _with_messages(run: Taken, networks: Iterable[NetworkConfig], update_s: float, made: Sequence[Stream]) -> Findings:
    """With the first network over which the run's messages take no longer than they did, and what they took beyond."""
    seconds, times = run.times.gradient_s, run.times.messages_s
    with _seconds_file(seconds) as path:

        def foreseen(given: NetworkConfig) -> list[Array]:
            cluster = profile("measured", path, seconds, given, run.config.cluster.shards, update_s)
            return [each.messages_s for each in predicted_times(run.config, cluster)]

        for network in networks:
            messages = foreseen(network)
            if np.concatenate(messages).mean() <= (1.0 + TOLERANCE) * times.mean():
                break
        latency_s, jitter = residual_latency(times, messages)
        fitted = replace(network, latency_s=network.latency_s + latency_s, jitter=jitter)
        found = times, np.concatenate(foreseen(fitted))
        return Findings(seconds, fitted, found, update_s, made, run)


@contextmanager
def _seconds_file(seconds: Sequence[Array]) -> Iterator[Path]:
    """A file of these seconds for as long as the profile's own is not written."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "seconds.csv"
        path.write_text(seconds_text(seconds))
        yield path


def provenance(asked: Asked, found: Findings, cluster: ClusterConfig, predictions: Sequence[Prediction]) -> list[str]:
    """The lines that say where the profile's numbers come from."""
    about = environment()
    config, counts = asked.config, ", ".join(str(len(column)) for column in found.seconds)
    workers = counted(cluster.workers, "worker")
    lines = [
        f"Made by syncline calibrate on {datetime.now(UTC).date()}, commit {about['commit']}, on a machine "
        f"with {about['cores']} cores of {about['processor']}."
    ]
    assert isinstance(cluster.jitter, Trace)
    if found.run is None:
        lines.append(f"{workers}, from {Path(asked.source).name}; the file says nothing about messages.")
    else:
        identity = found.run.config.identity
        lines.append(f"{workers}, runner={config.runner.name}, batch_size={config.batch_size}, run {identity}.")
    memories = ", ".join(str(memory(column)) for column in found.seconds)
    lines.append(
        f"Gradients measured: {counts}; their memory: {memories} gradients; hence block {cluster.jitter.block:g}."
    )
    if found.run is not None and "start_s" in found.run.summary:
        lines.append(f"Start-up: {found.run.summary['start_s']:.1f} s.")
    if found.update_s:
        lines.append(f"An update of the server: {1e3 * found.update_s:.3f} ms, on this machine, as is `ready`.")
    lines += [
        f"Stream of {counted(each.senders, 'sender')}: {1e3 * each.message_s:.3f} ms a message of "
        f"{each.message_bytes:,} bytes"
        + ("." if each.evenness is None else f"; pulls that leave together: {each.evenness:.2f} of the slowest.")
        for each in found.streams
    ]
    lines += [
        f"Not fitted: {each.strategy}, {1e3 * each.measured_s:.3f} ms an update, foreseen {1e3 * each.foreseen_s:.3f} "
        f"({each.error:+.1%})."
        for each in predictions
    ]
    return lines


def write(asked: Asked, found: Findings, cluster: ClusterConfig, predictions: Sequence[Prediction]) -> list[Path]:
    """The three files, the profile last; nothing is there if one cannot be written. Returns them."""
    assert isinstance(cluster.jitter, Trace)
    final = replace(cluster, jitter=replace(cluster.jitter, path=str(asked.seconds_file.absolute())))
    comments = "".join(f"# {line}\n" for line in provenance(asked, found, final, predictions))
    text = yaml.safe_dump(plain_profile(final), sort_keys=False, default_flow_style=None, width=120)
    asked.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=asked.folder, prefix=".calibrate-") as drafts:
        figure(asked.name, found.seconds, found.messages, predictions).write(Path(drafts), asked.name, ("svg",))
        (Path(drafts) / asked.seconds_file.name).write_text(seconds_text(found.seconds))
        (Path(drafts) / asked.file.name).write_text(comments + text)
        names = [asked.seconds_file.name, f"{asked.name}.svg", asked.file.name]
        return [(Path(drafts) / name).replace(asked.folder / name) for name in names]


def calibrate(asked: Asked) -> list[Prediction]:
    """Measure, fit, validate, write and say so. Returns what was foreseen of runs that nothing was fitted to.

    Raises:
        ValueError: a run fails, or tells too little.
    """
    found, predictions = findings(asked), list[Prediction]()
    with _seconds_file(found.seconds) as path:
        shards = asked.config.cluster.shards
        cluster = profile(asked.name, path, found.seconds, found.network, shards, found.update_s)
        cluster = replace(cluster, ready=found.ready)
        if asked.validate:
            say("holds what it foresees against runs that nothing was fitted to")
            gradients = asked.samples * cluster.workers
            predictions = validate(asked.config, cluster, HELD_OUT, gradients, Path(asked.invocation.results))
    files = write(asked, found, cluster, predictions)
    if predictions:
        table(asked.name, predictions).print(Console(highlight=False))
    for line in remarks(found, predictions):
        print(line)
    print("written:", *files)
    return predictions


def remarks(found: Findings, predictions: Sequence[Prediction]) -> list[str]:
    """Lines about what is not as good as it should be."""
    lines = []
    for worker, column in enumerate(found.seconds):
        length = memory(column)
        if length * LONG > len(column):
            lines.append(
                f"worker {worker} stays slow for about {length} gradients and {len(column)} were measured: "
                f"--samples {len(column) * LONG} would tell more"
            )
    lines += [
        f"{each.strategy} is foreseen with an error of {each.error:+.1%}, above {SAID_ABOVE:.0%}"
        for each in predictions
        if abs(each.error) > SAID_ABOVE
    ]
    return lines


def main(options: argparse.Namespace) -> int:
    """Returns 0; nothing is written of what is interrupted."""
    calibrate(asked_for(options))
    return 0
