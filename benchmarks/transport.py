"""The parameter server's wire: bytes pushed and pulled a second, and the round trip of a tiny push, beside iperf3.

The server is the real one (acceptor, Connection, readers and writers, an owner thread), but its owner grants at once
and steps no optimizer: only the transport is measured.
"""

import json
import queue
import shutil
import subprocess
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection as Pipe
from typing import Any

import torch

from benchmarks.measuring import Spread
from syncline.learning.parameters import Version
from syncline.live.shard.connections import (
    Connected,
    Connection,
    Disconnected,
    FrameSent,
    GradientPool,
    Inbox,
    Pushed,
    accept_workers,
)
from syncline.live.wire.clock import CLOCK_REQUESTS
from syncline.live.wire.frames import Header, Kind, Reader, pack_report, receive_json, send, send_json
from syncline.live.wire.handshake import connect
from syncline.live.wire.sockets import address_of, listen, spin_seconds, wait_readable
from syncline.server.report import PushReport

BLOCK_BYTES = 7_000_000  # ResNet-110 in fp32
DIRECT_BYTES = 64
SECRET = b"of this benchmark"
ADDRESSES = {"unix": "unix:", "tcp": "tcp:127.0.0.1:0"}


def goodput(transport: str, num_workers: int, seconds: float) -> float:
    """GB pushed and pulled a second by all workers together, blocks of 7 MB."""
    trips, spent = _serve(transport, num_workers, BLOCK_BYTES, seconds)
    return 2 * BLOCK_BYTES * len(trips) / spent / 1e9


def round_trip(transport: str, num_workers: int, seconds: float) -> float:
    """Median microseconds from a push of 64 bytes to its answer, when so many workers push at the same time."""
    trips, _ = _serve(transport, num_workers, DIRECT_BYTES, seconds)
    return Spread(tuple(trips)).median * 1e6


def _serve(transport: str, num_workers: int, size_bytes: int, seconds: float) -> tuple[list[float], float]:
    """Round trips (seconds each) of all workers, and the seconds they took together."""
    listener = listen(ADDRESSES[transport])
    inbox: Inbox = queue.SimpleQueue()
    size = size_bytes // 4
    pool = GradientPool(size, 0, num_workers + 1)
    accept_workers(listener, SECRET, pool, inbox)
    context = get_context("spawn")
    pipes, processes = [], []
    spin_s = spin_seconds(num_workers + 1)
    for worker in range(num_workers):
        ours, theirs = context.Pipe()
        process = context.Process(
            target=_push, args=(address_of(listener), worker, size_bytes, seconds, spin_s, theirs)
        )
        process.start()
        pipes.append(ours)
        processes.append(process)
    version = Version(torch.zeros(size), torch.zeros(0))
    connections: list[Connection] = []
    lost = 0
    while lost < num_workers:
        message = inbox.get()
        if isinstance(message, Pushed):
            message.gradient.release()
            message.connection.post(Header(Kind.BLOCK), version)
        elif isinstance(message, FrameSent):
            message.connection.sending -= 1
        elif isinstance(message, Connected):
            connections.append(message.connection)
            if len(connections) == num_workers:  # all begin together
                for connection in connections:
                    connection.post(Header(Kind.BLOCK), version)
        elif isinstance(message, Disconnected):
            message.connection.close()
            lost += 1
    results = [pipe.recv() for pipe in pipes]
    for process in processes:
        process.join()
    listener.close()
    begun, ended = min(begun for _, begun, _ in results), max(ended for _, _, ended in results)
    return [trip for trips, _, _ in results for trip in trips], ended - begun


def _push(address: str, worker: int, size_bytes: int, seconds: float, spin_s: float, result: Pipe) -> None:
    """A worker that computes nothing."""
    sock = connect(address, SECRET)
    send_json(sock, {"worker": worker})
    for _ in range(CLOCK_REQUESTS):
        send_json(sock, {})
        receive_json(sock)
    gradient, weights = memoryview(bytearray(size_bytes)), memoryview(bytearray(size_bytes))
    reader, report = Reader(sock), memoryview(pack_report(PushReport(worker, 0)))
    reader.payload(reader.next(), [weights])
    begun = now = time.monotonic()
    trips = []
    while now < begun + seconds:
        send(sock, Header(Kind.PUSH), [gradient, report])
        wait_readable([sock], None, spin_s)
        reader.payload(reader.next(), [weights])
        then, now = now, time.monotonic()
        trips.append(now - then)
    sock.close()
    result.send((trips, begun, now))


def iperf3(num_streams: int, seconds: float) -> float | None:
    """GB/s of iperf3 over loopback; None where it is not installed."""
    if shutil.which("iperf3") is None:
        return None
    port = "5299"
    with subprocess.Popen(["iperf3", "-s", "-1", "-p", port], stdout=subprocess.DEVNULL) as server:
        time.sleep(0.3)
        command = ["iperf3", "-c", "127.0.0.1", "-p", port, "-P", str(num_streams), "-t", f"{seconds:.0f}", "-J"]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        server.wait()
    return float(json.loads(output)["end"]["sum_received"]["bits_per_second"]) / 8e9


def report(repeats: int = 3, seconds: float = 2.0) -> None:
    """Print all measurements, each beside iperf3 of the same minute."""
    print("Parameter server's wire, 7 MB pushed and pulled, GB/s: median [min .. max]")
    print("(goal: >= 0.9 of iperf3)")
    for num_workers in (1, 2, 4, 8, 16, 32):
        rows: dict[str, list[Any]] = {"iperf3": [], "tcp": [], "unix": []}
        for _ in range(repeats):
            rows["iperf3"].append(iperf3(num_workers, seconds))
            rows["tcp"].append(goodput("tcp", num_workers, seconds))
            rows["unix"].append(goodput("unix", num_workers, seconds))
        reference = None if None in rows["iperf3"] else Spread(tuple(rows["iperf3"]))
        print(f"  {num_workers} workers  iperf3 {reference or 'not installed'}")
        for transport in ("tcp", "unix"):
            spread = Spread(tuple(rows[transport]))
            ratio = "" if reference is None else f"  = {spread.median / reference.median:.2f} x iperf3"
            print(f"             {transport:6} {spread}{ratio}")
    print("Round trip of a push of 64 bytes, microseconds (goal of one worker <= 50)")
    for transport in ("tcp", "unix"):
        for num_workers in (1, 8, 16, 32):
            spread = Spread(tuple(round_trip(transport, num_workers, 1.0) for _ in range(repeats)))
            print(f"  {transport:6} {num_workers:2} workers at once {spread}")


if __name__ == "__main__":
    report()
