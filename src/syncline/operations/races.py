"""The answer of a race in words."""

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from syncline.installation import CONFIG_DIR
from syncline.operations.tables import columns, duration, wrapped
from syncline.records.studies import WrittenStudy
from syncline.studies.profile import MOST, ratio, ratios, score

HEADER = ("entrant", "rate", "seconds", "95 % interval", "times the first", "first", "reached", "wasted", "staleness")
UPDATE_NOTE = (
    "an update: how much longer it took than in virtual time; above 0 % this machine does not keep the cluster's pace"
)


def race_lines(study: WrittenStudy, width: int) -> Iterator[str]:
    """The sentence, a table of the order, who was left out and why, who would be first elsewhere, the commands."""
    answer = study.answer
    assert answer is not None
    yield from wrapped(answer["sentence"], width)
    if answer["standings"]:
        yield ""
        yield columns([HEADER, *map(_row, answer["standings"])], range(1, len(HEADER)), width)
        metric = answer["metric"].replace("_", " ")
        yield from wrapped(
            f"virtual seconds to {metric} {answer['target']:g} on test data, each over its own seeds, `times the "
            "first` over those of both; a miss counts as the length of the race, "
            f"{answer['length_s']:.4g} s. first: bootstrap probability of being so among those that were left; tests "
            f"at level {answer['level']:.2g}. wasted: share of gradients thrown away. staleness: mean, updates",
            width,
        )
    for remark in remarks(answer["standings"]):
        yield from wrapped(remark, width, "  ")
    if answer["left"]:
        yield from ["", "not judged"]
        for left in answer["left"]:
            yield from wrapped(f"{left['label']} ({left['stage']}): {left['reason']}", width, "    ", first="  ")
    yield from _elsewhere(answer, width)
    yield from _live(study, answer, width)
    yield from ["", f"the runs took {duration(answer['spent_s'])}"]


def cases(answers: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """Strategy -> the mean seconds of the soonest of its entrants, of each race and target: see studies/profile.py.

    An entrant that reached the target with no seed never did; other misses count as the length of the race.
    """
    found = []
    for answer in answers:
        for number in range(1 + len(answer["targets"])):
            case: dict[str, float] = {}
            for each in answer["standings"]:
                seconds = each["further"][number - 1] if number else each["seconds"]
                if seconds < answer["length_s"]:
                    strategy = each["label"].split()[0]
                    case[strategy] = min(seconds, case.get(strategy, math.inf))
            found.append(case | {left["label"].split()[0]: math.inf for left in answer["left"]} | case)
    return found


def score_lines(answers: Sequence[Mapping[str, Any]], width: int) -> Iterator[str]:
    """A line a strategy: its score over all races and targets, and where it was first."""
    found = ratios(cases(answers))
    num = len(next(iter(found.values()), []))
    yield "all races and targets together"
    rows = [("  strategy", "score", "first", "reached")]
    for strategy, own in sorted(found.items(), key=lambda one: -score(one[1])):
        first, reached = sum(each <= 1.0 for each in own), sum(map(math.isfinite, own))
        rows.append((f"  {strategy}", f"{score(own):.3f}", f"{first} of {num}", f"{reached} of {num}"))
    yield columns(rows, (1, 2, 3), width)
    yield from wrapped(
        f"score: share of the cases in which it takes at most tau times the best time, over tau from 1 to {MOST:g}; "
        "the soonest of a strategy's entrants counts, and one that was not judged never reached the target",
        width,
    )


def remarks(standings: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is doubtful, each with the entrants that it is said of."""
    labels: dict[str, list[str]] = {}
    for standing in standings:
        for remark in filter(None, standing["remark"].split("; ")):
            labels.setdefault(remark, []).append(standing["label"])
    return [f"{', '.join(own)}: {remark}" for remark, own in labels.items()]


def _row(standing: Mapping[str, Any]) -> tuple[str, ...]:
    first = standing["first"]
    return (
        standing["label"],
        standing["rate"],
        f"{standing['seconds']:.4g}",
        f"{standing['lower']:.4g} to {standing['upper']:.4g}",
        f"{standing['ratio']:.3g} ({standing['ratio_lower']:.3g} to {standing['ratio_upper']:.3g})",
        "behind" if first is None else f"{100.0 * first:.0f} %",
        f"{standing['num_reached']} of {standing['num']}",
        f"{100.0 * standing['wasted']:.0f} %",
        f"{standing['staleness']:.3g}",
    )


def _elsewhere(answer: Mapping[str, Any], width: int) -> Iterator[str]:
    if not answer["around"]:
        return
    yield from ["", "first on other clusters, by times alone and the updates that the target took here"]
    rows = []
    for there in answer["around"]:
        (label, seconds), *others = there["seconds"]
        second = f"{others[0][0]} {ratio(others[0][1], seconds):.3g} times" if others else ""
        rows.append((f"  {there['name']}", label, f"{seconds:.4g} s", second))
    yield columns(rows, (2,), width)


def _live(study: WrittenStudy, answer: Mapping[str, Any], width: int) -> Iterator[str]:
    """What real processes took, else the command that runs the first one so."""
    if answer["live"]:
        yield from ["", "as real processes"]
        rows = [("  entrant", "foreseen", "measured", "error", "an update")]
        for each in answer["live"]:
            foreseen, measured = each["foreseen"], each["measured"]
            is_known = foreseen is not None and measured is not None
            error = f"{100.0 * (foreseen / measured - 1.0):+.1f} %" if is_known else ""
            slower = each["update_time_ratio"]
            update = "" if slower is None else f"{100.0 * (slower - 1.0):+.1f} %"
            rows.append((f"  {each['label']}", _seconds(foreseen), _seconds(measured), error, update))
        yield columns(rows, (1, 2, 3, 4), width)
        yield from wrapped(UPDATE_NOTE, width, "  ")
    elif answer["standings"]:
        own = [word for word in study.command if word.startswith(f"{CONFIG_DIR}=")]
        words = [*own, *answer["standings"][0]["overrides"], *study.declaration["live"], "seed=0"]
        yield from ["", "the first one as real processes:"]
        yield from wrapped(f"syncline run {shlex.join(words)}", width, "  ")


def _seconds(time_s: float | None) -> str:
    return "missed" if time_s is None else f"{time_s:.4g} s"
