"""What a process is that torchrun has started, a rank of the job that makes a run.

The first rank of a node is the keeper of all processes of the node; the others have nothing to do. Rank 0 composes the
run, for its coordinator; the other nodes find it through torchrun's store.
"""

import json
import logging
import os
import re
import shlex
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from runners.commands import COMMANDS, exit_code_of
from runners.planning import is_experiment
from runners.stop import RESUMABLE, StopRequested, handle_signals
from syncline.config import ConfigError, MultinodeConfig, split
from syncline.config.folders import use
from syncline.installation import CONFIG_DIR
from syncline.live.node.keeper import Keeper, preload
from syncline.live.node.ranks import Announcement, Place, Ranks
from syncline.processes import die_with
from syncline.records.store import FAILED, STOPPED, made_in, status

PLAIN = re.compile(r"[\w./:@%+-]*")  # a folder that needs no reading
CONFIG_FILE = "--config-file"  # an option in place of key=value words: the whole config, as in a record

Coordinate = Callable[[Place, bool], int]  # takes whether a coordinator of this run was there before

# What the rank 0 does that is a fork of this process; one that torchrun has started anew composes its words.
inherited: Coordinate | None = None


def be_rank(arguments: Sequence[str]) -> int:
    """Be this rank until the run is over. Returns its exit code.

    Raises:
        ConfigError: the run cannot be made so.
    """
    ranks, words = Ranks.of(), list(arguments)
    logging.disable(logging.NOTSET)
    die_with(os.getppid())
    with suppress(PermissionError):  # it has a session of its own already
        os.setsid()
    results = folder_of_results(words)
    if ranks.num_restarts > 0 and (code := code_of_end(ranks, results)) is not None:
        return code
    if ranks.first > 0:
        preload()
        return Keeper(ranks, results, words).keep()
    coordinate = inherited or composed(words, ranks)
    preload()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    place = Place(ranks, words, ours)
    is_again = ranks.num_restarts > 0
    return Keeper(
        ranks, results, words, lambda was_killed: coordinated(coordinate, place, was_killed or is_again), theirs
    ).keep()


def folder_of_results(words: Sequence[str]) -> Path:
    """The folder of the records, by the words of the run; Hydra reads what is not plain text, and is not imported else.

    Raises:
        ConfigError: the words are no config.
    """
    texts = [split(word)[1] for word in words if split(word)[0] == "results"]
    if not texts:
        return Path("results")
    if PLAIN.fullmatch(texts[-1]) or any(word.startswith(f"{CONFIG_FILE}=") for word in words):
        return Path(texts[-1])
    from syncline.config import compose

    asked = COMMANDS["run"].parser("run").read(words)
    use(*asked.config_dir)
    return Path(compose(asked.words)[1].results)


def code_of_end(ranks: Ranks, results: Path) -> int | None:
    """Exit code of a rank that torchrun restarts since the run has failed or was stopped; None: it goes on."""
    found = Announcement(ranks).get()
    if found is None:
        return None
    if (made_in(results / found[0]) / STOPPED).exists():
        return RESUMABLE
    return 1 if status(results / found[0]) == FAILED else None


def composed(words: Sequence[str], ranks: Ranks) -> Coordinate:
    """What the coordinator of the run does that these words are of.

    Raises:
        ConfigError: they are of several runs, or of one that does not fit the ranks.
    """
    from runners.command_line import coordinate  # imports much, and Hydra
    from syncline.config import Invocation, compose, from_plain

    if of_file := [word.partition("=")[2] for word in words if word.startswith(f"{CONFIG_FILE}=")]:
        use(*(word.partition("=")[2] for word in words if word.startswith(f"{CONFIG_DIR}=")))
        given, results = json.loads(Path(of_file[0]).read_text()), words[-1].partition("=")[2]
        config, invocation = from_plain(given["config"]), Invocation(results=results, rerun=given["rerun"])
        return lambda place, was_killed: coordinate(config, invocation, place, was_killed)
    asked = COMMANDS["run"].parser("run").read(words)
    use(*asked.config_dir)
    own, is_plain = asked.words, not (asked.multirun or asked.cfg or asked.plan)
    if not is_plain or any(map(is_experiment, own)) or any(word.startswith("launcher=") for word in own):
        rule = "inside torchrun there is one run, of key=value words alone"
        raise ConfigError(f"{rule}, got {shlex.join(words)}; outside of it, syncline run starts torchrun for each run")
    if not any(split(word)[0] == "runner" for word in own):
        own = [f"runner={'local' if ranks.num_nodes == 1 else 'multinode'}", *own]
    config, invocation = compose(own)
    if isinstance(config.runner, MultinodeConfig) and config.runner.nodes is None:
        config = replace(config, runner=replace(config.runner, nodes=ranks.num_nodes))
    ranks.check(config)
    return lambda place, was_killed: coordinate(config, invocation, place, was_killed)


def coordinated(coordinate: Coordinate, place: Place, was_killed: bool) -> int:
    """What the coordinator's process does. Returns its exit code, after an error in one line."""

    def command() -> int:
        try:
            return coordinate(place, was_killed)
        except StopRequested as stop:
            if inherited is None:  # else the process says so that was asked to stop
                print(f"interrupted; {stop.kept or 'nothing is lost'}; the same command resumes it", file=sys.stderr)
            return stop.code

    handle_signals()
    return exit_code_of(command, place.words)
