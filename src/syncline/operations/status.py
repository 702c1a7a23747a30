"""syncline status: which runs of the plans are finished, which failed, which are left."""

import argparse
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from syncline.operations import studies
from syncline.operations.names import all_plans, find_plan, start_of
from syncline.operations.ranking import ranking
from syncline.operations.states import RUNNING, STATES, RunState, names, run_states, slurm_states
from syncline.operations.tables import duration, row_lines, terminal_width, wrapped
from syncline.records.plans import PlannedRun, WrittenPlan
from syncline.records.store import FINISHED, is_identity


@dataclass(frozen=True, slots=True)
class PlanStatus:
    """A plan and the states of its runs, each once."""

    plan: WrittenPlan
    runs: dict[str, PlannedRun]
    states: dict[str, RunState]
    at: float  # when the states were read, in seconds since 1970

    def count(self, state: str) -> int:
        return sum(run.state == state for run in self.states.values())

    @property
    def diverged(self) -> int:
        return sum(run.ended_by == "diverged" for run in self.states.values())

    @property
    def taken_s(self) -> list[float]:
        """Wall seconds of each finished run, where known."""
        return [run.wall_s for run in self.states.values() if run.wall_s is not None]

    @property
    def mean_s(self) -> float | None:
        return fmean(self.taken_s) if self.taken_s else None

    @property
    def to_go_s(self) -> float | None:
        """Seconds until all runs are finished, with as many at a time as now, or one; None before one is finished."""
        overall = self.mean_s
        if overall is None:
            return 0.0 if self.count(FINISHED) == len(self.states) else None
        by_label: dict[str, list[float]] = {}
        for identity, state in self.states.items():
            if state.wall_s is not None:
                by_label.setdefault(self.runs[identity].label, []).append(state.wall_s)
        means = {label: fmean(taken) for label, taken in by_label.items()}
        to_go = 0.0
        for identity, state in self.states.items():
            if state.state != FINISHED:
                whole = means.get(self.runs[identity].label, overall)
                to_go += whole if state.owner is None else max(whole - (self.at - state.owner.since), 0.0)
        return to_go / max(self.count(RUNNING), 1)

    def as_dict(self, with_runs: bool, state: str | None) -> dict[str, Any]:
        """For --json."""
        plan = self.plan
        content: dict[str, Any] = {
            "plan": plan.stem,
            "name": plan.name,
            "scale": plan.scale,
            "command": plan.command,
            "started": plan.started,
            "total": len(self.states),
            **{name: self.count(name) for name in STATES},
            "diverged": self.diverged,
            "spent_s": sum(self.taken_s),
            "mean_s": self.mean_s,
            "to_go_s": self.to_go_s,
        }
        if with_runs:
            content["runs"] = [
                {"identity": identity, "label": run.label, "seed": run.seed, **self.states[identity].as_dict()}
                for identity, run in self.chosen(state)
            ]
        return content

    def chosen(self, state: str | None) -> list[tuple[str, PlannedRun]]:
        """(identity, run) of the runs in this state; None: all."""
        return [(identity, run) for identity, run in self.runs.items() if state in (None, self.states[identity].state)]


def plan_status(results: Path, plans: Sequence[WrittenPlan]) -> list[PlanStatus]:
    """The states of the runs of these plans; a run that plans share is read once."""
    runs = [plan.once() for plan in plans]
    wanted = dict.fromkeys(identity for own in runs for identity in own)
    states = run_states(results, wanted, slurm_states(results, [plan.stem for plan in plans]))
    at = time.time()
    return [
        PlanStatus(plan, own, {identity: states[identity] for identity in own}, at)
        for plan, own in zip(plans, runs, strict=True)
    ]


def main(args: argparse.Namespace) -> int:
    results: Path = args.results
    plans = [find_plan(results, args.plan)] if args.plan else all_plans(results)
    if args.plan:
        results = plans[0].results
    found = plan_status(results, plans)
    with_runs = args.runs or args.state is not None or args.plan is not None
    others = None if args.plan else _of_no_plan(results, plans)
    if args.json:
        content: dict[str, Any] = {
            "results": str(results),
            "plans": [status.as_dict(with_runs, args.state) for status in found],
        }
        if others is not None:
            content["studies"] = studies.states(results)
            content["of_no_plan"] = {state: list(others.values()).count(state) for state in STATES}
        print(json.dumps(content, indent=1))
        return 0
    if not found and not others:
        print(f"no plans and no records in {results}")
        return 0
    print("\n".join(_overview(found, others or {}, terminal_width())))
    if diverged := sum(status.diverged for status in found):
        print(f"{diverged} of the finished diverged")
    if with_runs:
        _list(found, args.state, terminal_width())
    if not args.plan and (of_studies := studies.states(results)):
        print("\n".join(["", *studies.state_lines(of_studies, terminal_width())]))
    if args.plan and (table := ranking(found[0].plan.runs, found[0].states, terminal_width())):
        print(f"\n{table}")
    return 0


def _overview(found: Sequence[PlanStatus], others: Mapping[str, str], width: int) -> Iterator[str]:
    """A line a plan with a column for each state that occurs, and below it when and how the plan was started."""
    counts = [{state: status.count(state) for state in STATES} for status in found]
    counts.append({state: list(others.values()).count(state) for state in STATES})
    present = [state for state in STATES if any(count[state] for count in counts)]
    rows = [("plan", "runs", *present, "spent", "to go")]
    for status, count in zip(found, counts, strict=False):
        times = (sum(status.taken_s), status.to_go_s)
        cells = [str(number) for number in (len(status.states), *(count[state] for state in present))]
        rows.append((status.plan.stem, *cells, *("?" if time is None else duration(time) for time in times)))
    if others:
        rows.append(("(no plan)", str(len(others)), *(str(counts[-1][state]) for state in present), "", ""))
    about = ["", *(start_of(status.plan.started, status.plan.command) for status in found), ""]
    for line, under in zip(row_lines(rows, range(1, len(rows[0])), width), about, strict=False):
        yield line
        yield from wrapped(under, width, "  ")


def _list(found: Sequence[PlanStatus], state: str | None, width: int) -> None:
    for status in found:
        rows, texts = [("state", "time", "seed")], [("identity", "label", "note")]
        for identity, run in status.chosen(state):
            made = status.states[identity]
            rows.append((made.state, "" if made.wall_s is None else duration(made.wall_s), str(run.seed)))
            texts.append((identity, run.label, made.note))
        if rows[1:]:
            print()
            if len(found) > 1:
                print(f"{status.plan.stem}:")
            for line, text in zip(row_lines(rows, right=(1, 2)), row_lines(texts), strict=True):
                print("\n".join(wrapped(text, width, "  ", first=f"{line}  ")))


def _of_no_plan(results: Path, plans: Sequence[WrittenPlan]) -> dict[str, str]:
    """Identity -> state of the records that none of these plans names."""
    planned = {run.identity for plan in plans for run in plan.runs}
    others = sorted(name for name in names(results) if is_identity(name) and name not in planned)
    return {identity: state.state for identity, state in run_states(results, others, {}).items()}
