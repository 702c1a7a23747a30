"""syncline check: sound parts pass, and each fault of a strategy is told with the event that broke a rule."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from own import SHOWN, using, write

from runners import check
from runners.commands import call
from syncline.checking import strategy
from syncline.checking.harness import ContractBroken
from syncline.checking.strategy import check_strategy
from syncline.config import ConfigError, compose

MACHINE = """\
import random
from bounded import *


class FaultyOptions(BoundedOptions):
    def start(self, num_workers):
        return Faulty(num_workers, self.delay)


class Faulty(Bounded):
"""
ANSWER = "    def handle(self, event):\n        found = super().handle(event)\n        return "
FAULTS = {
    "never grants": (f"{ANSWER}[Hold(c.worker) if isinstance(c, Grant) else c for c in found]", "deadlock"),
    "grants twice": (f"{ANSWER}[*found, *found[-1:]]", "while it computes"),
    "applies twice": (f"{ANSWER}[c for c in found for _ in range(1 + isinstance(c, Apply))]", "settled twice"),
    "forgets to answer": (f"{ANSWER}found[:1]", "neither granted nor held"),
    "answers with text": (f"{ANSWER}['grant']", "no engine obeys 'grant'"),
    "breaks its bound": (
        "    def __init__(self, num_workers, delay):\n        super().__init__(num_workers, delay + 1)",
        "staleness 5 > bound 4",
    ),
    "draws": (
        "    def updates(self):\n        self.delay = random.choice((0, 4))\n        return super().updates()",
        "a saved and loaded state answers differently",
    ),
    "draws, the same": (
        "    def is_here(self, worker):\n        random.random()\n        return super().is_here(worker)",
        "draws",
    ),
    "raises": ("    def updates(self):\n        return {}['x']", "faulty.py:12: KeyError: 'x'"),
    "takes what cannot be": (
        "    def handle(self, event):\n        is_left = isinstance(event, WorkerLeft)\n"
        "        return [] if is_left and not self.is_here(event.worker) else super().handle(event)",
        "an impossible event must raise ProtocolError, got an answer to WorkerLeft",
    ),
    "state of sets": (
        "    def state_dict(self):\n        return {1: {2}}",
        "cannot be saved as JSON and loaded: TypeError",
    ),
}


@pytest.fixture(autouse=True)
def _fewer_random_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strategy, "NUM_RANDOM", 5)


@pytest.fixture
def my(tmp_path: Path) -> Iterator[Path]:
    with using(write(tmp_path / "my", SHOWN | {"strategy/faulty.yaml": "_target_: faulty.FaultyOptions\n"})):
        yield tmp_path / "my"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_strategy_is_found(my: Path, fault: str) -> None:
    code, rule = FAULTS[fault]
    write(my, {"faulty.py": MACHINE + code + "\n"})
    with pytest.raises(ContractBroken) as broken:
        check_strategy(compose(["strategy=faulty"])[0].strategy)
    assert rule in broken.value.rule
    assert "\nlast events:" in str(broken.value)


def test_the_command_tells_the_event_and_the_state(my: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(my, {"faulty.py": MACHINE + FAULTS["applies twice"][0] + "\n"})
    assert call(["check", "strategy=faulty", "gradients=false"]) == 1
    said = capsys.readouterr().out
    assert "strategy  FAULT: push 0 settled twice, or never sent" in said
    assert "PushArrived(at=1.0, push=0, worker=0, version=0, loss=0.015625) -> Apply(pushes=(0,)" in said
    assert "state: {'version': 1, 'computing': {'0': 1}, 'waiting': []}" in said
    assert said.endswith("a fault was found\n")


@pytest.mark.processes
def test_sound_parts_pass_and_are_measured(my: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The words may be of real processes."""
    words = ["model=net", "dataset=waves", "strategy=bounded", "dataset.train_size=96", "dataset.test_size=24"]
    assert call(["check", "--config-dir", str(my), *words, "runner=local"]) == 0
    said = re.sub(" +", " ", capsys.readouterr().out)
    for line in (
        "strategy bounded keeps the contract: ",
        " times alone, 2 shards: 50 updates in ",
        "model net on waves, classification: 259 parameters in 6 tensors, buffers of 16",
        "parameters after 20 steps an ordinary loop's 0\n",
        "stopped after 10 steps, resumed not stopped 0\n",
        "20 steps with real processes virtual time 0\n",
        "run 50 updates in virtual time, ",
        "no fault was found",
    ):
        assert line in said, said


def test_words_of_several_runs_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"check takes the words of one run, got \+experiment=dssp/table1"):
        call(["check", "+experiment=dssp/table1"])


@pytest.mark.parametrize(
    "words",
    [
        ["strategy=asp", "dataset=text", f"dataset.path={__file__}", "model=char_lstm", "batch_size=2048"],
        ["strategy=asp", "dataset.train_size=40", "dataset.validation=0.2", "batch_size=32", "cluster.workers=1"],
        ["strategy=psp", "cluster.shards=2", "scenario.slow_shards={1: 2}"],
    ],
    ids=["unknown size", "held-out samples", "slow shards"],
)
def test_times_alone_are_checked_whatever_the_sizes_of_the_data_and_the_shards_are(words: list[str]) -> None:
    lines = check._times(compose(words)[0])
    assert [line.partition(":")[0] for line in lines] == ["times alone, 1 shard", "times alone, 2 shards"]
