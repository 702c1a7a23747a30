"""What both clusters' reports share; and Figure 3's runs: three networks on four equal servers, as curves.

A run learns at its scale. The time of an evaluation is the epochs until then times the seconds of an epoch of its
paradigm with the paper's network, data and batch, which a run of times alone measures.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from reports.figures import Points
from reports.records import TIMING, Artefact, Run, published
from reports.statistics import Sample, Times, restricted

Value = TypeVar("Value")

NETWORKS = ("alexnet", "resnet50", "resnet110")
AVERAGE = "ssp"  # the mean of all thresholds that were run, as the paper's averaged SSP
READINGS = ("clock", "share", "paper")  # last part of the label of a run with another reading, or rate


BEST_OF_BSP = "best_of_bsp"  # instead of a target: the best that BSP reaches under each seed; tables alone use it
PUBLISHED = "published"  # the target of Table I


def fixed_target(artefact: Artefact, network: str = "") -> float | None:
    """The target accuracy that the experiment's file fixes (`targets`: by scale, and by network); None: it has none."""
    of: Any = artefact.report.get("targets")
    at = of.get(artefact.scale) if isinstance(of, Mapping) else of
    wanted = at.get(network) if isinstance(at, Mapping) else at
    if wanted == PUBLISHED:
        wanted = published("dssp")["table1"]["targets"]["low"]
    return None if wanted in (None, BEST_OF_BSP) else float(wanted)


def cut(accuracy: float) -> float:
    """To whole per cent, as the paper's 0.67 is."""
    return math.floor(accuracy * 100 + 1e-9) / 100  # a hundredth is not a binary fraction: 0.29 * 100 falls short of 29


def reached(curve: Points, accuracy: float) -> float | None:
    """Where it first is that high, of evaluations after some training; None if it never is."""
    return next((at for at, height in zip(*curve, strict=True) if height >= accuracy and at > 0), None)


class NotRun(LookupError):
    """There is no such run."""


@dataclass(frozen=True)
class Network:
    """One network's runs. A paradigm is `bsp`, `asp`, `dssp`, `dssp_hard`, `ssp_s3`, ..., `ssp`, or `asp/clock`, ...

    What is said of a paradigm and a seed raises NotRun where a run is missing; such a seed has no value in a sample.
    """

    key: str
    seeds: Sequence[int]
    learned: Mapping[str, Mapping[int, Run]]  # paradigm -> seed -> run
    alone: Mapping[str, Mapping[int, Run]]  # the same of times alone
    target: float | None = None  # fixed accuracy; None: BSP's best of each seed

    @property
    def name(self) -> str:
        """As the paper calls it."""
        return str(published("dssp")["networks"][self.key])

    @property
    def thresholds(self) -> list[str]:
        """`ssp_s3`, ..., by threshold: those that learn."""
        return sorted(filter(_is_threshold, self.learned), key=threshold)

    def epoch_s(self, paradigm: str, seed: int) -> float:
        """Virtual seconds of an epoch at the paper's size; of the average over all thresholds that were timed."""
        if paradigm == AVERAGE:
            return _mean([self.epoch_s(name, seed) for name in filter(_is_threshold, self.alone)])
        run = _run(self.alone, paradigm, seed)
        return run.time_s / float(run.config["epochs"])

    def learning(self, paradigm: str, seed: int) -> Points:
        """(epochs, accuracies); of the average at the epochs of the lowest threshold."""
        if paradigm != AVERAGE:
            return _run(self.learned, paradigm, seed).curve("accuracy", "epoch")
        curves = [self.learning(name, seed) for name in self.thresholds]
        if not curves:
            raise NotRun(AVERAGE)
        places = curves[0][0]
        return places, np.mean([np.interp(places, *drawn) for drawn in curves], axis=0).tolist()

    def _ended(self, paradigm: str, seed: int) -> Points:
        """As `learning`. Raises NotRun if one of its runs diverged."""
        names = self.thresholds if paradigm == AVERAGE else [paradigm]
        if any(_run(self.learned, name, seed).is_diverged for name in names):
            raise NotRun(paradigm)
        return self.learning(paradigm, seed)

    def curve(self, paradigm: str, seed: int) -> Points:
        """(virtual seconds, accuracies)."""
        epochs, accuracies = self.learning(paradigm, seed)
        names = self.thresholds if paradigm == AVERAGE else [paradigm]
        seconds = _mean([self.epoch_s(name, seed) for name in names])
        return [epoch * seconds for epoch in epochs], accuracies

    def goal(self, seed: int) -> float:
        """The fixed target, or the best accuracy that BSP reaches under this seed, cut to whole per cent."""
        return self.target if self.target is not None else cut(max(self.learning("bsp", seed)[1]))

    def each(self, value: Callable[[int], Value]) -> list[Value | None]:
        """The values of all seeds; None where a run is missing."""
        found: list[Value | None] = []
        for seed in self.seeds:
            try:
                found.append(value(seed))
            except NotRun:
                found.append(None)
        return found

    # Samples: one value a seed.

    def sample(self, value: Callable[[int], float | None]) -> Sample:
        return Sample(tuple(self.each(value)))

    def seconds_an_epoch(self, paradigm: str) -> Sample:
        return self.sample(lambda seed: self.epoch_s(paradigm, seed))

    def final(self, paradigm: str) -> Sample:
        """Accuracy at the end, per cent."""
        return self.sample(lambda seed: 100.0 * self._ended(paradigm, seed)[1][-1])

    def seconds_to_goal(self, paradigm: str) -> Sample:
        """Until the first evaluation that reaches `goal`; None where none does."""
        return self.sample(lambda seed: reached(self.curve(paradigm, seed), self.goal(seed)))

    def mean_accuracy(self, paradigm: str) -> Sample:
        """Over all evaluations of the run, by epochs, per cent: high if it rises early and stays high."""

        def of_seed(seed: int) -> float:
            epochs, accuracies = self._ended(paradigm, seed)
            return 100.0 * float(np.trapezoid(accuracies, epochs)) / (epochs[-1] - epochs[0])

        return self.sample(of_seed)

    def restricted_seconds(self, *paradigms: str) -> Times[str]:
        """Seconds to the fixed target of these and of BSP, as `restricted` takes them; LookupError without a target."""
        if self.target is None:
            raise LookupError(f"a fixed target for {self.name}")
        every = dict.fromkeys(("bsp", *paradigms))
        return restricted(
            {name: self.seconds_to_goal(name) for name in every}, {name: self.ends(name) for name in every}
        )

    def ends(self, paradigm: str) -> Sample:
        """Seconds of the whole run."""
        return self.sample(lambda seed: self.curve(paradigm, seed)[0][-1])

    def alone_runs(self, paradigm: str, value: Callable[[Run], float | None]) -> Sample:
        """A number of each of its runs of times alone."""
        return self.sample(lambda seed: value(_run(self.alone, paradigm, seed)))

    def learning_runs(self, paradigm: str, value: Callable[[Run], float | None]) -> Sample:
        """A number of each of its runs with gradients."""
        return self.sample(lambda seed: value(_run(self.learned, paradigm, seed)))


def _run(runs: Mapping[str, Mapping[int, Run]], paradigm: str, seed: int) -> Run:
    try:
        return runs[paradigm][seed]
    except KeyError:
        raise NotRun(f"{paradigm} seed {seed}") from None


def _mean(seconds: Sequence[float]) -> float:
    """NotRun of none."""
    if not seconds:
        raise NotRun(AVERAGE)
    return sum(seconds) / len(seconds)


def networks(artefact: Artefact) -> dict[str, Network]:
    """Key -> its runs, of the networks that were run."""
    split: dict[str, tuple[dict[str, dict[int, Run]], dict[str, dict[int, Run]]]] = {}
    for run in artefact.runs:
        key, _, paradigm = run.label.partition("/")
        learned, alone = split.setdefault(key, ({}, {}))
        place = alone if paradigm.endswith(f"/{TIMING}") else learned
        place.setdefault(paradigm.removesuffix(f"/{TIMING}"), {})[run.seed] = run
    return {
        key: Network(key, artefact.seeds, *split[key], fixed_target(artefact, key)) for key in NETWORKS if key in split
    }


def learning(artefact: Artefact) -> list[Network]:
    """Those that learn at this scale, run or not yet; of the others there are times alone."""
    planned = [run.label for run in artefact.runs] + [one.label for one in artefact.missing]
    keys = {label.partition("/")[0] for label in planned if not label.endswith(f"/{TIMING}")}
    return [of for key, of in networks(artefact).items() if key in keys]


@dataclass(frozen=True, slots=True)
class Paradigm:
    """One paradigm on one network: a row of the tables."""

    of: Network
    name: str

    @property
    def to_goal(self) -> Sample:
        return self.of.seconds_to_goal(self.name)


def threshold(paradigm: str) -> int:
    """3 of `ssp_s3`."""
    return int(paradigm.removeprefix("ssp_s"))


def _is_threshold(paradigm: str) -> bool:
    return paradigm.startswith("ssp_s") and not paradigm.endswith(READINGS)
