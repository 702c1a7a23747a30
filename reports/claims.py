"""What a paper claims, as regions in which numbers of ours must lie, and the verdict over seeds.

A claim is a function that gives effects (reports/effects.py). It holds if every effect's test for "inside the region"
has p <= level, and fails if the test for "outside" of at least one has, after Holm's correction. The level is 0.05 in
each direction, or less where the seeds are looked at several times (reports/looks.py): then the first look that decides
a claim counts, as in a study that stops there, and more seeds do not change it. One seed decides nothing.

A claim about learning is judged in two arms: at one rate for all strategies (the paper's, or where that is not printed
the baseline's best), and at each strategy's own best. It holds or fails if both say so; else it depends on the rate. An
effect of which a side is at chance (reports/learned.py) or never arrives at its target is not comparable. Scale smoke
only shows that everything runs: its numbers are shown, and no claim is judged by them. A claim that the paper's own
numbers contradict is not judged by ours at any scale.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType

from reports.effects import FAILS, HOLDS, NOT_COMPARABLE, UNDECIDED, Effect, Number, judged, together
from reports.looks import ALPHA, at_common_looks, level
from reports.records import SAME, Artefact, published
from syncline.records.store import RecordError

NOT_JUDGED, NOT_RUN = "not judged", "not run"
CONTRADICTED = "paper contradicts itself"
BY_RATE = "depends on the rate"  # of a claim: it holds or fails in one arm, and the other one says something else
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
    judged = (NOT_JUDGED,) if scale == SMOKE else (HOLDS, FAILS, BY_RATE, UNDECIDED, NOT_COMPARABLE)
    return (*judged, CONTRADICTED, NOT_RUN)


Rows = Sequence[str] | Callable[[Artefact], Sequence[str]]
"""Patterns of labels, or a function: artefact -> patterns."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement of a paper as a predicate over our runs.

    Attributes:
        key: its name in published/<paper>.yaml.
        artefacts: whose runs it is judged by; `effects` is called with these, loaded, in this order.
        effects: the numbers, at least one; may raise LookupError where the scale has no run that it needs: then the
            claim is not run.
        may_differ: one sentence: why our setting may give another answer than the paper's.
        basis: one of BASES.
        rows: all rows that it reads, by their labels without their arm. The seeds of other rows do not matter to it.
        contradiction: the number of the paper, with its place, that contradicts the claim; empty: none does.
        silent: what our model lacks that decides the claim, so that it cannot judge it; empty: nothing.
        text: the claim, in the paper's sense.
    """

    key: str
    artefacts: tuple[str, ...]
    effects: Callable[..., Sequence[Effect]]
    may_differ: str
    basis: str = TIMED
    rows: Rows = ("*",)
    contradiction: str = ""
    silent: str = ""
    text: str = ""

    def __post_init__(self) -> None:
        assert self.basis in BASES, self.basis

    def reads(self, artefact: Artefact) -> Sequence[str]:
        """Patterns of the labels of the rows that it reads of one of its artefacts."""
        return self.rows(artefact) if callable(self.rows) else self.rows


def claims_of(paper: str, effects: ModuleType, **rows: Rows) -> tuple[Claim, ...]:
    """The claims that published/<paper>.yaml declares.

    Args:
        effects: the module in which the function of a claim's name gives its effects.
        rows: key of a claim -> its rows, where its artefacts say which these are.
    """
    declared = published(paper)["claims"].items()
    claims = [Claim(key, effects=getattr(effects, key), **about) for key, about in declared]
    return tuple(
        replace(claim, artefacts=tuple(claim.artefacts), rows=rows.get(claim.key, claim.rows)) for claim in claims
    )


@dataclass(frozen=True, slots=True)
class ArmVerdict:
    """What our runs say of a claim at the rates of one arm."""

    arm: str  # SAME or OWN
    rates: str  # the arm in words; empty of a claim that nothing is learned for
    verdict: str  # one of verdicts_at(scale), but BY_RATE
    because: str  # one line: the deciding number, or what is missing
    numbers: Sequence[Number] = ()
    level: float = ALPHA  # for p-values
    look: int = 1  # at which it was judged: the first one that decides, or the last complete one

    @property
    def effects(self) -> list[Effect]:
        return [number.effect for number in self.numbers]

    @property
    def is_decided(self) -> bool:
        return self.verdict in (HOLDS, FAILS)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What our runs say of a claim."""

    claim: Claim
    scale: str
    arms: tuple[ArmVerdict, ...]  # one, or of a claim about learning whose artefacts have two arms both

    @property
    def verdict(self) -> str:
        """One of verdicts_at(scale): what both arms say, or BY_RATE where one of them alone decides or both differ."""
        found = [arm.verdict for arm in self.arms]
        if len({*found}) > 1 and any(arm.is_decided for arm in self.arms):
            return BY_RATE
        return min(found, key=verdicts_at(self.scale).index)

    @property
    def because(self) -> str:
        """One line: of two arms that say the same the first one's reason."""
        if len({arm.verdict for arm in self.arms}) == 1:
            return self.arms[0].because
        return "; ".join(f"{arm.rates}: {arm.verdict}, {arm.because}" for arm in self.arms)

    @property
    def told(self) -> str:
        """The verdict in words: "holds at the paper's rate, undecided at each strategy's own rate"."""
        if self.verdict != BY_RATE:
            return self.verdict
        return ", ".join(f"{arm.verdict} at {arm.rates}" for arm in self.arms)

    @property
    def numbers(self) -> list[Number]:
        return [number for arm in self.arms for number in arm.numbers]

    @property
    def effects(self) -> list[Effect]:
        return [effect for arm in self.arms for effect in arm.effects]


def judge(claim: Claim, scale: str, load: Callable[[str], Artefact]) -> Verdict:
    """The verdict on a claim from stored runs, in each arm that was planned.

    Args:
        load: an artefact by name; RecordError where there is none.
    """
    try:
        artefacts = [load(name) for name in claim.artefacts]
    except RecordError as error:
        found = [ArmVerdict(SAME, "", NOT_RUN, str(error))]
    else:
        arms = artefacts[0].arms if claim.basis == LEARNED else (SAME,)
        common = [arm for arm in arms if all(arm in artefact.arms for artefact in artefacts)]
        found = [_in_arm(claim, scale, artefacts, arm) for arm in common]
    if claim.contradiction:  # by the paper itself: it is not judged by our runs, whether there are any or not
        found = [replace(arm, verdict=CONTRADICTED, because=claim.contradiction) for arm in found]
    return Verdict(claim, scale, tuple(found))


def _in_arm(claim: Claim, scale: str, artefacts: Sequence[Artefact], arm: str) -> ArmVerdict:
    """The verdict by the rows of one arm."""
    rates = artefacts[0].arm_name(arm) if claim.basis == LEARNED else ""
    none = found = ArmVerdict(arm, rates, NOT_RUN, "")
    try:
        looks, sizes = at_common_looks([artefact.arm(arm).only(claim.reads(artefact)) for artefact in artefacts])
    except RecordError as error:
        return replace(none, because=str(error))
    for number, chosen in enumerate(looks, 1):
        found = _at_look(claim, replace(none, level=level(sizes), look=number), chosen, partial(level, sizes))
        if found.is_decided:
            break
    if scale == SMOKE and found.numbers:
        because = f"not judged at scale {scale}, which only shows that everything runs"
        return replace(found, verdict=NOT_JUDGED, because=because)
    if claim.silent and found.numbers:
        return replace(found, verdict=NOT_COMPARABLE, because=claim.silent)
    return found


def _at_look(
    claim: Claim, none: ArmVerdict, artefacts: Sequence[Artefact], level: Callable[[int], float]
) -> ArmVerdict:
    """The verdict by these seeds."""
    try:
        numbers = judged(claim.effects(*artefacts), level)
    except LookupError as error:
        return replace(none, because=f"not part of this scale: {error}")
    return replace(none, verdict=together(numbers), because=_because(numbers), numbers=numbers)


def _because(numbers: Sequence[Number]) -> str:
    verdict = together(numbers)
    if verdict == HOLDS:
        return "every interval lies where the claim says"
    return next(number.why for number in numbers if number.verdict == verdict)
