"""What a paper claims, as regions in which numbers of ours must lie, and the verdict over seeds.

A claim is a function that gives effects (reports/effects.py). It holds if every effect's test for "inside the region"
has p <= level, and fails if the test for "outside" of at least one has, after Holm's correction. The level is 0.05 in
each direction, or less where the seeds are looked at several times (reports/looks.py): then the first look that decides
a claim counts, as in a study that stops there, and more seeds do not change it. One seed decides nothing.

A claim about learning is judged only where its baseline has learned (reports/learned.py). Scale smoke only shows that
everything runs: its numbers are shown, and no claim is judged by them. A claim that the paper's own numbers contradict
is not judged by ours at any scale.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from reports.effects import FAILS, HOLDS, UNDECIDED, Effect, Number, judged, together
from reports.learned import at_chance
from reports.looks import ALPHA, at_common_looks, level
from reports.records import ARM_NAMES, OWN, SAME, Artefact
from syncline.records.store import RecordError

NOT_JUDGED, NOT_RUN = "not judged", "not run"
CONTRADICTED = "paper contradicts itself"
SMOKE = "smoke"  # the scale that shows that everything runs

LEARNED, TIMED, FITTED, DERIVED = "learned", "timed", "fitted", "derived"
BASES = {  # on what a verdict rests
    LEARNED: "runs with gradients",
    TIMED: "simulated times alone, of a cluster that is not fitted to the claim's numbers",
    FITTED: "simulated times alone, of a cluster that is fitted to the table or figure of the claim",
    DERIVED: "a formula or the paper's arithmetic, true by construction: it checks the simulator",
}


def verdicts_at(scale: str) -> tuple[str, ...]:
    """The verdicts that a claim can get at a scale."""
    judged = (NOT_JUDGED,) if scale == SMOKE else (HOLDS, FAILS, UNDECIDED)
    return (*judged, CONTRADICTED, NOT_RUN)


Rows = Sequence[str] | Callable[[Artefact], Sequence[str]]
"""Patterns of labels, or a function: artefact -> patterns."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement of a paper as a predicate over our runs.

    Attributes:
        key: its name in published/<paper>.yaml, which holds its text.
        artefacts: whose runs it is judged by; `effects` is called with these, loaded, in this order.
        effects: the numbers, at least one; may raise LookupError where the scale has no run that it needs: then the
            claim is not run.
        may_differ: one sentence: why our setting may give another answer than the paper's.
        basis: one of BASES.
        baseline: of a claim about learning: patterns of the labels whose runs must have learned, without their arm. No
            row whose failure to learn is the claim.
        arm: SAME or OWN: in which arm a claim about learning is decided.
        rows: all rows that it reads, by their labels without their arm. The seeds of other rows do not matter to it.
        contradiction: the number of the paper, with its place, that contradicts the claim; empty: none does.
    """

    key: str
    artefacts: tuple[str, ...]
    effects: Callable[..., Sequence[Effect]]
    may_differ: str
    basis: str = TIMED
    baseline: tuple[str, ...] = ()
    arm: str = SAME
    rows: Rows = ("*",)
    contradiction: str = ""

    def __post_init__(self) -> None:
        assert self.basis in BASES, self.basis
        assert bool(self.baseline) == (self.basis == LEARNED), f"{self.key}: a baseline is of what was learned"

    def reads(self, artefact: Artefact) -> Sequence[str]:
        """Patterns of the labels of the rows that it reads of one of its artefacts."""
        return self.rows(artefact) if callable(self.rows) else self.rows


def claim(*artefacts: str, **about: Any) -> Callable[[Callable[..., Sequence[Effect]]], Claim]:
    """A decorator: the claim that is named as its function, which gives the effects and quotes the text.

    Args:
        artefacts: whose runs it is judged by.
        about: other fields of the claim.
    """
    return lambda effects: Claim(effects.__name__, artefacts, effects, **about)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What our runs say of a claim in one arm."""

    claim: Claim
    text: str  # the claim, in the paper's sense
    scale: str
    verdict: str  # one of verdicts_at(scale)
    because: str  # one line: the deciding number, or what is missing
    numbers: Sequence[Number] = ()
    level: float = ALPHA  # for p-values
    look: int = 1  # at which it was judged: the first one that decides, or the last complete one
    arm: str = SAME
    other: "Verdict | None" = None  # in the other arm, where that was planned too

    @property
    def effects(self) -> list[Effect]:
        return [number.effect for number in self.numbers]

    @property
    def is_decided(self) -> bool:
        return self.verdict in (HOLDS, FAILS)

    @property
    def arm_name(self) -> str:
        """In words; empty of a claim that nothing is learned for."""
        return ARM_NAMES[self.arm] if self.claim.basis == LEARNED else ""


def judge(claim: Claim, text: str, scale: str, load: Callable[[str], Artefact]) -> Verdict:
    """The verdict on a claim from stored runs, in the arm that decides and in the other one where it was planned.

    Args:
        load: an artefact by name; RecordError where there is none.
    """
    try:
        artefacts = [load(name) for name in claim.artefacts]
    except RecordError as error:
        return _unless_contradicted(Verdict(claim, text, scale, NOT_RUN, str(error), arm=claim.arm))
    decides = _in_arm(claim, text, scale, artefacts, claim.arm)
    other = OWN if claim.arm == SAME else SAME
    if claim.basis != LEARNED or not all(other in artefact.arms for artefact in artefacts):
        return decides
    return replace(decides, other=_in_arm(claim, text, scale, artefacts, other))


def _in_arm(claim: Claim, text: str, scale: str, artefacts: Sequence[Artefact], arm: str) -> Verdict:
    """The verdict by the rows of one arm."""
    none = Verdict(claim, text, scale, NOT_RUN, "", arm=arm)
    found = none
    try:
        looks, sizes = at_common_looks([artefact.arm(arm).only(claim.reads(artefact)) for artefact in artefacts])
    except RecordError as error:
        return _unless_contradicted(replace(none, because=str(error)))
    except LookupError as error:
        return _unless_contradicted(replace(none, because=_no_part(error)))
    for number, chosen in enumerate(looks, 1):
        found = _at_look(replace(none, level=level(sizes), look=number), chosen, partial(level, sizes))
        if found.is_decided:
            break
    if claim.contradiction:
        return _unless_contradicted(found)
    if scale == SMOKE:
        because = f"not judged at scale {scale}, which only shows that everything runs"
        return replace(found, verdict=NOT_JUDGED, because=because)
    return found


def _at_look(none: Verdict, artefacts: Sequence[Artefact], level: Callable[[int], float]) -> Verdict:
    """The verdict by these seeds."""
    claim = none.claim
    try:
        numbers = judged(claim.effects(*artefacts), level)
        unlearned = at_chance(artefacts, claim.baseline) if claim.baseline and none.scale != SMOKE else ""
    except LookupError as error:
        return replace(none, because=_no_part(error))
    if unlearned and not claim.contradiction:
        return replace(none, because=unlearned)
    verdict = together(numbers)
    empty = next((number for number in numbers if not number.effect.num_present), None)
    if verdict == UNDECIDED and empty is not None:
        return replace(none, because=empty.why, numbers=numbers)
    return replace(none, verdict=verdict, because=_because(numbers), numbers=numbers)


def _no_part(error: LookupError) -> str:
    return f"not part of this scale: {error}"


def _unless_contradicted(verdict: Verdict) -> Verdict:
    """What the paper contradicts itself is not judged by our runs, whether there are any or not."""
    contradiction = verdict.claim.contradiction
    return replace(verdict, verdict=CONTRADICTED, because=contradiction) if contradiction else verdict


def _because(numbers: Sequence[Number]) -> str:
    verdict = together(numbers)
    if verdict == HOLDS:
        return "every interval lies where the claim says"
    return next(number.why for number in numbers if number.verdict == verdict)
