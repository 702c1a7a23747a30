"""Where the files that ship with the code are, and how its commands are started: in a checkout, or installed.

The wheel holds conf/, reference/ and docs/findings/ within the package (setup.py). An editable install is a checkout.
"""

import sys
from pathlib import Path

PACKAGE = Path(__file__).parent
CHECKOUT = PACKAGE.parents[1]
IS_INSTALLED = (PACKAGE / "conf").is_dir()
REFERENCE, CONFIG_DIR = "reference", "--config-dir"  # CONFIG_DIR: the option that adds a folder of the user's


def shipped(name: str) -> Path:
    """The folder of this name: conf, reference or docs/findings."""
    return (PACKAGE if IS_INSTALLED else CHECKOUT) / name


def reference_folder() -> Path:
    """The folder reference/ of the working directory, if there is one, else the results that ship."""
    return Path(REFERENCE) if Path(REFERENCE).is_dir() else shipped(REFERENCE)


def make_command(experiment: str, scale: str) -> str:
    """What a user types for the runs of an experiment: an artefact, a paper, or `all`."""
    if IS_INSTALLED:
        return f"syncline run +experiment={experiment} scale={scale}"
    target = "papers" if experiment == "all" else experiment.replace("/", "-")
    return f"make {target} SCALE={scale}"


def program(*words: str) -> list[str]:
    """The words that start a command of `syncline` in another process, in any working directory."""
    return [sys.executable, "-P", "-m", "syncline", *words]


def script() -> list[str]:
    """The file that is the command `run`, and its first arguments; for launchers that start a Python file."""
    return [str(PACKAGE / "__main__.py"), "run"] if IS_INSTALLED else [str(CHECKOUT / "run.py")]
