"""syncline completion: the words that may come next on a command line, and the scripts by which shells ask for them.

Words come from the names of files and, of keys, from the text of conf/: nothing is composed, since a shell asks at each
press of the tab key.
"""

import argparse
import os
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

from runners.commands import COMMANDS, Command
from syncline.installation import CONFIG_DIR, shipped
from syncline.records.plans import plan_stems

VARIABLE = "SYNCLINE_CONFIG_DIR"  # as of syncline.config.folders, which takes half a second to import
KEY = re.compile(r"^( *)(\w+):[ \t]*([^#\s]?)", re.MULTILINE)  # indentation, name, whether a value follows


def main(asked: argparse.Namespace) -> int:
    """Print a shell's script, or the words that may come next."""
    if asked.shell == "words":
        for option, folder in pairwise(" ".join(asked.line).split(" ")):
            if option == CONFIG_DIR:
                os.environ[VARIABLE] = os.pathsep.join(filter(None, [os.environ.get(VARIABLE, ""), folder]))
        print("\n".join(next_words(" ".join(asked.line))))
    else:
        print((Path(__file__).parent / "shells" / asked.shell).read_text(), end="")
    return 0


def next_words(line: str) -> list[str]:
    """What may stand in place of the last word of a line, which may be empty; sorted."""
    _, *words = line.split(" ")
    return sorted({word for word in _words(words[:-1]) if word.startswith(words[-1])}) if words else []


def _words(before: list[str]) -> Iterator[str]:
    """All words that may follow these, whatever is typed of the next: options, and values of positional arguments."""
    name, *others = before or [""]
    if name == "":
        yield from (*COMMANDS, "--help", "--version")
    elif name in COMMANDS:
        parser = COMMANDS[name].parser(name)
        yield from parser.options
        for argument in parser.positionals:
            yield from argument.choices or _values(argument.dest, COMMANDS[name], others)


def _values(argument: str, command: Command, before: list[str]) -> Iterable[str]:
    """Of a positional argument, for a command and the words before."""
    match argument:
        case "words":
            return _overrides(command, before)
        case "what":
            kinds = ("all", "races", "phases", "workers", "pushes", "rules", "rates", "site", "study")
            return (*kinds, *_experiments())
        case "plan" | "plans":
            return plan_stems(Path("results"))
        case "record" | "names":
            return (path.parent.name for path in Path("results").glob("*/config.*"))
    return ()


def _experiments() -> Iterator[str]:
    for artefact in _choices("experiment"):
        yield from (artefact, Path(artefact).parts[0])


def _overrides(command: Command, before: list[str]) -> Iterator[str]:
    """Choices of groups, and keys; of a study those of its own group, too, and names of experiments."""
    study = command.preset.partition("/")[0]
    if study in ("tune", "judge"):
        yield from _experiments()
    of_studies = {each.preset.partition("/")[0] for each in COMMANDS.values()} - {study}
    groups = {path.name for folder in _folders() for path in folder.iterdir() if path.is_dir()} - of_studies
    chosen = dict(word.lstrip("+").split("=", 1) for word in before if "=" in word)
    for group in groups - ({"experiment"} if study else set()):
        plus = "+" if group == "experiment" else ""
        yield from (f"{plus}{group}={choice}" for choice in _choices(group))
        if group != "experiment":
            yield from (f"{key}=" for key in _keys(group, chosen.get(group, "*")))
    yield from (f"{key}=" for key in _dotted(KEY.findall((shipped("conf") / "config.yaml").read_text())))


def _folders() -> list[Path]:
    """conf/, and the user's own."""
    own = os.environ.get(VARIABLE, "").split(os.pathsep)
    return [shipped("conf"), *(Path(folder) for folder in own if folder and Path(folder).is_dir())]


def _choices(group: str) -> list[str]:
    below = [(folder / group, path) for folder in _folders() for path in (folder / group).rglob("*.yaml")]
    return [path.relative_to(folder).with_suffix("").as_posix() for folder, path in below]


def _keys(group: str, choice: str) -> set[str]:
    """Dotted keys of a choice of a group, or of all (`*`): those of its class, and those of a file of the user's."""
    from syncline.config import GROUPS  # half a second
    from syncline.config.keys import leaves
    from syncline.config.studies import STUDIES

    texts = [path.read_text() for folder in _folders() for path in (folder / group).glob(f"{choice}.yaml")]
    named = {name for text in texts for name in re.findall(r"^name: (\w+)", text, re.MULTILINE)}
    table = {group: STUDIES[group]} if group in STUDIES else GROUPS[group]
    kinds = [kind for name, kind in table.items() if name in {*named, group}]
    found = {f"{group}.{key}" for text in texts for key in _dotted(KEY.findall(text))}
    return found | {key for kind in kinds for key in leaves({group: kind}) if not key.endswith(".name")}


def _dotted(lines: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    """The keys of one file: those with a value."""
    above = dict[int, str]()  # by indentation
    for space, name, value in lines:
        above = {depth: each for depth, each in above.items() if depth < len(space)} | {len(space): name}
        key = ".".join(above.values())
        if value and key != "name" and not key.startswith("defaults"):
            yield key
