"""The command `syncline`: the table of its commands, with the options and the help of each.

This file may hold: what is read of a command line, and what is common to all commands. It may not import a command
before it is called: torch alone takes two seconds.
"""

import argparse
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import syncline
from runners.stop import INTERRUPTED, StopRequested, handle_signals, unblock_signals
from syncline.installation import CONFIG_DIR, shipped
from syncline.operations.states import STATES
from syncline.operations.streams import lose_text_alone
from syncline.targets import fault

# Read by libraries when they are loaded: a fork of a process loses its threads.
SINGLE_THREADED = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",  # pyarrow's allocator
}


class Parser(argparse.ArgumentParser):
    """The parser of a command, whose options and words may be in any order.

    `more`: what follows its options in the help, asked for when it is shown.
    """

    def __init__(self, prog: str, description: str, more: Callable[[], str]) -> None:
        form = argparse.RawDescriptionHelpFormatter
        super().__init__(prog, description=description, formatter_class=form, allow_abbrev=False)
        self._more = more

    @property
    def options(self) -> list[str]:
        """All spellings of its options, but for those that only other processes of Syncline give."""
        named = self._option_string_actions.items()
        return [spelling for spelling, action in named if action.help != argparse.SUPPRESS]

    @property
    def positionals(self) -> list[argparse.Action]:
        """Its arguments that are no options."""
        return self._get_positional_actions()

    def read(self, words: Sequence[str]) -> argparse.Namespace:
        """Parse these words. Raises ValueError: an option is unknown or lacks its value, a word is missing or odd."""
        asked, unknown = self.parse_known_intermixed_args(words)
        if unknown:
            near = get_close_matches(unknown[0].partition("=")[0], self.options, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(f"{self.prog} takes no {unknown[0]}; its options are {', '.join(self.options)}{hint}")
        return asked

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{self.prog}: {message}")

    def format_help(self) -> str:
        return f"{super().format_help()}\n{self._more()}".rstrip() + "\n"


class Option:
    """An argument of a command: what `add_argument` takes."""

    def __init__(self, *names: str, **settings: Any) -> None:
        self.names, self.settings = names, settings


def count(text: str) -> int:
    """A number of things. Raises ValueError: it is none."""
    if (number := int(text)) < 0:
        raise ValueError
    return number


RESULTS = Option("--results", type=Path, default=Path("results"), metavar="DIR", help="folder of the records (results)")
JSON = Option("--json", action="store_true", help="print JSON; docs/operations.md lists the keys")
PLAN = Option("plan", help="its experiment (dssp/table1), its name, or its file")
RECORD = Option("record", help="identity of a run, or the folder of its record")
REFERENCE_HELP = "folder of the reference (reference, or the one that ships)"
REFERENCE = Option("--reference", type=Path, metavar="DIR", help=REFERENCE_HELP)
FOLDERS = Option(CONFIG_DIR, action="append", default=[], metavar="DIR", help="add a folder of your own parts")
WORDS = Option("words", nargs="*", metavar="KEY=VALUE", help="of a run: syncline run --help")
FOLLOWS = Option("--follows", type=int, help=argparse.SUPPRESS)  # of the job that follows a stage in Slurm
SCALES = sorted(path.stem for path in shipped("conf/scale").glob("*.yaml"))
KINDS = ("strategy", "model", "dataset", "cluster")
SHELLS = ("bash", "fish", "zsh")


@dataclass(frozen=True, slots=True)
class Command:
    """A command.

    Its module has `main`, which takes the parsed options and returns the exit code.
    """

    module: str
    about: str  # one line
    options: tuple[Option, ...]
    examples: str = ""
    preset: str = ""  # of a study: the file in conf/ that has its keys
    makes_runs: bool = False  # it is stopped with checkpoints

    def parser(self, name: str) -> Parser:
        """Its parser, under this name."""
        about = f"{self.about[0].upper()}{self.about[1:]}."
        parser = Parser(f"syncline {name}", f"{about}\n\n{self.examples}", self._more)
        for option in self.options:
            parser.add_argument(*option.names, **option.settings)
        return parser

    def _more(self) -> str:
        if self.preset:
            text = (shipped("conf") / f"{self.preset}.yaml").read_text()
            group, _, name = self.preset.partition("/")
            return (
                f"Keys, set by {group}.KEY=VALUE; {group}={name} and files of your own in {group}/ are presets:\n{text}"
            )
        if self.module == "runners.command_line":
            found: str = import_module(self.module).groups_and_keys()
            return found
        return ""


COMMANDS = {
    "run": Command(
        "runners.command_line",
        "make runs: one, a sweep, all of a table or figure",
        (
            Option("-m", "--multirun", action="store_true", help="a run of each combination of KEY=V1,V2 ..."),
            Option("--cfg", action="store_true", help="print all keys and their values, and run nothing"),
            Option("--plan", type=Path, metavar="FILE", help="runs of a stored plan (results/plans)"),
            Option("--runs", metavar="A:B", help="which of them, counted from 0"),
            Option("--retry", type=Path, help=argparse.SUPPRESS),  # the plan that must have the same runs
            FOLDERS,
            WORDS,
        ),
        """\
  syncline run strategy=dssp model=resnet110 cluster.workers=8
  syncline run -m strategy=bsp,asp,ssp seed=0,1,2
  syncline run +experiment=dssp/table1        a table or figure; a paper; all""",
        makes_runs=True,
    ),
    "race": Command(
        "runners.racing",
        "which strategy reaches a target first",
        (FOLLOWS, FOLDERS, WORDS),
        """\
  syncline race target.value=0.9
  syncline race strategy=ssp,dssp,k_async target.value=0.9 race.confirm=2""",
        preset="race/first",
        makes_runs=True,
    ),
    "tune": Command(
        "runners.tuning",
        "find the best rate of each row of a sweep or an experiment",
        (FOLLOWS, FOLDERS, WORDS),
        """\
  syncline tune strategy=ssp,dssp,bsp model=resnet8
  syncline tune dssp/table1 scale=workstation""",
        preset="tune/rate",
        makes_runs=True,
    ),
    "judge": Command(
        "runners.judging",
        "make as many seeds as decide the claims of experiments",
        (FOLLOWS, FOLDERS, WORDS),
        """\
  syncline judge dssp/table1                  a table or figure; a paper; all
  syncline judge all judge.budget=6h""",
        preset="judge/claims",
        makes_runs=True,
    ),
    "report": Command(
        "reports.command",
        "tables, figures and claims of what was run, and pages for a browser",
        (
            Option(
                "what",
                help="an artefact, a paper, all, races, phases, workers, pushes, rules, rates, study, site, docs",
            ),
            Option("study", nargs="?", metavar="stem", help="of a study"),
            Option("--scale", choices=SCALES, metavar="SCALE", help="laptop; of site the best one of each claim"),
            Option("--check", action="store_true", help="with docs: write nothing, fail if a table would change"),
            REFERENCE,
            RESULTS,
        ),
        """\
  syncline report dssp/table1                 one table or figure
  syncline report dssp                        all of a paper, and its claims
  syncline report races                       all races: who is first where
  syncline report study <study>               its curves or verdicts
  syncline report site                        all of this as pages for a browser""",
    ),
    "status": Command(
        "syncline.operations.status",
        "which runs of plans are finished, running, queued, failed, unfinished or left",
        (
            Option("plan", nargs="?", help=f"{PLAN.settings['help']}; all without"),
            Option("--runs", action="store_true", help="list the runs, also of all plans"),
            Option("--state", choices=STATES, metavar="STATE", help=f"list only those: {', '.join(STATES)}"),
            RESULTS,
            JSON,
        ),
        """\
  syncline status                             one line a plan or study
  syncline status dssp/table1                 its runs, one a line
  syncline status dssp/table1 --state failed
  syncline status --json | jq '.plans[] | select(.failed > 0) | .plan'

States: finished, running (by a process that is alive), queued (in Slurm),
failed (with the cause), unfinished (interrupted; the next start resumes or
restarts it), left (not begun). "to go" is the mean time of the finished runs of
the same row times the number of runs left, divided by the runs under way.""",
    ),
    "show": Command(
        "syncline.operations.show",
        "a run: overrides, results, or why it failed; a study: stages and answer",
        (
            Option("record", help="identity of a run, the folder of its record, or a study"),
            Option("--config", action="store_true", help="the whole config, not only the overrides"),
            Option(
                "--last", type=count, default=5, metavar="N", help="number of evaluations listed, the last ones (5)"
            ),
            REFERENCE,
            RESULTS,
            JSON,
        ),
        """\
  syncline show <identity> --config --last 20
  syncline show <identity> --json | jq .summary.final
  syncline show <study>""",
    ),
    "compare": Command(
        "syncline.operations.compare",
        "two runs side by side, or own runs beside those of the reference",
        (
            Option("names", nargs="*", metavar="name", help="two records; with --reference plans, or none for all"),
            Option("--reference", action="store_true", help="with the reference; exit code 1 if a number differs"),
            Option("--folder", type=Path, metavar="DIR", help=REFERENCE_HELP),
            RESULTS,
            JSON,
        ),
        """\
  syncline compare <identity> <identity>
  syncline compare --reference                what differs in all plans
  syncline compare --reference dssp/table1    every number of it""",
    ),
    "retry": Command(
        "syncline.operations.retry",
        "start a plan or a study again as it was started; finished runs are not repeated",
        (PLAN, RESULTS),
    ),
    "cancel": Command(
        "syncline.operations.cancel",
        "stop the runs of a plan: processes of this host, and Slurm jobs",
        (PLAN, RESULTS, JSON),
        "Finished runs stay; retry makes the others.",
    ),
    "grow": Command(
        "syncline.operations.grow",
        "start more workers in a run of real processes that is under way",
        (RECORD, Option("number", type=int, help="of further workers"), RESULTS, JSON),
        """\
The run must have begun with fewer workers than it may have:
  syncline run runner=local cluster.workers=4 runner.initial_workers=2
  syncline grow <identity> 2""",
    ),
    "clean": Command(
        "syncline.operations.clean",
        "remove what interrupted and failed runs left: records, stale locks, drafts",
        (
            Option("--yes", action="store_true", help="remove it; without, it is only listed"),
            Option("--orphans", action="store_true", help="also finished records that no plan names"),
            RESULTS,
            JSON,
        ),
        """\
  syncline clean                              what would be removed, with sizes
  syncline clean --yes                        remove it
A failed or unfinished record may hold a checkpoint that the next start would
resume from: then the list says so.""",
    ),
    "timeline": Command(
        "syncline.operations.timeline",
        "when each worker of a run computed, sent and waited: a trace and a picture",
        (
            RECORD,
            Option("--output", type=Path, metavar="DIR", help="folder for the files (the record's own)"),
            Option("--from", type=float, dest="from_s", metavar="S", help="first second to show"),
            Option("--to", type=float, dest="to_s", metavar="S", help="last second to show"),
            RESULTS,
            JSON,
        ),
        "  syncline timeline <identity> --from 10 --to 12 --output figures",
    ),
    "export": Command(
        "runners.export",
        "the weights that a run has ended with, as its model's own state dict",
        (RECORD, Option("--output", type=Path, metavar="DIR", help="folder for the files (the record's own)"), RESULTS),
        """\
  syncline export <identity> --output my-model
A file model.safetensors that load_state_dict reads, or, of a model of
transformers, a folder that from_pretrained reads.""",
    ),
    "reference": Command(
        "syncline.operations.reference",
        "the results that ship: list them, copy them back, add finished runs to them",
        (
            Option("action", choices=("add", "restore", "list")),
            Option("plans", nargs="*", metavar="plan", help="an experiment, with or without its scale; a study; all"),
            Option("--reference", type=Path, metavar="DIR", help=f"{REFERENCE_HELP}; to add: reference"),
            RESULTS,
            JSON,
        ),
        """\
  syncline reference add dssp/table1          the finished runs of a plan
  syncline reference add <study>              those of a study, and itself
  syncline reference add all                  of all plans with a scale
  syncline reference restore dssp/table1      its runs, into the results
  syncline reference list""",
    ),
    "check": Command(
        "runners.check",
        "hold a strategy, a model, data of your own to the rules, and measure them",
        (FOLDERS, WORDS),
        """\
  syncline check --config-dir my strategy=mine model=net

The strategy goes through the contract suite. Of model, data, task and
optimizer, the first 20 steps of one worker are compared with an ordinary
PyTorch loop's, stopped and resumed, and made again by real processes; and they
are measured. Then 50 updates are made in virtual time, those of the strategy
alone also with 2 shards.""",
    ),
    "calibrate": Command(
        "runners.calibrate",
        "measure a cluster of your own, and write its profile",
        (
            Option("name", help="of the profile: lab for DIR/cluster/lab.yaml"),
            Option("--samples", type=int, default=200, metavar="N", help="gradients of a worker, on average (200)"),
            Option("--links", action=argparse.BooleanOptionalAction, help="measure the links with streams of messages"),
            Option(
                "--validate", action=argparse.BooleanOptionalAction, help="foresee short runs of other strategies, too"
            ),
            Option("--from", dest="source", default="", metavar="RECORD", help="record of a run, or FILE.csv"),
            FOLDERS,
            WORDS,
        ),
        """\
  syncline calibrate lab --config-dir my cluster.workers=4
  syncline calibrate lab --config-dir my --from seconds.csv

The run that is measured is of strategy=asp, with real processes on this machine
unless runner= says otherwise. With --from the seconds are those of a record, or
of a file with a column a worker, and nothing is run unless --links or
--validate asks for it. rerun=true replaces a profile. SYNCLINE_CONFIG_DIR=DIR
stands for --config-dir DIR.""",
        makes_runs=True,
    ),
    "new": Command(
        "runners.new",
        "start a strategy, a model, a data set or a cluster of your own, with tests",
        (
            Option("kind", choices=KINDS, metavar="|".join(KINDS)),
            Option("name", help="of it, as in model=NAME, and of its module"),
            Option("--into", type=Path, default=Path(), metavar="DIR", help="folder of your own parts (.)"),
        ),
        """\
  syncline new model tiny            tiny.py, model/tiny.yaml, test_tiny.py
  syncline new strategy mine --into own""",
    ),
    "completion": Command(
        "runners.completion",
        "print a script that completes words in a shell",
        (
            Option("shell", choices=(*SHELLS, "words"), metavar="|".join(SHELLS)),
            Option("line", nargs="*", help=argparse.SUPPRESS),  # of words: what was typed so far
        ),
        """\
In ~/.bashrc or ~/.zshrc:
  source <(syncline completion bash)
  source <(syncline completion zsh)
In fish:
  syncline completion fish > ~/.config/fish/completions/syncline.fish""",
    ),
}


def help_text() -> str:
    """What `syncline --help` prints."""
    lines = [f"  {name:<12}{command.about}" for name, command in COMMANDS.items()]
    return "\n".join(["usage: syncline <command> ...; every command has its own --help", "", *lines, "", "  --version"])


def call(arguments: Sequence[str]) -> int:
    """Call a command. Returns its exit code.

    Raises:
        ValueError: bad input; the message is the one line to show.
        StopRequested: this process was asked to stop.
    """
    name, *words = arguments or ["--help"]
    if name in ("-h", "--help"):
        print(help_text())
    elif name == "--version":
        print(f"syncline {syncline.__version__}")
    elif name in COMMANDS:
        asked = COMMANDS[name].parser(name).read(words)
        code: int = import_module(COMMANDS[name].module).main(asked)
        return code
    else:
        near = get_close_matches(name, COMMANDS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"unknown command {name!r}; there are {', '.join(COMMANDS)}{hint}")
    return 0


def main(arguments: Sequence[str]) -> int:
    """As `call`; an error, or an interruption, is one line and an exit code."""
    lose_text_alone()
    name, words = arguments[0] if arguments else "", arguments[1:]
    is_rank = name == "run" and "TORCHELASTIC_RUN_ID" in os.environ  # torchrun alone sets it; pods have a RANK, too
    if is_rank and os.environ["LOCAL_RANK"] != "0":
        unblock_signals()  # which the fork of a rank has blocked (torchrun.py)
        return 0  # its worker is a process of the node's first rank
    if is_rank or (name == "run" and "runner=local" in words):
        os.environ.update({key: value for key, value in SINGLE_THREADED.items() if key not in os.environ})
    if is_rank:
        from runners.rank import be_rank

        return exit_code_of(lambda: be_rank(words), arguments)
    if name in COMMANDS and COMMANDS[name].makes_runs:
        handle_signals()
    return exit_code_of(lambda: call(arguments), arguments)


def exit_code_of(command: Callable[[], int], arguments: Sequence[str]) -> int:
    """What a command returns; an error, or an interruption, is one line and an exit code.

    Raises:
        Exception: the error, if it is not the user's, or `debug=true` asks for its traceback.
    """
    try:
        check_working_directory()
        return command()
    except StopRequested as stop:
        kept = stop.kept or "finished runs are kept"
        print(f"interrupted; {kept}; rerun this command to resume: syncline {shlex.join(arguments)}", file=sys.stderr)
        return stop.code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except SystemExit as end:  # of --help
        return int(end.code or 0)
    except Exception as error:
        told = None if isinstance(error, OSError) else fault(error)
        if told is None and isinstance(error, ValueError | OSError):
            told = one_line(error)
        if "debug=true" in arguments or told is None:
            raise
        print(f"error: {told}", file=sys.stderr)
        return 1


def one_line(error: ValueError | OSError) -> str:
    """What is printed of an error."""
    if not isinstance(error, OSError):
        return str(error)
    parts = (error.filename and f"{error.filename}:", error.strerror or error)
    return " ".join(str(part) for part in parts if part)


def check_working_directory() -> None:
    """Raises ValueError if it was removed: each relative path would be an error of its own."""
    try:
        os.getcwd()
    except FileNotFoundError:
        raise ValueError("the working directory was removed; change to another one") from None
