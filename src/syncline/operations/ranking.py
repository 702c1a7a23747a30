"""The settings of a plan, the best first; runs that differ only in their seed are one setting.

Settings with the same metric, target and kind of time share a table, which is sorted

    with a target     by the fraction of runs that reached it, then by the mean time to it
    with a metric     by the fraction of runs that diverged, then by the mean final value
    of times alone    by the samples used a second (updates may take different numbers of them)
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from syncline.operations.states import Outcome, RunState
from syncline.operations.tables import counted, row_lines, wrapped
from syncline.records.plans import PlannedRun
from syncline.records.store import FAILED, FINISHED

NONE = "-"

Column = Callable[["Setting"], str]


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the settings of one table have in common."""

    metric: str | None  # None: times alone
    lower_is_better: bool
    target: float | None
    time_kind: str


@dataclass(frozen=True, slots=True)
class Setting:
    """Runs that differ only in their seed."""

    name: str
    outcomes: tuple[Outcome, ...]  # of the finished runs
    num_failed: int
    num_unfinished: int  # neither finished nor failed

    @property
    def judgement(self) -> Judgement:
        """By what the setting is ranked: its runs agree. It needs a finished run."""
        first = self.outcomes[0]
        return Judgement(first.metric, first.lower_is_better, first.target, first.time_kind)

    @property
    def sound(self) -> list[Outcome]:
        """Outcomes of the runs that did not diverge."""
        return [outcome for outcome in self.outcomes if not outcome.has_diverged]

    @property
    def reached_s(self) -> list[float]:
        """Times to the target, of the runs that reached it."""
        return [outcome.reached_s for outcome in self.outcomes if outcome.reached_s is not None]

    @property
    def samples_per_s(self) -> list[float]:
        return [outcome.samples / outcome.time_s for outcome in self.sound if outcome.time_s]

    @property
    def update_s(self) -> list[float]:
        """Seconds an update."""
        return [outcome.time_s / outcome.updates for outcome in self.sound if outcome.updates]

    @property
    def remarks(self) -> str:
        """How many runs the numbers leave out, and why."""
        num_diverged = len(self.outcomes) - len(self.sound)
        counts = {"diverged": num_diverged, "failed": self.num_failed, "not finished": self.num_unfinished}
        num_runs = len(self.outcomes) + self.num_failed + self.num_unfinished
        remarks = [f"{number} of {counted(num_runs, 'run')} {what}" for what, number in counts.items() if number]
        return ", ".join(remarks)


def ranking(runs: Sequence[PlannedRun], states: Mapping[str, RunState], width: int, most: int | None = None) -> str:
    """The tables of a plan's runs; empty before one is finished.

    Args:
        states: identity -> its state, of all runs.
        width: of the terminal.
        most: settings that are listed in a table.
    """
    found = settings(runs, states)
    tables: dict[Judgement, list[Setting]] = {}
    for setting in found:
        if setting.outcomes:
            tables.setdefault(setting.judgement, []).append(setting)
    parts = [_table(judgement, ranked(judgement, own), width, most) for judgement, own in tables.items()]
    if tables and (rest := [setting for setting in found if not setting.outcomes]):
        parts.append(
            "\n".join(line for setting in rest for line in wrapped(f"{setting.name}: {setting.remarks}", width))
        )
    return "\n\n".join(parts)


def settings(runs: Sequence[PlannedRun], states: Mapping[str, RunState]) -> list[Setting]:
    """In the order of the plan."""
    groups: dict[tuple[str, tuple[str, ...]], dict[str, PlannedRun]] = {}
    for run in runs:
        words = tuple(word for word in run.overrides if not word.lstrip("+").startswith("seed="))
        groups.setdefault((run.label, words), {})[run.identity] = run  # once, however often its seed was given
    shared: dict[str, set[str]] = {}  # overrides that all settings of a label share
    for label, words in groups:
        shared[label] = shared.get(label, set(words)).intersection(words)
    return [
        _setting(" ".join([label, *(word for word in words if word not in shared[label])]), [*own.values()], states)
        for (label, words), own in groups.items()
    ]


def _setting(name: str, runs: Sequence[PlannedRun], states: Mapping[str, RunState]) -> Setting:
    own = [states[run.identity] for run in runs]
    outcomes = tuple(state.outcome for state in own if state.outcome is not None)
    num_failed = sum(state.state == FAILED or (state.state == FINISHED and state.outcome is None) for state in own)
    return Setting(name, outcomes, num_failed, len(own) - len(outcomes) - num_failed)


def ranked(judgement: Judgement, found: Sequence[Setting]) -> list[Setting]:
    """The best first; ties stay in the order of the plan."""
    sign = 1 if judgement.lower_is_better else -1

    def key(setting: Setting) -> tuple[float, ...]:
        if judgement.metric is None:
            return (_mean([-speed for speed in setting.samples_per_s]),)
        diverged = 1 - len(setting.sound) / len(setting.outcomes)
        final = diverged, _mean([sign * outcome.final for outcome in setting.sound])
        if judgement.target is None:
            return final
        return -len(setting.reached_s) / len(setting.outcomes), _mean(setting.reached_s), *final

    return sorted(found, key=key)


def _mean(values: Sequence[float]) -> float:
    """The mean; infinite, which sorts last, without values or for nan."""
    mean = fmean(values) if values else math.inf
    return math.inf if math.isnan(mean) else mean


def _table(judgement: Judgement, found: Sequence[Setting], width: int, most: int | None) -> str:
    listed = found if most is None else found[:most]
    key, names = short_names([setting.name for setting in listed])
    shown = _columns(judgement)
    rows = [(name, *(text(own) for text in shown.values())) for name, own in zip(names, listed, strict=True)]
    header, *lines = row_lines([(key, *shown), *rows], range(1, 1 + len(shown)), width)
    body = [
        line for above, own in zip(lines, listed, strict=True) for line in (above, *wrapped(own.remarks, width, "  "))
    ]
    if len(listed) < len(found):
        body.append(f"and {counted(len(found) - len(listed), 'more setting')}")
    return "\n".join([*wrapped(_title(judgement), width), header, *body, *wrapped(_legend(judgement), width)])


def _title(judgement: Judgement) -> str:
    """By what the table is sorted."""
    metric, target, kind = judgement.metric, judgement.target, judgement.time_kind
    if metric is None:
        return f"ranked by samples used a {kind} second"
    name = metric.replace("_", " ")
    if target is not None:
        return f"ranked by {kind} seconds to {name} {target:g}"
    return f"ranked by final {name}, {'lowest' if judgement.lower_is_better else 'highest'} first; {kind} seconds"


def _legend(judgement: Judgement) -> str:
    """What the numbers of a table are."""
    words = "mean±sample standard deviation of n runs, without those that diverged"
    if judgement.metric is None or judgement.target is None:
        return words
    return f"{words}; to {judgement.target:g}: how many runs reached it, and the mean of these"


def _columns(judgement: Judgement) -> dict[str, Column]:
    """Title -> the text of a setting's cell."""
    ends: dict[str, Column] = {
        "seconds": lambda own: _average([outcome.time_s for outcome in own.sound]),
        "updates": lambda own: _average([outcome.updates for outcome in own.sound], 0),
    }
    number: dict[str, Column] = {"n": lambda own: str(len(own.sound))}
    if judgement.metric is None:
        speeds: dict[str, Column] = {
            "samples/second": lambda own: spread(own.samples_per_s),
            "seconds/update": lambda own: spread(own.update_s),
        }
        return number | speeds | ends
    learned: dict[str, Column] = {
        "final": lambda own: spread([outcome.final for outcome in own.sound], 3),
        "best": lambda own: spread([outcome.best for outcome in own.sound], 3),
    }
    if judgement.target is not None:
        learned[f"to {judgement.target:g}"] = lambda own: _reached(own)
    return number | learned | ends


def _reached(own: Setting) -> str:
    times = f" {spread(own.reached_s)}" if own.reached_s else ""
    return f"{len(own.reached_s)}/{len(own.outcomes)}{times}"


def _average(values: Sequence[float], decimals: int | None = None) -> str:
    return spread([fmean(values)] if values else [], decimals)


def spread(values: Sequence[float], decimals: int | None = None) -> str:
    """19.4±0.3: the mean and the sample standard deviation, if there are two values; "-" without values.

    Args:
        decimals: None: three significant digits of the mean, and at least one decimal below 1000.
    """
    if not values:
        return NONE
    mean = fmean(values)
    if not abs(mean) < 1e7:  # or nan
        return f"{mean:.3g}"
    if decimals is None:
        magnitude = math.floor(math.log10(abs(mean))) if mean else 0
        decimals = 0 if magnitude > 2 else max(1, 2 - magnitude)
    deviation = f"±{stdev(values):,.{decimals}f}" if len(values) > 1 else ""
    return f"{mean:,.{decimals}f}{deviation}"


def short_names(names: Sequence[str]) -> tuple[str, list[str]]:
    """(title, names): if all names set the same keys, as in a sweep, the title is the keys and a name the values."""
    parts = [[word.partition("=") for word in name.split()] for name in names]
    keys = {tuple(key for key, _, _ in words) for words in parts}
    if len(keys) > 1 or not all(equals for words in parts for _, equals, _ in words):
        return "setting", list(names)
    return " ".join(*keys), [" ".join(value for _, _, value in words) for words in parts]
