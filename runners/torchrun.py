"""Starts the job of torchrun that makes a run of real processes: builds its command line, shows it, and runs it.

On this host torchrun's own entry point is called in this process, so that the ranks are forks of it and import nothing
again. On several hosts torchrun is started on each, by ssh, by srun, or by another command.
"""

import ctypes
import gc
import logging
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from runners import rank
from runners.display import say
from runners.failures import RunFailed
from runners.rank import Coordinate
from runners.stop import HANG_UP, SIGNALS, StopRequested, defer_stop
from syncline.config import ConfigError, LiveConfig, MultinodeConfig, RunConfig, folders
from syncline.installation import script
from syncline.live.keeper import PR_SET_PDEATHSIG, preload
from syncline.operations.jobs import call
from syncline.records.store import STOPPED, made_in

TORCHRUN = str(Path(sys.executable).with_name("torchrun"))
# Read by libraries when they are loaded. CUDA is asked for devices without being initialised, as ranks are forked.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",  # pyarrow's allocator
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "300",  # s from a signal until ranks are killed, as of torch 2.12; else 30
}
SSH = ["ssh", "-tt", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"]
SRUN = ["srun", "--ntasks-per-node=1", "--cpu-bind=none", "--no-kill", "--kill-on-bad-exit=0", "--wait=0"]
POLL_S = 0.05
RETRY_S = 5.0  # before torchrun is started again on a host
END_S = 30.0  # for the other hosts to end when the first one has


def launch(
    config: RunConfig, words: Sequence[str], results: Path, coordinate: Coordinate, tell: Callable[[str], object] = say
) -> int:
    """Start the job of a run, and wait for its end.

    Args:
        words: of the command line that makes the run.
        results: the folder of the records.
        coordinate: what its coordinator does, if that is a fork of this process.
        tell: is called with torchrun's command lines.

    Returns:
        The exit code of torchrun on the first host.

    Raises:
        ConfigError: torchrun cannot be started. RunFailed: it did not start on a host.
        StopRequested: this process was asked to stop, and has stopped the run.
    """
    record = results / config.identity
    try:
        if isinstance(config.runner, MultinodeConfig):
            return Nodes(config, config.runner, words, record).run(tell)
        line = ["--standalone", *_options(config.live, config.num_ranks), *words]
        tell(shlex.join(["torchrun", *line]))
        return 0 if config.live.print else _torchrun_here(line, coordinate)
    except StopRequested as stop:
        with suppress(OSError):
            stop.kept = (made_in(record) / STOPPED).read_text()
        raise


def _options(runner: LiveConfig, nproc: int) -> list[str]:
    """What follows the rendezvous on torchrun's command line, but for the words of the run."""
    handled = "SIGTERM,SIGINT,SIGQUIT,SIGUSR1"
    if HANG_UP is None or signal.getsignal(HANG_UP) != signal.SIG_IGN:  # else nohup has started this process
        handled += ",SIGHUP"
    options = [f"--nproc-per-node={nproc}", f"--max-restarts={runner.max_restarts}", f"--signals-to-handle={handled}"]
    return [*options, "--start-method=fork", "--run-path", *script(), *folders.words()]


def prepare() -> None:
    """Import what the ranks of this host need, before they are forked."""
    os.environ.update({name: value for name, value in ENVIRONMENT.items() if name not in os.environ})
    preload()
    import torch.distributed.run  # noqa: F401


def _torchrun_here(arguments: list[str], coordinate: Coordinate) -> int:
    """Be torchrun until the job ends. Returns the exit code of the first rank that failed, else 0."""
    prepare()
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    handlers = {number: signal.getsignal(number) for number in (*SIGNALS, signal.SIGQUIT)}
    rank.inherited = coordinate
    logging.disable()  # of the agent, in this process alone: the coordinator says what happened
    try:
        run.main(arguments)
    except SignalException as stop:
        raise StopRequested(stop.sigval) from None
    except ChildFailedError as error:
        return max(int(error.get_first_failure()[1].exitcode), 1)
    finally:
        rank.inherited = None
        logging.disable(logging.NOTSET)
        gc.enable()
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return 0


class Nodes:
    """torchrun on several hosts.

    Raises:
        ConfigError: no hosts are given. NoAnswer: Slurm does not tell its hosts.
    """

    def __init__(self, config: RunConfig, runner: MultinodeConfig, words: Sequence[str], record: Path) -> None:
        self._runner, self._record = runner, record
        self.hosts = hosts = runner.hosts or allocated_hosts(runner)
        nproc = runner.ranks(config.num_ranks)
        address = runner.master_addr or hosts[0]
        first = [f"--nnodes={len(hosts)}", f"--master-addr={address}", f"--master-port={runner.master_port}"]
        self.lines = {
            host: ["torchrun", *first, f"--node-rank={number}", *_options(runner, nproc[number]), *words]
            for number, host in enumerate(hosts)
        }
        self._started: dict[str, subprocess.Popen[bytes]] = {}  # by host; srun's is that of the first one
        self._starts = dict.fromkeys(hosts, 0)
        self._ended_at: dict[str, float] = {}  # by host, monotonic

    def run(self, tell: Callable[[str], object]) -> int:
        """Start torchrun on all hosts, and wait for its end. Arguments, return value and errors as of `launch`."""
        for host, line in self.lines.items():
            tell(f"on {host}: cd {shlex.quote(os.getcwd())} && {shlex.join(line)}")
        if self._runner.print:
            return 0
        self._start_all()
        try:
            with defer_stop() as requested:
                while (code := self._started[self.hosts[0]].poll()) is None:
                    if requested() is not None and not self._is_stopping:
                        self._stop()
                    if not self._is_stopping:
                        self._check_others()
                    time.sleep(POLL_S)
                self._end()
            if (number := requested()) is not None:
                raise StopRequested(number)
            if code not in (0, 1):  # torchrun's own: it was not started, or killed
                raise RunFailed(f"host {self.hosts[0]}: torchrun ended with exit code {code}")
            return code
        finally:
            for process in self._started.values():
                _kill(process, signal.SIGKILL)

    def _start_all(self) -> None:
        self._is_stopping = False
        if self._runner.start == "srun":
            self._started[self.hosts[0]] = self._spawn(self._srun(), self.hosts[0])
        else:
            for host in self.hosts:
                self._start(host)

    def _start(self, host: str) -> None:
        runner, line = self._runner, self.lines[host]
        line = ["env", *(f"{name}={value}" for name, value in ENVIRONMENT.items()), TORCHRUN, *line[1:]]
        if runner.start == "ssh":
            there = f"cd {shlex.quote(os.getcwd())} && exec {shlex.join(line)}"
            command = [*SSH, *runner.start_options, host, there]
        else:
            command = [*shlex.split(runner.start_command.replace("{host}", host)), *line]
        self._starts[host] += 1
        self._started[host] = self._spawn(command, host)

    def _srun(self) -> list[str]:
        """One for all hosts; a variable of Slurm tells each its number."""
        nodes = [f"--nodes={len(self.hosts)}", f"--nodelist={','.join(self.hosts)}"]
        export = "".join(f"export {name}={value}; " for name, value in ENVIRONMENT.items())
        commands = [shlex.join([TORCHRUN, *self.lines[host][1:]]) for host in self.hosts]
        cases = "".join(f"{number}) exec {command};; " for number, command in enumerate(commands))
        each = f"{export}case $SLURM_NODEID in {cases}esac"
        return [*SRUN, *self._runner.start_options, *nodes, "bash", "-c", each]

    def _spawn(self, command: list[str], host: str) -> "subprocess.Popen[bytes]":
        """Start this, which ends with this process. What other hosts than the first one print has the host's name."""
        is_first, libc = host == self.hosts[0], ctypes.CDLL(None)
        output = None if is_first else subprocess.PIPE
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=None if is_first else subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM),
            )
        except OSError as error:
            raise ConfigError(f"runner.start={self._runner.start}: {command[0]}: {error.strerror}") from None
        if not is_first:
            threading.Thread(target=_tell, args=(process, host), daemon=True).start()
        return process

    def _check_others(self) -> None:
        """Start torchrun again where it has failed while the run is under way.

        Raises:
            RunFailed: it has failed before.
        """
        for host in self.hosts[1:]:
            process = self._started.get(host)
            if process is None or not process.poll():
                continue
            now, what = time.monotonic(), f"host {host}: torchrun ended with exit code {process.returncode}"
            if host not in self._ended_at:
                self._ended_at[host] = now
                if not any(self._record.parent.glob(f"{self._record.name}*/attempt-*.json")):
                    raise RunFailed(what)
                say(what)
            elif now > self._ended_at[host] + RETRY_S and self._starts[host] <= self._runner.max_restarts:
                del self._ended_at[host]
                self._start(host)

    def _stop(self) -> None:
        self._is_stopping = True
        for process in self._started.values():
            _kill(process, signal.SIGTERM)

    def _end(self) -> None:
        """The first host has ended; the others follow."""
        ends = time.monotonic() + END_S
        while any(process.poll() is None for process in self._started.values()) and time.monotonic() < ends:
            time.sleep(POLL_S)


def _kill(process: "subprocess.Popen[bytes]", number: int) -> None:
    """Send this to the process and those of its group, if it has not ended."""
    if process.poll() is None:
        os.killpg(process.pid, number)


def _tell(process: "subprocess.Popen[bytes]", host: str) -> None:
    """Print what the process does, with the host's name."""
    assert process.stdout is not None
    for line in process.stdout:
        print(f"{host}: {line.decode(errors='replace').rstrip()}", file=sys.stderr, flush=True)


def allocated_hosts(runner: MultinodeConfig) -> list[str]:
    """The hosts of the Slurm allocation that this process runs in, as many as the config asks for.

    Raises:
        ConfigError: there is none, or it is too small.
        NoAnswer: Slurm does not tell its hosts.
    """
    nodes = os.environ.get("SLURM_JOB_NODELIST")
    if runner.start != "srun" or not nodes:
        raise ConfigError("runner.hosts must name the hosts; only start=srun inside a Slurm allocation knows them")
    if runner.nodes is None:
        raise ConfigError("runner.nodes must say how many hosts of the allocation are taken")
    names = call(["scontrol", "show", "hostnames", nodes]).split()
    if len(names) < runner.nodes:
        raise ConfigError(f"runner.nodes must be at most {len(names)}, the allocation's; got {runner.nodes}")
    return names[: runner.nodes]
