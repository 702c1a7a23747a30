"""Verdicts: a region, an interval over seeds, and the message where there is nothing to judge by."""

import math
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.claims import (
    CONTRADICTED,
    FAILS,
    HOLDS,
    NOT_JUDGED,
    NOT_RUN,
    UNDECIDED,
    Claim,
    Effect,
    judge,
    scoreboard,
    verdicts_at,
)
from reports.exhibits import SCALES
from reports.records import Artefact
from reports.statistics import Sample
from syncline.records.store import RecordError

ARTEFACT = Artefact("psp/table1", "laptop", {}, [], [])


def effect(*values: float | None, at_least: float = -math.inf, at_most: float = math.inf) -> Effect:
    return Effect("time / time of sync", Sample(values), at_least, at_most)


def verdict_on(*effects: Effect, missing: tuple[str, ...] = (), scale: str = "laptop"):
    claim = Claim("faster", ("psp/table1",), lambda artefact: effects, "The network is smaller.")
    artefact = Artefact("psp/table1", scale, {}, [], list(missing))
    return judge(claim, "It is faster.", scale, lambda name: artefact)


# The interval.


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=12))
def test_the_interval_is_around_the_mean_and_shrinks_when_the_seeds_are_repeated(values):
    sample = Sample(tuple(values))
    low, high = sample.interval
    assert low <= sample.mean + 1e-9
    assert high >= sample.mean - 1e-9
    again_low, again_high = Sample(tuple(values * 2)).interval
    assert again_high - again_low <= high - low + 1e-9


def test_the_interval_of_three_seeds_is_students():
    low, high = Sample((1.0, 2.0, 3.0)).interval
    assert (low, high) == pytest.approx((2 - 4.302653 / math.sqrt(3), 2 + 4.302653 / math.sqrt(3)), rel=1e-6)


def test_the_interval_covers_the_truth_as_often_as_it_says():
    """Of 4,000 samples of three normal values 95 % cover 0; three deviations of that share are 1 %."""
    import numpy as np

    draws = np.random.default_rng(0).normal(size=(4000, 3))
    covered = sum(low <= 0 <= high for low, high in (Sample(tuple(row)).interval for row in draws.tolist()))
    assert covered / 4000 == pytest.approx(0.95, abs=0.0104)


# A verdict.


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((0.80, 0.81, 0.82), HOLDS),
        ((1.20, 1.21, 1.22), FAILS),
        ((0.50, 1.00, 1.30), UNDECIDED),
        ((0.80,), UNDECIDED),
        ((0.80, None, None), UNDECIDED),
        ((None, None), UNDECIDED),
        ((0.9, 0.9, 0.9), HOLDS),
    ],
)
def test_the_interval_decides(values, expected):
    assert verdict_on(effect(*values, at_most=0.9)).verdict == expected


def test_a_region_has_two_sides():
    assert verdict_on(effect(0.99, 1.0, 1.01, at_least=0.9, at_most=1.1)).verdict == HOLDS
    assert verdict_on(effect(0.79, 0.8, 0.81, at_least=0.9, at_most=1.1)).verdict == FAILS
    assert verdict_on(effect(0.8, 1.0, 1.2, at_least=0.9, at_most=1.1)).verdict == UNDECIDED


def test_all_must_hold_and_one_that_fails_is_enough():
    good, open_, bad = effect(1.0, 1.01, at_most=2), effect(0.0, 3.0, at_most=2), effect(5.0, 5.01, at_most=2)
    assert verdict_on(good, good).verdict == HOLDS
    assert verdict_on(good, open_).verdict == UNDECIDED
    assert verdict_on(good, open_, bad).verdict == FAILS
    assert "5" in verdict_on(good, open_, bad).because
    assert verdict_on(good, effect(None, at_most=1)).verdict == UNDECIDED
    assert (
        verdict_on(good, effect(None, at_most=1)).because
        == "time / time of sync: 0 of 1 seeds have a value, which decides nothing"
    )


@given(st.lists(st.floats(0.5, 1.5), min_size=2, max_size=6), st.floats(0.5, 1.5))
def test_a_wider_claim_never_fares_worse(values, bound):
    order = (FAILS, UNDECIDED, HOLDS)
    narrow = verdict_on(effect(*values, at_most=bound)).verdict
    wide = verdict_on(effect(*values, at_most=bound + 0.1)).verdict
    assert order.index(wide) >= order.index(narrow)


def test_what_is_missing_is_not_judged():
    assert verdict_on(effect(1.0, 1.0, at_most=2), missing=("sync seed 1",)).verdict == NOT_RUN

    def no_plan(name: str) -> Artefact:
        raise RecordError(f"{name}: no such plan")

    claim = Claim("faster", ("psp/table1",), lambda artefact: [], "")
    verdict = judge(claim, "It is faster.", "laptop", no_plan)
    assert (verdict.verdict, verdict.because) == (NOT_RUN, "psp/table1: no such plan")

    def of_other_runs(artefact: Artefact) -> list[Effect]:
        raise KeyError("push28")

    claim = Claim("faster", ("psp/table1",), of_other_runs, "")
    verdict = judge(claim, "It is faster.", "laptop", lambda name: ARTEFACT)
    assert (verdict.verdict, "push28" in verdict.because) == (NOT_RUN, True)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("missing", [(), ("sync seed 1",)])
def test_what_the_paper_contradicts_is_not_judged_by_our_runs(scale, missing):
    place = "Table 4: 0.94 < 1.05."
    claim = Claim("faster", ("psp/table1",), lambda _: [effect(1.0, 1.01, at_most=2)], "", contradiction=place)
    verdict = judge(claim, "It is faster.", scale, lambda name: Artefact("psp/table1", scale, {}, [], list(missing)))
    assert (verdict.verdict, verdict.because) == (CONTRADICTED, place)
    assert len(verdict.effects) == (0 if missing else 1)
    expected = CONTRADICTED if missing else NOT_JUDGED if scale == "smoke" else HOLDS
    assert scoreboard("Claims", [verdict]).texts()[0][-1] == expected


@pytest.mark.parametrize(
    ("published", "region", "contradicts"),
    [
        (None, {"at_most": 0.9}, False),
        (0.9, {"at_most": 0.9}, False),
        (0.904, {"at_most": 0.9}, False),  # as printed, with two digits, it is 0.90
        (0.91, {"at_most": 0.9}, True),
        (0.5, {"at_least": 0.6, "at_most": 0.9}, True),
        (0.5, {"at_least": math.nan}, False),  # a bound that takes two seeds
    ],
)
def test_the_papers_own_number_may_be_outside_what_it_claims(published, region, contradicts):
    assert replace(effect(1.0, **region), published=published).paper_contradicts is contradicts


def test_the_scoreboard_has_a_row_an_effect():
    board = scoreboard("Claims", [verdict_on(effect(1.0, 1.02, at_most=2), effect(3.0, 3.01, at_most=2))])
    rows = board.texts()
    assert [row[:2] for row in rows] == [["faster", FAILS], ["", ""]]
    assert rows[0][4:6] == ["≤ 2.00", "1.01 ± 0.01"]
    assert [row[-1] for row in rows] == [HOLDS, FAILS]


@pytest.mark.parametrize("scale", SCALES)
def test_a_scale_that_only_shows_that_everything_runs_judges_nothing(scale):
    good, bad, open_ = effect(1.0, 1.01, at_most=2), effect(5.0, 5.01, at_most=2), effect(0.0, 3.0, at_most=2)
    judged = [verdict_on(*effects, scale=scale) for effects in ([good], [bad], [open_], [good, bad, open_])]
    not_run = verdict_on(good, missing=("sync seed 1",), scale=scale)
    contradicted = replace(not_run, verdict=CONTRADICTED)
    board = scoreboard("Claims", [*judged, contradicted, not_run])
    shown = {row[1] for row in board.texts()} | {row[-1] for row in board.texts()}
    assert [verdict.verdict for verdict in judged] == (
        [NOT_JUDGED] * 4 if scale == "smoke" else [HOLDS, FAILS, UNDECIDED, FAILS]
    )
    assert not_run.verdict == NOT_RUN
    assert shown == {*verdicts_at(scale), ""}
    assert board.texts()[0][5] == "1.00 ± 0.01"
    if scale == "smoke":
        assert "scale smoke" in judged[0].because
        assert not re.search(r"\b(holds|fails|undecided)\b", board.markdown() + "".join(one.because for one in judged))
