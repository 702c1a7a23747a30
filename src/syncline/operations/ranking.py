"""A plan's settings beside each other, the best first; runs that differ only in their seed are one setting.

Settings that are judged alike (by the same metric, target and kind of time) make one table. In it come first

    with a target     those that more runs of reached it, then those that reached it sooner
    with a metric     those of which fewer runs diverged, then those of the better mean at the end
    of times alone    those that use more samples a second, of which an update may take few or many
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from syncline.metrics import LOWER_IS_BETTER
from syncline.operations.states import Outcome, RunState
from syncline.operations.tables import counted, row_lines, wrapped
from syncline.records.plans import PlannedRun
from syncline.records.store import FAILED, FINISHED

NONE = "-"

Column = Callable[["Setting"], str]


@dataclass(frozen=True, slots=True)
class Judgement:
    """What settings of one table have in common."""

    metric: str | None  # None: times alone
    target: float | None
    time_kind: str


@dataclass(frozen=True, slots=True)
class Setting:
    """Runs that differ only in their seed."""

    name: str
    outcomes: tuple[Outcome, ...]  # of those that are finished
    num_failed: int
    num_unfinished: int  # of the others

    @property
    def judged_by(self) -> Judgement:
        """The runs of a setting are judged alike; one that is not finished cannot tell."""
        first = self.outcomes[0]
        return Judgement(first.metric, first.target, first.time_kind)

    @property
    def sound(self) -> list[Outcome]:
        """Of the runs that did not diverge."""
        return [outcome for outcome in self.outcomes if not outcome.has_diverged]

    @property
    def reached_s(self) -> list[float]:
        """Of the runs that reached the target."""
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
        """What became of the runs that the numbers leave out."""
        num_diverged = len(self.outcomes) - len(self.sound)
        counts = {"diverged": num_diverged, "failed": self.num_failed, "not finished": self.num_unfinished}
        num_runs = len(self.outcomes) + self.num_failed + self.num_unfinished
        told = [f"{number} of {counted(num_runs, 'run')} {what}" for what, number in counts.items() if number]
        return ", ".join(told)


def ranking(runs: Sequence[PlannedRun], states: Mapping[str, RunState], width: int, most: int | None = None) -> str:
    """The tables of a plan's runs; empty while none is finished.

    Args:
        states: identity -> its state, of all runs.
        width: of the terminal.
        most: settings that are listed in a table.
    """
    found = settings(runs, states)
    tables: dict[Judgement, list[Setting]] = {}
    for setting in found:
        if setting.outcomes:
            tables.setdefault(setting.judged_by, []).append(setting)
    parts = [_table(judgement, ranked(judgement, own), width, most) for judgement, own in tables.items()]
    if tables and (rest := [setting for setting in found if not setting.outcomes]):
        parts.append(
            "\n".join(line for setting in rest for line in wrapped(f"{setting.name}: {setting.remarks}", width))
        )
    return "\n\n".join(parts)


def settings(runs: Sequence[PlannedRun], states: Mapping[str, RunState]) -> list[Setting]:
    """In the order of the plan."""
    groups: dict[tuple[str, tuple[str, ...]], list[PlannedRun]] = {}
    for run in runs:
        words = tuple(word for word in run.overrides if not word.startswith("seed="))
        groups.setdefault((run.label, words), []).append(run)
    shared: dict[str, set[str]] = {}  # by all settings of a label
    for label, words in groups:
        shared[label] = shared.get(label, set(words)).intersection(words)
    return [
        _setting(" ".join([label, *(word for word in words if word not in shared[label])]), own, states)
        for (label, words), own in groups.items()
    ]


def _setting(name: str, runs: Sequence[PlannedRun], states: Mapping[str, RunState]) -> Setting:
    own = [states[run.identity] for run in runs]
    outcomes = tuple(state.outcome for state in own if state.outcome is not None)
    num_failed = sum(state.state == FAILED or (state.state == FINISHED and state.outcome is None) for state in own)
    return Setting(name, outcomes, num_failed, len(own) - len(outcomes) - num_failed)


def ranked(judgement: Judgement, found: Sequence[Setting]) -> list[Setting]:
    """The best first; equals stay in their order."""
    sign = 1 if judgement.metric in LOWER_IS_BETTER else -1

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
    """The worst where there is none."""
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
    """What the table is sorted by."""
    metric, target, kind = judgement.metric, judgement.target, judgement.time_kind
    if metric is None:
        return f"ranked by samples used a {kind} second"
    name = metric.replace("_", " ")
    if target is not None:
        return f"ranked by {kind} seconds to {name} {target:g}"
    return f"ranked by final {name}, {'lowest' if metric in LOWER_IS_BETTER else 'highest'} first; {kind} seconds"


def _legend(judgement: Judgement) -> str:
    """What its numbers are."""
    words = "mean±sample standard deviation of n runs, without those that diverged"
    if judgement.metric is None or judgement.target is None:
        return words
    return f"{words}; to {judgement.target:g}: how many runs reached it, and the mean of these"


def _columns(judgement: Judgement) -> dict[str, Column]:
    """Title -> what stands there for a setting."""
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
    """19.4±0.3: the mean and the sample's standard deviation, which one value has not; "-" of none.

    Args:
        decimals: so many; None: as many as show three digits of the mean, and one below 1000.
    """
    if not values:
        return NONE
    mean = fmean(values)
    if not abs(mean) < 1e7:  # or it is nan
        return f"{mean:.3g}"
    if decimals is None:
        magnitude = math.floor(math.log10(abs(mean))) if mean else 0
        decimals = 0 if magnitude > 2 else max(1, 2 - magnitude)
    deviation = f"±{stdev(values):,.{decimals}f}" if len(values) > 1 else ""
    return f"{mean:,.{decimals}f}{deviation}"


def short_names(names: Sequence[str]) -> tuple[str, list[str]]:
    """(title, names): of names that all set the same keys, as a sweep's do, the keys are the title."""
    parts = [[word.partition("=") for word in name.split()] for name in names]
    keys = {tuple(key for key, _, _ in words) for words in parts}
    if len(keys) > 1 or not all(equals for words in parts for _, equals, _ in words):
        return "setting", list(names)
    return " ".join(*keys), [" ".join(value for _, _, value in words) for words in parts]
