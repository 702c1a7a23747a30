"""The command `syncline`. A command of it is imported when it is called: torch alone takes two seconds.

This file may hold: the table of commands, and what is common to them. It may not import any of them.
"""

import sys
from difflib import get_close_matches
from importlib import import_module

import runners
from syncline.installation import command_name
from syncline.operations.arguments import exit_code

# name -> module with `main(arguments) -> exit code`, and a line for --help
COMMANDS = {
    "run": ("runners.command_line", "make runs: one, a sweep, all of a table or figure; a study"),
    "report": ("reports", "tables, figures and claims of what was run, and pages for a browser"),
    "status": ("syncline", "plans and their runs: which are finished, failed or left"),
    "show": ("syncline", "one record or study"),
    "compare": ("syncline", "two runs, or own runs and the reference"),
    "retry": ("syncline", "start a plan again"),
    "cancel": ("syncline", "stop the runs of a plan"),
    "grow": ("syncline", "start more workers in a run of real processes"),
    "clean": ("syncline", "remove what interrupted and failed runs left"),
    "timeline": ("syncline", "when each worker of a run computed, sent and waited"),
    "reference": ("syncline", "the results that ship: list them, copy them, add to them"),
    "check": ("runners.check", "hold a strategy, a model, data of one's own to the rules, and measure them"),
    "calibrate": ("runners.calibrate", "measure a cluster of one's own, and write its profile"),
    "new": ("runners.new", "start a strategy, a model, a dataset or a cluster of one's own"),
    "completion": ("runners.completion", "print a script that completes words: bash, zsh or fish"),
}


def main(arguments: list[str]) -> int:
    """Returns the exit code; `run` ends the process itself."""
    name, *words = arguments or ["--help"]
    if name in ("-h", "--help"):
        print(help_text())
        return 0
    if name == "--version":
        import syncline

        print(f"syncline {syncline.__version__}")
        return 0
    if name not in COMMANDS:
        near = get_close_matches(name, COMMANDS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        print(f"error: unknown command {name!r}; there are {', '.join(COMMANDS)}{hint}", file=sys.stderr)
        return 1
    return exit_code(lambda: called(name, COMMANDS[name][0], words))


def called(name: str, module: str, words: list[str]) -> int:
    if name == "run":
        runners.run_and_exit(words)
    if module == "syncline":
        return int(import_module("syncline.__main__").main([name, *words], "syncline"))
    if module == "reports":
        return int(import_module("reports.__main__").main(words, command_name(name)))
    return int(import_module(module).main(words))


def help_text() -> str:
    lines = [f"  {name:<12}{about}" for name, (_, about) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: syncline <command> ...; every command has its own --help",
            "",
            *lines,
            "",
            "  --version",
            "",
            "syncline run strategy=dssp cluster.workers=8",
            "syncline run -m strategy=bsp,asp,ssp seed=0,1,2",
            "syncline status",
        ]
    )


def entry() -> None:
    """The script `syncline`."""
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    entry()
