"""Verdicts: a region, a test over seeds, arms, looks, and the message where there is nothing to judge by."""

import math

import pytest
from written import learned

from reports.claims import BY_RATE, CONTRADICTED, LEARNED, NOT_JUDGED, NOT_RUN, TIMED, ArmVerdict, Claim, Verdict, judge
from reports.effects import FAILS, HOLDS, NOT_COMPARABLE, UNDECIDED, Effect, Region, above, of_ratio
from reports.exhibits import SCALES
from reports.looks import ALPHA, at_looks, level, num_planned
from reports.records import OWN, SAME, Artefact, Missing, Run
from reports.scoreboard import scoreboard
from reports.statistics import Sample
from syncline.records.store import RecordError
from syncline.sequential import pocock_level

ARTEFACT = Artefact("psp/table1", "laptop", {}, [], [])


def effect(*values: float | None, high: float) -> Effect:
    return Effect("time / time of sync", Sample(values), Region(high=high))


def verdict_on(*effects: Effect, missing: tuple[Missing, ...] = (), scale: str = "laptop"):
    claim = Claim("faster", ("psp/table1",), lambda artefact: effects, "The network is smaller.")
    artefact = Artefact("psp/table1", scale, {}, [], list(missing))
    return judge(claim, scale, lambda name: artefact)


# A verdict.


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((0.80, 0.81, 0.82), HOLDS),
        ((1.20, 1.21, 1.22), FAILS),
        ((0.50, 1.00, 1.30), UNDECIDED),
        ((0.80,), UNDECIDED),
        ((0.80, None, None), UNDECIDED),
        ((0.80, 0.81, 0.82, None), UNDECIDED),
        ((0.80, 0.81, math.inf), UNDECIDED),
        ((None, None), NOT_COMPARABLE),
        ((0.9, 0.9, 0.9), HOLDS),
    ],
)
def test_the_seeds_decide_and_one_without_a_value_leaves_it_open(values, expected):
    assert verdict_on(effect(*values, high=0.9)).verdict == expected


def test_all_must_hold_and_one_that_fails_is_enough():
    good, open_, bad = effect(1.0, 1.01, high=2), effect(0.0, 3.0, high=2), effect(5.0, 5.01, high=2)
    assert verdict_on(good, good).verdict == HOLDS
    assert verdict_on(good, open_).verdict == UNDECIDED
    assert verdict_on(good, open_, bad).verdict == FAILS
    assert "5" in verdict_on(good, open_, bad).because
    open_ = verdict_on(good, effect(0.5, None, 0.6, high=1))
    assert (open_.verdict, open_.because) == (
        UNDECIDED,
        "time / time of sync: 1 of 3 seeds have no value, and others decide nothing",
    )
    assert verdict_on(effect(0.5, high=1)).because == "time / time of sync: 1 seed decides nothing"


def test_what_is_missing_is_not_judged():
    assert verdict_on(effect(1.0, 1.0, high=2), missing=(Missing("sync", 1),)).verdict == NOT_RUN

    def no_plan(name: str) -> Artefact:
        raise RecordError(f"{name}: no such plan")

    claim = Claim("faster", ("psp/table1",), lambda artefact: [], "")
    verdict = judge(claim, "laptop", no_plan)
    assert (verdict.verdict, verdict.because) == (NOT_RUN, "psp/table1: no such plan")

    def of_other_runs(artefact: Artefact) -> list[Effect]:
        raise KeyError("push28")

    claim = Claim("faster", ("psp/table1",), of_other_runs, "")
    verdict = judge(claim, "laptop", lambda name: ARTEFACT)
    assert (verdict.verdict, "push28" in verdict.because) == (NOT_RUN, True)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("missing", [(), (Missing("sync", 1),)])
def test_what_the_paper_contradicts_is_not_judged_by_our_runs(scale, missing):
    place = "Table 4: 0.94 < 1.05."
    claim = Claim("faster", ("psp/table1",), lambda _: [effect(1.0, 1.01, high=2)], "", contradiction=place)
    verdict = judge(claim, scale, lambda name: Artefact("psp/table1", scale, {}, [], list(missing)))
    assert (verdict.verdict, verdict.because) == (CONTRADICTED, place)
    assert len(verdict.effects) == (0 if missing else 1)
    expected = CONTRADICTED if missing else NOT_JUDGED if scale == "smoke" else HOLDS
    assert scoreboard("Claims", [verdict]).texts()[0][-1] == expected


def test_the_scoreboard_has_a_row_an_effect():
    board = scoreboard("Claims", [verdict_on(effect(1.0, 1.02, high=2), effect(3.0, 3.01, high=2))])
    rows = board.texts()
    assert [row[:2] for row in rows] == [["faster", FAILS], ["", ""]]
    assert rows[0][2:4] == [TIMED, "—"]
    assert rows[0][6:8] == ["≤ 2.00", "1.01 ± 0.01"]
    assert [row[-1] for row in rows] == [HOLDS, FAILS]


# Arms, looks, and whether anything was learned.


def end_of(run: Run) -> float:
    return run.metrics[-1]["accuracy"]


def more_accurate(artefact: Artefact) -> list[Effect]:
    ends = artefact.samples(end_of)
    return [Effect("asp - bsp", ends["asp"] - ends["bsp"], above(0.0), equal=0.0)]


def judged_by(runs: list[Run], missing: tuple[Missing, ...] = (), looks=None, scale="laptop") -> Verdict:
    claim = Claim("higher", ("dssp/fig3",), more_accurate, "It is smaller.", LEARNED)
    report = {} if looks is None else {"looks": {"laptop": looks}}
    artefact = Artefact("dssp/fig3", scale, report, runs, list(missing))
    return judge(claim, scale, lambda name: artefact)


def study(ends: dict[str, float], num_seeds: int = 4) -> list[Run]:
    """A little noise of its own on each run."""
    return [
        learned(label, seed, end + 0.001 * ((7 * seed + 3 * row) % 5))
        for row, (label, end) in enumerate(ends.items())
        for seed in range(num_seeds)
    ]


BOTH = {"bsp": 0.5, "asp": 0.4, "bsp/own": 0.5, "asp/own": 0.6}


def test_a_claim_that_the_arms_decide_differently_depends_on_the_rate():
    found = judged_by(study(BOTH))
    assert [(arm.arm, arm.verdict) for arm in found.arms] == [(SAME, FAILS), (OWN, HOLDS)]
    assert (found.verdict, found.told) == (BY_RATE, "fails at one rate for all, holds at each strategy's own rate")
    rows = scoreboard("Claims", [found]).texts()
    assert [row[1] for row in rows] == [FAILS, HOLDS]
    assert [row[3] for row in rows] == ["one rate for all", "each strategy's own rate"]


@pytest.mark.parametrize(
    ("same", "own", "expected"),
    [
        (HOLDS, HOLDS, HOLDS),
        (FAILS, FAILS, FAILS),
        (HOLDS, UNDECIDED, BY_RATE),
        (NOT_COMPARABLE, FAILS, BY_RATE),
        (HOLDS, NOT_RUN, BY_RATE),
        (UNDECIDED, NOT_COMPARABLE, UNDECIDED),
        (NOT_RUN, NOT_COMPARABLE, NOT_COMPARABLE),
    ],
)
def test_a_claim_holds_or_fails_if_both_arms_say_so(same, own, expected):
    claim = Claim("higher", ("dssp/fig3",), more_accurate, "", LEARNED)
    arms = tuple(ArmVerdict(arm, arm, verdict, "") for arm, verdict in ((SAME, same), (OWN, own)))
    assert Verdict(claim, "workstation", arms).verdict == expected


def test_an_arm_has_its_rows_without_the_suffix_and_the_times_alone():
    runs = [*study(BOTH, 1), learned("bsp/timing", 0, 0.1)]
    targets = {"targets": {"laptop": {"same": 0.5, "own": {"bsp": 0.6}}, "gpu": 0.7}}
    artefact = Artefact("dssp/fig3", "laptop", targets, runs, [Missing("ssp/own", 0)])
    assert (artefact.arm(SAME).target(), artefact.arm(OWN).target("bsp")) == (0.5, 0.6)
    assert artefact.arms == (SAME, OWN)
    ends = {label: end_of(runs[0]) for label, runs in artefact.arm(OWN).rows().items()}
    assert ends == pytest.approx({"bsp": 0.5, "asp": 0.6, "bsp/timing": 0.1}, abs=0.005)
    assert (set(artefact.arm(SAME).rows()), artefact.arm(SAME).missing) == ({"bsp", "asp", "bsp/timing"}, [])
    assert artefact.arm(OWN).missing == [Missing("ssp", 0)]
    one = Artefact("dssp/fig3", "laptop", {}, study({"bsp": 0.5, "asp": 0.4}), [])
    assert (one.arms, one.arm(SAME).runs) == ((SAME,), one.runs)
    with pytest.raises(LookupError, match="dssp/fig3 has no runs at each strategy's own rate"):
        one.arm(OWN)


def test_what_is_missing_in_one_arm_leaves_the_other():
    found = judged_by(study(BOTH), (Missing("asp/own", 9),))
    assert [arm.verdict for arm in found.arms] == [FAILS, NOT_RUN]
    assert found.arms[1].because == "1 runs are missing, asp seed 9 first"


@pytest.mark.parametrize(
    ("num", "missing", "judged"),
    [(12, (), 10), (10, (), 10), (9, (), 5), (20, (7,), 5), (20, (12,), 10), (20, (), 20), (25, (), 20)],
)
def test_a_claim_that_no_look_decides_is_judged_by_the_seeds_of_the_last_complete_one(num, missing, judged):
    runs = [
        run
        for run in study({"bsp": 0.5, "asp": 0.5}, num)
        if (run.label, run.seed) not in {("asp", n) for n in missing}
    ]
    found = judged_by(runs, missing=tuple(Missing("asp", seed) for seed in missing), looks=[5, 10, 15, 20])
    assert (found.verdict, found.effects[0].num_seeds, found.arms[0].look) == (UNDECIDED, judged, judged // 5)
    assert found.arms[0].level == level((5, 10, 15, 20))


def test_the_first_look_that_decides_counts_and_more_seeds_do_not_change_it():
    def ends(*early: float) -> list[Run]:
        """Five seeds of one kind, then many of the other."""
        return [
            learned(label, seed, 0.5 + (early[seed >= 5] if label == "asp" else 0.001 * (seed % 3)))
            for label in ("bsp", "asp")
            for seed in range(20)
        ]

    found = judged_by(ends(0.1, -0.4), looks=[5, 10, 15, 20])
    assert (found.verdict, found.arms[0].look, found.effects[0].num_seeds) == (HOLDS, 1, 5)
    assert judged_by(ends(0.1, -0.4)).verdict == FAILS
    late = judged_by(ends(0.001, 0.1), looks=[5, 10, 15, 20])
    assert (late.verdict, late.arms[0].look) == (HOLDS, 2)


def test_a_claim_of_two_artefacts_is_judged_at_the_looks_that_both_have():
    claim = Claim("both", ("dssp/fig3", "dssp/table1"), lambda *both: more_accurate(both[0]), "", LEARNED)

    def judged(*nums: int) -> Verdict:
        report = {"looks": {"laptop": [5, 10, 15, 20]}}
        made = {
            name: Artefact(name, "laptop", report, study({"bsp": 0.5, "asp": 0.5}, num), [])
            for name, num in zip(claim.artefacts, nums, strict=True)
        }
        return judge(claim, "laptop", made.__getitem__)

    assert [judged(*nums).arms[0].look for nums in ((20, 5), (10, 20), (20, 20))] == [1, 2, 4]


def test_a_claim_is_judged_at_the_looks_of_the_rows_that_it_reads():
    """Rows with fewer seeds, or with runs that are missing, do not matter to it if it does not read them."""
    runs = [*study({"bsp": 0.5, "asp": 0.5, "bsp/timing": 0.1}, 10), *study({"ssp": 0.5}, 5)]
    artefact = Artefact("dssp/fig3", "laptop", {"looks": {"laptop": [5, 10]}}, runs, [Missing("ssp", 5)])

    def judged(*rows: str) -> Verdict:
        claim = Claim("higher", ("dssp/fig3",), more_accurate, "", LEARNED, rows=rows)
        return judge(claim, "laptop", lambda name: artefact)

    assert [(found.arms[0].look, found.effects[0].num_seeds) for found in (judged("bsp", "asp"), judged("*"))] == [
        (2, 10),
        (1, 5),
    ]
    assert artefact.labels(SAME, ["bsp", "s*"]) == ["bsp", "bsp/timing", "ssp"]


def test_tables_compare_the_seeds_that_all_rows_have_and_say_which_have_more():
    runs = [*study({"bsp": 0.5, "asp": 0.5}, 10), *study({"ssp": 0.5}, 4)]
    shown = Artefact("dssp/fig3", "laptop", {}, runs, [Missing("ssp", 4)]).with_common_seeds()
    assert {label: len(runs) for label, runs in shown.rows().items()} == {"bsp": 5, "asp": 5, "ssp": 4}
    assert shown.incomplete == "NOT COMPLETE: 1 runs are missing: ssp seed 4"
    assert shown.more_seeds == "Claims are judged by more seeds of bsp, asp"
    equal = Artefact("dssp/fig3", "laptop", {}, study({"bsp": 0.5, "asp": 0.5}), [])
    assert equal.with_common_seeds() is equal


def test_a_look_at_which_too_few_arrive_leaves_the_claim_to_the_next_one():
    def reached_late(artefact: Artefact) -> list[Effect]:
        if len(artefact.seeds) < 10:
            raise LookupError("a target that a strategy reaches with half of its seeds")
        return more_accurate(artefact)

    runs = study({"bsp": 0.5, "asp": 0.6}, 10)
    for num, verdict, look in ((10, HOLDS, 2), (5, NOT_RUN, 1)):
        artefact = Artefact("x", "laptop", {"looks": {"laptop": [5, 10]}}, runs, []).with_seeds(range(num))
        found = judge(Claim("late", ("x",), reached_late, "", LEARNED), "laptop", {"x": artefact}.get)
        assert (found.verdict, found.arms[0].look) == (verdict, look)


@pytest.mark.parametrize(("ends", "verdict"), [((0.5, 0.6), NOT_COMPARABLE), ((0.6, 0.5), FAILS)])
def test_a_claim_with_a_number_that_nobody_has_cannot_hold_but_may_fail(ends, verdict):
    def with_a_number_of_nobody(artefact: Artefact) -> list[Effect]:
        none = Sample((None,) * len(artefact.seeds))
        return [*more_accurate(artefact), of_ratio("time to the target, asp / bsp", none, none, Region(0.9, 1.1))]

    artefact = Artefact("x", "laptop", {}, study({"bsp": ends[0], "asp": ends[1]}), [])
    claim = Claim("both", ("x",), with_a_number_of_nobody, "", LEARNED)
    found = judge(claim, "laptop", {"x": artefact}.get)
    assert found.verdict == verdict
    if verdict == NOT_COMPARABLE:
        assert found.because == "time to the target, asp / bsp: no seed has a value"


def test_looks_that_were_planned_count_also_where_a_run_of_theirs_failed():
    runs = [run for run in study({"bsp": 0.5, "asp": 0.5}, 10) if (run.label, run.seed) != ("asp", 7)]
    artefact = Artefact("x", "laptop", {"looks": {"laptop": [5, 10, 15]}}, runs, [Missing("asp", 7)])
    assert (num_planned(artefact), len(at_looks(artefact))) == (2, 1)
    assert num_planned(artefact.with_seeds(range(5))) == 1


def test_the_level_is_shared_by_looks_and_tests():
    third = ALPHA / 3
    assert [level((), 3), level((5,), 3), level((5, 10), 3)] == [third, third, pocock_level(third, [5, 10])]


def test_before_the_first_look_nothing_is_judged_and_one_look_has_the_whole_level():
    early = judged_by(study({"bsp": 0.5, "asp": 0.6}, 4), looks=[5, 10])
    assert (early.verdict, early.because) == (NOT_RUN, "the first look takes 5 seeds, 4 are complete")
    assert judged_by(study({"bsp": 0.5, "asp": 0.6}, 5), looks=[5]).arms[0].level == ALPHA
    with pytest.raises(ValueError, match="looks at scale laptop must be growing numbers"):
        judged_by(study({"bsp": 0.5, "asp": 0.6}, 5), looks=[5, 5])


def test_a_level_of_several_looks_decides_later():
    """p = 0.04: enough at one look, not at the first of four."""
    values = (0.3, 1.9, 0.1, 1.6, 0.3)
    effects = [Effect("asp - bsp", Sample(values), Region(low=0.0))]
    p = effects[0].inside_p
    assert level((5, 10, 15, 20)) < p < 0.05
    claim = Claim("higher", ("dssp/fig3",), lambda _: effects, "")

    def verdict(report: dict) -> str:
        runs = study({"bsp": 0.5}, 5)
        return judge(claim, "laptop", lambda name: Artefact(name, "laptop", report, runs, [])).verdict

    assert verdict({}) == HOLDS
    assert verdict({"looks": {"laptop": [5, 10, 15, 20]}}) == UNDECIDED
    assert verdict({"looks": {"gpu": [5, 10, 15, 20]}}) == HOLDS


@pytest.mark.parametrize(("end", "is_judged"), [(0.10, False), (0.17, False), (0.20, True), (0.9, True)])
@pytest.mark.parametrize("row", ["bsp", "asp"])
def test_a_side_at_chance_is_not_comparable(row, end, is_judged):
    """A tenth of the way from 10 % to all, 19 %, is asked of both sides."""
    runs = study({"bsp": 0.5, "asp": 0.5} | {row: end})
    found = judged_by(runs)
    assert (found.verdict == NOT_COMPARABLE, f"at chance: {row} ends at accuracy" in found.because) == (
        not is_judged,
    ) * 2
    assert judged_by(runs, scale="smoke").verdict == NOT_JUDGED
