"""A race: which strategy reaches a target first on a cluster.

    length   the length of the race in seconds, unless it is declared: one run of fully synchronous SGD by times alone
    times    every entrant by times alone. One that cannot be ahead of another is dropped (screening.py)
    cost     one short run that learns, to know what runs cost; only with a budget, which then limits the entrants
    rates    the learning rate of each entrant is tuned (tune.py) for the time to the target, on tuning seeds and
             held-out training data, with equal numbers of trials. Who reaches the target at no rate, or much later
             than the soonest, is not judged
    look     so many fresh seeds of each entrant that is left, on test data. One that is behind another is dropped
             (order.py). It ends when one is left, when those that are left are equally fast, at the last look, or
             before a look that the budget does not allow
    around   by times alone: who would be first on other clusters, with the updates that the target took on this one
    live     the first ones as real processes

What a run will cost is foreseen from the wall seconds of runs that were made. So the decisions that keep the budget
follow from records, like all others.
"""

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise

from syncline.studies.goals import Goal, time_to
from syncline.studies.order import Contender, Order
from syncline.studies.raced import Confirmed, Left, Raced, There
from syncline.studies.screening import Pace, dropped
from syncline.studies.study import Answer, Completed, Counts, Outcome, Records, Stage, Trial, first_absent
from syncline.studies.tune import MOST_EXTENSIONS, Row, Tuned, Tuning, plain

FOR_RATES = 0.5  # share of the budget that tuning may take; with all its extensions at most EXTENDED
EXTENDED = 0.7
MORE = 1.5  # times the seconds that the first run took to the target are foreseen for others
PER_RUN_S, PER_STAGE_S, PER_LIVE_S = 0.05, 1.0, 5.0  # wall seconds of a run and of a stage beside the runs' own


@dataclass(frozen=True, slots=True)
class Entrant:
    """A strategy with values of its own keys."""

    label: str  # "k_async k=2"
    overrides: tuple[str, ...]  # without the seed, limits of length, target and rate
    center: float  # of the grid of rates, > 0
    of_length: tuple[tuple[str, Fraction], ...] = ()  # keys that are shares of the race's length
    comparable: bool = True  # one model, a mini-batch a push, and times that do not follow from losses
    steps: int = 1  # mini-batches of a push
    foreseeable: bool = True  # times do not follow from losses
    settings: tuple[tuple[str, ...], ...] = ()  # of several keys that are tuned: the overrides of each


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Another cluster."""

    name: str  # "slowest worker x 2"
    overrides: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Race:
    """The declaration. Ranges are those of `RaceConfig`."""

    entrants: tuple[Entrant, ...]  # labels differ
    goal: Goal
    seeds: tuple[int, ...]  # of the last look
    looks: tuple[int, ...]  # numbers of seeds, growing
    length_s: float | None = None  # None: that of `pacemaker`
    pacemaker: tuple[str, ...] = ()  # overrides of the run whose seconds are the length
    targets: tuple[float, ...] = ()
    factor: float = 2.0
    points: int = 5
    finalists: int = 2
    screen: Fraction = Fraction(1, 3)
    tuning_seeds: tuple[int, ...] = (1000, 1001)
    validation: float = 0.2
    within: float = 2.0
    level: float = 0.05
    margin: float = 0.05
    budget_s: float | None = None
    jobs: int = 1
    around: tuple[Elsewhere, ...] = ()
    confirm: int = 0
    live: tuple[str, ...] = ()
    left: tuple[Left, ...] = ()  # cannot run on this cluster

    def __post_init__(self) -> None:
        assert self.entrants, "no entrants"
        assert len({entrant.label for entrant in self.entrants}) == len(self.entrants), "labels must differ"
        assert self.length_s or self.pacemaker, "no length"
        assert all(low < high for low, high in pairwise((0, *self.looks))), "looks must grow"
        assert len(set(self.seeds)) == len(self.seeds) == self.looks[-1], "a seed for each run of the last look"

    def next(self, records: Records) -> Stage | Answer[Raced]:
        """The first stage of which a trial is absent, or the answer."""
        return first_absent(_Course(self, records).stages(), records)


@dataclass(frozen=True, slots=True)
class _Cost:
    gradient_s: float  # wall seconds of a gradient, evaluations included
    share: float  # of the race's length that runs are foreseen to take to the target


@dataclass(slots=True)
class _Course:
    """The course of a race up to some stage, from the records."""

    race: Race
    records: Records
    completed: list[Completed] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    made: dict[tuple[str, ...], Counts] = field(default_factory=dict)  # by overrides
    made_live: list[Counts] = field(default_factory=list)
    length_s: float = 0.0

    def stages(self) -> Generator[Stage, None, Answer[Raced]]:
        self.left += self.race.left
        self.length_s = self.race.length_s or (yield from self._length())
        paces = yield from self._times()
        entrants = self._fast(paces)
        if not entrants:
            return self._answer("nobody", f"No strategy makes an update within the race's {self.length_s:.4g} s.")
        cost = None if self.race.budget_s is None else (yield from self._cost(entrants[0]))
        if cost is not None:
            entrants = self._affordable(entrants, paces, cost)
        tuned = yield from self._rates(entrants, self._extensions(entrants, paces, cost))
        contenders = self._promising(entrants, tuned)
        if not contenders:
            return self._answer("nobody", self._nobody(tuned))
        order = yield from self._looks(contenders)
        around = yield from self._around(order)
        live = yield from self._live(order)
        return self._answer(*order.verdict(), order, around, live)

    # Stages by times alone.

    def _length(self) -> Generator[Stage, None, float]:
        trial = Trial("length", self._of_times(self.race.pacemaker, self.race.seeds[0]))
        (outcome,) = yield from self._make("length", [trial])
        length_s = _counts(outcome, trial).time_s
        self._complete("length", 1, [f"the race is of {length_s:.6g} s, as fully synchronous SGD takes for its epochs"])
        return length_s

    def _times(self) -> Generator[Stage, None, dict[str, Pace]]:
        seeds = self.race.seeds[: self.race.looks[0]]
        trials = {
            entrant: [Trial(entrant.label, self._of_times(self._timed(entrant), seed), "times") for seed in seeds]
            for entrant in self.race.entrants
        }
        yield from self._make("times", [trial for own in trials.values() for trial in own])
        paces = {}
        for entrant, own in trials.items():
            found = [_counts(self.records(trial), trial) for trial in own]
            if all(counts.updates for counts in found):
                paces[entrant.label] = Pace.of(found)
            else:
                self._leave(entrant.label, "times", f"it makes no update in {self.length_s:.4g} s")
        return paces

    def _fast(self, paces: Mapping[str, Pace]) -> list[Entrant]:
        """Those that times alone do not drop."""
        comparable = [entrant.label for entrant in self.race.entrants if entrant.comparable]
        out = dict(dropped(paces, comparable))
        self.left += [Left(label, "times", reason) for label, reason in out.items()]
        num = len(self.race.entrants) * self.race.looks[0]
        self._complete("times", num, [f"{label} is dropped: {reason}" for label, reason in out.items()])
        return [entrant for entrant in self.race.entrants if entrant.label in paces and entrant.label not in out]

    # The budget.

    def _cost(self, entrant: Entrant) -> Generator[Stage, None, "_Cost"]:
        """What runs that learn will take, by one at the centre of the rates."""
        tuning = self._tuning([entrant], 0)
        trials = tuning.trials(tuning.rows[0], 1 if entrant.settings else 0, self.race.tuning_seeds[:1], Fraction(1))
        (outcome,) = yield from self._make("cost", trials)
        counts, reached = _counts(outcome, trials[0]), time_to(outcome, self.race.goal)
        gradient_s = (counts.wall_s + PER_RUN_S) / max(1, counts.computed * entrant.steps)
        share = 1.0 if reached is None else min(1.0, MORE * reached / self.length_s)
        words = f"a gradient takes {1000.0 * gradient_s:.3g} ms of a core; runs are foreseen to end"
        self._complete("cost", 1, [f"{words} after {100.0 * share:.0f} % of the race"])
        return _Cost(gradient_s, share)

    def _tuning_s(self, entrant: Entrant, paces: Mapping[str, Pace], cost: "_Cost", extensions: int) -> float:
        """Wall seconds of all its runs in tuning, at most."""
        race = self.race
        screened = (race.points + 4 * extensions) * min(cost.share, float(race.screen))
        full = (race.finalists + extensions) * len(race.tuning_seeds) * cost.share
        return paces[entrant.label].gradients * entrant.steps * cost.gradient_s * (screened + full)

    def _affordable(self, entrants: list[Entrant], paces: Mapping[str, Pace], cost: "_Cost") -> list[Entrant]:
        """As many as can be tuned in their share of the budget; each strategy's first entrant before further ones."""
        assert self.race.budget_s is not None
        strategies = [entrant.label.split()[0] for entrant in entrants]
        variants = {each.label: strategies[:place].count(strategies[place]) for place, each in enumerate(entrants)}
        kept, sum_s = list[Entrant](), 0.0
        for entrant in sorted(entrants, key=lambda each: variants[each.label]):
            own_s = self._tuning_s(entrant, paces, cost, 0)
            if len(kept) < 2 or (sum_s + own_s) / self.race.jobs <= FOR_RATES * self.race.budget_s:
                kept.append(entrant)
                sum_s += own_s
        reason = f"the budget allows {len(kept)} to be tuned: first entrants of strategies come first, if they fit"
        for entrant in entrants:
            if entrant not in kept:
                self._leave(entrant.label, "cost", reason)
        return [entrant for entrant in entrants if entrant in kept]

    def _extensions(self, entrants: Sequence[Entrant], paces: Mapping[str, Pace], cost: "_Cost | None") -> int:
        """How often the grids may be extended."""
        if cost is None or self.race.budget_s is None:
            return MOST_EXTENSIONS
        allowed_s = EXTENDED * self.race.budget_s * self.race.jobs
        for num in range(MOST_EXTENSIONS, 0, -1):
            if sum(self._tuning_s(entrant, paces, cost, num) for entrant in entrants) <= allowed_s:
                return num
        return 0

    @property
    def spent_s(self) -> float:
        """Wall seconds of the runs that were made, as so many at a time take them."""
        at_a_time = sum(counts.wall_s + PER_RUN_S for counts in self.made.values())
        alone = sum(counts.wall_s for counts in self.made_live)
        return at_a_time / self.race.jobs + alone + PER_STAGE_S * len(self.completed)

    def _told_budget(self) -> list[str]:
        if self.race.budget_s is None:
            return []
        return [f"{self.spent_s / 60.0:.1f} of {self.race.budget_s / 60.0:.1f} minutes of the budget are spent"]

    def _fits(self, cpu_s: float, live_s: float = 0.0) -> bool:
        """Whether runs of so many wall seconds, some at a time, and real processes after them are in the budget."""
        budget_s = self.race.budget_s
        return budget_s is None or self.spent_s + cpu_s / self.race.jobs + PER_STAGE_S + live_s <= budget_s

    # Stages that learn.

    def _tuning(self, entrants: Sequence[Entrant], extensions: int) -> Tuning:
        race = self.race
        rows = tuple(
            Row(each.label, self._timed(each), each.center, None, each.settings, max_time_s=self.length_s)
            for each in entrants
        )
        grid = race.factor, race.points, race.tuning_seeds, race.validation, race.screen, race.finalists
        return Tuning(rows, "optimizer.lr", *grid, race.goal, extensions)

    def _rates(self, entrants: Sequence[Entrant], extensions: int) -> Generator[Stage, None, Tuned]:
        stages, before = self._tuning(entrants, extensions).stages(self.records), tuple(self.completed)
        while True:
            try:
                stage = next(stages)
            except StopIteration as end:
                answer: Answer[Tuned] = end.value
                break
            yield replace(stage, name=f"rates: {stage.name}", completed=(*before, *map(_of_rates, stage.completed)))
            self._count(stage.trials)
        self.completed += map(_of_rates, answer.completed)
        return answer.result

    def _promising(self, entrants: Sequence[Entrant], tuned: Tuned) -> list[Contender]:
        """Those that are judged, the soonest in tuning first."""
        choices = {choice.label: choice for choice in tuned.choices}
        scores = {label: choice.score for label, choice in choices.items() if choice.score is not None}
        least, found = min(scores.values(), default=math.inf), dict[str, Contender]()
        for entrant in entrants:
            label, choice = entrant.label, choices[entrant.label]
            score = scores.get(label, math.inf)
            told = f"{score:.4g} s on the tuning seeds"
            if choice.value is None:
                self._leave(label, "rates", "at every rate it diverged or failed")
            elif score >= self.length_s:
                self._leave(label, "rates", f"on the tuning seeds it missed the target in {self.length_s:.4g} s")
            elif score > self.race.within * least:
                self._leave(label, "rates", f"{told}, more than {self.race.within:g} times the least, {least:.4g} s")
            else:
                words = f"target.value={plain(self.race.goal.value)}", *choice.words
                rate = " ".join(choice.words) if entrant.settings else plain(choice.value)
                found[label] = Contender(label, (*self._timed(entrant), *words), rate, choice.remark)
        ordered = sorted(found, key=scores.__getitem__)
        fit = self._num_judged([self._cost_of(label) for label in ordered])
        for label in ordered[fit:]:
            told = f"{scores[label]:.4g} s on the tuning seeds"
            self._leave(label, "rates", f"{told}; the budget allows {fit} to be judged")
        return [found[label] for label in ordered[:fit]]

    def _cost_of(self, label: str) -> float:
        """The most wall seconds that one of its runs took."""
        timed = self._timed(next(entrant for entrant in self.race.entrants if entrant.label == label))
        return PER_RUN_S + max(counts.wall_s for words, counts in self.made.items() if words[: len(timed)] == timed)

    def _num_judged(self, costs_s: Sequence[float]) -> int:
        """How many the first look has time for, two at least."""
        looks = (n for n in range(len(costs_s), 2, -1) if self._fits(sum(costs_s[:n]) * self.race.looks[0]))
        return next(looks, min(2, len(costs_s)))

    def _looks(self, contenders: Sequence[Contender]) -> Generator[Stage, None, Order]:
        race = self.race
        order = Order(contenders, race.goal, race.targets, self.length_s, race.looks, race.level, race.margin)
        for number, (before, size) in enumerate(pairwise((0, *race.looks)), 1):
            num = len(order.remaining) * (size - before)
            if number > 1 and not self._fits((order.wall_s() * (size - before) + PER_RUN_S * num), self._live_s(order)):
                order.ended_by = f"the budget does not allow {size} seeds"
                break
            trials = {
                contender: [
                    Trial(contender.label, (*contender.overrides, f"seed={seed}"), "judged")
                    for seed in race.seeds[before:size]
                ]
                for contender in order.remaining
            }
            yield from self._make(f"look {number}", [trial for own in trials.values() for trial in own])
            words = order.look({each: [self.records(trial) for trial in own] for each, own in trials.items()})
            self._complete(f"look {number}", num, [*words, *self._told_budget()])
            if order.is_decided:
                break
        else:
            order.ended_by = f"{size} seeds are the last look"
        return order

    def _live_s(self, order: Order) -> float:
        """Seconds that real processes will take, one run after the other."""
        return sum(PER_LIVE_S + seconds for seconds in sorted(map(order.mean_s, order.contenders))[: self.race.confirm])

    def _around(self, order: Order) -> Generator[Stage, None, tuple[There, ...]]:
        """Seconds to the target elsewhere: the updates that it took here, by the seconds of an update there."""
        entrants = {entrant.label: entrant for entrant in self.race.entrants if entrant.foreseeable}
        updates = {each.label: order.mean_updates(each) for each in order.ordered() if each.label in entrants}
        seed, places = self.race.seeds[0], self.race.around
        trials = {
            (place, label): Trial(
                label, self._of_times((*self._timed(entrants[label]), *place.overrides), seed), place.name
            )
            for place in places
            for label, num in updates.items()
            if num is not None
        }
        if not trials:
            return ()
        outcomes = yield from self._make("around", list(trials.values()))
        seconds: dict[str, list[tuple[str, float]]] = {place.name: [] for place in places}
        for (place, label), outcome in zip(trials, outcomes, strict=True):
            counts, num = outcome.counts, updates[label]
            if counts is not None and counts.updates and num is not None:
                seconds[place.name].append((label, num * counts.time_s / counts.updates))
        found = tuple(There(name, tuple(sorted(own, key=lambda one: one[1]))) for name, own in seconds.items() if own)
        self._complete("around", len(trials), [f"{there.name}: {there.seconds[0][0]}" for there in found])
        return found

    def _live(self, order: Order) -> Generator[Stage, None, tuple[Confirmed, ...]]:
        contenders, seed = order.ordered()[: self.race.confirm], self.race.seeds[0]
        if not contenders:
            return ()
        trials = [Trial(each.label, (*each.overrides, *self.race.live, f"seed={seed}"), "live") for each in contenders]
        yield Stage("live", tuple(trials), tuple(self.completed))
        outcomes = [self.records(trial) for trial in trials]
        self.made_live = [outcome.counts for outcome in outcomes if outcome.counts is not None]
        found = tuple(
            Confirmed(
                each.label,
                trial.overrides,
                each.times[0],
                time_to(outcome, self.race.goal),
                _update_time_ratio(outcome.counts, each.outcomes[0].counts),
            )
            for each, trial, outcome in zip(contenders, trials, outcomes, strict=True)
        )
        self._complete("live", len(trials), list(map(_compared, found)))
        return found

    # What they share.

    def _timed(self, entrant: Entrant) -> tuple[str, ...]:
        """Its overrides with the length of the race."""
        own = (f"{key}={plain(self.length_s * float(share))}" for key, share in entrant.of_length)
        return (*entrant.overrides, *own, f"max_time_s={plain(self.length_s)}", "runner.events=false")

    @staticmethod
    def _of_times(words: Sequence[str], seed: int) -> tuple[str, ...]:
        return (*words, "gradients=false", f"seed={seed}")

    def _make(self, name: str, trials: Sequence[Trial]) -> Generator[Stage, None, list[Outcome]]:
        yield Stage(name, tuple(trials), tuple(self.completed))
        self._count(trials)
        return [self.records(trial) for trial in trials]

    def _count(self, trials: Sequence[Trial]) -> None:
        for trial in trials:
            if (counts := self.records(trial).counts) is not None:
                self.made[trial.overrides] = counts

    def _complete(self, name: str, num: int, decisions: Sequence[str]) -> None:
        self.completed.append(Completed(name, num, (), tuple(decisions)))

    def _nobody(self, tuned: Tuned) -> str:
        scores = [(choice.score, choice.label) for choice in tuned.choices if choice.score is not None]
        nearest = f"; {min(scores)[1]} came nearest" if scores else ""
        return f"Nobody reached {self.race.goal.value:g} on the tuning seeds in {self.length_s:.4g} s{nearest}."

    def _leave(self, label: str, stage: str, reason: str) -> None:
        self.left.append(Left(label, stage, reason))

    def _answer(
        self,
        verdict: str,
        sentence: str,
        order: Order | None = None,
        around: tuple[There, ...] = (),
        live: tuple[Confirmed, ...] = (),
    ) -> Answer[Raced]:
        race = self.race
        raced = Raced(
            verdict,
            sentence,
            race.goal.metric,
            race.goal.value,
            race.targets,
            self.length_s,
            max((len(each.outcomes) for each in order.contenders), default=0) if order else 0,
            order.level if order else race.level,
            order.standings() if order else (),
            tuple(self.left),
            around,
            live,
            self.spent_s,
        )
        return Answer(raced, tuple(self.completed))


def _update_time_ratio(measured: Counts | None, foreseen: Counts | None) -> float | None:
    """Seconds an update, measured / foreseen; None without updates."""
    if measured is None or foreseen is None or not measured.updates or not foreseen.updates:
        return None
    return (measured.time_s / measured.updates) / (foreseen.time_s / foreseen.updates)


def _compared(run: Confirmed) -> str:
    words = f"{run.label}: foreseen {_seconds(run.foreseen)}, measured {_seconds(run.measured)}"
    if run.update_time_ratio is None:
        return words
    return f"{words}, an update took {100.0 * (run.update_time_ratio - 1.0):+.1f} %"


def _of_rates(stage: Completed) -> Completed:
    return replace(stage, name=f"rates: {stage.name}")


def _counts(outcome: Outcome, trial: Trial) -> Counts:
    """Raises ValueError if the run failed."""
    if outcome.counts is None:
        raise ValueError(f"{trial.name} failed; the race cannot go on without it")
    return outcome.counts


def _seconds(time_s: float | None) -> str:
    return "missed" if time_s is None else f"{time_s:.4g} s"
