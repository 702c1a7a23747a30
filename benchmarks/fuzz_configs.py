"""python -m benchmarks.fuzz_configs --configs 10000 --seed 0: malformed and extreme command lines.

    systematic   every key of every group with every edge value, one at a time
    random       some choices of groups and some keys with edge values, misspelt, broken, deleted, swept, interpolated

Each must be refused in one line that names a key, the value given and what is allowed, or be accepted: then its run
must end (a few updates in virtual time, times alone if the network is large) within bounds of CPU seconds and memory,
and leave a true record. The exit code is 1 if anything else happens.
"""

import argparse
import math
import multiprocessing
import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, get_type_hints

import torch
import yaml

from runners.one import run_one
from runners.planning import sweep_plan
from syncline.assembly.network import count_parameters
from syncline.config import CONF, GROUPS, Invocation, RunConfig, SimulateConfig, TargetConfig, compose
from syncline.config import choices as choices_of
from syncline.config.parts import default_choices
from syncline.config.run import TABLES
from syncline.config.runners import NoTrackerConfig
from syncline.records.store import read_config

Words = tuple[str, ...]

EDGES = (
    *("0", "-1", "1", "2", "0.5", "1e3", "1e9", "1e308", "-1e308", "1e-320", "inf", "-inf", "nan", "2147483648"),
    *("true", "null", "''", "abc", '"a b"', "[]", "[1]", "[1,2,3,4,5,6]", "[-1,nan]", "[a]", "[[1]]", "{}", "{9: 3}"),
    *("{0: 2}", "{a: b}", "{name: normal, mean: inf, std: 1}", "{name: constant, value: 1e9}", "{name: gauss}"),
    *("${seed}", "${model}", "${oc.env:NOPE}", "${oc.env:NOPE,4}", "${nope}", "/tmp/jörg", "~/x", "1_000", "0x10"),
    f"[{','.join(['0.1'] * 500)}]",
)
TAME = ("1", "2", "3", "0.1", "0.5", "true", "false", "null", "[0.1]", "mean", "{0: 2}", "{name: exponential, mean: 2}")
BROKEN = (
    *("seed", "=3", "seed=[1", "seed={a", "a b=3", "seed=${", "seed='1", "--seed=3", "", "=", "seed==3", "é=1"),
    "-x",
)
SWEPT = ("{}=1,2", "{}=range(0,1e9)", "{}=range(0,inf)", "{}=choice(1,abc)", "{}=range(3,0)", "{}=interval(0,1)")
SMALL = 1_000_000  # parameters of a network that learns in the fuzz
GLIMPSES = 100  # of such a network, one after another
UPDATES = 3
CPU_S = 30.0  # of one command line
WALL_S = 120.0
MEMORY = 6 << 30  # bytes of one process beyond what it begins with
CHUNK = 100  # command lines a process

REFUSED, ENDED = "refused", "accepted and ended"
TRACEBACK, HANG, NO_MEMORY, KILLED = "traceback", "hang", "out of memory", "killed"
SEVERAL_LINES, NO_KEY, NOTHING_ALLOWED = "several lines", "no key named", "nothing allowed named"
NONSENSE = "accepted nonsense"
WRONG = (TRACEBACK, HANG, NO_MEMORY, KILLED, SEVERAL_LINES, NO_KEY, NOTHING_ALLOWED, NONSENSE)
ALLOWED = re.compile(r"must|may|one of|takes|unknown key|cannot|needs|goes with|write|=|missing|not found|no such")


@dataclass(frozen=True, slots=True)
class Verdict:
    words: Words
    kind: str
    detail: str = ""


# Generation of command lines.


def all_keys() -> list[tuple[Words, str]]:
    """(the choices that it needs, key) of every key."""
    found = dict[str, Words]()
    for kind in (RunConfig, Invocation):
        for field in fields(kind):
            if field.name not in (*GROUPS, "experiment"):
                found.update(dict.fromkeys(_leaves(get_type_hints(kind)[field.name], field.name), ()))
    for group in GROUPS:
        for choice, name in _names(group).items():
            kind = GROUPS[group].get(name, next(iter(GROUPS[group].values())))
            for key in _leaves(kind, group):
                found.setdefault(key, (chosen(group, choice),))
    return [(words, key) for key, words in found.items()]


def chosen(group: str, choice: str) -> str:
    """The word that makes a choice; a group without a default is added."""
    return f"{'' if group in default_choices() else '+'}{group}={choice}"


@cache
def _names(group: str) -> dict[str, str]:
    """Choice -> the name in its file."""
    return {
        choice: yaml.safe_load((CONF / group / f"{choice}.yaml").read_text())["name"] for choice in choices_of(group)
    }


def _leaves(kind: Any, key: str) -> Iterator[str]:
    if not is_dataclass(kind):
        yield key
        return
    hints = get_type_hints(kind)
    for field in fields(kind):
        yield from _leaves(hints[field.name], f"{key}.{field.name}")


# The choices that a model or a data set needs, by the task of its class.
BESIDE = {
    "ctr": ("model=deepfm", "dataset=ctr_synthetic"),
    "generation": ("model=draw_small", "dataset=digits"),
    "language": ("model=char_lstm", "dataset=pydoc_text"),
    "next_token": ("model=gpt_nano", "dataset=tokens", "dataset.path=train.bin", "dataset.test_path=val.bin"),
    "qa": ("model=bert_tiny", "dataset=qa_synthetic"),
}


def beside(words: Words) -> Words:
    """Further choices that make these compatible."""
    for word in words:
        group, _, choice = word.partition("=")
        if group in ("model", "dataset"):
            kind = TABLES[group][_names(group)[choice]]
            if kind.tasks and "classification" not in kind.tasks:
                return tuple(other for other in BESIDE[kind.tasks[0]] if not other.startswith(f"{group}="))
    return ()


def systematic() -> list[Words]:
    return [(*beside(needed), *needed, f"{key}={value}") for needed, key in all_keys() for value in EDGES]


def at_random(luck: random.Random, keys: Sequence[tuple[Words, str]]) -> Words:
    words = list[str]()
    for group in luck.sample(list(GROUPS), luck.choice((0, 0, 1, 1, 2))):
        words.append(chosen(group, luck.choice(choices_of(group))))
    for _ in range(luck.choice((1, 1, 2, 3))):
        needed, key = luck.choice(keys)
        words += needed if luck.random() < 0.7 else ()
        words.append(f"{key}={luck.choice(luck.choice((EDGES, TAME)))}")
    if luck.random() < 0.3:
        words.append(_odd(luck, luck.choice(keys)[1]))
    if luck.random() < 0.1:
        words.insert(luck.randrange(len(words) + 1), "gradients=false")
    return tuple(words)


def _odd(luck: random.Random, key: str) -> str:
    group = luck.choice(list(GROUPS))
    return luck.choice(
        (
            luck.choice(BROKEN),
            f"~{group}",
            f"~{key}",
            f"~{group}={luck.choice(choices_of(group))}",
            f"{group}.name={luck.choice([*choices_of(group), '5'])}",
            f"{group}={luck.choice(['', 'nonsense', '5', 'null', '${seed}', 'bsp,asp'])}",
            f"{misspelt(luck, key)}=1",
            f"+{key}={luck.choice(EDGES)}",
            f"{key}.x=1",
            f"{key}.0=3",
            luck.choice(SWEPT).format(key),
            f"-m {luck.choice(SWEPT).format(key)}",
        )
    )


def misspelt(luck: random.Random, key: str) -> str:
    place = luck.randrange(len(key))
    return luck.choice(
        (key[:place] + key[place + 1 :], key[:place] + "x" + key[place:], key.replace("_", "-"), key.upper())
    )


def drawn(num: int, seed: int) -> list[Words]:
    """This number of command lines, at most half of them systematic.

    Those of the same choices follow each other: composing them takes a tenth of a second, once in a process.
    """
    luck = random.Random(seed)
    every, keys = systematic(), all_keys()
    some = luck.sample(every, min(num // 2, len(every)))
    made = [*some, *(at_random(luck, keys) for _ in range(num - len(some)))]
    return sorted(made, key=lambda words: sorted(word for word in words if word.partition("=")[0] in GROUPS))


# Execution and judgement.


def judged(words: Words, results: Path) -> Verdict:
    """Compose it, and run it if it is accepted."""
    asked = [word.removeprefix("-m ") for word in words]
    try:
        if any(word.startswith("-m ") for word in words):
            plan, _ = sweep_plan(asked)
            config = plan.entries[0].config
        else:
            config, _ = compose(asked)
        nonsense = unnoticed(asked, config)
        if not nonsense:
            short = shortened(config)
            summary = run_one(short, results, lambda progress: None, restart=True)
            nonsense = untrue(short, summary, results / short.identity)
    except (ValueError, OSError) as error:
        return (
            refusal(words, asked, str(error))
            if is_own_error(error)
            else Verdict(words, TRACEBACK, traceback.format_exc())
        )
    except MemoryError:
        return Verdict(words, NO_MEMORY, traceback.format_exc())
    except Exception:
        return Verdict(words, TRACEBACK, traceback.format_exc())
    return Verdict(words, NONSENSE, nonsense) if nonsense else Verdict(words, ENDED)


def is_own_error(error: Exception) -> bool:
    """Our own code raised it; a library's message about its arguments means nothing to the user."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return isinstance(error, OSError) or frame.f_globals.get("__name__", "").startswith(
        ("syncline.", "runners.", "run")
    )


def refusal(words: Words, asked: Sequence[str], line: str) -> Verdict:
    if "\n" in line.strip():
        return Verdict(words, SEVERAL_LINES, line)
    keys = [re.split("=", word.lstrip("+~-"), maxsplit=1)[0] for word in asked]
    parts = {part for key in keys for part in (key, key.rpartition(".")[2], key.partition(".")[0]) if part}
    quoted = any((word or "''") in line for word in asked)
    if not quoted and not any(part in line for part in parts):
        return Verdict(words, NO_KEY, line)
    return Verdict(words, REFUSED, line) if ALLOWED.search(line) else Verdict(words, NOTHING_ALLOWED, line)


def shortened(config: RunConfig) -> RunConfig:
    """The same in virtual time, and short: nothing is downloaded or tracked, no large network learns."""
    parts: dict[str, Any] = {"runner": SimulateConfig(), "tracker": NoTrackerConfig()}
    for group in ("model", "dataset"):
        part = getattr(config, group)
        parts[group] = replace(part, download=False) if hasattr(part, "download") else part
    parts["max_updates"] = min(config.max_updates or UPDATES, UPDATES)
    short = replace(config, **parts)
    if not config.gradients or config.dataset.shape is None:
        return short
    is_large = count_parameters(short)[0] > SMALL or getattr(config.model, "glimpses", 0) > GLIMPSES
    return replace(short, gradients=False, target=TargetConfig()) if is_large else short


def unnoticed(asked: Sequence[str], config: RunConfig) -> str:
    """What is silently wrong in an accepted config; empty: nothing."""
    for word in asked:
        group, _, choice = word.lstrip("+").partition("=")
        if (
            group in TABLES
            and choice in choices_of(group)
            and word == [w for w in asked if w.startswith(f"{group}=")][-1]
        ):
            name = getattr(config, group).name
            if name != _names(group)[choice]:
                return f"{word} is {name}"
    workers, shards = config.cluster.workers, config.cluster.shards
    entries = len(config.cluster.gradient_s)
    given = any(word.lstrip("+").startswith("cluster.gradient_s=") for word in asked)
    faults = {
        "slow": any(worker >= workers for worker in config.scenario.slow),
        "slow_shards": any(shard >= shards for shard in config.scenario.slow_shards),
        "gradient_s": given and entries > workers,
        "target": config.target.value is not None and not config.gradients,
        "batch_size": config.batch_size > (config.dataset.known_num_train or math.inf),
        "not finite": any(not math.isfinite(number) for number in _numbers(config.as_dict())),
    }
    return ", ".join(name for name, is_so in faults.items() if is_so)


def untrue(config: RunConfig, summary: dict[str, Any], folder: Path) -> str:
    """What is false in a finished record; empty: nothing."""
    kept = read_config(folder)
    for group, table in TABLES.items():
        if table[kept[group]["name"]] is not type(getattr(config, group)):
            return f"the record says {group}={kept[group]['name']}"
    if summary["strategy"] != config.strategy.name:
        return f"the summary says strategy={summary['strategy']}"
    if summary["status"] != "diverged" and not all(math.isfinite(number) for number in _numbers(summary)):
        return "the summary is not finite"
    return ""


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _numbers(item)
    elif isinstance(value, int | float):
        yield float(value)


# The processes.


def work(cases: Sequence[Words], pipe: Connection, memory: int) -> None:
    """Judge one after another, each within its bounds: the process is killed beyond them, which the parent sees."""
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    torch.set_num_threads(1)
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + memory, now + memory))
    with tempfile.TemporaryDirectory() as folder:
        for words in cases:
            signal.setitimer(signal.ITIMER_PROF, CPU_S)
            signal.setitimer(signal.ITIMER_REAL, WALL_S)
            pipe.send(judged(words, Path(folder)))


@dataclass(slots=True)
class _Worker:
    process: BaseProcess
    pipe: Connection
    left: list[Words]


def fuzz(cases: Sequence[Words], processes: int, memory: int = MEMORY) -> list[Verdict]:
    """The verdict on each, in any order."""
    context = multiprocessing.get_context("fork")
    waiting = [list(cases[begin : begin + CHUNK]) for begin in range(0, len(cases), CHUNK)]
    running, verdicts = list[_Worker](), list[Verdict]()
    while waiting or running:
        while waiting and len(running) < processes:
            chunk = waiting.pop(0)
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=work, args=(chunk, theirs, memory), daemon=True)
            process.start()
            theirs.close()
            running.append(_Worker(process, ours, chunk))
        for ready in wait([worker.pipe for worker in running]):
            worker = next(worker for worker in running if worker.pipe is ready)
            try:
                verdicts.append(worker.pipe.recv())
                del worker.left[0]
                continue
            except EOFError:
                worker.process.join()
            running.remove(worker)
            if worker.left:
                verdicts.append(Verdict(worker.left[0], *_death(worker.process.exitcode)))
                if worker.left[1:]:
                    waiting.insert(0, worker.left[1:])
    return verdicts


def _death(code: int | None) -> tuple[str, str]:
    if code in (-signal.SIGPROF, -signal.SIGALRM):
        return HANG, f"still running after {CPU_S:g} CPU seconds, or {WALL_S:g} s"
    return KILLED, f"its process ended with exit code {code}"


def report(verdicts: Sequence[Verdict], listed: int) -> int:
    """Print the counts, and the first of each kind that is wrong. Returns the exit code."""
    counts = Counter(verdict.kind for verdict in verdicts)
    for kind in (REFUSED, ENDED, *WRONG):
        print(f"{counts[kind]:7,}  {kind}{'' if kind in (REFUSED, ENDED) else ' (must be 0)'}")
    for kind in WRONG:
        for verdict in [verdict for verdict in verdicts if verdict.kind == kind][:listed]:
            words = " ".join(f"{word[:80]!r}" for word in verdict.words)
            print(f"\n{kind}: {words}\n  {verdict.detail.strip().splitlines()[-1] if verdict.detail else ''}")
    return 1 if any(counts[kind] for kind in WRONG) else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--listed", type=int, default=20, help="of each kind that is wrong")
    options = parser.parse_args()
    cases = drawn(options.configs, options.seed)
    begun = time.monotonic()
    verdicts = fuzz(cases, options.processes)
    print(f"seed {options.seed}, {len(cases):,} command lines, {time.monotonic() - begun:.0f} s")
    return report(verdicts, options.listed)


if __name__ == "__main__":
    sys.exit(main())
