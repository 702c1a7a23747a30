"""What a paper claims, as a region in which a number of ours must lie, and the verdict over paired seeds.

A claim names its effects: numbers that each seed gives once, both sides under the same seed, so with the same delays,
data order and initial weights (common random numbers). An effect is claimed to lie in a region (at least, at most).
Student's 95 % interval of its mean over the seeds decides: wholly inside, the effect holds; wholly outside, it fails;
else it is undecided. A claim holds if all its effects hold, and fails if one fails. One seed decides nothing. Scale
smoke only shows that everything runs: its numbers are shown, and no claim is judged by them.

A claim that the paper's own numbers contradict is not judged by ours at any scale.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from reports.records import Artefact
from reports.statistics import Sample
from reports.tables import DASH, Heading, Table, cell_text
from syncline.records.store import RecordError

HOLDS, FAILS, UNDECIDED, NOT_JUDGED, NOT_RUN = "holds", "fails", "undecided", "not judged", "not run"
CONTRADICTED = "paper contradicts itself"
SMOKE = "smoke"  # the scale that shows that everything runs
ROUNDING = 1e-9  # relative: a ratio that is exactly at its bound must not fail for its last bit


def verdicts_at(scale: str) -> tuple[str, ...]:
    """The verdicts that a claim can get at a scale."""
    judged = (NOT_JUDGED,) if scale == SMOKE else (HOLDS, FAILS, UNDECIDED)
    return (*judged, CONTRADICTED, NOT_RUN)


@dataclass(frozen=True, slots=True)
class Effect:
    """One number a seed, and the region that the claim gives for it."""

    what: str  # with its unit: "time of c = 28 / time of sync"
    sample: Sample
    at_least: float = -math.inf
    at_most: float = math.inf
    published: float | None = None  # what the paper's text gives for the same number
    digits: int = 2

    @property
    def verdict(self) -> str:
        low, high = self.sample.interval
        if math.isnan(low):
            return UNDECIDED
        slack = ROUNDING * max(abs(low), abs(high))
        if low >= self.at_least - slack and high <= self.at_most + slack:
            return HOLDS
        return FAILS if high < self.at_least - slack or low > self.at_most + slack else UNDECIDED

    @property
    def paper_contradicts(self) -> bool:
        """The paper's own number, as printed, is outside the region."""
        if self.published is None:
            return False
        rounding = 0.5 * 10.0**-self.digits
        return self.published < self.at_least - rounding or self.published > self.at_most + rounding

    @property
    def region(self) -> str:
        """As text: "≤ 1.00", "0.95 to 1.05"."""
        low, high = (f"{bound:,.{self.digits}f}" for bound in (self.at_least, self.at_most))
        if math.isinf(self.at_least):
            return f"≤ {high}"
        return f"≥ {low}" if math.isinf(self.at_most) else f"{low} to {high}"

    @property
    def interval_text(self) -> str:
        low, high = self.sample.interval
        return DASH if math.isnan(low) else f"{low:,.{self.digits}f} to {high:,.{self.digits}f}"


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement of a paper as a predicate over our runs.

    Attributes:
        key: its name in published/<paper>.yaml, which holds its text.
        artefacts: whose runs it is judged by; `effects` is called with these, loaded, in this order.
        effects: the numbers, at least one; may raise LookupError where the scale has no run that it needs: then the
            claim is not run.
        may_differ: one sentence: why our setting may give another answer than the paper's.
        contradiction: the number of the paper, with its place, that contradicts the claim; empty: none does.
    """

    key: str
    artefacts: tuple[str, ...]
    effects: Callable[..., Sequence[Effect]]
    may_differ: str
    contradiction: str = ""


def claim(effects: Callable[..., Sequence[Effect]], may_differ: str, *artefacts: str, contradiction: str = "") -> Claim:
    """A claim that is named as its function."""
    return Claim(effects.__name__, artefacts, effects, may_differ, contradiction)


@dataclass(frozen=True, slots=True)
class Verdict:
    claim: Claim
    text: str  # the claim, in the paper's sense
    verdict: str  # one of verdicts_at(scale)
    effects: Sequence[Effect]
    because: str  # one line: the deciding effect, or what is missing
    scale: str


def judge(claim: Claim, text: str, scale: str, load: Callable[[str], Artefact]) -> Verdict:
    """The verdict on a claim from stored runs.

    Args:
        load: an artefact by name; RecordError where there is none.
    """
    effects: Sequence[Effect] = ()
    not_run = ""
    try:
        artefacts = [load(name) for name in claim.artefacts]
        missing = [label for artefact in artefacts for label in artefact.missing]
        if missing:
            raise RecordError(f"{len(missing)} runs are missing, {missing[0]} first")
        effects = claim.effects(*artefacts)
    except RecordError as error:
        not_run = str(error)
    except LookupError as error:
        not_run = f"not part of this scale: {error}"
    if claim.contradiction:
        return Verdict(claim, text, CONTRADICTED, effects, claim.contradiction, scale)
    if not_run:
        return Verdict(claim, text, NOT_RUN, (), not_run, scale)
    if scale == SMOKE:
        because = f"not judged at scale {scale}, which only shows that everything runs"
        return Verdict(claim, text, NOT_JUDGED, effects, because, scale)
    verdicts = [effect.verdict for effect in effects]
    worst = next((verdict for verdict in (FAILS, UNDECIDED) if verdict in verdicts), HOLDS)
    return Verdict(claim, text, worst, effects, _because(effects, worst), scale)


def _because(effects: Sequence[Effect], worst: str) -> str:
    if worst == HOLDS:
        return "every interval lies where the claim says"
    first = next(effect for effect in effects if effect.verdict == worst)
    n, of = first.sample.n, len(first.sample.values)
    if worst == UNDECIDED and n < 2:
        return f"{first.what}: {n} of {of} seeds {'has' if n == 1 else 'have'} a value, which decides nothing"
    side = "lies outside" if worst == FAILS else "covers the bound of"
    return f"{first.what}: {first.interval_text} {side} {first.region}"


_SCOREBOARD = ("claim", "verdict", "number", "paper", "claimed", "ours", "95 % interval", "seeds", "of it")


def _lines(verdict: Verdict) -> Iterator[list[str]]:
    """The lines of the scoreboard: one an effect, or what is missing where there is none."""
    first = [verdict.claim.key, verdict.verdict]
    if not verdict.effects:
        yield [*first, verdict.because, *[DASH] * 5, verdict.verdict]
    for effect in verdict.effects:
        sample = effect.sample
        published, ours = (cell_text(value, effect.digits) for value in (effect.published, sample))
        numbers = [published, effect.region, ours, effect.interval_text, f"{sample.n}/{len(sample.values)}"]
        yield [*first, effect.what, *numbers, NOT_JUDGED if verdict.scale == SMOKE else effect.verdict]
        first = ["", ""]


def scoreboard(title: str, verdicts: Sequence[Verdict]) -> Table:
    """A row an effect: the claim, our number, and the verdict."""
    if any(verdict.scale == SMOKE for verdict in verdicts):
        decides = f"At scale {SMOKE}, which only shows that everything runs, it decides nothing."
    else:
        decides = (
            "It decides: inside the claimed region it holds, outside it fails, else undecided; several numbers of a "
            "claim are judged each by itself, without a correction for their number."
        )
    notes = [
        "Ours: mean ± sample standard deviation over seeds, both sides of a comparison under the same seed. The "
        f"interval is Student's, of the mean. {decides}"
    ]
    lines = [line for verdict in verdicts for line in _lines(verdict)]
    return Table(title, [Heading(name) for name in _SCOREBOARD], lines, notes)
