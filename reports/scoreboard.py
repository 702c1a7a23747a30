"""Verdicts as tables: by paper, by claim, and number by number."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from reports.claims import BY_RATE, DERIVED, LEARNED, NOT_JUDGED, SMOKE, ArmVerdict, Verdict, verdicts_at
from reports.effects import Effect
from reports.tables import DASH, Heading, Table, cell_text

LONGEST = 200  # characters of a cell that joins several numbers
COLUMNS = ("claim", "verdict", "rests on", "rates", "number", "paper", "claimed", "ours", "interval", "seeds", "of it")


def scoreboard(title: str, verdicts: Sequence[Verdict]) -> Table:
    """The claim, what it rests on, our numbers and their verdicts, in each of its arms."""
    lines = [line for verdict in verdicts for arm in verdict.arms for line in _lines(verdict, arm)]
    return Table(title, [Heading(name) for name in COLUMNS], lines, [_note(verdicts)])


def _lines(verdict: Verdict, arm: ArmVerdict) -> Iterator[list[str]]:
    """The lines of one arm: one an effect, or what is missing where there is none."""
    first = [verdict.claim.key, arm.verdict, verdict.claim.basis, arm.rates or DASH]
    if not arm.numbers:
        yield [*first, arm.because, *[DASH] * 5, arm.verdict]
    for number in arm.numbers:
        effect = number.effect
        numbers = [cell_text(effect.published, effect.digits), effect.region_text, _ours(effect), number.interval_text]
        of_it = NOT_JUDGED if verdict.scale == SMOKE else number.verdict
        yield [*first, effect.what, *numbers, f"{effect.num_present}/{effect.num_seeds}", of_it]
        first = [""] * len(first)


def _ours(effect: Effect) -> str:
    """A ratio of means has no deviation over seeds."""
    is_mean = effect.over is None and not effect.is_share
    return cell_text(effect.sample if is_mean else effect.estimate, effect.digits)


def _note(verdicts: Sequence[Verdict]) -> str:
    ours = (
        "Ours: mean ± sample standard deviation over seeds, or a ratio of means, or a share of seeds; both sides of a "
        "comparison under the same seed."
    )
    if any(verdict.scale == SMOKE for verdict in verdicts):
        return f"{ours} At scale {SMOKE}, which only shows that everything runs, nothing is decided."
    arms = [arm for verdict in verdicts for arm in verdict.arms if arm.numbers]
    shares = sorted({round(100.0 * (1.0 - 2.0 * arm.level), 1) for arm in arms})
    sizes = " or ".join(f"{share:g} %" for share in shares) or "90 %"
    return (
        f"{ours} The interval ({sizes}: its error on each side is the level of the test; Student's, Fieller's of a "
        "ratio, Clopper and Pearson's of a share) decides: inside the claimed region the number holds, outside it "
        "fails, else it is undecided. A claim holds if all its numbers do; one that fails is enough to refute it, so "
        "that failing is corrected for how many there are (Holm), and a number may be undecided though its interval "
        "lies outside."
    )


def board(scales: Sequence[str], by_paper: Mapping[str, Sequence[Verdict]], mark: str = "{}") -> Table:
    """A row a paper, a column a verdict: the claims, with what they rest on if not on learning, and another scale.

    Args:
        mark: how the key of a claim is written.
    """
    kinds = verdicts_at(scales[0])

    def told(verdict: Verdict) -> str:
        about = [] if verdict.claim.basis == LEARNED else [verdict.claim.basis]
        if verdict.verdict == BY_RATE:
            about.append(verdict.told)
        if verdict.claim.basis == LEARNED and verdict.scale != scales[0]:
            about.append(verdict.scale)
        return mark.format(verdict.claim.key) + (f" ({', '.join(about)})" if about else "")

    rows = [
        [paper, *(", ".join(told(one) for one in verdicts if one.verdict == kind) or DASH for kind in kinds)]
        for paper, verdicts in by_paper.items()
    ]
    return Table("", [Heading(name) for name in ("", *kinds)], [*rows, _counted("of {}", kinds, by_paper)])


def counts(scales: Sequence[str], by_paper: Mapping[str, Sequence[Verdict]]) -> Table:
    """A row a paper, a column a verdict: how many of its claims have it."""
    kinds = verdicts_at(scales[0])
    rows = [_counted(paper, kinds, {paper: verdicts}) for paper, verdicts in by_paper.items()]
    return Table("", [Heading(name) for name in ("", *kinds)], [*rows, _counted("of {}", kinds, by_paper)])


def _counted(name: str, kinds: Sequence[str], by_paper: Mapping[str, Sequence[Verdict]]) -> list[str]:
    """A row of them."""
    found = Counter(one.verdict for verdicts in by_paper.values() for one in verdicts)
    return [name.format(found.total()), *(str(found[kind]) for kind in kinds)]


def declared(by_paper: Mapping[str, Sequence[Verdict]]) -> Table:
    """The numbers of each claim that is not derived: where the claim says that they lie, and what of that is ours.

    Numbers of a claim that must lie in the same region share a row.
    """
    headings = ("claim", "numbers", "claimed", "ours, not the paper's")
    rows = []
    for paper, verdicts in by_paper.items():
        for one in (verdict for verdict in verdicts if verdict.claim.basis != DERIVED):
            first, numbers = f"`{paper}/{one.claim.key}`", dict[tuple[str, str], list[str]]()
            for effect in one.arms[0].effects:
                numbers.setdefault((effect.region_text, effect.region.ours or DASH), []).append(effect.what)
            for about, names in numbers.items():
                for text in _joined(names):
                    rows.append([first, text, *about])
                    first = ""
    return Table("", [Heading(name) for name in headings], rows)


def _joined(names: Sequence[str]) -> list[str]:
    """The names in as few cells as are read easily."""
    cells = [*names[:1]]
    for name in names[1:]:
        if len(longer := f"{cells[-1]}; {name}") <= LONGEST:
            cells[-1] = longer
        else:
            cells.append(name)
    return cells


def summary(scales: Sequence[str], by_paper: Mapping[str, Sequence[Verdict]]) -> str:
    """One sentence."""
    counts = Counter(one.verdict for verdicts in by_paper.values() for one in verdicts)
    told = ", ".join(f"{kind} {counts[kind]}" for kind in verdicts_at(scales[0]))
    where = " or else ".join(scales)
    return f"Of the {counts.total()} claims at scale {where}: {told}."


def claims_table(scales: Sequence[str], verdicts: Sequence[Verdict]) -> Table:
    """A row a claim and arm: its verdict, what it rests on, and what decided it."""
    headings = ["claim", "rests on", *(["scale"] if len(scales) > 1 else []), "rates", "verdict", "what decided it"]
    rows = []
    for one in verdicts:
        first = [f"`{one.claim.key}`", one.claim.basis, *([one.scale] if len(scales) > 1 else [])]
        for arm in one.arms:
            rows.append([*first, arm.rates or DASH, arm.verdict, arm.because])
            first = [""] * len(first)
    return Table("", [Heading(name) for name in headings], rows)
