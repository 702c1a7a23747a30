"""A study that races, as the command line declares it."""

import argparse
import hashlib
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count, islice, product
from pathlib import Path
from statistics import fmean
from typing import Any

from runners.plan import num_jobs
from runners.planning import is_experiment, without
from runners.study import Declared, go_on
from runners.tuning import drawn_settings, refuse_several
from syncline.config import (
    ConfigError,
    Invocation,
    RaceConfig,
    RunConfig,
    SlurmConfig,
    apart,
    choices,
    compose,
    compose_study,
    divided,
    is_swept,
    of_whole,
    seconds,
    split,
    sweep,
)
from syncline.config.folders import use
from syncline.plan import Entry, Plan
from syncline.records.studies import read_study, study_path
from syncline.studies.goals import Goal
from syncline.studies.race import Elsewhere, Entrant, Race
from syncline.studies.raced import Left

LENGTH, WORKERS = "T", "P"  # in the entrants' values: the length of the race, the number of workers
OF_PUSHES = ("local", "compress", "update")  # groups whose values make entrants, as those of the strategy do
RATE = "optimizer.lr"  # what is tuned, unless keys are given
OF_RACE = ("epochs", "max_updates", "max_time_s", "target.value", RATE)  # keys that the race itself sets
# Keys of race. that only carry a race further or read more from it; `entrants` counts by those that it makes.
NOT_IN_NAME = ("entrants", "budget", "targets", "around", "confirm", "live")


def main(asked: argparse.Namespace) -> int:
    """`syncline race`: goes on with races, one after the other, to their answers or their submission."""
    use(*asked.config_dir)
    declared, invocation = declared_races(asked.words)
    studies = [go_on(each, invocation, asked.follows) for each in declared]
    answers = [study.answer for study in studies if study.answer is not None]
    if len(answers) > 1 or any(answer["targets"] for answer in answers):
        from reports.races import by_subject  # a second: pandas

        where = f"--scale {invocation.scale.name} --results {shlex.quote(invocation.results)}"
        for subject in by_subject(studies):
            print(f"together with others: syncline report {subject} {where}")
    return 0 if isinstance(invocation.launcher, SlurmConfig) or len(answers) == len(studies) else 1


def declared_races(overrides: Sequence[str]) -> tuple[list[Declared], Invocation]:
    """The races that these words declare: one for each combination of values, but of those of entrants.

    Raises:
        ConfigError: there is no target, or a word that goes with no race, or no entrant can run.
        RecordError: the study that the results have of one is broken.
    """
    if any(map(is_experiment, overrides)):
        raise ConfigError("a race takes no experiment; give the model, the data and the cluster")
    of_study, others = apart("race", overrides)
    words, about = divided(others)
    for word in words:
        if split(word)[0] == "seed":
            raise ConfigError("a race takes no seed=; scale.seeds sets the first seeds that judge")
    of_strategy = [word for word in words if split(word)[0].partition(".")[0] == "strategy"]
    of_push = [word for word in words if _is_of_pushes(split(word)[0]) and is_swept(word)]
    workloads = sweep([word for word in words if word not in (*of_strategy, *of_push)])
    if not workloads:
        raise ConfigError(f"no runs in {' '.join(overrides)}")
    race = compose_study(RaceConfig, "race", "first", of_study)
    refuse_several(words, race.tune.keys or [RATE])
    if len(workloads) == 1:
        made = [_declared(race, workloads[0], of_strategy, of_push, about, overrides)]
    else:
        if (budget_s := seconds("race.budget", race.budget)) is not None:  # they share it
            race = replace(race, budget=f"{budget_s / 60.0 / len(workloads):f}m")
            of_study = without(of_study, "race.budget")
            of_study.append(f"race.budget={race.budget}")
        others = [*of_study, *about, *of_strategy, *of_push]
        made = [_declared(race, each, of_strategy, of_push, about, [*others, *each]) for each in workloads]
    return [declared for declared, _ in made], made[0][1]


def _declared(
    race: RaceConfig,
    workload: Sequence[str],
    of_strategy: Sequence[str],
    of_push: Sequence[str],
    about: Sequence[str],
    command: Sequence[str],
) -> tuple[Declared, Invocation]:
    """One race, and the words that go on with it alone."""
    _, invocation = compose(about)
    workers = _workers(workload)
    strategies = [*map(tuple, sweep(of_strategy))] if of_strategy else [*dict.fromkeys(_rows(race, workers))]
    rows = [*dict.fromkeys((*own, *pushed) for own in strategies for pushed in sweep(of_push))]
    labels = _labels(rows, is_given=bool(of_strategy))
    entrants, left, errors, config = list[Entrant](), list[Left](), list[ConfigError](), None
    for label, row in zip(labels, rows, strict=True):
        try:
            entrant, of_row = _entrant(race, label, workload, row)
        except ConfigError as error:
            if of_strategy:  # the user asks for it
                raise
            errors.append(error)
            left.append(Left(label, "declared", f"it cannot run: {error}"))
            continue
        entrants.append(entrant)
        config = config or of_row
    if config is None:
        raise errors[0] if errors else ConfigError("race.entrants must name a strategy or more, got none")
    _check(race, config, invocation, entrants[0])
    study = _race(race, config, invocation, workload, entrants, left)
    scale = invocation.scale.name  # whose seeds judge
    rules = {key: value for key, value in vars(race).items() if key not in NOT_IN_NAME}
    made = [(each.overrides, each.of_length, *each.settings) for each in entrants]
    digest = hashlib.sha256(repr((scale, study.seeds, workload, made, rules)).encode()).hexdigest()[:8]
    stem = f"race-{config.model.name}-{config.dataset.name}-{config.cluster.name}-{digest}"
    path = study_path(Path(invocation.results), stem)
    if invocation.jobs is None and path.exists():  # the budget counts as before, whichever machine asks
        study = replace(study, jobs=read_study(path).declaration["jobs"])
    name = f"{config.model.name} on {config.dataset.name}, cluster {config.cluster.name}"
    plan = Plan(name, scale, (), {}, ("race", *command), own_stem=stem)
    return Declared(study, "race", stem, name, plan), invocation


def _race(
    race: RaceConfig,
    config: RunConfig,
    invocation: Invocation,
    workload: Sequence[str],
    entrants: Sequence[Entrant],
    left: Sequence[Left],
) -> Race:
    target = config.target
    assert target.value is not None
    metric = target.metric or config.metrics[0]
    first = sorted(invocation.scale.seeds)
    others = (seed for seed in count(first[-1] + 1) if seed not in race.tune.seeds)
    return Race(
        tuple(entrants),
        Goal(target.value, config.task.is_lower_better(metric), metric),
        tuple([*first, *islice(others, max(0, race.looks[-1] - len(first)))][: race.looks[-1]]),
        tuple(race.looks),
        config.max_time_s,
        () if config.max_time_s else (*without(workload, "target.value"), "strategy=bsp"),
        tuple(race.targets),
        float(race.tune.factor),
        race.tune.points,
        race.tune.finalists,
        race.tune.screen_share,
        tuple(race.tune.seeds),
        race.tune.validation,
        race.within,
        race.level,
        race.margin,
        seconds("race.budget", race.budget),
        invocation.jobs or num_jobs([Entry("", (), config)]),
        tuple(_possible(_elsewhere(race, config), entrants[0])),
        race.confirm,
        race.live_words,
        tuple(left),
    )


def _workers(workload: Sequence[str]) -> int:
    """Of the cluster; any strategy that can run there tells."""
    first: ConfigError | None = None
    for strategy in ("asp", "psp"):
        try:
            return compose([*workload, f"strategy={strategy}"])[0].cluster.workers
        except ConfigError as error:
            first = first or error
    assert first is not None
    raise first


def _rows(race: RaceConfig, workers: int) -> Iterator[tuple[str, ...]]:
    """Overrides of each declared entrant, with shares of the workers as numbers."""
    entrants = race.entrants or {}
    if unknown := [name for name in entrants if name not in choices("strategy")]:
        raise ConfigError(
            f"race.entrants must name strategies, got {unknown[0]}; there are {', '.join(choices('strategy'))}"
        )
    for strategy, keys in entrants.items():
        if keys is None:  # left out
            continue
        if empty := [key for key, values in keys.items() if values == []]:
            raise ConfigError(
                f"race.entrants must have a value or more for {strategy}.{empty[0]}, or {strategy}: null, got []"
            )
        for values in product(*(own if isinstance(own, list) else [own] for own in keys.values())):
            full = (key if _is_of_pushes(key) else f"strategy.{key}" for key in keys)
            found = (f"{key}={_value(value, workers)}" for key, value in zip(full, values, strict=True))
            yield (f"strategy={strategy}", *found)


def _is_of_pushes(key: str) -> bool:
    return key.partition(".")[0] in OF_PUSHES


def _value(value: Any, workers: int) -> str:
    share = of_whole(str(value), WORKERS)
    return str(value) if share is None else str(max(1, round(share * workers)))


def _labels(rows: Sequence[Sequence[str]], is_given: bool) -> list[str]:
    """One a row; those alike but for shares of the race's length are told apart by them."""

    def is_shared(word: str) -> bool:
        return is_given and all(word in other for other in rows)

    plain = [_label(row, is_shared) for row in rows]
    full = [_label(row, is_shared, with_shares=True) for row in rows]
    return [long if plain.count(short) > 1 else short for short, long in zip(plain, full, strict=True)]


def _label(row: Sequence[str], is_shared: Callable[[str], bool], with_shares: bool = False) -> str:
    """The strategy and its own values: "k_async k=2", "adasync k_sync k=1"."""
    strategy = next((text for key, text in map(split, row) if key == "strategy"), "dssp")
    own = [word for word in row if not word.startswith("strategy=") and not is_shared(word)]
    pairs = [split(re.sub(rf"^({'|'.join(('strategy', *OF_PUSHES))})\.", "", word)) for word in own]
    chosen = [(key, text) for key, text in pairs if with_shares or of_whole(text, LENGTH) is None]
    shown = (text if text.isidentifier() else f"{key}={text}" for key, text in chosen)
    return " ".join([strategy, *shown])


def _entrant(race: RaceConfig, label: str, workload: Sequence[str], row: Sequence[str]) -> tuple[Entrant, RunConfig]:
    """Raises ConfigError if it cannot run."""
    shares = [(key, of_whole(text, LENGTH)) for key, text in map(split, row)]
    of_length = tuple((key, share) for key, share in shares if share is not None)
    own = [word for word, (_, share) in zip(row, shares, strict=True) if share is None]
    config, _ = compose([*workload, *own])
    if config.runner.time_kind == "virtual":  # other runners are refused by `_check`
        compose([*without(workload, "target.value"), *own, "gradients=false"])
    steps = config.local.steps
    keeps_pace = all(key.startswith("optimizer.") for key in race.tune.keys or ())  # whatever its settings
    is_plain = steps == 1 and config.local.optimizer is None and config.compress.name == "none"
    is_plain = is_plain and keeps_pace and config.update.name == "mean" and not config.strategy.changes_rate
    is_foreseeable = not config.strategy.follows_losses
    is_comparable = is_plain and is_foreseeable and not config.strategy.has_replicas
    words = (*without(workload, *OF_RACE), *own)
    center = race.tune.center or config.optimizer.lr
    settings = drawn_settings(race.tune, label, [*workload, *own], config)
    return Entrant(label, words, center, of_length, is_comparable, steps, is_foreseeable, settings), config


def _check(race: RaceConfig, config: RunConfig, invocation: Invocation, entrant: Entrant) -> None:
    """Raises ConfigError if the words make no race."""
    value = config.target.value
    if value is None:
        raise ConfigError(
            "a race needs target.value=, which the strategies are to reach; for another metric target.metric="
        )
    if config.runner.time_kind != "virtual":
        raise ConfigError(
            f"a race is run in virtual time, by runner=simulate; race.live sets real runners; got {config.runner.name}"
        )
    is_lower = config.task.is_lower_better(config.target.metric or config.metrics[0])
    harder = [each for each in race.targets if (each < value if is_lower else each > value)]
    if harder:
        raise ConfigError(f"race.targets must be easier than target.value = {value:g}, got {harder[0]:g}")
    if both := sorted(set(invocation.scale.seeds) & set(race.tune.seeds)):
        raise ConfigError(f"race.tune.seeds must not be seeds that judge, got {', '.join(map(str, both))} in both")
    if race.confirm:
        live = race.live_words
        of_race = [word for word in live if (key := split(word)[0]) in (*OF_RACE, "seed") or key.startswith("strategy")]
        if of_race:
            raise ConfigError(
                f"race.live must leave the strategy, the seed and the length to the race, got {of_race[0]}"
            )
        if compose([*entrant.overrides, *live, "max_time_s=1"])[0].runner.time_kind == "virtual":
            raise ConfigError(f"race.live must set a runner of real processes, got {race.live or 'none'}")


def _possible(around: Iterable[Elsewhere], entrant: Entrant) -> Iterator[Elsewhere]:
    """These clusters. Raises ConfigError if one is no cluster."""
    for place in around:
        try:
            compose([*entrant.overrides, *place.overrides])
        except ConfigError as error:
            raise ConfigError(f"race.around: {place.name}: {error}") from None
        yield place


def _elsewhere(race: RaceConfig, config: RunConfig) -> Iterator[Elsewhere]:
    """The clusters around this one. A knob that it does not have is left out."""
    cluster, scenario = config.cluster, config.scenario
    knobs = {knob: values for knob, values in (race.around or {}).items() if values}
    seconds = [
        cluster.gradient_s[worker % len(cluster.gradient_s)] * scenario.slow.get(worker, 1.0)
        for worker in range(cluster.workers)
    ]
    slowest, bandwidth = seconds.index(max(seconds)), cluster.network.bandwidth_gbps
    if bandwidth is None:
        knobs.pop("bandwidth", None)
    if scenario.compute_delay is not None:
        knobs.pop("delay", None)

    def slower(factor: float) -> tuple[str, list[str]]:
        factors = {**scenario.slow, slowest: factor * scenario.slow.get(slowest, 1.0)}
        text = ", ".join(f"{worker}: {each:g}" for worker, each in factors.items())
        return f"slowest worker x {factor:g}", [f"scenario.slow={{{text}}}"]

    def narrower(factor: float) -> tuple[str, list[str]]:
        assert bandwidth is not None
        return f"bandwidth x {factor:g}", [f"cluster.network.bandwidth_gbps={bandwidth * factor:g}"]

    def later(factor: float) -> tuple[str, list[str]]:
        mean = factor * fmean(seconds)
        return f"delays of {mean:.2g} s", [f"scenario.compute_delay={{name: exponential, mean: {mean:g}}}"]

    of_knob = {"slowest": (1.0, slower), "bandwidth": (1.0, narrower), "delay": (0.0, later)}
    for values in product(*knobs.values()) if knobs else ():
        changed = [
            of_knob[knob][1](value) for knob, value in zip(knobs, values, strict=True) if value != of_knob[knob][0]
        ]
        name = ", ".join(name for name, _ in changed) or "as it is"
        yield Elsewhere(name, tuple(word for _, words in changed for word in words))
