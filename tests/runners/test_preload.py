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


CHOSEN = [
    "model=lenet dataset=digits",
    "model=lenet dataset=glyphs10",
    "model=lenet dataset=mnist_digits",
    "model=resnet20 dataset=cifar10 gradients=false",
]
FORKED_RUNS = """
import importlib, os, sys
from pathlib import Path
from runners.one import run_one
from runners.pool import PRELOAD, _preload_for
from syncline.config import compose
from syncline.plan import Entry

for name in PRELOAD:
    importlib.import_module(name)
for chosen in sys.argv[2:]:
    if os.fork():
        assert os.wait()[1] == 0
        continue
    config, _ = compose([*chosen.split(), "cluster.jitter={name: normal, mean: 1.0, std: 0.1}", "max_updates=2"])
    for name in _preload_for([Entry("run", (), config)]):
        importlib.import_module(name)
    before = set(sys.modules)
    run_one(config, Path(sys.argv[1]), lambda progress: None)
    large = ("matplotlib", "pandas", "scipy", "sklearn", "torch._dynamo")
    print(chosen, sorted(name for name in set(sys.modules) - before if name.startswith(large)), flush=True)
    os._exit(0)
"""


@pytest.mark.processes
def test_what_runs_would_each_import_is_prepared(tmp_path: Path) -> None:
    """Of the large packages nothing is left to a run: of four unequal workers with jitter, and with a log of events."""
    command = [sys.executable, "-c", FORKED_RUNS, str(tmp_path), *CHOSEN]
    said = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert said.stdout.splitlines() == [f"{chosen} []" for chosen in CHOSEN]
