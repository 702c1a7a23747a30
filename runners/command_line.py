"""Run experiments: compose a config, run it, keep its record, print its summary.

python run.py [KEY=VALUE ...]              one run
python run.py -m [KEY=V1,V2 ...]           a sweep: a run of each combination
python run.py +experiment=PAPER/ARTEFACT   all runs of a paper's table or figure
python run.py +experiment=PAPER            of all of them; all: of all papers
python run.py +tune=rate [KEY=V1,V2 ...]   the best rate of each row
python run.py +judge=claims +experiment=.. as many seeds as decide the claims
python run.py +race=first target.value=..  who reaches the target first
python run.py --status [the same words]    what is finished, failed or left
python run.py --cfg [KEY=VALUE ...]        print all keys and their values
python run.py --plan FILE [--runs A:B]     runs of a stored plan (results/plans)
python run.py --version

--config-dir DIR, with any of these, adds your own choices: docs/extending.md

python run.py strategy=dssp model=resnet110 cluster.workers=8
python run.py -m strategy=bsp,asp,ssp seed=0,1,2
python run.py +experiment=dssp/table1 scale=laptop
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console

import syncline
from runners.display import RunDisplay, say, summary_table
from runners.judging import Piece, declared_judging, judge
from runners.one import check_possible, is_restarted, lacks_parameters, run_one, slow_precision
from runners.plan import run_plan
from runners.planning import experiment_plans, is_experiment, resolved, single_plan, stored_plan, sweep_plan
from runners.slurm import Job, submit
from runners.stop import StopRequested, handle_signals
from runners.study import Declared, chosen_studies, present_stage, run_study, submit_study
from runners.torchrun import launch, prepare
from runners.tuning import declared_tuning
from syncline.config import (
    GROUPS,
    ConfigError,
    Invocation,
    JudgeConfig,
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
from syncline.config.keys import meant, nearest
from syncline.installation import command_name
from syncline.live.ranks import Announcement, Place
from syncline.operations.arguments import check_working_directory, one_line
from syncline.operations.races import score_lines
from syncline.operations.ranking import ranking
from syncline.operations.states import run_states, slurm_states
from syncline.operations.streams import lose_text_alone
from syncline.operations.studies import answer_lines
from syncline.operations.tables import counted, terminal_width, wrapped
from syncline.plan import Plan, merged
from syncline.records.environment import environment, free_cores
from syncline.records.lock import announced
from syncline.records.plans import plan_path, read_plan
from syncline.records.sources import few
from syncline.records.store import FINISHED, RecordError, read_environment, read_summary, status
from syncline.records.studies import read_study, study_path
from syncline.targets import fault

RANKED = 30  # settings listed at the end of a plan
OF_PLAN = ("results", "jobs", "rerun", "fail_fast", "debug")  # keys that go with a stored plan
FLAGS = (("-m", "--multirun"), ("--status",), ("--cfg",), ("--version",), ("-h", "--help"))
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


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


def parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """The options, and the overrides. Raises ConfigError if an option is unknown, or some exclude each other."""
    parser = Parser(add_help=False, allow_abbrev=False)
    for names in FLAGS:
        parser.add_argument(*names, action="store_true")
    parser.add_argument("--plan", type=Path)
    parser.add_argument("--runs")
    parser.add_argument("--config-dir", action="append", default=[])
    parser.add_argument("--follows", type=int)  # of the job that follows a stage of a study
    parser.add_argument("--retry", type=Path)  # the plan that `syncline retry` was asked for
    options, overrides = parser.parse_known_args(arguments)
    for folder in options.config_dir:
        use(folder)
    known = [*(name for names in FLAGS for name in names), "--plan", "--runs", "--config-dir"]
    for word in overrides:
        if word.startswith("-"):
            hint = meant(nearest(word.partition("=")[0], known))
            raise ConfigError(f"unknown option {word}; allowed: {', '.join(known)}, and key=value{hint}")
    alone = [name for name in ("--plan", "--cfg") if getattr(options, name[2:])]
    if alone and (options.multirun or options.status or alone[1:]):
        raise ConfigError(f"{alone[0]} goes with none of -m, --status, --cfg")
    if options.plan and (others := [word for word in overrides if split(word)[0] not in OF_PLAN]):
        raise ConfigError(f"--plan FILE goes with {', '.join(f'{key}=' for key in OF_PLAN)} alone, got {others[0]}")
    if options.runs is not None and not options.plan:
        raise ConfigError("--runs goes with --plan FILE")
    studies = chosen_studies(overrides)
    if options.follows is not None and not studies:
        raise ConfigError("--follows goes with a study in Slurm")
    if len(studies) > 1 or ("judge" in studies and options.multirun):
        raise ConfigError("one of +tune, +judge, +race at a time, and +judge goes with no -m")
    if "race" in studies and any(map(is_experiment, overrides)):
        raise ConfigError("+race goes with no +experiment; give the model, the data and the cluster")
    return options, overrides


def main(arguments: list[str]) -> int:
    """Returns the exit code: 0, or 1 if anything failed.

    Raises:
        ValueError: bad input; the message is the one line to show.
    """
    options, overrides = parse(arguments)
    if options.help or options.version:
        print(help_text() if options.help else f"syncline {syncline.__version__}")
        return 0
    if options.plan:
        _, invocation = compose(overrides)
        return make_runs(stored_plan(options.plan, options.runs or ":", Path(invocation.results)), invocation)
    if options.cfg:
        print(compose_yaml(overrides))
        return 0
    if studies := chosen_studies(overrides):
        (study,) = studies
        return STUDIES[study](overrides, options.status, options.follows)
    if any(map(is_experiment, overrides)):
        plans, invocation = experiment_plans(overrides, options.multirun)
    elif options.multirun:
        plan, invocation = sweep_plan(overrides)
        plans = [plan]
    else:
        return single(overrides, options.status, options.retry)
    return show_status(plans, invocation) if options.status else run_all(plans, invocation, options.retry)


def single(overrides: list[str], status_only: bool, retried: Path | None) -> int:
    """One run: its state, its submission, or the run itself."""
    config, invocation = _composed(overrides)
    config = resolved(config, Path(invocation.results))
    if status_only:
        return show_status([single_plan(config, overrides)], invocation)
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
        return submit_all(plans, invocation.launcher, invocation)
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


def tune(overrides: list[str], status_only: bool, follows: int | None) -> int:
    """Go on with a study that tunes, to its answer or to the submission of its present stage."""
    declared, invocation = declared_tuning(overrides)
    if status_only:
        return study_status(declared, invocation)
    if isinstance(invocation.launcher, SlurmConfig):
        study, jobs, num_waiting = submit_study(declared, invocation, follows)
        if study.answer is None:
            show_jobs(jobs, num_waiting)
    else:
        study = run_study(declared, invocation)
    if study.answer is not None:
        print("\n".join(answer_lines(study, terminal_width())))
    print("study", study_path(Path(invocation.results), declared.stem))
    is_complete = study.answer is not None and all(choice["value"] is not None for choice in study.answer["choices"])
    return 0 if is_complete or isinstance(invocation.launcher, SlurmConfig) else 1


def race(overrides: list[str], status_only: bool, follows: int | None) -> int:
    """Go on with the races, one after the other, to their answers or to the submission of their present stages."""
    from runners.racing import declared_races  # imports scipy, more than half a second

    studies, invocation = declared_races(overrides)
    if status_only:
        return max(study_status(declared, invocation) for declared in studies)
    is_slurm, answers = isinstance(invocation.launcher, SlurmConfig), list[dict[str, Any]]()
    for declared in studies:
        if is_slurm:
            study, jobs, num_waiting = submit_study(declared, invocation, follows)
            if study.answer is None:
                show_jobs(jobs, num_waiting)
        else:
            study = run_study(declared, invocation)
        if study.answer is not None:
            answers.append(study.answer)
            print("\n".join(answer_lines(study, terminal_width())))
        print("study", study_path(Path(invocation.results), declared.stem))
    if len(answers) > 1 or any(answer["targets"] for answer in answers):
        print("\n".join(["", *score_lines(answers, terminal_width())]))
    return 0 if is_slurm or len(answers) == len(studies) else 1


def judge_claims(overrides: list[str], status_only: bool, follows: int | None) -> int:
    """Go on with the studies that judge, to their answers, to the end of the budget, or to their submission."""
    studies, invocation = declared_judging(overrides)
    if status_only:
        return max(study_status(declared, invocation) for declared in studies)
    is_slurm, failed, left = isinstance(invocation.launcher, SlurmConfig), 0, list[Piece]()
    if is_slurm:
        if isinstance(invocation.judge, JudgeConfig) and invocation.judge.budget:
            raise ConfigError("judge.budget goes with runs on this machine, not with Slurm")
        for declared in studies:
            study, jobs, num_waiting = submit_study(declared, invocation, follows)
            if study.answer is None:
                show_jobs(jobs, num_waiting)
    else:
        failed, left = judge(studies, invocation)
    for declared in studies:
        path = study_path(Path(invocation.results), declared.stem)
        study = read_study(path)
        if study.answer is not None:
            print("\n".join(answer_lines(study, terminal_width())))
        print("study", path)
    for piece in left:
        print("left:", piece.told)
    return 1 if failed else 0


def is_several(overrides: Sequence[str]) -> bool:
    """Whether the words are of an experiment or a study."""
    return bool(chosen_studies(overrides)) or any(map(is_experiment, overrides))


STUDIES = {"tune": tune, "judge": judge_claims, "race": race}


def study_status(declared: Declared, invocation: Invocation) -> int:
    """The present stage of a study, and a line for each of its runs."""
    stage = present_stage(declared, invocation)
    print(f"{declared.stem} has its answer" if stage is None else stage.name)
    return 0 if stage is None else show_status([stage], invocation)


def make_runs(plan: Plan, invocation: Invocation) -> int:
    """Make the runs of a plan that are not finished. Returns the exit code."""
    results, jobs = Path(invocation.results), invocation.jobs
    ended = run_plan(plan, results, jobs=jobs, fail_fast=invocation.fail_fast, rerun=invocation.rerun)
    return 1 if ended.failed else 0


def show_ranking(paths: Sequence[Path]) -> None:
    """The settings of a plan, the best first; for several plans, the command that shows it."""
    if len(paths) > 1:
        print(f"{command_name('status')} <plan> ranks the settings of each")
        return
    plan = read_plan(paths[0])
    if table := ranking(plan.runs, run_states(plan.results, plan.once(), {}), terminal_width(), RANKED):
        print(f"\n{table}")


def submit_all(plans: Sequence[Plan], launcher: SlurmConfig, invocation: Invocation) -> int:
    show_jobs(*submit(plans, Path(invocation.results), launcher))
    return 0


def show_jobs(jobs: Sequence[Job], num_waiting: int) -> None:
    """A line a job, and what follows it."""
    for job in jobs:
        size = f"{counted(job.num_runs, 'run')} in {counted(job.num_tasks, 'task')}"
        what = "report" if job.after is None or job.after.stem == "report" else "next stage"
        if not job.num_tasks and job.after is not None:
            print(f"job {job.after_id}: the {what} of runs in Slurm already; output in {job.after.parent}")
        elif job.job_id is None:
            print(f"{size}, not submitted: sbatch {shlex.quote(str(job.script))}")
            if job.after is not None and what != "report":
                print(f"its {what}: sbatch --dependency=afterany:JOB {shlex.quote(str(job.after))}")
        else:
            after = f", its {what} is job {job.after_id}" if job.after_id else ""
            print(f"job {job.job_id}: {size}{after}; output in {job.script.parent}")
    if num_waiting:
        print(f"{counted(num_waiting, 'run')} queued or running in Slurm already")
    if not jobs:
        print("nothing is left to be submitted")


def show_status(plans: Sequence[Plan], invocation: Invocation) -> int:
    """One line a run: its state, label and identity; the command `status` shows more."""
    results, plan = Path(invocation.results), merged(plans)
    entries = {entry.config.identity: entry for entry in plan.unique()}
    states = run_states(results, entries, slurm_states(results, [each.stem for each in plans]))
    for identity, entry in entries.items():
        first = f"{states[identity].state:10}  "
        print("\n".join(wrapped(f"{entry.name}  {identity}", terminal_width(), "  ", first)))
    return 0


def help_text() -> str:
    """The module's docstring, every group with its choices, and the most frequent keys, in 80 columns."""
    groups = [
        line
        for group in (*GROUPS, "experiment")
        for line in wrapped(", ".join(choices(group)), 80, " " * 13, first=f"  {group:11}")
    ]
    keys = [f"  {word:27}{about}" for word, about in KEYS.items()]
    usage = (__doc__ or "").replace("python run.py", command_name("run"))
    return "\n".join([usage, "Groups (group=choice):", *groups, "", "Some keys; --cfg prints all:", *keys])


def run_and_exit(arguments: list[str]) -> NoReturn:
    """`main` of a process: errors and interruptions are one line, and an exit code."""
    lose_text_alone()
    handle_signals()
    try:
        check_working_directory()
        code = main(arguments)
    except (StopRequested, Exception) as error:
        code = exit_code(error, arguments)
    raise SystemExit(code)


def exit_code(error: StopRequested | Exception, arguments: list[str]) -> int:
    """The exit code of a process with this error, after one line that tells it.

    Raises:
        Exception: the error, if it is not the user's, or `debug=true` asks for its traceback.
    """
    if isinstance(error, StopRequested):
        kept, again = error.kept or "finished runs are kept", f"{command_name('run')} {shlex.join(arguments)}".rstrip()
        print(f"interrupted; {kept}; rerun this command to resume: {again}", file=sys.stderr)
        return error.code
    # ConfigError, RecordError, DataMissingError: one line each
    told = one_line(error) if isinstance(error, ValueError | OSError) else fault(error)
    if "debug=true" in arguments or told is None:
        raise error
    print(f"error: {told}", file=sys.stderr)
    return 1
