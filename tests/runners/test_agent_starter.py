"""How agents are started and ended, with programs that stand for ssh, srun and the agents."""

import os
import time
from pathlib import Path

import pytest

from benchmarks.live_run import is_alive
from runners import agent_starter
from runners.agent_starter import AgentStarter
from syncline.config import MultinodeConfig, compose


def starter(folder: Path, *words: str) -> AgentStarter:
    """For the agents of the hosts a, b and c."""
    runner = compose(["runner=multinode", "hosts=[a,b,c]", "cluster.workers=3", *words])[0].runner
    assert isinstance(runner, MultinodeConfig)
    (folder / "log").mkdir()
    return AgentStarter(runner, folder, "tcp:127.0.0.1:1")


class Programs:
    """Programs that note their process and arguments, and then stay."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setattr(agent_starter, "TERMINATE_S", 0.1)
        monkeypatch.setattr(agent_starter, "RETRY_S", 0.1)

    def add(self, name: str, *lines: str) -> Path:
        path = self._folder / name
        path.write_text("\n".join(["#!/bin/sh", *lines, f'echo $$ "$@" >> {path}.calls', "exec sleep 60\n"]))
        path.chmod(0o755)
        return path

    def calls(self, name: str, number: int) -> list[tuple[int, list[str]]]:
        """Its first calls, once there are so many: process and arguments."""
        path, ends = self._folder / f"{name}.calls", time.monotonic() + 20
        while not path.exists() or len(lines := path.read_text().splitlines()) < number:
            assert time.monotonic() < ends
            time.sleep(0.01)
        assert len(lines) == number
        return [(int(words[0]), words[1:]) for words in map(str.split, lines)]


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    return Programs(tmp_path, monkeypatch)


def test_an_agent_that_does_not_end_is_killed_since_it_ignores_sigterm(tmp_path: Path, programs: Programs) -> None:
    stays = programs.add("stays", "trap '' TERM")
    agents = starter(tmp_path, "runner.start=command", f"runner.start_command='{stays} {{host}}'")
    agents.start(["a"])
    ((pid, _),) = programs.calls("stays", 1)
    agents.close(0.0)
    assert not is_alive(pid)


def test_the_agent_of_a_lost_host_is_started_again_though_its_ssh_has_not_noticed(
    tmp_path: Path, programs: Programs
) -> None:
    programs.add("ssh")
    agents = starter(tmp_path)
    agents.start(["a", "b"])
    old = {words[words.index("env") - 1]: pid for pid, words in programs.calls("ssh", 2)}
    time.sleep(0.2)
    agents.start(["a", "b"])
    programs.calls("ssh", 2)  # they may still come
    agents.lost("a")
    agents.start(["a"])
    programs.calls("ssh", 2)  # the agent may reconnect by itself
    time.sleep(0.2)
    agents.start(["a"])
    _, words = programs.calls("ssh", 3)[-1]
    assert "ServerAliveInterval=5" in words
    assert words[words.index("env") - 1] == "a"
    assert [is_alive(old[host]) for host in "ab"] == [False, True]
    time.sleep(0.2)
    agents.start(["a"])
    programs.calls("ssh", 3)
    agents.close(0.0)


def test_an_agent_is_started_again_by_an_srun_of_its_own_beside_the_one_of_all_hosts(
    tmp_path: Path, programs: Programs
) -> None:
    programs.add("srun", "echo host b: its reason >&2")
    agents = starter(tmp_path, "runner.start=srun")
    agents.start(["a", "b", "c"])
    ((of_all, words),) = programs.calls("srun", 1)
    assert {"--nodes=3", "--nodelist=a,b,c"} <= set(words)
    assert agents.error_of("b") == "host b: its reason"
    assert agents.error_of("c") == ""
    alone = []
    for number, host in enumerate(["a", "b", "b"], start=2):
        agents.lost(host)
        time.sleep(0.2)
        agents.start([host])
        pid, words = programs.calls("srun", number)[-1]
        assert {"--nodes=1", f"--nodelist={host}", "--overlap"} <= set(words)
        alone.append(pid)
    assert [is_alive(pid) for pid in (of_all, *alone)] == [True, True, False, True]
    assert [agents.error_of(host) for host in "abc"] == ["", "host b: its reason", ""]
    agents.close(0.0)
    assert not any(map(is_alive, (of_all, *alone)))
