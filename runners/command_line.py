"""syncline run: composes a config, runs it, keeps its record, prints its summary; a sweep; an experiment."""

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rich.console import Console

from runners.display import RunDisplay, say, summary_table
from runners.one import check_possible, is_restarted, lacks_parameters, resolved, run_one, slow_precision
from runners.plan import run_plan
from runners.planning import experiment_plans, is_experiment, single_plan, stored_plan, sweep_plan
from runners.slurm import show_jobs, submit
from runners.torchrun import launch, prepare
from syncline.config import (
    GROUPS,
    ConfigError,
    Invocation,
    LiveConfig,
    RunConfig,
    SlurmConfig,
    choices,
    compose,
    compose_yaml,
    folders,
    split,
)
from syncline.config.folders import use
from syncline.live.node.ranks import Announcement, Place
from syncline.operations.ranking import ranking
from syncline.operations.states import run_states
from syncline.operations.tables import counted, terminal_width, wrapped
from syncline.plan import Plan, merged
from syncline.records.environment import environment, free_cores
from syncline.records.lock import announced
from syncline.records.plans import plan_path, read_plan
from syncline.records.sources import few
from syncline.records.store import FINISHED, RecordError, read_environment, read_summary, status

RANKED = 30  # settings listed at the end of a plan
OF_PLAN = ("results", "jobs", "rerun", "fail_fast", "debug")  # keys that go with a stored plan
# For --help: the keys that are set most often.
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


def main(asked: argparse.Namespace) -> int:
    """Returns the exit code: 0, or 1 if anything failed.

    Raises:
        ValueError: bad input; the message is the one line to show.
    """
    overrides: list[str] = asked.words
    use(*asked.config_dir)
    if asked.multirun + asked.cfg + (asked.plan is not None) > 1:
        raise ConfigError("-m, --cfg and --plan exclude each other")
    if asked.runs is not None and not asked.plan:
        raise ConfigError("--runs goes with --plan FILE")
    if asked.plan:
        if others := [word for word in overrides if split(word)[0] not in OF_PLAN]:
            keys = ", ".join(f"{key}=" for key in OF_PLAN)
            raise ConfigError(f"--plan FILE goes with {keys} alone, got {others[0]}")
        _, invocation = compose(overrides)
        return make_runs(stored_plan(asked.plan, asked.runs or ":", Path(invocation.results)), invocation)
    if asked.cfg:
        print(compose_yaml(overrides))
        return 0
    if any(map(is_experiment, overrides)):
        return run_all(*experiment_plans(overrides, asked.multirun), asked.retry)
    if asked.multirun:
        plan, invocation = sweep_plan(overrides)
        return run_all([plan], invocation, asked.retry)
    return single(overrides, asked.retry)


def single(overrides: list[str], retried: Path | None) -> int:
    """One run: its submission, or the run itself."""
    config, invocation = _composed(overrides)
    config = resolved(config, Path(invocation.results))
    if isinstance(invocation.launcher, SlurmConfig):
        return run_all([single_plan(config, overrides)], invocation, retried)
    return run(config, invocation, overrides)


def _composed(overrides: list[str]) -> tuple[RunConfig, Invocation]:
    """As `compose`; of a run of real processes on this host in another process, while this one imports torch."""
    if "runner=local" not in overrides or sys.platform != "linux" or folders.folders():
        return compose(overrides)  # classes of the user's own are known in the process that has imported them
    with ProcessPoolExecutor(1, get_context("fork")) as beside:
        composed = beside.submit(compose, overrides)
        prepare()
        return composed.result()


def run(config: RunConfig, invocation: Invocation, words: list[str]) -> int:
    """Make a run in this process, or as a job of torchrun, or show the summary of the finished one."""
    results = Path(invocation.results)
    tell_extrapolation([config])
    if status(results / config.identity) == FINISHED and not invocation.rerun:
        return show_finished(config, results)
    if slow := slow_precision([config]):
        say(slow)
    if not isinstance(config.runner, LiveConfig):
        return make(config, invocation, invocation.rerun)
    check_possible(config)

    def coordinated(place: Place, was_killed: bool) -> int:
        return coordinate(config, invocation, place, was_killed)

    return launch(config, words, results, coordinated)


def coordinate(config: RunConfig, invocation: Invocation, place: Place, was_killed: bool) -> int:
    """What the coordinator of a run of real processes does: makes the run, and shows it.

    Args:
        was_killed: a coordinator was there before, and has begun to make the run anew if that is wanted.

    Raises:
        BaseException: as `run_one`.
    """
    results = Path(invocation.results)
    rerun = is_restarted(invocation.rerun, was_killed, results / config.identity)
    if status(results / config.identity) == FINISHED and not rerun:
        Announcement(place.ranks).set(config.identity)
        return show_finished(config, results)
    return make(config, invocation, rerun, place)


def make(config: RunConfig, invocation: Invocation, rerun: bool, place: Place | None = None) -> int:
    """Make a run, and show its summary; `place`: where the coordinator is that this process is."""
    results = Path(invocation.results)
    with RunDisplay(config) as display:
        summary = run_one(config, results, display.progressed, rerun, place, free_cores())
    return show(summary, results / config.identity, "finished")


def show_finished(config: RunConfig, results: Path) -> int:
    folder, note = results / config.identity, "finished before; rerun=true repeats it"
    say_commits([folder])
    if lacks_parameters(config, results):
        note = "finished before, without runner.parameters=true; rerun=true makes it again with them"
    return show(read_summary(folder), folder, note)


def show(summary: dict[str, Any], folder: Path, note: str) -> int:
    """Show the summary of a run. Returns the exit code: 1 if it has diverged, or its replay differs."""
    console = Console(highlight=False)
    console.print(summary_table(summary))
    console.print(f"record {folder} ({note})", soft_wrap=True, markup=False)
    differs = not summary.get("replay", {"equal": True})["equal"]
    return 1 if summary["status"] == "diverged" or differs else 0


def run_all(plans: Sequence[Plan], invocation: Invocation, retried: Path | None) -> int:
    """Make or submit the runs of these plans that are not finished; runs that they share are made once.

    Args:
        retried: a stored plan that must have these runs.
    """
    if retried is not None:
        check_runs(plans, retried)
    tell_extrapolation([entry.config for plan in plans for entry in plan.entries])
    if isinstance(invocation.launcher, SlurmConfig):
        show_jobs(*submit(plans, Path(invocation.results), invocation.launcher))
        return 0
    results = Path(invocation.results)
    left = {entry.config.identity for plan in plans for entry in plan.left(results, invocation.rerun)}
    finished = dict.fromkeys(entry.config.identity for plan in plans for entry in plan.entries)
    say_commits([results / identity for identity in finished if identity not in left])
    if left:
        paths = [plan.keep(results) for plan in plans]
        with announced(paths):
            code = make_runs(merged(plans), invocation)
    else:
        paths, code = [kept(plan, results) for plan in plans], make_runs(merged(plans), invocation)
    print("plan", *paths)
    show_ranking(paths)
    return code


def say_commits(finished: Sequence[Path]) -> None:
    """Say that records, which are used again, were made by another commit than this one."""
    commits = [read_environment(folder).get("commit") or "unknown" for folder in finished]
    own = environment()["commit"] or "unknown"
    if others := [commit for commit in commits if commit != own]:
        runs = counted(len(others), "finished run")
        say(f"{runs} of commit {few(others)}, and this is {own}; rerun=true makes all runs again")


def kept(plan: Plan, results: Path) -> Path:
    """The file of a plan whose runs are finished; it is written, unless it is there and the folder is read-only."""
    try:
        return plan.keep(results)
    except RecordError:
        if not (path := plan_path(results, plan.stem)).exists():
            raise
        return path


def check_runs(plans: Sequence[Plan], stored: Path) -> None:
    """Check that these plans have the runs of the stored one. Raises ConfigError if others are among them."""
    identities = {entry.config.identity for plan in plans for entry in plan.entries}
    if changed := identities.symmetric_difference(read_plan(stored).once()):
        raise ConfigError(
            f"{stored}: its command makes other runs now ({len(changed)} differ, such as {min(changed)}): "
            "conf/, your own parts or data, or the environment have changed; the command itself makes a new plan"
        )


def tell_extrapolation(configs: Sequence[RunConfig]) -> None:
    """Say once of each cluster that it has more workers than were measured."""
    for line in dict.fromkeys(filter(None, (config.cluster.extrapolation for config in configs))):
        print(line, file=sys.stderr)


def make_runs(plan: Plan, invocation: Invocation) -> int:
    """Make the runs of a plan that are not finished. Returns the exit code."""
    results, jobs = Path(invocation.results), invocation.jobs
    ended = run_plan(plan, results, jobs=jobs, fail_fast=invocation.fail_fast, rerun=invocation.rerun)
    return 1 if ended.failed else 0


def show_ranking(paths: Sequence[Path]) -> None:
    """The settings of a plan, the best first; for several plans, the command that shows it."""
    if len(paths) > 1:
        print("syncline status <plan> ranks the settings of each")
        return
    plan = read_plan(paths[0])
    if table := ranking(plan.runs, run_states(plan.results, plan.once(), {}), terminal_width(), RANKED):
        print(f"\n{table}")


def groups_and_keys() -> str:
    """For the help: every group with its choices, and the most frequent keys, in 80 columns."""
    groups = [
        line
        for group in (*GROUPS, "experiment")
        for line in wrapped(", ".join(choices(group)), 80, " " * 13, first=f"  {group:11}")
    ]
    keys = [f"  {word:27}{about}" for word, about in KEYS.items()]
    return "\n".join(["Groups (group=choice):", *groups, "", "Some keys; --cfg prints all:", *keys])
