"""The text of a batch script: an array job over a plan's runs, and the job that makes the report when it is over.

A task is one program on the task's first node, run.py. Slurm tells the script, not the program, that the time is nearly
over (SIGUSR1); the script tells the program, which writes its checkpoint and leaves with PAUSED, and puts the task back
into the queue. A SIGTERM (preemption, scancel) reaches all processes of the task at once; then Slurm alone decides
whether it comes back.
"""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

PAUSED = 75  # exit code of run.py: what it had is on disk, and it can go on


@dataclass(frozen=True, slots=True)
class JobResources:
    """What a job asks of the cluster; what is None is left to it. Units as in conf/launcher/slurm.yaml."""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    time: str = "1:00:00"
    nodes: int = 1
    cpus: int = 1
    memory: str | None = None
    gpus: int = 0
    extra: Sequence[str] = ()  # options of sbatch, which win
    setup: Sequence[str] = ()  # shell lines before the program


def array_script(
    name: str,
    plan: str,
    array: str | None,
    wishes: JobResources,
    *,
    project: str = "$SLURM_SUBMIT_DIR",
    python: str = ".venv/bin/python",
    log: str = "slurm-%A_%a.txt",
    results: str = "results",
    runs_per_task: int | str = 1,
    signal_delay_s: int = 120,
) -> str:
    """The script of an array job: task i makes the runs i * runs_per_task, ... of a plan.

    Args:
        plan: the file of the plan, as a shell word.
        array: `--array`'s value (`ranges`); None leaves it to the command line.
        project: the folder that holds run.py, as a shell word.
        log: file of a task's output; %A and %a are the job and the task.
        results: folder of the records, as a shell word.
        runs_per_task: a number, or a shell word.
        signal_delay_s: before the time limit the task is told to end.
    """
    options = [
        *_options(name, log, wishes),
        *([f"--array={array}"] if array is not None else []),
        "--requeue",
        "--open-mode=append",
        f"--signal=B:USR1@{signal_delay_s}",
        *wishes.extra,
    ]
    return _script(
        options,
        wishes.setup,
        f"""cd "{project}" || exit
plan={plan}
runs_per_task={runs_per_task}
first=$((SLURM_ARRAY_TASK_ID * runs_per_task))

is_time_over=
tell() {{ while kill -USR1 $program 2> /dev/null; do sleep 5; done; }} # it may not listen yet
trap '' USR1
{python} run.py --plan "$plan" --runs $first:$((first + runs_per_task)) results={results} &
program=$!
trap 'is_time_over=yes; tell &' USR1
trap : TERM # the program has heard it, too
wait $program
while kill -0 $program 2> /dev/null; do # a signal ended the waiting, not the program
    wait $program
done
wait $program
code=$?
if [ $code = {PAUSED} ] && [ $is_time_over ]; then
    scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID"
fi
exit $code
""",
    )


def report_script(
    name: str,
    experiment: str,
    scale: str,
    results: str,
    wishes: JobResources,
    *,
    project: str,
    python: str,
    log: str,
) -> str:
    """The script of the job that makes an experiment's tables and figures from its records."""
    few = JobResources(wishes.partition, wishes.account, wishes.qos, time="0:30:00", setup=wishes.setup)
    command = f"{python} -m reports {shlex.quote(experiment)} --scale {shlex.quote(scale)} --results {results}"
    return _script(_options(name, log, few), few.setup, f'cd "{project}" || exit\n{command}\n')


def ranges(numbers: Iterable[int], max_parallel: int | None = None) -> str:
    """As `--array` takes them: 0-3,7,9-10%2 (at most two at a time)."""
    spans: list[list[int]] = []
    for number in sorted(set(numbers)):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    words = ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
    return words if max_parallel is None else f"{words}%{max_parallel}"


def _options(name: str, log: str, wishes: JobResources) -> list[str]:
    asked = {
        "--partition": wishes.partition,
        "--account": wishes.account,
        "--qos": wishes.qos,
        "--mem": wishes.memory,
        "--gpus-per-node": wishes.gpus or None,
    }
    return [
        f"--job-name={name}",
        f"--output={log}",
        f"--time={wishes.time}",
        f"--nodes={wishes.nodes}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={wishes.cpus}",
        *(f"{option}={value}" for option, value in asked.items() if value is not None),
    ]


def _script(options: Sequence[str], setup: Sequence[str], body: str) -> str:
    lines = ["#!/bin/bash", *(f"#SBATCH {option}" for option in options), "", *setup, *([""] if setup else [])]
    return "\n".join(lines) + "\n" + body
