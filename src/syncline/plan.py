"""A sweep or an experiment as an explicit list of runs, composed in advance.

The plan is also written to a file (records/plans.py), by which reports find their records.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from pathlib import Path
from typing import Any

from syncline.config import ConfigError, RunConfig, folders
from syncline.records.plans import WrittenPlan, plan_path, stem_of
from syncline.records.sources import ResultsFolder
from syncline.records.store import FINISHED, cannot_write, status, write_file
from syncline.records.studies import study_path


@dataclass(frozen=True, slots=True)
class Entry:
    """One run of a plan."""

    label: str  # the row or curve it belongs to; runs that differ only in their seed share it
    overrides: tuple[str, ...]  # of the default config
    config: RunConfig

    @property
    def name(self) -> str:
        """The row and the seed."""
        return f"{self.label} seed {self.config.seed}"


@dataclass(frozen=True, slots=True)
class Plan:
    name: str  # of the experiment ("dssp/table1"), or "sweep"
    scale: str
    entries: tuple[Entry, ...]
    report: dict[str, Any]  # keys of the experiment's file for its report
    command: tuple[str, ...] = ()  # arguments of `syncline` that make exactly this plan
    own_stem: str = ""  # of a study, whose plan grows; "": it follows from the other fields

    @property
    def stem(self) -> str:
        """The stem of its file; a sweep is named after its runs, so that different sweeps have different files."""
        if self.own_stem:
            return self.own_stem
        if self.scale:
            return stem_of(self.name, self.scale)
        identities = " ".join(sorted(entry.config.identity for entry in self.unique()))
        return stem_of(self.name, hashlib.sha256(identities.encode()).hexdigest()[:8])

    def unique(self) -> list[Entry]:
        """The first entry of each identity, in order: a run that several rows share is made once."""
        once: dict[str, Entry] = {}
        for entry in self.entries:
            once.setdefault(entry.config.identity, entry)
        return list(once.values())

    def left(self, results: Path, rerun: bool = False) -> list[Entry]:
        """The runs that are not finished; all of them if `rerun`."""
        return [entry for entry in self.unique() if rerun or status(results / entry.config.identity) != FINISHED]

    def write(self, results: Path) -> Path:
        """Write the plan into the results' folder of plans. Returns the file.

        Raises:
            RecordError: it cannot be written.
        """
        return self.write_to(plan_path(results, self.stem))

    def keep(self, results: Path) -> Path:
        """As `write`, but of this plan as a study that judges has grown it the further seeds and the looks stay.

        Raises:
            RecordError: it cannot be written.
        """
        there = self._grown(results)
        if there is None:
            return self.write(results)
        looks = (there.report.get("looks") or {}) | (self.report.get("looks") or {})
        report = self.report | ({"looks": looks} if looks else {})
        if report != there.report:
            _write(there.path, json.loads(there.path.read_text()) | {"report": report})
        return there.path

    def _grown(self, results: Path) -> WrittenPlan | None:
        """The plan there, if a study that judges has added runs to this one."""
        if not study_path(results, f"judge-{self.stem}").exists():
            return None
        there = ResultsFolder(results).plan(self.stem)
        own = {entry.config.identity for entry in self.entries}
        return there if there is not None and {*there.once()} > own else None

    def write_to(self, path: Path) -> Path:
        """Write the plan. Returns the file. Raises RecordError if it cannot be written."""
        content = {
            "name": self.name,
            "scale": self.scale,
            "command": [*self.command, *folders.words()],
            "report": self.report,
            "runs": [
                {
                    "label": entry.label,
                    "seed": entry.config.seed,
                    "identity": entry.config.identity,
                    "overrides": list(entry.overrides),
                    "content": entry.config.dataset.content,
                }
                for entry in self.entries
            ],
        }
        _write(path, content)
        return path


def _write(path: Path, content: Mapping[str, Any]) -> None:
    try:
        write_file(path, json.dumps(content, indent=1) + "\n")
    except OSError as error:
        raise cannot_write(path, error) from None


def merged(plans: Sequence[Plan]) -> Plan:
    """The entries of all plans as one plan, which is not written down; labels name the plan that they come from."""
    if len(plans) == 1:
        return plans[0]
    entries = [replace(entry, label=f"{plan.name}: {entry.label}") for plan in plans for entry in plan.entries]
    return Plan("papers", plans[0].scale, tuple(entries), {})


def grid(experiment: Mapping[str, Any], scale: str, arms: bool = True) -> list[tuple[str, list[str]]]:
    """(label, overrides) of each run of an experiment at a scale, without the seeds; later overrides win.

    docs/experiments.md has the keys of an experiment's file.

    Args:
        arms: False: without them, as before tuning.

    Raises:
        ConfigError: the experiment has no such scale, or its file lacks a key.
    """
    for key in ("base", "scales", "runs"):
        if key not in experiment:
            rule = "must begin with `# @package experiment` and have the keys base, scales and runs"
            raise ConfigError(f"the file of an experiment {rule}; it has no {key}")
    scales = experiment["scales"]
    if scale not in scales:
        raise ConfigError(f"scale must be one of {', '.join(scales)} for this experiment, got {scale!r}")
    tuned = (experiment.get("arms") or {}).get(scale) if arms else None
    learning = [experiment["base"], scales[scale], tuned.get("same", ()) if tuned else ()]
    timing = experiment.get("timing")
    more = experiment.get("more_runs") or {}
    given = [run for runs in (experiment["runs"], more.get("every"), more.get(scale)) for run in _combined(runs or {})]
    left_out = (experiment.get("left_out") or {}).get(scale, ())
    made = [
        (label, [*_overrides_for(label, learning), *overrides])
        for label, overrides in given
        if not {label, *label.split("/")} & set(left_out)
    ]
    own = [(label, words, _overrides_for(label, [tuned.get("own", ())])) for label, words in made] if tuned else []
    made += [(f"{label}/own", [*words, *rates]) for label, words, rates in own if rates]
    if timing:
        timed = [experiment["base"], timing]
        made += [
            (f"{label}/timing", [*_overrides_for(f"{scale}/{label}", timed), *overrides]) for label, overrides in given
        ]
    return made


Layer = Sequence[str] | Mapping[str, Sequence[str]]  # of overrides: for every run, or by parts of the label


def _overrides_for(label: str, layers: Sequence[Layer]) -> list[str]:
    """The overrides of these layers for a run with this label."""
    words: list[str] = []
    for layer in layers:
        if isinstance(layer, Mapping):
            parts = dict.fromkeys(["every", *label.split("/"), label])
            words += chain.from_iterable(layer.get(part, ()) for part in parts)
        else:
            words += layer
    return words


def _combined(runs: Mapping[str, list[str]] | Sequence[Mapping[str, list[str]]]) -> list[tuple[str, list[str]]]:
    """(label, overrides) of each run. YAML reads some labels as numbers."""
    if isinstance(runs, Mapping):
        return [(str(label), overrides) for label, overrides in runs.items()]
    return [
        ("/".join(str(label) for label, _ in chosen), list(chain.from_iterable(overrides for _, overrides in chosen)))
        for chosen in product(*(axis.items() for axis in runs))
    ]


def with_seeds(entries: Sequence[Entry], seeds: Sequence[int]) -> list[Entry]:
    """Every run with every seed, the seeds of a run in a row; much faster than composing each of them."""
    return [
        Entry(entry.label, (*entry.overrides, f"seed={seed}"), replace(entry.config, seed=seed))
        for entry in entries
        for seed in seeds
    ]
