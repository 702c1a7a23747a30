"""How agents are started and ended, with programs that stand for ssh, srun and the agents."""

import time
from pathlib import Path

import pytest

from runners import agent_starter
from runners.agent_starter import AgentStarter
from syncline.config import MultinodeConfig, compose


def program(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)
    return path


def starter(folder: Path, *words: str) -> AgentStarter:
    """For the agents of the hosts a, b and c."""
    runner = compose(["runner=multinode", "hosts=[a,b,c]", "cluster.workers=3", *words])[0].runner
    assert isinstance(runner, MultinodeConfig)
    (folder / "log").mkdir()
    return AgentStarter(runner, folder, "tcp:127.0.0.1:1")


def wait_for(path: Path) -> None:
    ends = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < ends
        time.sleep(0.01)


def test_an_agent_that_does_not_end_is_killed_since_it_ignores_sigterm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_starter, "TERMINATE_S", 0.1)
    stays = program(tmp_path / "stays", "trap '' TERM", f"touch {tmp_path}/$1", "exec sleep 20")
    agents = starter(tmp_path, "runner.start=command", f"runner.start_command='{stays} {{host}}'")
    agents.start(["a"])
    wait_for(tmp_path / "a")
    begun = time.monotonic()
    agents.close(0.0)
    assert time.monotonic() - begun < 10
