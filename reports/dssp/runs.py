"""Figure 3's runs: three networks on four equal servers, as curves.

A run learns at its scale. The time of an evaluation is the epochs until then times the seconds of an epoch of its
paradigm with the paper's network, data and batch, which a run of times alone measures.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from reports.figures import Points
from reports.learned import unlearned
from reports.measures import PERCENT, Measure, mean_over_run, no_target, time_to
from reports.records import Artefact, Run, published
from reports.statistics import Sample, Times, restricted

NETWORKS = ("alexnet", "resnet50", "resnet110")
AVERAGE = "ssp"  # the mean of all thresholds that were run, as the paper's averaged SSP


@dataclass(frozen=True)
class Network:
    """One network's runs: of a paradigm `bsp`, `asp`, `dssp`, `dssp_hard`, `ssp_s3`, ... or AVERAGE, and of a reading.

    What is said of these is by seed; seeds for which a run is missing are left out, and have no value in a sample.
    """

    key: str
    artefact: Artefact

    @property
    def name(self) -> str:
        """As the paper calls it."""
        return str(published("dssp")["networks"][self.key])

    @cached_property
    def learned(self) -> Mapping[tuple[str, str], list[Run]]:
        """(paradigm, reading) -> its runs with gradients."""
        return self.artefact.by("paradigm", "reading", network=self.key, timed=False)

    @cached_property
    def alone(self) -> Mapping[tuple[str, str], list[Run]]:
        """(paradigm, reading) -> its runs of times alone."""
        return self.artefact.by("paradigm", "reading", network=self.key, timed=True)

    @property
    def thresholds(self) -> list[str]:
        """`ssp_s3`, ..., by threshold: those that learn."""
        return _thresholds(self.learned)

    def epoch_s(self, paradigm: str, reading: str = "") -> dict[int, float]:
        """Virtual seconds of an epoch at the paper's size; of the average over all thresholds that were timed."""
        if paradigm == AVERAGE:
            return _mean([self.epoch_s(name) for name in _thresholds(self.alone)])
        runs = self.alone.get((paradigm, reading), [])
        return {run.seed: run.time_s / float(run.config["epochs"]) for run in runs}

    def learning(self, paradigm: str, reading: str = "", only_ended: bool = False) -> dict[int, Points]:
        """(epochs, accuracies); of the average at the epochs of the lowest threshold.

        Args:
            only_ended: without the seeds of which a run diverged.
        """
        if paradigm != AVERAGE:
            runs = self.learned.get((paradigm, reading), [])
            return {run.seed: run.curve("accuracy", "epoch") for run in runs if not (only_ended and run.is_diverged)}
        curves = [self.learning(name, only_ended=only_ended) for name in self.thresholds]
        return {seed: _mean_curve([of[seed] for of in curves]) for seed in _common(curves)}

    def curves(self, paradigm: str, reading: str = "") -> dict[int, Points]:
        """(virtual seconds, accuracies)."""
        names = self.thresholds if paradigm == AVERAGE else [paradigm]
        epoch_s = _mean([self.epoch_s(name, reading) for name in names])
        return {
            seed: ([epoch * epoch_s[seed] for epoch in epochs], accuracies)
            for seed, (epochs, accuracies) in self.learning(paradigm, reading).items()
            if seed in epoch_s
        }

    @property
    def goal(self) -> float | None:
        """The target, an accuracy that is fixed beforehand; None: none is."""
        return self.artefact.target(self.key)

    # Samples: one value a seed.

    def _sample(self, values: Mapping[int, float | None], paradigm: str = "", reading: str = "") -> Sample:
        """Flawed where the paradigm's runs, if one is given, have not learned."""
        names = self.thresholds if paradigm == AVERAGE else [paradigm]
        flaws = (unlearned(self.learned.get((name, reading), [])) for name in names)
        return Sample(tuple(map(values.get, self.artefact.seeds)), next(filter(None, flaws), ""))

    def seconds_an_epoch(self, paradigm: str) -> Sample:
        return self._sample(self.epoch_s(paradigm))

    def final(self, paradigm: str, reading: str = "") -> Sample:
        """Accuracy at the end, per cent."""
        curves = self.learning(paradigm, reading, only_ended=True)
        ends = {seed: PERCENT * accuracies[-1] for seed, (_, accuracies) in curves.items()}
        return self._sample(ends, paradigm, reading)

    def mean_accuracy(self, paradigm: str) -> Sample:
        """Over the run, by epochs, per cent."""
        curves = self.learning(paradigm, only_ended=True)
        return self._sample({seed: PERCENT * mean_over_run(points) for seed, points in curves.items()}, paradigm)

    def seconds_to_goal(self, paradigm: str, reading: str = "") -> Sample:
        """Until the first evaluation that reaches the goal; None where none does."""
        goal, curves = self.goal, self.curves(paradigm, reading)
        reached = {} if goal is None else {seed: time_to(points, goal) for seed, points in curves.items()}
        return self._sample(reached, paradigm, reading)

    def restricted_seconds(self, *paradigms: str) -> Times[str]:
        """Seconds to the goal of these and of BSP, as `restricted` takes them; LookupError without a goal."""
        if self.goal is None:
            raise no_target(self.key)
        every = dict.fromkeys(("bsp", *paradigms))
        ends = {name: {seed: places[-1] for seed, (places, _) in self.curves(name).items()} for name in every}
        reached = {name: self.seconds_to_goal(name) for name in every}
        return restricted(reached, {name: self._sample(times) for name, times in ends.items()})

    def of_alone(self, measure: Measure, paradigm: str) -> Sample:
        """A measure of its runs of times alone."""
        return self.artefact.sample(self.alone.get((paradigm, ""), []), measure)

    def of_learned(self, measure: Measure, paradigm: str, reading: str = "") -> Sample:
        """A measure of its runs with gradients."""
        return self.artefact.sample(self.learned.get((paradigm, reading), []), measure)


def _thresholds(rows: Mapping[tuple[str, str], Sequence[Run]]) -> list[str]:
    """Those of SSP, without other readings, by threshold."""
    return sorted((name for name, reading in rows if name.startswith("ssp_s") and not reading), key=threshold)


def _common(found: Sequence[Mapping[int, object]]) -> list[int]:
    """The seeds that all have; none of none."""
    return sorted(set.intersection(*map(set, found))) if found else []


def _mean(seconds: Sequence[Mapping[int, float]]) -> dict[int, float]:
    return {seed: sum(of[seed] for of in seconds) / len(seconds) for seed in _common(seconds)}


def _mean_curve(curves: Sequence[Points]) -> Points:
    """At the places of the first."""
    places = curves[0][0]
    return places, np.mean([np.interp(places, *drawn) for drawn in curves], axis=0).tolist()


def networks(artefact: Artefact) -> dict[str, Network]:
    """Key -> its runs, of the networks that were run."""
    there = artefact.by("network")
    return {key: Network(key, artefact) for key in NETWORKS if key in there}


def learning(artefact: Artefact) -> list[Network]:
    """Those that learn at this scale, run or not yet; of the others there are times alone."""
    keys = {one.label.partition("/")[0] for one in artefact.every if not one.is_timed}
    return [of for key, of in networks(artefact).items() if key in keys]


def threshold(paradigm: str) -> int:
    """3 of `ssp_s3`."""
    return int(paradigm.removeprefix("ssp_s"))
