"""Run experiments: compose a config, run it, keep its record, print its summary.

python run.py [KEY=VALUE ...]              one run
python run.py -m [KEY=V1,V2 ...]           a sweep: a run of each combination
python run.py +experiment=PAPER/ARTEFACT   all runs of a paper's table or figure
python run.py +experiment=PAPER            of all of them; all: of all papers
python run.py --status [the same words]    what is finished, failed or left
python run.py --cfg [KEY=VALUE ...]        print all keys and their values
python run.py --plan FILE [--runs A:B]     runs of a stored plan (results/plans)
python run.py --version

python run.py strategy=dssp model=resnet110 cluster.workers=8
python run.py -m strategy=bsp,asp,ssp seed=0,1,2
python run.py +experiment=dssp/table1 scale=laptop
"""

import argparse
import os
import re
import shlex
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from rich.console import Console

import syncline
from runners.display import RunDisplay, summary_table
from runners.one import lacks_parameters, run_one
from runners.plan import run_plan
from runners.replay import replay_config
from runners.slurm import submit
from runners.stop import StopRequested, listen
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
from syncline.config.words import meant, nearest
from syncline.live.supervisor import Supervisor
from syncline.operations.ranking import ranking
from syncline.operations.states import look, waiting_in
from syncline.operations.tables import counted, terminal_width, wrapped
from syncline.plan import Entry, Plan, grid, with_seeds
from syncline.records.lock import announced
from syncline.records.plans import PlannedRun, read_plan
from syncline.records.store import FINISHED, read_summary, status

# Of an experiment's file; the rest is for reports.
PLANNING = ("base", "runs", "more_runs", "scales", "timing", "seeds", "real_data")
RANKED = 30  # settings that are listed at the end of a plan
FLAGS = (("-m", "--multirun"), ("--status",), ("--cfg",), ("--version",), ("-h", "--help"))
# For --help: the keys that are set most.
KEYS = {
    "seed=0": "of weights, data order and delays",
    "epochs=30": "of the training set; also max_updates, max_time_s",
    "batch_size=32": "of one worker",
    "cluster.workers=4": "how many compute gradients",
    "cluster.gradient_s=[0.02]": "seconds a gradient; a list: one for each worker",
    "optimizer.lr=0.05": "learning rate",
    "target.value=0.95": "end early at this accuracy",
    "gradients=false": "times alone, nothing is learned",
    "runner=local": "real processes in place of virtual time",
    "results=results": "folder of the records",
    "jobs=2": "runs at a time",
    "rerun=true": "repeat what is finished",
}


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


def parsed(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """The options, and the overrides.

    Raises:
        ConfigError: an unknown option, or some that do not go together.
    """
    parser = Parser(add_help=False, allow_abbrev=False)
    for names in FLAGS:
        parser.add_argument(*names, action="store_true")
    parser.add_argument("--plan", type=Path)
    parser.add_argument("--runs")
    asked, words = parser.parse_known_args(arguments)
    known = [*(name for names in FLAGS for name in names), "--plan", "--runs"]
    for word in words:
        if word.startswith("-"):
            hint = meant(nearest(word.partition("=")[0], known))
            raise ConfigError(f"unknown option {word}; allowed: {', '.join(known)}, and key=value{hint}")
    alone = [name for name in ("--plan", "--cfg") if getattr(asked, name[2:])]
    if alone and (asked.multirun or asked.status or alone[1:]):
        raise ConfigError(f"{alone[0]} goes with none of -m, --status, --cfg")
    if asked.runs is not None and not asked.plan:
        raise ConfigError("--runs goes with --plan FILE")
    return asked, words


def main(arguments: list[str]) -> int:
    """Returns the exit code: 0, or 1 if anything failed.

    Raises:
        ValueError: bad input; the message is the one line to show.
    """
    asked, overrides = parsed(arguments)
    if asked.help or asked.version:
        print(help_text() if asked.help else f"syncline {syncline.__version__}")
        return 0
    if asked.plan:
        return run_stored(asked.plan, asked.runs or ":", overrides)
    if asked.cfg:
        print(compose_yaml(overrides))
        return 0
    is_of_papers = any(map(is_experiment, overrides))
    if not (is_of_papers or asked.multirun):
        with Supervisor() as supervisor:
            if "runner=local" in overrides and sys.platform == "linux":
                supervisor.begin()  # it imports torch while the config is composed
            config, invocation = compose(overrides)
            if config.runner.name == "replay":
                config = replay_config(config, Path(invocation.results))
            if asked.status:
                return show_status([single(config, overrides)], invocation)
            if isinstance(invocation.launcher, SlurmConfig):
                return run_all([single(config, overrides)], invocation)
            return run(config, invocation, supervisor)
    if is_of_papers:
        plans, invocation = experiment_plans(overrides, asked.multirun)
    else:
        plan, invocation = sweep_plan(overrides)
        plans = [plan]
    if asked.status:
        return show_status(plans, invocation)
    return run_all(plans, invocation)


def run(config: RunConfig, invocation: Invocation, supervisor: Supervisor) -> int:
    """One run in this process, or the table of the one that is there."""
    results = Path(invocation.results)
    folder = results / config.identity
    if status(folder) == FINISHED and not invocation.rerun:
        summary = read_summary(folder)
        note = "finished before; rerun=true repeats it"
        if lacks_parameters(config, results):
            note = "finished before, without runner.parameters=true; rerun=true makes it again with them"
    else:
        with RunDisplay(config) as display:
            summary = run_one(config, results, display.progressed, restart=invocation.rerun, supervisor=supervisor)
        note = "finished"
    console = Console(highlight=False)
    console.print(summary_table(summary))
    console.print(f"record {folder} ({note})", soft_wrap=True, markup=False)
    differs = not summary.get("replay", {"equal": True})["equal"]
    return 1 if summary["status"] == "diverged" or differs else 0


def run_all(plans: Sequence[Plan], invocation: Invocation) -> int:
    """All runs of these plans that are not finished, those that they share once."""
    if isinstance(invocation.launcher, SlurmConfig):
        return submit_all(plans, invocation)
    results = Path(invocation.results)
    paths = [plan.write(results) for plan in plans]
    with announced(paths):
        failed = run_plan(
            merged(plans), results, jobs=invocation.jobs, fail_fast=invocation.fail_fast, rerun=invocation.rerun
        )
    print("plan", *paths)
    show_ranking(paths)
    return 1 if failed else 0


def show_ranking(paths: Sequence[Path]) -> None:
    """The settings of a plan, the best first; of several plans, where that is to be seen."""
    if len(paths) > 1:
        print("python -m syncline status <plan> ranks the settings of each")
        return
    plan = read_plan(paths[0])
    if table := ranking(plan.runs, look(plan.results, plan.once(), {}), terminal_width(), RANKED):
        print(f"\n{table}")


def submit_all(plans: Sequence[Plan], invocation: Invocation) -> int:
    """Leave all runs of these plans that are not finished to Slurm."""
    assert isinstance(invocation.launcher, SlurmConfig)
    jobs, num_waiting = submit(plans, Path(invocation.results), invocation.launcher, invocation.rerun)
    for job in jobs:
        size = f"{counted(job.num_runs, 'run')} in {counted(job.num_tasks, 'task')}"
        if job.job_id is None:
            print(f"{size}, not submitted: sbatch {job.script}")
        else:
            after = f", its report is job {job.report_id}" if job.report_id else ""
            print(f"job {job.job_id}: {size}{after}; output in {job.script.parent}")
    if num_waiting:
        print(f"{counted(num_waiting, 'run')} queued or running in Slurm already")
    if not jobs:
        print("nothing is left to be submitted")
    return 0


def run_stored(path: Path, part: str, overrides: Sequence[str]) -> int:
    """The runs of a stored plan that are not finished, or of a part of it: what a task of an array job calls."""
    bounds = re.fullmatch(r"(\d*):(\d*)", part)
    if bounds is None:
        raise ConfigError(f"--runs must be FIRST:END, counted from 0, got {part}")
    stored = read_plan(path)
    runs = list(stored.once().values())[slice(*(int(number) if number else None for number in bounds.groups()))]
    _, invocation = compose(overrides)
    entries = []
    for run in runs:
        config, _ = compose(run.overrides)
        if config.identity != run.identity:
            raise ConfigError(f"{path}: {why_other(run, config)}; ask for the plan again")
        entries.append(Entry(run.label, tuple(run.overrides), config))
    if not entries:
        raise ConfigError(f"{path} has no runs {part}")
    plan = Plan(stored.name, stored.scale, tuple(entries), {})
    failed = run_plan(
        plan, Path(invocation.results), jobs=invocation.jobs, fail_fast=invocation.fail_fast, rerun=invocation.rerun
    )
    return 1 if failed else 0


def why_other(run: PlannedRun, config: RunConfig) -> str:
    """Why a planned run is no longer what its overrides compose to."""
    here, there = config.dataset.content, run.content
    if there not in (None, here):
        where = f"{config.dataset.name} in {getattr(config.dataset, 'root', 'this environment')}"
        return f"{run.identity} is of other data: {where} has content {here}, where the plan was written it had {there}"
    return f"{run.identity} would be {config.identity} now: conf/ has changed since the plan was written"


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
        first = f"{states[identity].state:10}  "
        print("\n".join(wrapped(f"{entry.name}  {identity}", terminal_width(), "  ", first)))
    return 0


def single(config: RunConfig, overrides: list[str]) -> Plan:
    return Plan("run", "", (Entry("run", tuple(overrides), config),), {}, tuple(overrides))


def sweep_plan(overrides: list[str]) -> tuple[Plan, Invocation]:
    """A plan of the product of all sweeps; a run's label is what others do not share, but for the seed."""
    entries = []
    runs = sweep(overrides)
    if not runs:
        raise ConfigError(f"no runs in {' '.join(overrides)}")
    shared = set.intersection(*map(set, runs)) if len(runs) > 1 else set(runs[0])
    for run_overrides in runs:
        config, invocation = compose(run_overrides)
        own = [word for word in run_overrides if word not in shared and not word.startswith("seed=")]
        label = " ".join(own) or config.strategy.name
        entries.append(Entry(label, tuple(run_overrides), config))
    return Plan("sweep", "", tuple(entries), {}, ("-m", *overrides)), invocation


def experiment_plans(overrides: list[str], with_sweeps: bool) -> tuple[list[Plan], Invocation]:
    """The plans of the experiments asked for (`a,b`): by name, all in a folder of them (a paper), or all."""
    words = [word for word in overrides if is_experiment(word)]
    others = [word for word in overrides if word not in words]
    names, wanted = choices("experiment"), ",".join(word.partition("=")[2] for word in words).split(",")
    known = {name: {name, name.partition("/")[0], "all"} for name in names}
    unknown = [name for name in wanted if not any(name in calls for calls in known.values())]
    chosen = [name for name in names if known[name] & set(wanted)]
    made = [experiment_plan([f"+experiment={name}", *others], with_sweeps) for name in (*unknown, *chosen)]
    return [plan for plan, _ in made], made[0][1]


def is_experiment(word: str) -> bool:
    return word.lstrip("+").startswith("experiment=")


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
    """The module's text, every group with its choices, and the keys that are set most, in 80 columns."""
    groups = [
        textwrap.fill(
            ", ".join(choices(group)),
            width=80,
            initial_indent=f"  {group:11}",
            subsequent_indent=" " * 13,
            break_long_words=False,
            break_on_hyphens=False,
        )
        for group in (*GROUPS, "experiment")
    ]
    keys = [f"  {word:27}{about}" for word, about in KEYS.items()]
    return "\n".join([__doc__ or "", "Groups (group=choice):", *groups, "", "Some keys; --cfg prints all:", *keys])


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
        print(
            "error:", *filter(None, [error.filename and f"{error.filename}:", error.strerror or error]), file=sys.stderr
        )
        code = 1
    except StopRequested as told:
        again = shlex.join(["python", "run.py", *arguments])
        kept = told.kept or "finished runs are kept"
        print(f"interrupted; {kept}; rerun this command to resume: {again}", file=sys.stderr)
        code = told.code
    raise SystemExit(code)


if __name__ == "__main__":
    command_line()
