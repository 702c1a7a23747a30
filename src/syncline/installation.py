"""Where the files that ship with the code are, and what its commands are called: in a checkout, or installed.

The wheel holds conf/, reference/ and docs/findings/ within the package (setup.py). An editable install is a checkout.
"""

import sys
from pathlib import Path

PACKAGE = Path(__file__).parent
CHECKOUT = PACKAGE.parents[1]
IS_INSTALLED = (PACKAGE / "conf").is_dir()
REFERENCE, CONFIG_DIR = "reference", "--config-dir"  # CONFIG_DIR: the option that adds a folder of the user's
IN_CHECKOUT = {"run": "python run.py", "report": "python -m reports"}  # of a checkout; others: python -m syncline


def shipped(name: str) -> Path:
    """The folder of this name: conf, reference or docs/findings."""
    return (PACKAGE if IS_INSTALLED else CHECKOUT) / name


def reference_folder() -> Path:
    """The folder reference/ of the working directory, if there is one, else the results that ship."""
    return Path(REFERENCE) if Path(REFERENCE).is_dir() else shipped(REFERENCE)


def command_name(name: str) -> str:
    """What a user types for a command of `syncline`: as this process was called, or as in a checkout."""
    if _is_syncline():
        return f"syncline {name}"
    return IN_CHECKOUT.get(name, f"python -m syncline {name}")


def make_command(experiment: str, scale: str) -> str:
    """What a user types for the runs of an experiment: an artefact, a paper, or `all`."""
    if _is_syncline():
        return f"{command_name('run')} +experiment={experiment} scale={scale}"
    target = "papers" if experiment == "all" else experiment.replace("/", "-")
    return f"make {target} SCALE={scale}"


def program(name: str, *words: str) -> list[str]:
    """The words that start a command of `syncline` in another process, in any working directory."""
    return [sys.executable, "-P", "-m", "runners", name, *words]


def script() -> list[str]:
    """The file that is the command `run`, and its first arguments; for launchers that start a Python file."""
    if IS_INSTALLED:
        from importlib.util import find_spec

        spec = find_spec("runners.__main__")
        assert spec is not None
        assert spec.origin is not None
        return [spec.origin, "run"]
    return [str(CHECKOUT / "run.py")]


def _is_syncline() -> bool:
    return IS_INSTALLED or Path(sys.argv[0]).stem == "syncline"
