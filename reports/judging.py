"""What the runs of one experiment say of the claims that rest on it, as the study of judging asks for it."""

from collections.abc import Iterator
from pathlib import Path

from reports.claims import LEARNED, Verdict, judge
from reports.effects import UNDECIDED
from reports.looks import at_looks
from reports.papers import SHOWN
from reports.records import Artefact, load_artefact
from syncline.studies.judge import Judgement


def num_claims(name: str) -> int:
    """Claims that an artefact is part of."""
    return sum(name in claim.artefacts for claim in SHOWN[name.partition("/")[0]].claims)


def judgements(own: Artefact, results: Path) -> Iterator[Judgement]:
    """One a claim that the artefact is part of, in the paper's order.

    Args:
        own: the runs of the experiment that were made.
        results: folder of the records of other artefacts that a claim also rests on.
    """

    def load(name: str) -> Artefact:
        return own if name == own.name else load_artefact(name, own.scale, results)

    paper = SHOWN[own.name.partition("/")[0]]
    for claim in paper.claims:
        if own.name in claim.artefacts:
            verdict = judge(claim, paper.claim_text(claim.key), own.scale, load)
            num_seeds = max((effect.num_seeds for effect in verdict.effects), default=0)
            key = f"{paper.key}.{claim.key}"
            yield Judgement(key, verdict.verdict, verdict.because, num_seeds, _asks(verdict, own))


def _asks(verdict: Verdict, own: Artefact) -> bool:
    """Whether more seeds of this experiment may decide the claim: it is about learning, and no other one is behind."""
    if verdict.verdict != UNDECIDED or verdict.claim.basis != LEARNED:
        return False
    looks, _ = at_looks(own.arm(verdict.arm))
    return verdict.look == len(looks)
