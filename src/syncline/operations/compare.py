"""syncline compare: two records side by side, or one's own runs beside those of the reference."""

import argparse
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from syncline.installation import reference_folder
from syncline.operations.names import all_plans, find_plan, find_record
from syncline.operations.show import flat, scalars
from syncline.operations.tables import cell, columns, counted
from syncline.records.plans import WrittenPlan
from syncline.records.sources import ResultsFolder, Source
from syncline.records.store import RecordError, inspected, read_config, read_environment, read_summary

if TYPE_CHECKING:
    from syncline.operations.agreement import Comparison, Numbers

OF_START = ("command", "restarts")  # of environment.json: of each start


def main(args: argparse.Namespace) -> int:
    if args.reference:
        return _with_reference(args)
    if len(args.names) != 2:
        raise RecordError(f"compare needs two records, or --reference; got {counted(len(args.names), 'name')}")
    return _two_records(args)


def _two_records(args: argparse.Namespace) -> int:
    folders = [find_record(record, args.results) for record in args.names]
    configs = [flat(read_config(folder)) for folder in folders]
    environments = [flat(read_environment(folder)) for folder in folders]
    summaries = [{} if inspected(folder)[0] is None else scalars(read_summary(folder)) for folder in folders]
    records = [folder.resolve().name for folder in folders]
    if records[0] == records[1]:
        records = list(map(str, folders))
    differing = {key: pair for key, pair in _beside(*configs).items() if pair[0] != pair[1]}
    made = {key: pair for key, pair in _beside(*environments).items() if pair[0] != pair[1] and key not in OF_START}
    results = {key: pair for key, pair in _beside(*summaries).items() if key != "identity"}
    if args.json:
        print(json.dumps({"records": records, "config": differing, "environment": made, "results": results}, indent=1))
        return 0
    header = ["", *records]
    rows = [[key, *map(cell, pair)] for key, pair in differing.items()] or [["(the configs are the same)", "", ""]]
    for part in filter(None, (made, results)):
        rows += [["", "", ""], *([key, *map(cell, pair)] for key, pair in part.items())]
    print(columns([header, *rows]))
    for name in [name for name, summary in zip(records, summaries, strict=True) if not summary]:
        print(f"{name} is not finished: no results")
    return 0


def _beside(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {key: (first.get(key), second.get(key)) for key in (*first, *(key for key in second if key not in first))}


def _with_reference(args: argparse.Namespace) -> int:
    """Returns 1 if a number differs."""
    from syncline.operations.agreement import ALARMS, LEVEL, compare_plans  # imports scipy, half a second

    folder = args.folder or reference_folder()
    sides = _sides(args.results, folder, args.names)
    found = compare_plans(sides)
    counts = Counter(one.verdict for one in found)
    code = 1 if any(counts[verdict] for verdict in ALARMS) else 0
    if args.json:
        content = {
            "reference": str(folder),
            "level": LEVEL,
            "counts": counts,
            "comparisons": [as_dict(one) for one in found],
            "other_settings": {own.stem: other_settings(own, theirs) for own, _, theirs, _ in sides},
        }
        print(json.dumps(content, indent=1))
        return code
    for own, _, theirs, _ in sides:
        here = [one for one in found if one.plan == own.stem]
        changed = other_settings(own, theirs)
        rows = f"{counted(len(changed), 'row')}, {changed[0]} first" if changed else ""
        remark = f"; other settings than the reference's in {rows}" if changed else ""
        print(f"{own.stem}: {_counted(one.verdict for one in here)}{remark}")
        listed = here if args.names else [one for one in here if one.verdict in ALARMS]
        if listed:
            print(_table(listed))
    print(f"{counted(len(found), 'comparison')}: {_counted(one.verdict for one in found)}")
    print(f"Student's tests, by seed where two are shared; all together err with probability {LEVEL:g} at most (Holm)")
    return code


def _sides(results: Path, folder: Path, names: Sequence[str]) -> list[tuple[WrittenPlan, Source, WrittenPlan, Source]]:
    """Own plans and those of the reference, with where the runs of each are."""
    from syncline.records.reference import Reference

    sides: list[tuple[WrittenPlan, Source, WrittenPlan, Source]] = []
    stores: dict[str, Reference] = {}  # by scale
    for own in [find_plan(results, name) for name in names] or [plan for plan in all_plans(results) if plan.scale]:
        store = stores.setdefault(own.scale, Reference(folder / own.scale))
        theirs = store.plan(own.stem) if own.scale else None
        if theirs is not None:
            sides.append((own, ResultsFolder(own.results), theirs, store))
        elif names:
            raise RecordError(f"{own.stem}: not in {folder}; syncline reference list says what is there")
    if not sides:
        raise RecordError(f"nothing to compare: no plan of {results} is in {folder}")
    return sides


def other_settings(own: WrittenPlan, theirs: WrittenPlan) -> list[str]:
    """Rows of both plans in which a run has another identity than the run of the same seed in the reference."""
    known = {(run.label, run.seed): run.identity for run in theirs.runs}
    changed = [run.label for run in own.runs if known.get((run.label, run.seed), run.identity) != run.identity]
    return list(dict.fromkeys(changed))


def _counted(verdicts: Iterable[str]) -> str:
    return ", ".join(f"{number:,} {verdict}" for verdict, number in Counter(verdicts).items()) or "nothing to compare"


def _table(comparisons: "Sequence[Comparison]") -> str:
    header = ["row", "number", "own", "reference", "verdict"]
    rows = [[one.row, one.number, _spread(one.own), _spread(one.reference), one.verdict] for one in comparisons]
    return columns([[f"  {first}", *others] for first, *others in (header, *rows)], right=(2, 3))


def _spread(numbers: "Numbers") -> str:
    """0.9125 ± 0.0031 (3): mean, sample standard deviation, number of seeds."""
    values = [*numbers.values()]
    deviation = f" ± {stdev(values):.3g}" if len(values) > 1 else ""
    return f"{fmean(values):.6g}{deviation} ({len(values)})"


def as_dict(one: "Comparison") -> dict[str, Any]:
    """For JSON."""
    sides = {
        side: {
            "mean": fmean(numbers.values()),
            "std": stdev(numbers.values()) if len(numbers) > 1 else None,
            "n": len(numbers),
        }
        for side, numbers in (("own", one.own), ("reference", one.reference))
    }
    p = None if math.isnan(one.p) else one.p
    return {"plan": one.plan, "row": one.row, "number": one.number, **sides, "p": p, "verdict": one.verdict}
