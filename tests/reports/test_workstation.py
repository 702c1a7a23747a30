"""Every report and every claim on the grid of every experiment at scale workstation, whose rows are others: readings
are added, rows left out, and rates tuned. Runs are made up.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from synthetic import ALWAYS, study
from written import RunInMemory

from reports.claims import CONTRADICTED, LEARNED, NOT_RUN, Claim, Verdict, judge
from reports.effects import NOT_COMPARABLE, UNDECIDED
from reports.exhibits import Exhibit
from reports.figures import Figure
from reports.papers import PAPERS, SHOWN
from reports.records import OWN, SAME, Artefact
from reports.settings import settings
from reports.tables import Table

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("workstation")]  # one process composes the grids once

SCALE = "workstation"
SEEDS = 5  # of the first look
FROM_LOGS = {"psp/fig2", "adasync/fig4_5", "overview/timelines"}  # their rows are the same at all scales
ARTEFACTS = [name for key, paper in SHOWN.items() for own in paper.shows if (name := f"{key}/{own}") not in FROM_LOGS]
CLAIMS = [claim for paper in PAPERS.values() for claim in paper.claims]
# Claims that have no rows at this scale, and why.
LEFT_OUT = {"homogeneous_small": "no run of ResNet-110 learns"}


@cache
def made_up(name: str) -> Artefact:
    rng = np.random.default_rng(0)
    return study(name, rng, scale=SCALE, num_seeds=SEEDS, fraction=ALWAYS, has_arms=True)


def shown(name: str, artefact: Artefact) -> Exhibit:
    key, _, own = name.partition("/")
    return SHOWN[key].exhibit(own, artefact)


@pytest.mark.parametrize("name", ARTEFACTS)
def test_every_artefact_shows_all_its_rows(name: str) -> None:
    artefact = made_up(name)
    exhibit = shown(name, artefact)
    assert (OWN in exhibit) == (OWN in artefact.arms)
    for suffix, item in exhibit.items():
        if isinstance(item, Table):
            assert item.texts(), suffix
            assert item.markdown()
        elif isinstance(item, Figure):
            assert all(panel.series for panel in item.panels), suffix
    assert settings(artefact).texts()


NEED_A_TARGET = {
    *("async_scales", "sync_fewer_epochs", "backup_time", "draw_speed", "adasync_fastest", "wall_time"),
    *("hetero_time", "fc_fast", "fc_dssp_ge_ssp", "conv_bsp_floor"),
}


def without_target(name: str) -> Artefact:
    artefact = made_up(name)
    return replace(artefact, report={key: value for key, value in artefact.report.items() if key != "targets"})


def test_times_to_a_target_that_nobody_has_fixed_judge_nothing() -> None:
    found = [judge(claim, SCALE, without_target) for claim in CLAIMS]
    not_run = [one for one in found if one.verdict == NOT_RUN and one.claim.key not in LEFT_OUT]
    assert {one.claim.key for one in not_run} == NEED_A_TARGET
    assert all("a fixed target" in one.because for one in not_run)


@pytest.mark.parametrize(
    "name", sorted({name for claim in CLAIMS if claim.key in NEED_A_TARGET for name in claim.artefacts})
)
def test_what_has_no_target_is_shown_without_times_to_it(name: str) -> None:
    assert shown(name, without_target(name)).keys() == shown(name, made_up(name)).keys()


def verdicts() -> Mapping[str, Verdict]:
    return {claim.key: judge(claim, SCALE, made_up) for claim in CLAIMS}


@pytest.mark.parametrize("claim", [claim for claim in CLAIMS if claim.key not in LEFT_OUT], ids=lambda claim: claim.key)
def test_a_claim_reads_no_rows_but_those_that_it_names(claim: Claim) -> None:
    whole = [made_up(name).arm(SAME) for name in claim.artefacts]
    chosen = [artefact.only(claim.reads(artefact)) for artefact in whole]
    assert claim.effects(*chosen) == claim.effects(*whole)


def test_every_claim_is_judged_once_the_targets_are_there() -> None:
    found = verdicts()
    not_run = {key: verdict.because for key, verdict in found.items() if verdict.verdict == NOT_RUN}
    assert {key: because.removeprefix("not part of this scale: ") for key, because in not_run.items()} == LEFT_OUT
    assert all(number.effect.num_present == SEEDS for verdict in found.values() for number in verdict.numbers)


def test_each_claim_about_learning_says_what_both_arms_tell_or_why_they_do_not() -> None:
    for key, verdict in verdicts().items():
        assert all(arm.numbers for arm in verdict.arms if arm.verdict not in (NOT_RUN, CONTRADICTED)), key
        assert len(verdict.arms) == 1 or verdict.claim.basis == LEARNED, key


def diverging(name: str, row: str) -> Artefact:
    """Of each row that learns and has this strategy the first seed diverges before it is evaluated again."""
    artefact = made_up(name)

    def at_once(run: RunInMemory) -> RunInMemory:
        first = run.metrics[0]
        best = {metric: {"value": first[metric], "epoch": 0.0} for metric in run.summary["best"]}
        summary = {**run.summary, "status": "diverged", "final": None, "best": best}
        return replace(run, summary=summary, metrics=[first])

    runs = [
        at_once(run) if run.seed == 0 and run.metrics and run.config["strategy"]["name"] == row else run
        for run in artefact.runs
        if isinstance(run, RunInMemory)
    ]
    return replace(artefact, runs=runs)


@pytest.mark.parametrize("row", ["asp", "backup", "adasync", "dssp", "ds_sync", "psp"])
def test_a_run_that_diverges_at_once_leaves_claims_undecided_or_counts_as_not_learned(row: str) -> None:
    without_value, not_learned = [], []
    for claim in CLAIMS:
        verdict = judge(claim, SCALE, lambda name: diverging(name, row))
        without_value += [number for number in verdict.numbers if number.effect.num_present < SEEDS]
        not_learned += [number for number in verdict.numbers if "at chance" in number.effect.flaw]
    assert all(number.verdict in (UNDECIDED, NOT_COMPARABLE) for number in without_value)
    assert all(number.verdict == NOT_COMPARABLE for number in not_learned)
    assert without_value or not_learned
    for name in ARTEFACTS:
        shown(name, diverging(name, row))
