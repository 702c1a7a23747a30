"""syncline completion: the words that may come next on a command line, and the scripts by which shells ask for them.

Words come from the names of files and, of keys, from the text of conf/: nothing is composed, since a shell asks at each
press of the tab key.
"""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from runners.__main__ import COMMANDS
from syncline.installation import shipped

SHELLS = Path(__file__).parent / "shells"
USAGE = """\
usage: syncline completion bash|zsh|fish
Prints a script for the shell. In ~/.bashrc or ~/.zshrc:
  source <(syncline completion bash)
  source <(syncline completion zsh)
In fish:
  syncline completion fish > ~/.config/fish/completions/syncline.fish"""
FLAGS = ("--cfg", "--config-dir", "--help", "--plan", "--status", "-m")
KEY = re.compile(r"^( *)(\w+):[ \t]*([^#\s]?)", re.MULTILINE)  # indentation, name, whether a value follows


def main(arguments: list[str]) -> int:
    """Print a shell's script, or the words that may come next.

    Raises:
        ValueError: no such shell.
    """
    shells = sorted(path.name for path in SHELLS.iterdir())
    if arguments in ([], ["-h"], ["--help"]):
        print(USAGE)
    elif arguments[0] == "words":
        print("\n".join(next_words(" ".join(arguments[1:]))))
    elif arguments[0] in shells and not arguments[1:]:
        print((SHELLS / arguments[0]).read_text(), end="")
    else:
        raise ValueError(f"completion is of {', '.join(shells)}; got {' '.join(arguments)}")
    return 0


def next_words(line: str) -> list[str]:
    """What may stand in place of the last word of a line, which may be empty; sorted."""
    _, *words = line.split(" ")
    return sorted({word for word in _words(words[:-1]) if word.startswith(words[-1])}) if words else []


def _words(before: list[str]) -> Iterator[str]:
    """All words that may follow these, whatever is typed of the next."""
    name, *others = before or [""]
    if name == "":
        yield from (*COMMANDS, "--help", "--version")
    elif name in ("run", "check", "calibrate"):
        yield from _run_words(others)
    elif name == "report":
        artefacts = _choices("experiment")
        yield from (
            "all",
            "fidelity",
            "races",
            "pushes",
            "site",
            "study",
            *artefacts,
            *(Path(each).parts[0] for each in artefacts),
        )
    elif name == "new":
        yield from ("strategy", "model", "dataset", "cluster")
    elif name == "completion":
        yield from (path.name for path in SHELLS.iterdir())
    elif name in ("status", "retry", "cancel"):
        yield from (path.stem for path in Path("results/plans").glob("*.json"))
    elif name in ("show", "compare", "timeline"):
        yield from (path.parent.name for path in Path("results").glob("*/config.*"))


def _run_words(before: list[str]) -> Iterator[str]:
    yield from FLAGS
    groups = {path.name for folder in _folders() for path in folder.iterdir() if path.is_dir()}
    chosen = dict(word.lstrip("+").split("=", 1) for word in before if "=" in word)
    for group in groups:
        plus = "+" if group in ("experiment", "tune", "judge", "race") else ""
        yield from (f"{plus}{group}={choice}" for choice in _choices(group))
        if group != "experiment":
            yield from (f"{key}=" for key in _keys(group, chosen.get(group, "*")))
    yield from (f"{key}=" for key in _dotted(KEY.findall((shipped("conf") / "config.yaml").read_text())))


def _folders() -> list[Path]:
    """conf/, and the user's own."""
    own = os.environ.get("SYNCLINE_CONFIG_DIR", "").split(os.pathsep)
    return [shipped("conf"), *(Path(folder) for folder in own if folder and Path(folder).is_dir())]


def _choices(group: str) -> list[str]:
    below = [(folder / group, path) for folder in _folders() for path in (folder / group).rglob("*.yaml")]
    return [path.relative_to(folder).with_suffix("").as_posix() for folder, path in below]


def _keys(group: str, choice: str) -> set[str]:
    """Dotted keys of a choice of a group, or of all (`*`): those of its class, and those of a file of the user's."""
    from syncline.config import GROUPS  # half a second
    from syncline.config.keys import leaves

    texts = [path.read_text() for folder in _folders() for path in (folder / group).glob(f"{choice}.yaml")]
    named = {name for text in texts for name in re.findall(r"^name: (\w+)", text, re.MULTILINE)}
    kinds = [kind for name, kind in GROUPS[group].items() if name in {*named, group}]
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
