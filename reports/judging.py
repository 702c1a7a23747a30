"""What the runs of one experiment say of the claims that rest on it, as the study of judging asks for it."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from reports.claims import LEARNED, ArmVerdict, Claim, judge
from reports.effects import UNDECIDED
from reports.exhibits import Paper
from reports.looks import num_planned
from reports.papers import SHOWN
from reports.records import Artefact, artefact_of, load_artefact
from syncline.records.plans import PlannedRun
from syncline.records.sources import ResultsFolder
from syncline.studies.judge import Judgement


def num_claims(name: str) -> int:
    """Claims that an artefact is part of."""
    return sum(name in claim.artefacts for claim in _paper(name).claims)


def _paper(name: str) -> Paper:
    """Of an artefact. Raises ValueError if its claims are not known."""
    paper = SHOWN.get(name.partition("/")[0])
    if paper is None:
        raise ValueError(f"no claims are known of {name}; those of {', '.join(SHOWN)} are")
    return paper


def judgements(
    name: str, scale: str, report: Mapping[str, Any], planned: Sequence[PlannedRun], results: Path
) -> Iterator[Judgement]:
    """One a claim that an artefact is part of, in the paper's order.

    Args:
        report: the keys of the experiment's file for its report.
        planned: its runs so far.
        results: folder of their records, and of those of other artefacts that a claim also rests on.
    """

    @cache
    def load(other: str) -> Artefact:
        if other == name:
            return artefact_of(name, scale, report, planned, [ResultsFolder(results)])
        return load_artefact(other, scale, results)

    paper = _paper(name)
    for claim in paper.claims:
        if name in claim.artefacts:
            verdict = judge(claim, scale, load)
            num_seeds = max((effect.num_seeds for effect in verdict.effects), default=0)
            needs = {label: None for arm in verdict.arms for label in _needed(claim, arm, load(name))}
            yield Judgement(f"{paper.key}.{claim.key}", verdict.told, verdict.because, num_seeds, tuple(needs))


def _needed(claim: Claim, found: ArmVerdict, own: Artefact) -> Sequence[str]:
    """Labels of the rows whose next seeds may decide a claim about learning that is undecided in this arm.

    None where it was not judged at the last look that was planned: another artefact is behind, or a run failed.
    """
    if found.verdict != UNDECIDED or claim.basis != LEARNED:
        return ()
    rows = claim.reads(own)
    return own.labels(found.arm, rows) if found.look == num_planned(own.arm(found.arm).only(rows)) else ()
