"""Plans from the words of a command line: one run, a sweep, the experiments of papers, a stored plan."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, count, islice
from pathlib import Path
from typing import Any

from runners.one import resolved
from syncline.config import ConfigError, Invocation, RunConfig, TuneConfig, choices, compose, split, sweep
from syncline.config.overrides import swept
from syncline.plan import Entry, Plan, grid, with_seeds
from syncline.records.plans import PlannedRun, read_plan

# Keys of an experiment's file from which its plan is made; the others are for its report.
PLANNING_KEYS = ("base", "runs", "more_runs", "scales", "timing", "seeds", "left_out", "arms", "tune")


def single_plan(config: RunConfig, overrides: Sequence[str]) -> Plan:
    return Plan("run", "", (Entry("run", tuple(overrides), config),), {}, ("run", *overrides))


def sweep_plan(overrides: Sequence[str]) -> tuple[Plan, Invocation]:
    """A run for each combination of the values; its label is the overrides that not all runs share, without the seed.

    Raises:
        ConfigError: a sweep is empty, or as `compose`.
    """
    runs = sweep(overrides)
    if not runs:
        raise ConfigError(f"no runs in {' '.join(overrides)}")
    shared = set.intersection(*map(set, runs)) if len(runs) > 1 else set(runs[0])
    entries = []
    for run_overrides in runs:
        config, invocation = compose(run_overrides)
        config = resolved(config, Path(invocation.results))
        own = [word for word in run_overrides if word not in shared and split(word)[0] != "seed"]
        entries.append(Entry(" ".join(own) or config.strategy.name, tuple(run_overrides), config))
    return Plan("sweep", "", tuple(entries), {}, ("run", "-m", *overrides)), invocation


def is_experiment(word: str) -> bool:
    return word.startswith("+experiment=")


def without(words: Sequence[str], *keys: str) -> list[str]:
    """The words but for those that set these keys."""
    return [word for word in words if split(word)[0] not in keys]


def names_and_words(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The experiments that a study's command line names, and its other words.

    Raises:
        ConfigError: an experiment is chosen by `experiment=`, as of `syncline run`.
    """
    for word in words:
        if is_experiment(word):
            raise ConfigError(f"{word}: a study takes the name alone, {word.partition('=')[2]}")
    names = [word for word in words if "=" not in word]
    return names, [word for word in words if word not in names]


def experiment_plans(overrides: Sequence[str], with_sweeps: bool) -> tuple[list[Plan], Invocation]:
    """The plans of the experiments chosen (`a,b`): by name, all of a folder (a paper), or `all`."""
    others = [word for word in overrides if not is_experiment(word)]
    wanted = [split(each)[1] for word in overrides if is_experiment(word) for each in swept(word, choices)]
    made = [experiment_plan([f"+experiment={name}", *others], with_sweeps) for name in experiment_names(wanted)]
    return [plan for plan, _ in made], made[0][1]


def experiment_names(wanted: Sequence[str]) -> list[str]:
    """The experiments of these names, papers or `all`, unknown ones first: composing these names what there is."""
    names = choices("experiment")
    aliases = {name: {name, name.partition("/")[0], "all"} for name in names}
    unknown = [name for name in wanted if not any(name in own for own in aliases.values())]
    return [*unknown, *(name for name in names if aliases[name] & set(wanted))]


@dataclass(frozen=True, slots=True)
class Experiment:
    """An experiment as a command line asks for it."""

    name: str  # "dssp/table1"
    about: list[str]  # words that choose it and its scale
    own: list[str]  # the other words
    invocation: Invocation

    @property
    def content(self) -> dict[str, Any]:
        """Of its file."""
        content: dict[str, Any] = self.invocation.experiment
        return content

    @property
    def seeds(self) -> list[int]:
        """What the command line says of the scale's seeds, else the experiment's own, else those of the scale."""
        scale = self.invocation.scale
        are_set = any(split(word)[0] == "scale.seeds" for word in self.about)
        own = (self.content.get("seeds") or {}).get(scale.name)
        return list(own if own and not are_set else scale.seeds)

    @property
    def tuning_seeds(self) -> list[int]:
        """Those by which its rates are tuned."""
        return list((self.content.get("tune") or {}).get("seeds") or TuneConfig().seeds)

    def judging_seeds(self, num: int) -> list[int]:
        """The first `num` seeds that judge: those of the scale, then those that follow, without the tuning seeds."""
        seeds = sorted(self.seeds)
        others = (seed for seed in count(seeds[-1] + 1) if seed not in self.tuning_seeds)
        return list(islice(chain(seeds, others), num))

    @property
    def report(self) -> dict[str, Any]:
        """The keys of its file that are for its report."""
        return {key: value for key, value in self.content.items() if key not in PLANNING_KEYS}

    def rows(self, arms: bool = True) -> list[tuple[str, list[str]]]:
        """(label, overrides) of each run of its grid, without the seeds and the command line's words."""
        return grid(self.content, self.invocation.scale.name, arms=arms)


def chosen_experiment(overrides: Sequence[str], with_sweeps: bool = False) -> Experiment:
    """The experiment that the words choose. Raises ConfigError as `compose`."""
    own = [word for word in overrides if re.split("[.=]", word.lstrip("+"))[0] not in ("experiment", "scale")]
    about = [word for word in overrides if word not in own]
    name = next(word.partition("=")[2] for word in about if "experiment=" in word)
    _, invocation = compose([*(sweep(own)[0] if with_sweeps else own), *about])
    return Experiment(name, about, own, invocation)


def experiment_plan(overrides: Sequence[str], with_sweeps: bool) -> tuple[Plan, Invocation]:
    """The grid of one experiment at the chosen scale, with its seeds; what the command line says wins."""
    chosen = chosen_experiment(overrides, with_sweeps)
    scale, entries = chosen.invocation.scale, []
    sweeps = sweep(chosen.own) if with_sweeps else [chosen.own]
    for label, run_overrides in chosen.rows():
        for own in sweeps:
            words = (*run_overrides, *own)
            config, _ = compose(words)
            entries.append(Entry(label, words, config))
    if not any(split(word)[0] == "seed" for word in chosen.own):
        entries = with_seeds(entries, chosen.seeds)
    command = ("run", *(["-m"] if with_sweeps else []), *overrides)
    return Plan(chosen.name, scale.name, tuple(entries), chosen.report, command), chosen.invocation


def stored_plan(path: Path, part: str, results: Path) -> Plan:
    """The runs FIRST:END of a stored plan, composed again.

    Raises:
        ConfigError: `part` is malformed or empty, or a run would be another one now.
        RecordError: the plan cannot be read.
    """
    bounds = re.fullmatch(r"(\d*):(\d*)", part)
    if bounds is None:
        raise ConfigError(f"--runs must be FIRST:END, counted from 0, got {part}")
    first, end = (int(number) if number else None for number in bounds.groups())
    stored = read_plan(path)
    entries = []
    for run in list(stored.once().values())[first:end]:
        config = resolved(compose(run.overrides)[0], results)
        if config.identity != run.identity:
            raise ConfigError(f"{path}: {_difference(run, config)}; make the plan again")
        entries.append(Entry(run.label, tuple(run.overrides), config))
    if not entries:
        raise ConfigError(f"{path} has no runs {part}")
    return Plan(stored.name, stored.scale, tuple(entries), {})


def _difference(run: PlannedRun, config: RunConfig) -> str:
    """Why a planned run is not the one that its overrides compose to now."""
    found, planned = config.dataset.content, run.content
    if planned not in (None, found):
        where = f"{config.dataset.name} in {getattr(config.dataset, 'root', 'this environment')}"
        return f"{run.identity} is of other data: {where} has content {found}, it had {planned} when it was planned"
    why = "conf/ or your own parts have changed since the plan was written"
    return f"{run.identity} would be {config.identity} now: {why}"
