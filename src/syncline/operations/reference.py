"""syncline reference: adds finished runs to the results that ship with the project, and lists these.

It also copies them back into a folder of results, where an experiment or a study goes on from them.
"""

import argparse
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from syncline.installation import CONFIG_DIR, REFERENCE, reference_folder
from syncline.operations.names import all_plans, find_plan, readable
from syncline.operations.tables import columns, counted, size
from syncline.records.lock import Held, held
from syncline.records.plans import WrittenPlan
from syncline.records.reference import Reference, ReferenceRecord, columns_of, write_log, write_runs
from syncline.records.sources import Record, ResultsFolder, provenance
from syncline.records.store import FINISHED, RecordError, measured_durations, status, write_file, write_summary
from syncline.records.studies import WrittenStudy, read_study, study_path, study_stems, write_study
from syncline.records.writer import recover

MAX_LOG_BYTES = 200_000  # of an event log in the reference, which has the beginning of a longer one
MACHINE_TIMES = frozenset({"wall_s", "restarts"})  # differ from machine to machine where the results are the same
PLACES = frozenset({"results", "jobs", "rerun", CONFIG_DIR})  # keys of a command that say nothing of the runs
COPIED = "copied"  # of a study


@dataclass(frozen=True, slots=True)
class Added:
    """What one plan brought."""

    plan: str
    added: int  # runs
    there: int  # runs that the reference had already
    left: int  # runs that are not finished
    differing: list[str]  # identities of runs that are there with other numbers
    note: str  # why the plan in the reference stays; empty if it is this one


@dataclass(frozen=True, slots=True)
class Restored:
    """The runs of one plan, copied back."""

    plan: str
    restored: int
    there: int  # in the results already, or being made
    missing: int  # in the reference


def main(args: argparse.Namespace) -> int:
    args.reference = args.reference or (Path(REFERENCE) if args.action == "add" else reference_folder())
    if args.action == "list":
        if args.plans:
            raise RecordError(f"reference list lists all plans and takes no names, got {args.plans[0]}")
        return _list(args)
    if not args.plans:
        raise RecordError(f"reference {args.action} needs the names of plans, or all")
    if args.action == "restore":
        return _restore(args)
    plans = _named(args.results, args.plans)
    studies = _studies(args.results)
    added = [add(plan, args.reference, studies.values()) for plan in plans]
    stems = {plan.stem for plan in plans}
    told = dict[str, str]()
    for stem, study in studies.items():
        if study.scale and ("all" in args.plans or study.plan in stems):
            told[stem] = add_study(stem, study, args.reference)
    if not added and not told:
        raise RecordError(f"{args.results}: no plan of an experiment, and no study of one, to be added")
    if args.json:
        copied = [stem for stem, what in told.items() if what == COPIED]
        kept = {stem: what for stem, what in told.items() if what not in ("", COPIED)}
        content = {"plans": [asdict(one) for one in added], "studies": copied, "kept": kept}
        print(json.dumps({"reference": str(args.reference), **content}, indent=1))
        return 0
    for one in added:
        print(f"{one.plan}: {counted(one.added, 'run')} added, {one.there} there, {one.left} not finished{one.note}")
        for identity in one.differing:
            print(f"{identity}: the reference has other numbers, and keeps them")
    for stem, what in told.items():
        if what:
            print(f"study {stem}: {what}")
    return 0


def add(plan: WrittenPlan, reference: Path, studies: Iterable[WrittenStudy] = ()) -> Added:
    """Add the finished runs of a plan, and the plan itself.

    A plan that is there stays if it has all runs of this one and more, in the same rows and with the same report, or if
    this one has others and is not finished; else it is replaced, and further seeds of its rows stay. If it has more and
    they would not stay, it is not replaced, and the note says so. Of a plan that a study makes, a further stage that is
    under way is left out.

    Args:
        studies: those of the results.

    Raises:
        RecordError: the plan has no scale, or a record or the reference is broken.
        OSError: the reference cannot be written.
    """
    if not plan.scale:
        raise RecordError(f"{plan.path}: a sweep; the reference holds the experiments of a scale")
    plan = _of_complete_stages(plan, studies)
    source, store = ResultsFolder(plan.results), Reference(reference / plan.scale)
    found = {identity: source.record(identity) for identity in plan.once()}
    finished = [record for record in found.values() if record is not None]
    known = set(store.identities)
    new = [record for record in finished if record.identity not in known]
    differing = [
        record.identity
        for record in finished
        if (stored := store.record(record.identity)) is not None and numbers_of(stored) != numbers_of(record)
    ]
    for record in new:
        for measured in measured_durations(record.config()):
            write_file(store.durations_path(measured["path"]), (record.folder / measured["path"]).read_bytes())
    if new:
        write_runs(store.folder, new)
    if plan.report.get("events"):
        for record in finished:
            path = store.log_path(record.identity)
            if record.has_events and not path.exists():
                write_log(path, record.events(), MAX_LOG_BYTES)
    left = [identity for identity, record in found.items() if record is None and identity not in known]
    note = _add_plan(plan, store, is_finished=not left) if finished else "; nothing to show, so no plan"
    return Added(plan.stem, len(new), len(finished) - len(new), len(left), differing, note)


def _of_complete_stages(plan: WrittenPlan, studies: Iterable[WrittenStudy]) -> WrittenPlan:
    for study in studies:
        is_as_made = study.plan == plan.stem and study.num_trials == len(plan.runs)  # not grown by another command
        if is_as_made and study.stages and study.present is not None:
            return replace(plan, runs=plan.runs[: -study.present["num_trials"]])
    return plan


def _studies(results: Path) -> dict[str, WrittenStudy]:
    """All studies by their stems; a broken one is named in a line, and left out."""
    return dict(readable(lambda stem: (stem, read_study(study_path(results, stem))), study_stems(results)))


def numbers_of(record: Record) -> dict[str, Any]:
    """What a run gave, without the wall time that it took: equal for a run that was repeated in every bit.

    As JSON's types, so that nan equals nan.
    """
    summary = {key: value for key, value in record.summary().items() if key not in MACHINE_TIMES}
    curve = [{key: value for key, value in row.items() if key not in MACHINE_TIMES} for row in record.metrics()]
    return {"summary": json.dumps(summary, sort_keys=True), "curve": json.dumps(columns_of(curve), sort_keys=True)}


def add_study(stem: str, study: WrittenStudy, reference: Path) -> str:
    """Copy a study, without the places in its command, unless the one there is further.

    Returns:
        COPIED, or why the one there stays; an empty text if it is this one.
    """
    study, target = replace(study, command=_without_places(study.command)), study_path(reference, stem)
    there = read_study(target) if target.exists() else None
    if there == study:
        return ""
    if there is not None and study.answer is None:
        if there.answer is not None:
            return "the one there stays, with its answer"
        if there.declaration == study.declaration and len(there.stages) > len(study.stages):
            return "the one there stays, with more stages"
    write_study(target, study)
    return COPIED


def _restore(args: argparse.Namespace) -> int:
    known = {stem: store for store in _scales(args.reference) for stem in store.stems}
    plans = {stem: study.plan for stem, study in _studies(args.reference).items()}
    wanted = [stem for name in args.plans for stem in _meant(plans.get(name, name), list(known))]
    restored = list[Restored]()
    for stem in wanted:
        plan = known[stem].plan(stem)
        assert plan is not None
        records = [record for identity in plan.once() if (record := known[stem].record(identity)) is not None]
        num, missing = sum(restore(record, args.results) for record in records), len(plan.once()) - len(records)
        restored.append(Restored(stem, num, len(records) - num, missing))
    if args.json:
        print(json.dumps({"reference": str(args.reference), "plans": list(map(asdict, restored))}, indent=1))
        return 0
    for one in restored:
        print(f"{one.plan}: {counted(one.restored, 'run')} restored, {one.there} there, {one.missing} missing")
    return 0


def _meant(name: str, known: Sequence[str]) -> list[str]:
    """The stems of plans: of an experiment at all scales, or with its scale; or all."""
    stem = name.replace("/", "-")
    meant = [each for each in known if name == "all" or stem in (each, each.rpartition("-")[0])]
    if not meant:
        raise RecordError(f"no plan {name!r} in the reference; there are {', '.join(known) or 'none'}")
    return meant


def restore(record: ReferenceRecord, results: Path) -> bool:
    """Write the record of a run into the results, without event log and checkpoints.

    Returns:
        False if the run is finished there, or another process makes it.
    """
    folder = results / record.identity
    with suppress(Held), held(folder):
        recover(folder)
        if status(folder) == FINISHED:
            return False
        summary = record.summary()
        config = {"format": summary["format"], **record.config()}
        names = [measured["path"] for measured in measured_durations(config)]
        copies = {name: record.reference.durations_path(name).read_bytes() for name in names}
        if folder.exists():
            shutil.rmtree(folder)
        for name, content in copies.items():
            write_file(folder / name, content)
        write_file(folder / "config.json", json.dumps(config))
        write_file(folder / "environment.json", json.dumps(record.environment()))
        write_file(folder / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in record.metrics()))
        write_summary(folder, summary)  # the last: now it is finished
        os.utime(folder / "summary.json", (record.date(), record.date()))
        return True
    return False


def _named(results: Path, names: Sequence[str]) -> list[WrittenPlan]:
    if "all" in names:
        return [plan for plan in all_plans(results) if plan.scale]
    studies = {name: study_path(results, name) for name in names}  # a study's name stands for its plan
    return [find_plan(results, read_study(path).plan if path.exists() else name) for name, path in studies.items()]


def _add_plan(plan: WrittenPlan, store: Reference, is_finished: bool) -> str:
    """Copy the plan unless the one there stays. Returns why that stays, or an empty text."""
    there = store.plan(plan.stem)
    content = json.loads(plan.path.read_text())
    content["command"] = _without_places(plan.command)
    content["runs"] = content["runs"][: len(plan.runs)]
    for run in content["runs"]:
        run["overrides"] = _without_places(run["overrides"])
    if there is not None:
        has_more = {*there.once()} > {*plan.once()}
        if has_more and there.report == plan.report and _rows(plan) <= _rows(there):
            return ""
        if not has_more and {*there.once()} != {*plan.once()} and not is_finished:
            return "; the plan there stays until this one is finished"
        content["runs"] += _further_seeds(content["runs"], json.loads(there.path.read_text())["runs"])
        if has_more and {*there.once()} > {run["identity"] for run in content["runs"]}:
            return "; the plan there, with another report or other labels, stays: it has rows that this one lacks"
    write_file(store.folder / "plans" / f"{plan.stem}.json", json.dumps(content, indent=1) + "\n")
    return ""


def _rows(plan: WrittenPlan) -> set[tuple[str, str]]:
    """The label and the identity of each run."""
    return {(run.label, run.identity) for run in plan.runs}


def _further_seeds(planned: Sequence[Mapping[str, Any]], there: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Runs of the plan there whose row is planned, with other seeds alone."""
    known = {(run["label"], run["seed"]): run["identity"] for run in planned}
    shared = [run for run in there if (run["label"], run["seed"]) in known]
    changed = {run["label"] for run in shared if known[run["label"], run["seed"]] != run["identity"]}
    rows = {run["label"] for run in shared} - changed
    return [run for run in there if run["label"] in rows and (run["label"], run["seed"]) not in known]


def _without_places(command: Sequence[str]) -> list[str]:
    return [word for word in command if word.partition("=")[0] not in PLACES]


def _list(args: argparse.Namespace) -> int:
    entries = list(entries_of(args.reference))
    studies = study_stems(args.reference)
    total = sum(path.stat().st_size for path in args.reference.rglob("*") if path.is_file())
    if args.json:
        content = {"reference": str(args.reference), "bytes": total, "plans": entries, "studies": studies}
        print(json.dumps(content, indent=1))
        return 0
    header = ["scale", "artefact", "runs", "seeds", "made by"]
    keys = ("scale", "name", "runs", "seeds", "made")
    if entries:
        print(columns([header, *([str(entry[key]) for key in keys] for entry in entries)], right=(2, 3)))
    if studies:
        print(f"studies: {', '.join(studies)}")
    print(f"{counted(len(entries), 'plan')}, {size(total)} in {args.reference}")
    return 0


def _scales(reference: Path) -> list[Reference]:
    return [Reference(path.parent) for path in sorted(reference.glob("*/plans"))]


def entries_of(reference: Path) -> Iterator[dict[str, Any]]:
    """One a plan of the reference: its scale and name, its runs, seeds, and where they were made."""
    for store in _scales(reference):
        for stem in store.stems:
            plan = store.plan(stem)
            assert plan is not None
            records = [record for identity in plan.once() if (record := store.record(identity)) is not None]
            yield {
                "plan": plan.stem,
                "scale": plan.scale,
                "name": plan.name,
                "runs": len(records),
                "missing": len(plan.once()) - len(records),
                "seeds": len({plan.once()[record.identity].seed for record in records}),
                "made": provenance(records) if records else "",
            }
