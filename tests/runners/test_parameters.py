"""Whether a run in virtual time leaves its parameters. (What they are worth: test_export.py.)"""

from pathlib import Path

import pytest
from commands import Command, one_error_line

SMALL = ["model=softmax_regression", "dataset.train_size=300", "epochs=2"]
LEAVE = "runner.parameters=true"


@pytest.mark.usefixtures("pool_here")
def test_a_finished_run_says_that_it_has_none_and_how_it_would(tmp_path: Path, command: Command) -> None:
    words = [*SMALL, f"results={tmp_path}"]
    assert command(*words).code == 0
    asked = command(*words, LEAVE)
    assert asked.code == 0
    assert "finished before, without runner.parameters=true; rerun=true makes it again with them" in asked.out
    assert "1 of the finished runs left no parameters" in command("-m", *words, "seed=0", LEAVE).err
    (record,) = tmp_path.glob("dssp-*")
    assert not list(record.glob("*.safetensors"))
    assert "(finished)" in command(*words, LEAVE, "rerun=true").out
    assert (record / "parameters-0.safetensors").exists()
    assert "finished before; rerun=true repeats it" in command(*words, LEAVE).out
    assert "left no parameters" not in command("-m", *words, "seed=0", LEAVE).err


def test_times_alone_have_none(command: Command) -> None:
    line = one_error_line(command("gradients=false", LEAVE))
    assert "runner.parameters=true needs gradients=true" in line
