"""Compose a config, run it, keep its record, print its summary.

python run.py [overrides ...]               one run            python run.py strategy=dssp model=resnet110
python run.py -m [overrides ...]            a sweep            python run.py -m strategy=bsp,asp seed=0,1
python run.py +experiment=<paper>/<artefact> scale=laptop      all runs of a paper's table or figure
python run.py +experiment=<paper> scale=laptop                 of all tables and figures of a paper; all: of all papers
python run.py --plan FILE [--runs A:B]      the runs of a plan that was written down (results/plans), or some of them
python run.py --status [the same words]     what is finished, failed, unfinished, left; starts nothing
python run.py --cfg [overrides ...]         print the composed config; starts nothing
"""

import argparse
import os
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from runners.display import RunDisplay, summary_table
from runners.one import run_one
from runners.plan import run_plan
from runners.replay import replay_config
from runners.slurm import submit
from runners.stop import Told, listen
from syncline.config import (
    GROUPS,
    ConfigError,
    Invocation,
    RunConfig,
    SlurmConfig,
    choices,
    compose,
    compose_yaml,
    sweep,
)
from syncline.operations.states import look, waiting_in
from syncline.plan import Entry, Plan, grid, with_seeds
from syncline.records.lock import announced
from syncline.records.plans import read_plan
from syncline.records.store import FINISHED, read_summary, status

# Of an experiment's file; the rest is for reports.
PLANNING = ("base", "runs", "more_runs", "scales", "timing", "seeds", "real_data")
FLAGS = {"-m": "sweep", "--multirun": "sweep", "--status": "status", "--cfg": "cfg", "-h": "help", "--help": "help"}


def main(arguments: list[str]) -> int:
    """Returns the exit code: 0, or 1 if anything failed.

    Raises:
        ValueError: bad input; the message is the one line to show.
    """
    if "--plan" in arguments:
        return run_stored(arguments)
    flags = {FLAGS[word] for word in arguments if word in FLAGS}
    overrides = [word for word in arguments if word not in FLAGS]
    unknown = [word for word in overrides if word.startswith("-")]
    if unknown:
        raise ConfigError(f"unknown option {unknown[0]}; allowed: {', '.join([*FLAGS, '--plan'])}, and key=value")
    if "help" in flags:
        print(help_text())
        return 0
    if "cfg" in flags:
        print(compose_yaml(overrides))
        return 0
    is_experiment = any(word.lstrip("+").startswith("experiment=") for word in overrides)
    if not (is_experiment or "sweep" in flags):
        config, invocation = compose(overrides)
        if config.runner.name == "replay":
            config = replay_config(config, Path(invocation.results))
        if isinstance(invocation.launcher, SlurmConfig) and "status" not in flags:
            return run_all([single(config, overrides)], invocation)
        return show_status([single(config, overrides)], invocation) if "status" in flags else run(config, invocation)
    if is_experiment:
        plans, invocation = experiment_plans(overrides, "sweep" in flags)
    else:
        plan, invocation = sweep_plan(overrides)
        plans = [plan]
    if "status" in flags:
        return show_status(plans, invocation)
    return run_all(plans, invocation)


def run(config: RunConfig, invocation: Invocation) -> int:
    """One run in this process, or the table of the one that is there."""
    results = Path(invocation.results)
    folder = results / config.identity
    if status(folder) == FINISHED and not invocation.rerun:
        summary = read_summary(folder)
        note = "finished before; rerun=true repeats it"
    else:
        with RunDisplay(config) as display:
            summary = run_one(config, results, display.progressed, anew=invocation.rerun)
        note = "finished"
    console = Console(highlight=False)
    console.print(summary_table(summary))
    console.print(f"record {folder} ({note})", soft_wrap=True, markup=False)
    differs = not summary.get("replay", {"equal": True})["equal"]
    return 1 if summary["status"] == "diverged" or differs else 0


def run_all(plans: Sequence[Plan], invocation: Invocation) -> int:
    """All runs of these plans that are not finished, those that they share once."""
    results = Path(invocation.results)
    paths = [plan.write(results) for plan in plans]
    if isinstance(invocation.launcher, SlurmConfig):
        return submit_all(plans, invocation)
    with announced(paths):
        failed = run_plan(
            merged(plans), results, jobs=invocation.jobs, fail_fast=invocation.fail_fast, rerun=invocation.rerun
        )
    print("plan", *paths)
    return 1 if failed else 0


def submit_all(plans: Sequence[Plan], invocation: Invocation) -> int:
    """Leave all runs of these plans that are not finished to Slurm."""
    assert isinstance(invocation.launcher, SlurmConfig)
    jobs, num_waiting = submit(plans, Path(invocation.results), invocation.launcher, invocation.rerun)
    for job in jobs:
        size = f"{job.num_runs} runs in {job.num_tasks} tasks"
        if job.job_id is None:
            print(f"{size}, not submitted: sbatch {job.script}")
        else:
            after = f", its report is job {job.report_id}" if job.report_id else ""
            print(f"job {job.job_id}: {size}{after}; output in {job.script.parent}")
    if num_waiting:
        print(f"{num_waiting} runs are in Slurm's hands already")
    if not jobs:
        print("nothing is left to be submitted")
    return 0


def run_stored(arguments: list[str]) -> int:
    """The runs of a stored plan that are not finished, or of a part of it: what a task of an array job calls."""
    parser = argparse.ArgumentParser(prog="run.py", allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--runs", default=":")
    asked, words = parser.parse_known_args(arguments)
    part = re.fullmatch(r"(\d*):(\d*)", asked.runs)
    if part is None:
        raise ConfigError(f"--runs must be FIRST:END, counted from 0, got {asked.runs}")
    stored = read_plan(asked.plan)
    runs = list(stored.once().values())[slice(*(int(number) if number else None for number in part.groups()))]
    _, invocation = compose(words)
    entries = []
    for run in runs:
        config, _ = compose(run.overrides)
        if config.identity != run.identity:
            raise ConfigError(
                f"{asked.plan}: {run.identity} would be {config.identity} now: conf/ has changed since the plan was "
                "written; ask for the plan again"
            )
        entries.append(Entry(run.label, tuple(run.overrides), config))
    if not entries:
        raise ConfigError(f"{asked.plan} has no runs {asked.runs}")
    plan = Plan(stored.name, stored.scale, tuple(entries), {})
    failed = run_plan(
        plan, Path(invocation.results), jobs=invocation.jobs, fail_fast=invocation.fail_fast, rerun=invocation.rerun
    )
    return 1 if failed else 0


def merged(plans: Sequence[Plan]) -> Plan:
    """All their entries as one plan, which is not written down; labels say whose they are."""
    if len(plans) == 1:
        return plans[0]
    entries = [replace(entry, label=f"{plan.name}: {entry.label}") for plan in plans for entry in plan.entries]
    return Plan("papers", plans[0].scale, tuple(entries), {})


def show_status(plans: Sequence[Plan], invocation: Invocation) -> int:
    """One line a run: its state, label and identity; python -m syncline status tells more."""
    results, plan = Path(invocation.results), merged(plans)
    entries = {entry.config.identity: entry for entry in plan.unique()}
    states = look(results, entries, waiting_in(results, [each.stem for each in plans]))
    for identity, entry in entries.items():
        print(f"{states[identity].state:10}  {entry.label}  {identity}")
    return 0


def single(config: RunConfig, overrides: list[str]) -> Plan:
    return Plan("run", "", (Entry("run", tuple(overrides), config),), {}, tuple(overrides))


def sweep_plan(overrides: list[str]) -> tuple[Plan, Invocation]:
    """A plan of the product of all sweeps; a run's label is what it does not share with the others."""
    entries = []
    runs = sweep(overrides)
    if not runs:
        raise ConfigError(f"no runs in {' '.join(overrides)}")
    shared = set.intersection(*map(set, runs)) if len(runs) > 1 else set(runs[0])
    for run_overrides in runs:
        config, invocation = compose(run_overrides)
        label = " ".join(word for word in run_overrides if word not in shared) or "run"
        entries.append(Entry(label, tuple(run_overrides), config))
    return Plan("sweep", "", tuple(entries), {}, ("-m", *overrides)), invocation


def experiment_plans(overrides: list[str], with_sweeps: bool) -> tuple[list[Plan], Invocation]:
    """The plan of an experiment, or of each in a folder of them (a paper), or of all."""
    word = next(word for word in overrides if word.lstrip("+").startswith("experiment="))
    others = [other for other in overrides if other is not word]
    wanted, names = word.partition("=")[2], choices("experiment")
    chosen = [name for name in names if wanted in (name, name.partition("/")[0], "all")] or [wanted]
    made = [experiment_plan([f"+experiment={name}", *others], with_sweeps) for name in chosen]
    return [plan for plan, _ in made], made[0][1]


def experiment_plan(overrides: list[str], with_sweeps: bool) -> tuple[Plan, Invocation]:
    """A plan of an experiment's grid at the chosen scale, with its seeds; what the command line says wins."""
    own = [word for word in overrides if re.split("[.=]", word.lstrip("+"))[0] not in ("experiment", "scale")]
    about = [word for word in overrides if word not in own]
    name = next(word.partition("=")[2] for word in about if "experiment=" in word)
    sweeps = sweep(own) if with_sweeps else [own]
    _, invocation = compose([*sweeps[0], *about])
    experiment, scale = invocation.experiment, invocation.scale
    entries = []
    for label, run_overrides in grid(experiment, scale.name, data_folder()):
        for asked in sweeps:
            words = (*run_overrides, *asked)
            config, _ = compose(words)
            entries.append(Entry(label, words, config))
    if not any(word.startswith("seed=") for word in own):
        are_asked = any(word.startswith("scale.seeds=") for word in about)
        own_seeds = (experiment.get("seeds") or {}).get(scale.name)
        entries = with_seeds(entries, own_seeds if own_seeds and not are_asked else scale.seeds)
    report = {key: value for key, value in experiment.items() if key not in PLANNING}
    command = ("-m", *overrides) if with_sweeps else tuple(overrides)
    return Plan(name, scale.name, tuple(entries), report, command), invocation


def data_folder() -> Path | None:
    """Where real data lie, if anywhere."""
    folder = os.environ.get("SYNCLINE_DATA")
    return Path(folder) if folder else None


def help_text() -> str:
    """The module's text, and every group with its choices."""
    groups = (*GROUPS, "experiment")
    lines = [f"  {group:10} {', '.join(choices(group))}" for group in groups]
    return (
        f"{__doc__}\nGroups (group=choice):\n" + "\n".join(lines) + "\n\nAll keys and their values: python run.py --cfg"
    )


def command_line() -> NoReturn:
    arguments = sys.argv[1:]
    listen()
    debug = "debug=true" in arguments
    try:
        code = main(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # as of `| head`; Python would complain once more at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = 141  # as shells have it
    except ValueError as error:  # ConfigError, RecordError, DataMissingError: the user's, and one line long
        if debug:
            raise
        print(f"error: {error}", file=sys.stderr)
        code = 1
    except OSError as error:
        if debug:
            raise
        print(f"error: {error.filename or ''}: {error.strerror or error}", file=sys.stderr)
        code = 1
    except Told as told:
        again = shlex.join(["python", "run.py", *arguments])
        kept = told.kept or "finished runs are kept"
        print(f"interrupted; {kept}; the same command goes on: {again}", file=sys.stderr)
        code = told.code
    raise SystemExit(code)


if __name__ == "__main__":
    command_line()
