"""Controls of the predicates: on runs that are all drawn from one distribution, whatever their row, no claim of a
difference holds, and none of an equality fails, more often than its level; on runs at chance none is judged.

Every experiment that a claim needs is composed at scale laptop; its records are made up. A run's curve, its times and
its updates a worker have the same distribution in all rows, so that each compares a strategy with itself.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
import scipy
from synthetic import study

from reports.claims import LEARNED, NOT_RUN, Claim, Verdict, judge
from reports.effects import FAILS, HOLDS, NOT_COMPARABLE, Effect
from reports.looks import ALPHA
from reports.papers import PAPERS
from reports.records import Artefact

pytestmark = [pytest.mark.statistical, pytest.mark.xdist_group("placebo")]

NUM_STUDIES = 50  # a claim that errs in half of them passes the bound with a chance of 0.3 %
CLAIMS = [claim for paper in PAPERS.values() for claim in paper.claims]
LEARNED_CLAIMS = [claim for claim in CLAIMS if claim.basis == LEARNED]


def verdict_of(claim: Claim, artefacts: Mapping[str, Artefact]) -> Verdict:
    return judge(replace(claim, contradiction=""), "laptop", artefacts.__getitem__)


def is_inside_if_equal(effect: Effect) -> bool | None:
    """Whether the region has the number of two sides that are alike; None: it is on a bound, or no comparison."""
    low, high, equal = effect.region.low, effect.region.high, effect.equal
    return None if equal is None or equal in (low, high) else low < equal < high


def allowed(effects: list[Effect]) -> set[str]:
    """The verdicts that are true of two sides that are alike: none where the region ends just there."""
    compared = [is_inside_if_equal(effect) for effect in effects if effect.equal is not None]
    if any(is_inside is False for is_inside in compared):
        return {FAILS}
    return {HOLDS} if all(compared) else set()


def test_no_difference_is_found_between_a_strategy_and_itself() -> None:
    """The bound is passed by chance once in 10,000 claims."""
    rng = np.random.default_rng(0)
    names = sorted({name for claim in CLAIMS for name in claim.artefacts})
    counts: dict[str, Counter[str]] = {}
    true_of: dict[str, set[str]] = {}
    for _ in range(NUM_STUDIES):
        artefacts = {name: study(name, rng) for name in names}
        for claim in CLAIMS:
            found = verdict_of(claim, artefacts)
            assert found.verdict != NOT_RUN, (claim.key, found.because)
            if any(effect.equal is not None for effect in found.effects):
                counts.setdefault(claim.key, Counter())[found.verdict] += 1
                true_of[claim.key] = allowed(found.effects)
    most = scipy.stats.binom.isf(1e-4, NUM_STUDIES, ALPHA)
    wrong = {
        f"{key} {verdict}": num
        for key, counted in counts.items()
        for verdict, num in counted.items()
        if verdict in {HOLDS, FAILS} - true_of[key] and num > most
    }
    assert wrong == {}
    assert min(map(Counter.total, counts.values())) > 0.9 * NUM_STUDIES, "the control is of runs that can be judged"
    assert len(counts) >= 33


def test_runs_at_chance_judge_no_claim_about_learning() -> None:
    rng = np.random.default_rng(0)
    artefacts = {name: study(name, rng, learns=False) for claim in LEARNED_CLAIMS for name in claim.artefacts}
    for claim in LEARNED_CLAIMS:
        found = verdict_of(claim, artefacts)
        if found.verdict == FAILS:
            assert "alone" in found.because, "by times that nothing is learned for"
            continue
        assert found.verdict == NOT_COMPARABLE, (claim.key, found.verdict)
        assert re.search("at chance: |no seed has a value$|seeds that reach the target: ", found.because), found.because
