"""Figure 3's runs: three networks on four equal servers, as curves over virtual time.

A run learns at its scale. The time of an evaluation is the epochs until then times the seconds of an epoch of its
paradigm with the paper's network, data and batch, which a run of times alone measures.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from reports.dssp.goals import TIMING, cut, reached
from reports.figures import Points
from reports.records import Artefact, Run, published
from reports.statistics import Sample

NETWORKS = ("alexnet", "resnet50", "resnet110")
AVERAGE = "ssp"  # the mean of all thresholds that were run, as the paper's averaged SSP
READINGS = ("clock", "share", "quarter")  # last part of the label of a run with another reading, or rate


@dataclass(frozen=True)
class Network:
    """One network's runs. A paradigm is `bsp`, `asp`, `dssp`, `dssp_hard`, `ssp_s3`, ..., `ssp`, or `asp/clock`, ..."""

    key: str
    seeds: Sequence[int]
    learned: Mapping[str, Mapping[int, Run]]  # paradigm -> seed -> run
    alone: Mapping[str, Mapping[int, Run]]  # the same of times alone

    @property
    def name(self) -> str:
        """As the paper calls it."""
        return str(published("dssp")["networks"][self.key])

    @property
    def thresholds(self) -> list[str]:
        """`ssp_s3`, ..., by threshold."""
        return sorted({name for name in (*self.learned, *self.alone) if _is_threshold(name)}, key=threshold)

    def sample(self, value: Callable[[int], float | None]) -> Sample:
        return Sample(tuple(map(value, self.seeds)))

    def epoch_s(self, paradigm: str, seed: int) -> float | None:
        """Virtual seconds of an epoch at the paper's size; None where there is no such run."""
        if paradigm == AVERAGE:
            return _mean([self.epoch_s(name, seed) for name in self.thresholds])
        run = self.alone.get(paradigm, {}).get(seed)
        return None if run is None else run.time_s / run.config["epochs"]

    def learning(self, paradigm: str, seed: int) -> Points | None:
        """(epochs, accuracies); None where a run is missing."""
        if paradigm == AVERAGE:
            return _averaged([self.learning(name, seed) for name in self.thresholds])
        run = self.learned.get(paradigm, {}).get(seed)
        return None if run is None else run.curve("accuracy", "epoch")

    def curve(self, paradigm: str, seed: int) -> Points | None:
        """(virtual seconds, accuracies); None where a run is missing."""
        drawn, seconds = self.learning(paradigm, seed), self.epoch_s(paradigm, seed)
        return None if drawn is None or seconds is None else ([epoch * seconds for epoch in drawn[0]], drawn[1])

    def goal(self, seed: int) -> float | None:
        """The best accuracy that BSP reaches under this seed, cut to whole per cent."""
        drawn = self.learning("bsp", seed)
        return None if drawn is None else cut(max(drawn[1]))

    # Samples: one value a seed.

    def seconds_an_epoch(self, paradigm: str) -> Sample:
        return self.sample(lambda seed: self.epoch_s(paradigm, seed))

    def final(self, paradigm: str) -> Sample:
        """Accuracy at the end, per cent."""

        def last(seed: int) -> float | None:
            drawn = self.learning(paradigm, seed)
            return None if drawn is None else 100.0 * drawn[1][-1]

        return self.sample(last)

    def seconds_to_goal(self, paradigm: str) -> Sample:
        """Until the first evaluation that reaches `goal`; None where none does."""

        def first(seed: int) -> float | None:
            drawn, goal = self.curve(paradigm, seed), self.goal(seed)
            return None if drawn is None or goal is None else reached(drawn, goal)

        return self.sample(first)

    def lead_alone(self, paradigm: str) -> Sample:
        """Largest lead of the runs of times alone."""
        runs = self.alone.get(paradigm, {})
        return self.sample(lambda seed: runs[seed].summary["max_lead"] if seed in runs else None)

    def learning_runs(self, paradigm: str, value: Callable[[Run], float | None]) -> Sample:
        """A number of each of its runs with gradients."""
        runs = self.learned.get(paradigm, {})
        return self.sample(lambda seed: value(runs[seed]) if seed in runs else None)


def networks(artefact: Artefact) -> dict[str, Network]:
    """Key -> its runs, of the networks that were run."""
    split: dict[str, tuple[dict[str, dict[int, Run]], dict[str, dict[int, Run]]]] = {}
    for run in artefact.runs:
        key, _, paradigm = run.label.partition("/")
        learned, alone = split.setdefault(key, ({}, {}))
        is_alone = paradigm.endswith(f"/{TIMING}")
        place = alone if is_alone else learned
        place.setdefault(paradigm.removesuffix(f"/{TIMING}"), {})[run.seed] = run
    return {key: Network(key, artefact.seeds, *split[key]) for key in NETWORKS if key in split}


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


def _mean(values: Sequence[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return sum(present) / len(present) if present and len(present) == len(values) else None


def _averaged(curves: Sequence[Points | None]) -> Points | None:
    """Their mean at the places of the first."""
    present = [drawn for drawn in curves if drawn is not None]
    if not present or len(present) < len(curves):
        return None
    places = present[0][0]
    heights = np.mean([np.interp(places, *drawn) for drawn in present], axis=0)
    return places, heights.tolist()
