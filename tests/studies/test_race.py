"""Races of known truth: who is first, who is left out and why, the budget, going on; and how often they err."""

import math
from dataclasses import replace
from fractions import Fraction
from statistics import fmean

import numpy as np
import pytest
import scipy
from studies.racing import GOAL, LENGTH_S, RaceLab, Truth, race, words_of

from syncline.studies.goals import Goal, crossing, time_score, time_to
from syncline.studies.order import Contender, Order
from syncline.studies.race import PER_RUN_S, PER_STAGE_S, Elsewhere
from syncline.studies.raced import Raced
from syncline.studies.screening import Pace, dropped
from syncline.studies.study import Counts, Evaluation, Outcome, Stage

ALPHA = 0.05
CLEAR = {"quick": Truth(10.0), "middle": Truth(14.0), "slow": Truth(19.0)}


def raced(truths: dict[str, Truth], **others: object) -> tuple[Raced, RaceLab]:
    lab = RaceLab(truths)
    return lab.answer(race(truths, **others)).result, lab


# Who is first.


def test_the_soonest_is_first_and_the_order_is_that_of_the_truth() -> None:
    found, _ = raced(CLEAR, within=3.0)
    assert (found.verdict, [each.label for each in found.standings]) == ("first", list(CLEAR))
    assert found.sentence.startswith("quick reaches accuracy 0.9 first: after ")
    first, second, _ = found.standings
    assert first.lower < 10.0 < first.upper
    assert second.ratio == pytest.approx(1.4, rel=0.2)  # three standard errors
    assert (first.first, second.first) == (1.0, None)
    assert first.num_reached == first.num == found.num_seeds == 5


def test_equally_fast_ones_are_said_to_be_so() -> None:
    found, _ = raced({"one": Truth(10.0, noise=0.001), "other": Truth(10.0, noise=0.001), "slow": Truth(15.0)})
    assert found.verdict == "equal"
    assert "are equally fast, within 5 %" in found.sentence
    assert {each.label for each in found.standings if each.first is not None} == {"one", "other"}


def test_what_twenty_seeds_cannot_tell_is_undecided_with_the_difference_that_they_exclude() -> None:
    found, _ = raced({"one": Truth(10.0, noise=0.3), "other": Truth(10.0, noise=0.3)})
    assert (found.verdict, found.num_seeds) == ("undecided", 20)
    one, other = found.standings
    excluded = 100.0 * (max(other.ratio_upper, 1.0 / other.ratio_lower) - 1.0)
    assert f"(difference below {excluded:.2g} %): 20 seeds are the last look." in found.sentence
    assert one.first is not None
    assert other.first is not None
    assert one.first + other.first == pytest.approx(1.0)


def test_nobody_is_first_if_nobody_reaches_the_target() -> None:
    found, lab = raced({"one": Truth(1000.0), "other": Truth(500.0)})
    assert (found.verdict, found.standings) == ("nobody", ())
    assert found.sentence == "Nobody reached 0.9 on the tuning seeds in 100 s; other came nearest."
    assert lab.stages[-1].name.startswith("rates")


def test_nobody_is_first_where_nobody_makes_an_update() -> None:
    for budget in (None, 3600.0):
        found, lab = raced({"one": Truth(10.0, update_s=1000.0)}, budget_s=budget)
        assert (found.verdict, found.standings) == ("nobody", ())
        assert found.sentence == "No strategy makes an update within the race's 100 s."
        assert [stage.name for stage in lab.stages] == ["times"]


def test_a_miss_counts_as_the_length_of_the_race() -> None:
    """At the best rate it takes 70 s; the noise lets one seed in seven or so miss."""
    found, lab = raced({"sure": Truth(60.0, noise=0.01), "risky": Truth(70.0, noise=0.35)})
    risky = next(each for each in found.standings if each.label == "risky")
    assert 0 < risky.num_reached < risky.num
    assert risky.times.count(None) == risky.num - risky.num_reached
    seconds = [LENGTH_S if time is None else time for time in risky.times]
    assert risky.seconds == pytest.approx(sum(seconds) / len(seconds))
    judged = [trial for trial in lab.made if trial.label == "risky" and trial.setting == "judged"]
    assert max(lab.made[trial].curve[-1].time_s for trial in judged) == LENGTH_S


def test_times_to_further_targets_are_read_from_the_same_runs() -> None:
    found, lab = raced(CLEAR, targets=(0.45,))
    for standing in found.standings:
        assert standing.further[0] == pytest.approx(standing.seconds / 2.0)  # the curves are lines
    assert {words_of(trial).get("target.value") for trial in lab.made} == {None, "0.9"}


def test_a_target_that_no_seed_reached_takes_exactly_the_length_of_the_race() -> None:
    """Whatever the rounding of a mean: who takes less has reached it."""
    length_s = 110.74
    assert fmean([length_s] * 5) < length_s
    contender = Contender("one", (), 0.1, "")
    order = Order([contender], GOAL, (0.45,), length_s, LOOKS, ALPHA, 0.05)
    order.look({contender: [Outcome("finished", "accuracy", False, curve(0.0, 0.1))] * 5})
    (standing,) = order.standings()
    assert (standing.seconds, standing.further) == (length_s, (length_s,))
    order.look({contender: [Outcome("finished", "accuracy", False, curve(0.0, 0.45))]})
    assert order.standings()[0].further[0] == pytest.approx((5.0 * length_s + 1.0) / 6.0)


# Who is left out.


def test_who_misses_the_target_or_is_far_behind_in_tuning_is_not_judged() -> None:
    truths = {"quick": Truth(10.0), "far": Truth(30.0), "never": Truth(300.0), "wild": Truth(10.0, limit=0.0)}
    found, lab = raced(truths)
    assert {left.label: left.stage for left in found.left} == dict.fromkeys(("far", "never", "wild"), "rates")
    reasons = {left.label: left.reason for left in found.left}
    assert "more than 2 times the least" in reasons["far"]
    assert reasons["never"] == "on the tuning seeds it missed the target in 100 s"
    assert reasons["wild"] == "at every rate it diverged or failed"
    assert {trial.label for trial in lab.made if trial.setting == "judged"} == {"quick"}
    assert found.verdict == "first"


def test_who_is_behind_gets_no_further_seeds() -> None:
    found, lab = raced(
        {"one": Truth(10.0, noise=0.2), "other": Truth(10.0, noise=0.2), "slow": Truth(17.0, noise=0.05)}, within=3.0
    )
    assert found.verdict == "undecided"
    seeds = {
        label: sum(trial.label == label and trial.setting == "judged" for trial in lab.made)
        for label in ("one", "other", "slow")
    }
    assert seeds == {"one": 20, "other": 20, "slow": 5}


PACE = Pace(0.1, 2.0, 0.0, 1.0, 1.0, 1000.0, ((100.0, 1000, 2000, 0, 1.0),))


def test_the_same_runs_are_made_once_and_the_first_declared_keeps_its_name() -> None:
    paces = {"asp": PACE, "k_async k=1": PACE, "other": replace(PACE, traces=())}
    assert list(dropped(paces, list(paces))) == [
        ("k_async k=1", "on this cluster it is asp: the same updates at the same times")
    ]


@pytest.mark.parametrize(
    ("worse", "is_dropped"),
    [
        ({"seconds_per_update": 0.12}, True),
        ({"seconds_per_update": 0.12, "mean_staleness": 1.5}, True),
        ({"seconds_per_update": 0.104}, False),  # not clearly
        ({"seconds_per_update": 0.12, "mean_staleness": 0.9}, False),  # fresher
        ({"seconds_per_update": 0.12, "gradients_per_update": 4.0}, False),  # larger steps
        ({"seconds_per_update": 0.12, "gradients_per_update": 1.0}, False),  # smaller ones
        ({"seconds_per_update": 0.12, "least_share": 1.1}, False),  # more even
    ],
)
def test_one_is_dropped_if_another_makes_the_same_steps_sooner_and_no_staler(
    worse: dict[str, float], is_dropped: bool
) -> None:
    paces = {"own": replace(PACE, **worse, traces=()), "than": PACE}
    assert [label for label, _ in dropped(paces, ["own", "than"])] == (["own"] if is_dropped else [])
    assert list(dropped(paces, ["own"])) == []
    assert list(dropped(paces, ["than"])) == []


def test_of_all_that_times_alone_drop_one_better_one_is_always_left() -> None:
    """Chains and cycles of equal ones included."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        paces = {}
        for number in range(8):
            seconds, staleness, size = (float(rng.choice(own)) for own in ([0.1, 0.12, 0.15], [0.0, 1.0], [1.0, 2.0]))
            traces = ((seconds, 0, int(size), int(rng.integers(2)), staleness),)
            paces[str(number)] = Pace(seconds, size, 0.0, staleness, 1.0, 1000.0, traces)
        out = dict(dropped(paces, list(paces)))
        left = [paces[label] for label in paces if label not in out]
        for label in out:
            own = paces[label]
            assert any(
                own.traces == other.traces
                or (
                    other.seconds_per_update <= own.seconds_per_update
                    and other.mean_staleness <= own.mean_staleness
                    and other.gradients_per_update == own.gradients_per_update
                )
                for other in left
            )


# The budget, and going on.


def spent_s(lab: RaceLab, jobs: int) -> float:
    """Wall seconds as the budget counts them, of runs that take their truth's."""
    return sum(outcome.counts.wall_s + PER_RUN_S for outcome in lab.made.values() if outcome.counts) / jobs


@pytest.mark.parametrize("budget_s", [120.0, 200.0, 400.0, 1000.0])
@pytest.mark.parametrize("jobs", [1, 4])
def test_the_budget_is_kept(budget_s: float, jobs: int) -> None:
    """All runs cost as much, so that those which the race foresees by their gradients are a worst case of its kind."""
    truths = {f"entrant{number}": Truth(20.0 + number, noise=0.5, wall_s=1.0) for number in range(6)}
    found, lab = raced(truths, budget_s=budget_s * 4 / jobs, jobs=jobs)
    num_stages = len({stage.name for stage in lab.stages})
    assert found.spent_s == pytest.approx(spent_s(lab, jobs) + PER_STAGE_S * num_stages)
    assert found.spent_s <= 1.1 * budget_s * 4 / jobs


def test_a_dear_entrant_that_the_budget_leaves_out_takes_no_cheap_one_with_it() -> None:
    truths = {"one": Truth(20.0), "other": Truth(20.0), "dear": Truth(20.0, per_update=50), "cheap": Truth(20.0)}
    found, _ = raced(truths, budget_s=120.0)
    out = [left for left in found.left if left.stage == "cost"]
    assert [left.label for left in out] == ["dear"]
    assert out[0].reason.startswith("the budget allows 3 to be tuned")


def test_broken_off_anywhere_it_goes_on_to_the_same_answer() -> None:
    truths = {"one": Truth(10.0, noise=0.2), "other": Truth(10.5, noise=0.2), "slow": Truth(15.0)}
    about = {"budget_s": 1000.0, "around": (Elsewhere("there", ("x=1",)),), "confirm": 2, "live": ("runner=local",)}
    study = race(truths, **about)
    whole = RaceLab(truths)
    expected = whole.answer(study)
    names = [stage.name for stage in whole.stages]
    assert names[:3] == ["times", "cost", "rates: screen 1"]
    assert names[-3:] == [names[-3], "around", "live"]
    for kept in range(0, len(whole.made), 31):
        lab = RaceLab(truths, made=dict(list(whole.made.items())[:kept]))
        assert lab.answer(study) == expected


def test_real_processes_that_do_not_keep_the_pace_are_told_by_how_much() -> None:
    class Lab(RaceLab):
        def make(self, trial):
            super().make(trial)
            made = self.made[trial]
            if "runner" in words_of(trial):  # as many updates, each in five quarters of its time
                self.made[trial] = replace(made, counts=replace(made.counts, time_s=1.25 * made.counts.time_s))

    answer = Lab(CLEAR).answer(race(CLEAR, confirm=1, live=("runner=local",)))
    (live,) = answer.result.live
    assert live.update_time_ratio == pytest.approx(1.25)
    assert "an update took +25.0 %" in answer.completed[-1].decisions[0]


def test_all_entrants_have_the_same_number_of_trials_in_tuning() -> None:
    _, lab = raced({"one": Truth(10.0, best_rate=0.4), "other": Truth(12.0), "slow": Truth(90.0)})
    tuned = [trial for trial in lab.made if trial.setting.startswith("optimizer.lr")]
    numbers = {label: sum(trial.label == label for trial in tuned) for label in ("one", "other", "slow")}
    assert len(set(numbers.values())) == 1
    assert all("dataset.validation" in words_of(trial) for trial in tuned)
    seeds = {int(words_of(trial)["seed"]) for trial in tuned}
    assert seeds == {1000, 1001}
    judged = [words_of(trial) for trial in lab.made if trial.setting == "judged"]
    assert all("dataset.validation" not in words and int(words["seed"]) < 20 for words in judged)


def test_elsewhere_takes_the_updates_of_here_and_the_seconds_of_an_update_of_there() -> None:
    truths = {"one": Truth(10.0, noise=0.01), "other": Truth(12.0, noise=0.01, update_s=0.2, per_update=2)}

    class Lab(RaceLab):
        def make(self, trial):
            super().make(trial)
            if "x" in words_of(trial) and trial.label == "one":  # there its updates take three times as long
                self.made[trial] = Outcome(
                    "finished", counts=self.counts(trial, replace(truths["one"], update_s=0.3), LENGTH_S)
                )

    lab = Lab(truths)
    found = lab.answer(race(truths, around=(Elsewhere("there", ("x=1",)),))).result
    (there,) = found.around
    assert [label for label, _ in there.seconds] == ["other", "one"]
    assert dict(there.seconds)["one"] == pytest.approx(30.0, rel=0.05)
    assert dict(there.seconds)["other"] == pytest.approx(12.0, rel=0.05)


def test_the_length_is_that_of_the_pacemaker() -> None:
    truths = {"one": Truth(10.0), "other": Truth(12.0)}
    study = race(truths, length_s=None, pacemaker=("strategy=bsp", "epochs=3", "max_time_s=40"))
    lab = RaceLab(truths)
    found = lab.answer(study).result
    assert found.length_s == 40.0
    assert lab.stages[0].name == "length"
    assert {words_of(trial)["max_time_s"] for trial in lab.made if trial.setting == "judged"} == {"40"}


def test_keys_that_are_shares_of_the_length_are_set() -> None:
    study = race(["adasync"])
    entrant = replace(study.entrants[0], of_length=(("strategy.interval", Fraction(1, 20)),))
    step = replace(study, entrants=(entrant,)).next(RaceLab({}).records)
    assert isinstance(step, Stage)
    assert all(words_of(trial)["strategy.interval"] == "5" for trial in step.trials)


# Times to a target.


def curve(*values: float) -> tuple[Evaluation, ...]:
    """Evaluations at 0, 1, 2, ... s."""
    return tuple(Evaluation(at, float(at), value, 10 * at) for at, value in enumerate(values))


@pytest.mark.parametrize(
    ("values", "goal", "expected"),
    [
        ((0.0, 0.5, 1.0), Goal(0.75), 1.5),
        ((0.0, 0.5, 1.0), Goal(0.5), 1.0),
        ((0.0, 0.8, 0.2, 0.9), Goal(0.8), 1.0),  # the first time
        ((3.0, 2.0, 1.0), Goal(1.5, lower_is_better=True), 1.5),
        ((0.8, 0.9), Goal(0.5), 0.0),  # before anything was learned
        ((0.0, 0.5), Goal(0.75), None),
        ((0.0, math.nan, 1.0), Goal(0.75), 2.0),
        ((), Goal(0.75), None),
    ],
)
def test_a_curve_crosses_the_target_between_two_evaluations(
    values: tuple[float, ...], goal: Goal, expected: float | None
) -> None:
    found = crossing(curve(*values), goal)
    assert (None if found is None else found.time_s) == expected
    if found is not None and expected:
        assert found.updates == round(10 * expected)


def test_runs_that_all_miss_are_ordered_by_what_they_lack() -> None:
    def score(*values: float) -> float:
        found = time_score("row", 0.1, [Outcome("finished", "accuracy", False, curve(*values))], Goal(0.8), 4.0)
        assert found.mean is not None
        return found.worth

    assert score(0.0, 0.8) > score(0.0, 0.4, 0.8) > score(0.0, 0.6, 0.7) > score(0.0, 0.6) > score(0.0, 0.1)
    assert score(0.0, 0.4) == -4.0 * 1.5
    lost = time_score("row", 0.1, [Outcome("failed"), Outcome("finished", "", False, curve(0.9))], Goal(0.8), 4.0)
    assert (lost.mean, lost.num) == (None, 2)
    assert time_to(Outcome("failed"), GOAL) is None, "a failed run misses"


# How often it errs: an order of entrants whose truth is known, hundreds of times.

LOOKS = (5, 10, 15, 20)


def named(seconds: np.ndarray, margin: float = 0.001) -> str | None:
    """Who is named first, of times [entrants, seeds] of runs; None: undecided, or equal."""

    def outcome(time_s: float) -> Outcome:
        points = (
            Evaluation(0.0, 0.0, 0.0),
            Evaluation(1.0, min(time_s, LENGTH_S), GOAL.value * min(1.0, LENGTH_S / time_s)),
        )
        return Outcome("finished", "accuracy", False, points, counts=Counts(time_s, 1, 1, 0, 1, 0.0, 1.0, 0.0))

    contenders = [Contender(str(number), (), 0.1, "") for number in range(len(seconds))]
    order, before = Order(contenders, GOAL, (), LENGTH_S, LOOKS, ALPHA, margin), 0
    for size in LOOKS:
        order.look(
            {each: [outcome(time) for time in seconds[int(each.label), before:size]] for each in order.remaining}
        )
        before = size
        if order.is_decided:
            break
    return order.remaining[0].label if len(order.remaining) == 1 else None


def test_a_miss_is_never_as_fast_as_one_that_just_arrived() -> None:
    """Though it counts with the length of the race, which lies within the margin."""
    soon = np.random.default_rng(0).uniform(0.975, 0.995, LOOKS[-1]) * LENGTH_S
    assert named(np.array([soon, np.full(LOOKS[-1], 2.0 * LENGTH_S)]), margin=0.05) == "0"


def times(rng: np.random.Generator, medians: list[float], kind: str) -> np.ndarray:
    """[entrants, seeds], what the seeds share included."""
    shape = (len(medians), LOOKS[-1])
    noise = 0.3 * rng.standard_normal(shape) if kind != "skewed" else 0.3 * (rng.standard_exponential(shape) - 1.0)
    shared = 0.2 * rng.standard_normal(LOOKS[-1]) if kind == "shared" else 0.0
    return np.array(medians)[:, None] * np.exp(noise + shared)


@pytest.mark.parametrize(
    ("medians", "kind", "num_studies"),
    [
        ([10.0] * 2, "plain", 200),
        pytest.param([10.0] * 5, "shared", 250, marks=pytest.mark.statistical),
        pytest.param([10.0] * 3, "skewed", 250, marks=pytest.mark.statistical),
        pytest.param([10.0, 10.3, 10.3, 10.5], "plain", 250, marks=pytest.mark.statistical),
        pytest.param([80.0, 85.0, 90.0], "plain", 250, marks=pytest.mark.statistical),  # many runs miss the target
    ],
)
def test_a_wrong_winner_is_named_no_more_often_than_the_level(
    medians: list[float], kind: str, num_studies: int
) -> None:
    """Of identical entrants any winner is a wrong one."""
    rng, right = np.random.default_rng(1), "0" if len(set(medians)) > 1 else None
    found = [named(times(rng, medians, kind)) for _ in range(num_studies)]
    errors = sum(name not in (None, right) for name in found)
    assert scipy.stats.binomtest(errors, num_studies, ALPHA, "greater").pvalue > 0.01, errors / num_studies


@pytest.mark.statistical
def test_the_whole_race_names_no_wrong_winner_more_often_than_its_level() -> None:
    """Tuning and the choice of whom to judge included: races of two that are equal."""
    told, num = 0, 60
    for number in range(num):
        labels = [f"one{number}", f"other{number}"]  # their names are the seed of their noise
        found, _ = raced(dict.fromkeys(labels, Truth(10.0, noise=0.2)))
        told += found.verdict == "first"
    assert scipy.stats.binomtest(told, num, ALPHA, "greater").pvalue > 0.01, told
