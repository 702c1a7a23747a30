"""Starts the job of torchrun that makes a run of real processes: builds its command line, shows it, and runs it.

On this host torchrun's own entry point is called in this process, so that the ranks are forks of it and import nothing
again. On several hosts torchrun is started on each, by ssh, by srun, or by another command.
"""

import ctypes
import gc
import json
import logging
import multiprocessing
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from runners import rank
from runners.commands import SINGLE_THREADED
from runners.display import say
from runners.failures import RunFailed
from runners.one import check_possible, is_restarted, run_one
from runners.rank import CONFIG_FILE, Coordinate
from runners.stop import INTERRUPTED, RESUMABLE, SIGNALS, StopRequested, defer_stop
from syncline.config import ConfigError, LiveConfig, LocalConfig, MultinodeConfig, RunConfig, folders
from syncline.installation import script
from syncline.live.node.keeper import preload
from syncline.live.node.ranks import Place
from syncline.monitor import OnProgress
from syncline.operations.jobs import call
from syncline.operations.states import RunState, run_states
from syncline.processes import PR_SET_PDEATHSIG
from syncline.records.lock import Held
from syncline.records.store import FINISHED, STOPPED, made_in, read_summary, write_file

TORCHRUN = str(Path(sys.executable).with_name("torchrun"))
SHUTDOWN_S = 300  # from a signal until ranks are killed
ENVIRONMENT = SINGLE_THREADED | {
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # whether there are devices, without initialising CUDA: ranks are forked
    "TORCH_CPP_LOG_LEVEL": "ERROR",  # not each lost connection of a store
    "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(SHUTDOWN_S),  # as of torch 2.12; else 30
}
SSH = ["ssh", "-tt", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"]
SRUN = ["srun", "--ntasks-per-node=1", "--cpu-bind=none", "--no-kill", "--kill-on-bad-exit=0", "--wait=0"]
POLL_S = 0.05
TOLD_S = 0.5  # for what a host has printed last to be read
RETRY_S = 5.0  # before torchrun is started again on a host
END_S = 30.0  # for the other hosts to end when the first one has
LATER_S = 10  # the first host awaits the others for so much longer
AWAITED = b"wait timeout after "  # what torch says on a host that has waited for another one
CTRL_C = b"\x03"
SIGSET_BYTES = 128  # of sigset_t, at most


def launch(
    config: RunConfig, words: Sequence[str], results: Path, coordinate: Coordinate, is_shown: bool = True
) -> int:
    """Start the job of a run, and wait for its end.

    Args:
        words: of the command line that makes the run.
        results: the folder of the records.
        coordinate: what its coordinator does, if that is a fork of this process.
        is_shown: torchrun's command lines are, and what the coordinator prints.

    Returns:
        The exit code of torchrun on the first host.

    Raises:
        ConfigError: torchrun cannot be started. RunFailed: it did not start on a host.
        StopRequested: this process or its ranks were asked to stop, and have stopped the run.
    """
    record = results / config.identity
    try:
        if isinstance(config.runner, MultinodeConfig):
            return Nodes(config, config.runner, words, record, is_shown).run()
        line = ["--standalone", *_options(config.live, config.num_ranks), *words]
        if is_shown:
            say(shlex.join(["torchrun", *line]))
        code = 0 if config.live.print else _torchrun_here(line, coordinate)
        if code in (RESUMABLE, INTERRUPTED):  # its ranks were asked, and this process was not
            raise StopRequested(signal.SIGINT if code == INTERRUPTED else signal.SIGTERM)
        return code
    except StopRequested as stop:
        with suppress(OSError):
            stop.kept = (made_in(record) / STOPPED).read_text()
        raise


def make_run(
    config: RunConfig, results: Path, on_progress: OnProgress, restart: bool = False, cores: int = 1
) -> dict[str, Any]:
    """Make a run of which no command line is known, in this process, or as a job of torchrun.

    Args:
        on_progress: of real processes is called in the coordinator, if that is a fork of this process.
        restart, cores: as of `run_one`.

    Returns:
        The summary.

    Raises:
        RunFailed: real processes failed; the message says why. Other errors as of `run_one` and `launch`.
    """
    if not isinstance(config.runner, LiveConfig):
        return run_one(config, results, on_progress, restart, cores=cores)

    def coordinate(place: Place, was_killed: bool) -> int:
        with suppress(Exception):  # which is in the record
            begins = is_restarted(restart, was_killed, results / config.identity)
            run_one(config, results, on_progress, begins, place)
            return 0
        return 1

    check_possible(config)
    if (owner := _state(config, results).owner) is not None:
        raise Held(f"{config.identity} is already running in {owner}")
    with _words(config, results, restart) as words:
        launch(config, words, results, coordinate, is_shown=False)
    return _summary(config, results)


def make_run_anew(config: RunConfig, results: Path, **environment: str) -> dict[str, Any]:
    """As `make_run`, on this host, by a torchrun that is a new process with this environment."""
    with _words(config, results, restart=False) as words:
        line = [TORCHRUN, "--standalone", *_options(config.live, config.num_ranks), *words]
        subprocess.run(line, env=os.environ | ENVIRONMENT | environment, capture_output=True, check=False)
    return _summary(config, results)


@contextmanager
def _words(config: RunConfig, results: Path, restart: bool) -> Iterator[list[str]]:
    """The words with which rank 0 makes this run; the config is in a file meanwhile."""
    path = results / f"{config.identity}.config.json"
    write_file(path, json.dumps({"config": config.as_dict(), "rerun": restart}))
    try:
        yield [f"{CONFIG_FILE}={path}", f"results={results}"]
    finally:
        path.unlink(missing_ok=True)


def _state(config: RunConfig, results: Path) -> RunState:
    return run_states(results, [config.identity], {})[config.identity]


def _summary(config: RunConfig, results: Path) -> dict[str, Any]:
    """Of a run whose job has ended. Raises RunFailed if it is not finished."""
    ended = _state(config, results)
    if ended.state != FINISHED:
        raise RunFailed(re.sub(r"^(runners|syncline)[\w.]+: ", "", ended.cause) or "its processes ended")
    return read_summary(results / config.identity)


def _options(runner: LiveConfig, nproc: int) -> list[str]:
    """What follows the rendezvous on torchrun's command line, but for the words of the run."""
    handled = "SIGTERM,SIGINT,SIGQUIT,SIGUSR1"
    is_here = isinstance(runner, LocalConfig)
    if not is_here or signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # else nohup has started this process
        handled += ",SIGHUP"
    options = [f"--nproc-per-node={nproc}", f"--max-restarts={runner.max_restarts}", f"--signals-to-handle={handled}"]
    return [*options, "--start-method=fork", "--run-path", *script(), *folders.words()]


def prepare() -> None:
    """Import what the ranks of this host need, before they are forked."""
    os.environ.update({name: value for name, value in ENVIRONMENT.items() if name not in os.environ})
    preload()
    import torch.distributed.run  # noqa: F401

    _heed_signals_after_forks()


@cache
def _heed_signals_after_forks() -> None:
    """Block signals while this process forks, and in a rank until it has handlers of its own.

    Those of torchrun raise, and what a hook of a fork raises is lost. A hook that is a C function runs no handler. A
    child that is no rank, such as a process started with a `preexec_fn`, has the signals of its parent.
    """
    libc, agent = ctypes.CDLL(None), os.getpid()
    ours, before = ctypes.create_string_buffer(SIGSET_BYTES), ctypes.create_string_buffer(SIGSET_BYTES)
    libc.sigemptyset(ours)
    for number in SIGNALS:
        libc.sigaddset(ours, number)
    unblock = partial(libc.pthread_sigmask, signal.SIG_SETMASK, before, None)
    os.register_at_fork(
        before=partial(libc.pthread_sigmask, signal.SIG_BLOCK, ours, before),
        after_in_parent=unblock,
        after_in_child=lambda: None if rank.inherited and os.getppid() == agent else unblock(),
    )


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
        with TemporaryDirectory(prefix="torchrun-") as logs:  # torch leaves it behind
            run.main([f"--log-dir={logs}", *arguments])
    except (SignalException, UnboundLocalError) as error:
        # The latter is how torch's metrics.prof ends where a signal comes as it begins: its `finally` reads the start.
        stop = error if isinstance(error, SignalException) else error.__context__
        if not isinstance(stop, SignalException):
            raise
        _end_ranks(stop.sigval)
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


def _end_ranks(number: int) -> None:
    """Send this signal to the ranks that were starting when it came, which torch forgets, and await their end."""
    ranks = multiprocessing.active_children()
    for process in ranks:
        if process.pid is not None:
            with suppress(ProcessLookupError):  # the signal came when its end had been awaited and not been noted
                os.kill(process.pid, number)
    ends = time.monotonic() + SHUTDOWN_S
    for process in ranks:
        process.join(max(ends - time.monotonic(), 0.0))
        process.kill()


class Nodes:
    """torchrun on several hosts.

    Raises:
        ConfigError: no hosts are given. NoAnswer: Slurm does not tell its hosts.
    """

    def __init__(
        self, config: RunConfig, runner: MultinodeConfig, words: Sequence[str], record: Path, is_shown: bool
    ) -> None:
        self._runner, self._record, self._is_shown = runner, record, is_shown
        self.hosts = hosts = runner.hosts or allocated_hosts(runner)
        nproc = runner.ranks(config.num_ranks)
        address = runner.master_addr or hosts[0]
        job = [f"--nnodes={len(hosts)}", f"--master-addr={address}", f"--master-port={runner.master_port}"]
        late_s = int(runner.start_timeout_s)
        self.lines = {  # a host that is missing ends before the first one, which awaits it, and is named
            host: [
                *("torchrun", *job, f"--node-rank={number}", f"--rdzv-conf=timeout={late_s + LATER_S * (not number)}"),
                *_options(runner, nproc[number]),
                *words,
            ]
            for number, host in enumerate(hosts)
        }
        self._started: dict[str, subprocess.Popen[bytes]] = {}  # by host; srun's is that of the first one
        self._telling = list[threading.Thread]()
        self._have_awaited = set[str]()  # hosts that have waited for another one in vain
        self._starts = dict.fromkeys(hosts, 0)
        self._ended_at: dict[str, float] = {}  # by host, monotonic
        self._is_stopping = False
        self._earlier = set(self._attempts())

    def run(self) -> int:
        """Start torchrun on all hosts, and wait for its end. Returns and raises as `launch`."""
        for host, line in self.lines.items():
            if self._is_shown:
                say(f"on {host}: cd {shlex.quote(os.getcwd())} && {shlex.join(line)}")
        if self._runner.print:
            return 0
        first = self.hosts[0]
        try:
            with defer_stop() as requested:
                if self._runner.start == "srun":
                    self._started[first] = self._spawn(self._srun(), first)
                else:
                    for host in self.hosts:
                        self._start(host)
                while (code := self._started[first].poll()) is None:
                    if requested() is not None and not self._is_stopping:
                        self._stop()
                    if not self._is_stopping:
                        self._check_others()
                    time.sleep(POLL_S)
                self._end(code)
            if (number := requested()) is not None:
                raise StopRequested(number)
            if code not in (0, 1):  # torchrun's own: it was not started, or killed
                raise RunFailed(f"host {first}: torchrun ended with exit code {code}")
            return code
        finally:
            for process in self._started.values():
                _kill(process, signal.SIGKILL)
                process.wait()
                if process.stdin is not None:
                    process.stdin.close()
            for thread in self._telling:
                thread.join(POLL_S)

    def _attempts(self) -> Iterator[Path]:
        """Files of the attempt at the run that is under way."""
        return self._record.parent.glob(f"{self._record.name}*/attempt-*.json")

    def _start(self, host: str) -> None:
        runner, line = self._runner, self._there(host)
        if runner.start == "ssh":
            command = [*SSH, *runner.start_options, host, f"cd {shlex.quote(os.getcwd())} && exec {shlex.join(line)}"]
        else:
            command = [*shlex.split(runner.start_command.replace("{host}", host)), *line]
        self._starts[host] += 1
        self._started[host] = self._spawn(command, host)

    def _srun(self) -> list[str]:
        """One for all hosts; a variable of Slurm tells each its number."""
        nodes = [f"--nodes={len(self.hosts)}", f"--nodelist={','.join(self.hosts)}"]
        cases = (f"{number}) exec {shlex.join(self._there(host))};; " for number, host in enumerate(self.hosts))
        return [*SRUN, *self._runner.start_options, *nodes, "bash", "-c", f"case $SLURM_NODEID in {''.join(cases)}esac"]

    def _there(self, host: str) -> list[str]:
        """The command on this host."""
        return ["env", *(f"{name}={value}" for name, value in ENVIRONMENT.items()), TORCHRUN, *self.lines[host][1:]]

    def _spawn(self, command: list[str], host: str) -> "subprocess.Popen[bytes]":
        """Start this, which ends with this process. What other hosts than the first one print has the host's name."""
        is_first, libc = host == self.hosts[0], ctypes.CDLL(None)
        of_first = None if self._is_shown else subprocess.DEVNULL
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE if command[0] == "ssh" else subprocess.DEVNULL,
                stdout=of_first if is_first else subprocess.PIPE,
                stderr=None if is_first else subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM),
            )
        except OSError as error:
            raise ConfigError(f"runner.start={self._runner.start}: {command[0]}: {error.strerror}") from None
        if not is_first:
            self._telling.append(threading.Thread(target=self._tell, args=(process, host), daemon=True))
            self._telling[-1].start()
        return process

    def _check_others(self) -> None:
        """Start torchrun again where it has failed while the run is under way.

        Raises:
            RunFailed: it has failed before. If others have ended since they waited for one, that is named.
        """
        is_begun = not self._earlier.issuperset(self._attempts())
        for host in self.hosts[1:]:
            process = self._started.get(host)
            if process is None or not process.poll():
                continue
            now, what = time.monotonic(), f"host {host}: torchrun ended with exit code {process.returncode}"
            if host not in self._ended_at:
                self._ended_at[host] = now
                if is_begun:
                    say(what)
            elif not is_begun:
                patience_s = LATER_S if host in self._have_awaited else TOLD_S
                if now > self._ended_at[host] + patience_s:
                    raise RunFailed(what)
            elif now > self._ended_at[host] + RETRY_S and self._starts[host] <= self._runner.max_restarts:
                del self._ended_at[host]
                self._start(host)

    def _stop(self) -> None:
        """Ask all torchruns to stop the run; ssh passes no signal on, but what the terminal there makes of Ctrl-C."""
        self._is_stopping = True
        for process in self._started.values():
            if process.stdin is None:
                _kill(process, signal.SIGTERM)
            else:
                with suppress(OSError):  # it has ended
                    process.stdin.write(CTRL_C)
                    process.stdin.flush()

    def _tell(self, process: "subprocess.Popen[bytes]", host: str) -> None:
        """Print what the process does, with the host's name."""
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                if AWAITED in line:
                    self._have_awaited.add(host)
                print(f"{host}: {line.decode(errors='replace').rstrip()}", file=sys.stderr, flush=True)

    def _end(self, code: int) -> None:
        """The first host has ended with this code; the others follow."""
        if code and not self._is_stopping:
            self._stop()
        ends = time.monotonic() + END_S
        while any(process.poll() is None for process in self._started.values()) and time.monotonic() < ends:
            time.sleep(POLL_S)


def _kill(process: "subprocess.Popen[bytes]", number: int) -> None:
    """Send this to the process and those of its group, if it has not ended."""
    if process.poll() is None:
        os.killpg(process.pid, number)


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
