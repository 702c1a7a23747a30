"""The text of batch scripts: an array job over the runs of a plan, and the job that follows it.

A task is one program, `syncline run`, on its first node. Slurm signals the approaching time limit (SIGUSR1) to the
script alone. The script forwards it to the program, which writes its checkpoints and exits with RESUMABLE; then the
script requeues the task. A SIGTERM (preemption, scancel) reaches all processes of the task at once, and Slurm alone
decides whether the task is requeued.
"""

import shlex
from collections.abc import Iterable, Sequence

from runners.stop import RESUMABLE
from syncline.config import SlurmConfig


def array_script(
    name: str, plan: str, array: str, options: SlurmConfig, *, folder: str, program: str, log: str, results: str
) -> str:
    """The script of an array job: task i makes the runs i * runs_per_task, ... of a plan.

    Args:
        plan: the file of the plan, as a shell word.
        array: `--array`'s value (`ranges`).
        folder: the working directory, as a shell word.
        program: the shell words that call `syncline run`.
        log: file of a task's output; %A and %a are the job and the task, %% is a %.
        results: folder of the records, as a shell word.
    """
    lines = [
        *_options(name, log, options),
        f"--array={array}",
        "--requeue",
        "--open-mode=append",
        f"--signal=B:USR1@{options.signal_delay_s}",
        *options.extra,
    ]
    setup = ["is_time_over=", "trap is_time_over=yes USR1", *options.setup]
    return _script(lines, setup, _task_body(plan, results, options.runs_per_task, folder, program))


def _task_body(plan: str, results: str, runs_per_task: int, folder: str, program: str) -> str:
    """The shell commands of a task."""
    return f"""cd {folder} || exit
plan={plan}
runs_per_task={runs_per_task}
first=$((SLURM_ARRAY_TASK_ID * runs_per_task))

forward() {{ while kill -USR1 $program 2> /dev/null; do sleep 5; done; }} # its handler may not be installed yet
trap '' USR1
{program} --plan "$plan" --runs $first:$((first + runs_per_task)) results={results} &
program=$!
trap 'is_time_over=yes; forward &' USR1
[ $is_time_over ] && forward &
trap : TERM # the program receives it, too
while kill -0 $program 2> /dev/null; do # bash may lose the exit code of a program whose `wait` a signal ends
    read -r < <(tail --pid=$program -s 0.2 -f /dev/null)
done
wait $program
code=$?
if [ $code = {RESUMABLE} ] && [ $is_time_over ]; then
    scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID"
fi
exit $code
"""


def next_script(name: str, command: str, options: SlurmConfig, *, folder: str, log: str) -> str:
    """The script of the job after an array: one command, which makes a report or asks a study what is to be run next.

    Args:
        command: a shell line.
        options: of the array; of these the job takes what is the site's.
    """
    few = SlurmConfig(
        partition=options.partition, account=options.account, qos=options.qos, time="0:30:00", setup=options.setup
    )
    return _script(_options(name, log, few), few.setup, f"cd {folder} || exit\n{command}\n")


def ranges(numbers: Iterable[int], max_parallel: int | None = None) -> str:
    """The value of `--array`: 0-3,7,9-10%2 (at most two at a time)."""
    spans: list[list[int]] = []
    for number in sorted(set(numbers)):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    words = ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
    return words if max_parallel is None else f"{words}%{max_parallel}"


def _options(name: str, log: str, options: SlurmConfig) -> list[str]:
    optional = {
        "--partition": options.partition,
        "--account": options.account,
        "--qos": options.qos,
        "--mem": options.memory,
        "--gpus-per-node": options.gpus or None,
    }
    return [
        f"--job-name={name}",
        f'--output="{log}"' if " " in log else f"--output={log}",
        f"--time={options.time}",
        f"--nodes={options.nodes}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={options.cpus}",
        *(f"{option}={value}" for option, value in optional.items() if value is not None),
    ]


def options_of(script: str) -> list[str]:
    """The words of the options of sbatch that a script begins with."""
    lines = [line.removeprefix("#SBATCH ") for line in script.splitlines() if line.startswith("#SBATCH ")]
    return [word for line in lines for word in shlex.split(line)]


def _script(options: Sequence[str], setup: Sequence[str], body: str) -> str:
    lines = ["#!/bin/bash", *(f"#SBATCH {option}" for option in options), "", *setup, *([""] if setup else [])]
    return "\n".join(lines) + "\n" + body
