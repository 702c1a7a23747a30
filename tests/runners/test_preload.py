"""What the process that runs are forked from imports for them."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from commands import ROOT

from runners.pool import PRELOAD_FOR, _preload_for
from syncline.config import DATASETS, MODELS, compose
from syncline.plan import Entry


def entries(*words: str) -> list[Entry]:
    return [Entry("run", words, compose(words)[0])]


def test_only_what_is_learned_is_prepared_and_each_module_once() -> None:
    bert = ["model=bert_tiny", "dataset=qa_synthetic"]
    assert _preload_for(entries(*bert) + entries(*bert, "seed=1")) == ["runners.preload_bert"]
    assert _preload_for(entries(*bert, "gradients=false")) == []
    assert _preload_for(entries("model=lenet", "dataset=digits")) == []


def test_what_is_named_exists() -> None:
    assert set(PRELOAD_FOR) <= set(MODELS) | set(DATASETS)
    for modules in PRELOAD_FOR.values():
        assert all(importlib.util.find_spec(module) for module in modules)


@pytest.mark.processes
@pytest.mark.parametrize(
    "chosen",
    [
        "model=lenet dataset=digits",
        "model=lenet dataset=glyphs10",
        "model=lenet dataset=mnist_digits",
        "model=resnet20 dataset=cifar10 gradients=false",
    ],
)
def test_what_runs_would_each_import_is_prepared(tmp_path: Path, chosen: str) -> None:
    """Of the large packages nothing is left to a run: of four unequal workers with jitter, and with a log of events."""
    code = (
        "import importlib, sys; from pathlib import Path\n"
        "from runners.one import run_one; from runners.pool import PRELOAD, _preload_for\n"
        "from syncline.config import compose; from syncline.plan import Entry\n"
        "config, _ = compose(sys.argv[2:])\n"
        "for name in PRELOAD + _preload_for([Entry('run', (), config)]): importlib.import_module(name)\n"
        "before = set(sys.modules)\n"
        "run_one(config, Path(sys.argv[1]), lambda progress: None)\n"
        "large = ('matplotlib', 'pandas', 'scipy', 'sklearn', 'torch._dynamo')\n"
        "print(sorted(name for name in set(sys.modules) - before if name.startswith(large)))"
    )
    words = [*chosen.split(), "cluster.jitter={name: normal, mean: 1.0, std: 0.1}"]
    words += ["max_updates=2", "epochs=null"]
    command = [sys.executable, "-c", code, str(tmp_path), *words]
    said = subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    assert said.stdout == b"[]\n"
