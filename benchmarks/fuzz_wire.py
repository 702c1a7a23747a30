"""python -m benchmarks.fuzz_wire --seconds 60 --seed 0: hostile bytes against the acceptor of a shard.

    strangers   do not know the secret: random bytes, or a recorded session of a worker, whole or with bytes changed
    insiders    know it: a session with bytes changed, inserted, deleted or truncated, in the proof or after it

They connect over unix sockets and TCP, and send at once or a few bytes at a time. Some read the answers, some do not,
and some of these stay connected to the end. No frame may be processed without a proof, no thread may crash, and no
thread, socket or version may be left; a correct worker is served throughout. The exit code is 1 if any of this is
violated.
"""

import argparse
import contextlib
import os
import queue
import random
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import torch

from syncline.learning.parameters import Version
from syncline.live.shard.connections import (
    Call,
    Connected,
    Connection,
    Disconnected,
    FrameSent,
    GradientPool,
    Inbox,
    Pushed,
    accept_workers,
)
from syncline.live.wire import frames, handshake, sockets
from syncline.live.wire.clock import CLOCK_REQUESTS
from syncline.live.wire.frames import (
    REPORT,
    Header,
    Kind,
    Reader,
    byte_view,
    pack_report,
    receive_json,
    send,
    send_json,
)
from syncline.live.wire.handshake import PREAMBLE, PROOF_BYTES, connect
from syncline.live.wire.sockets import address_of, dial, listen
from syncline.server.report import PushReport

SECRET = b"of this fuzz"
SIZE = 16  # elements of a gradient, and of a tiny block
LARGE = 1 << 20  # elements of a block that no socket holds whole
PUSH_BYTES = REPORT.size + 4 * SIZE
TIMEOUT_S = 2.0  # of the handshake of a fuzzed connection
PROVED = PREAMBLE.size + PROOF_BYTES  # bytes of a session before which no frame may be processed
# Worker ids of sessions, so different that a few changed bytes do not turn one into another.
PROPER = 111_111_111
INSIDER = 222_222_222
RECORDED = 333_333_333
UNPROVED = 444_444_444
THREADS = 3  # that fuzz concurrently
MOST_HELD = 20  # open connections a thread that read nothing


class Target:
    """An acceptor, and an owner that answers every push with a block, tiny or large."""

    def __init__(self, address: str) -> None:
        self._listener = listen(address)
        self.address = address_of(self._listener)
        self._inbox: Inbox = queue.SimpleQueue()
        self.acceptor = accept_workers(self._listener, SECRET, GradientPool(SIZE, 0, 1), self._inbox)
        self.received = Counter[str]()
        self.pinned = 0  # large blocks posted and not freed yet
        self._connections = set[Connection]()
        self._is_open = True
        self._owner = threading.Thread(target=self._own, name="owner")
        self._owner.start()

    def give_up(self) -> None:
        """Let the owner close every connection, including unread ones: no large block may be stuck in one."""
        self._inbox.put(Call(self._end_all))
        wait_until(lambda: self.pinned == 0)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        wait_until(lambda: not any(thread.name == "connection" for thread in threading.enumerate()))
        self._inbox.put(Call(self._stop))
        self._owner.join()

    def _end_all(self) -> None:
        for connection in self._connections:
            connection.close()

    def _stop(self) -> None:
        self._is_open = False

    def _own(self) -> None:
        tiny, large = (Version(torch.zeros(size), torch.zeros(0)) for size in (SIZE, LARGE))
        while self._is_open:
            message = self._inbox.get()
            if isinstance(message, Connected):
                self.received["hello"] += 1
                self.received[f"hello of {message.connection.worker}"] += 1
                self._connections.add(message.connection)
            elif isinstance(message, Pushed):
                self.received["push"] += 1
                if message.connection in self._connections:
                    version = large if self.received["push"] % 3 == 0 else tiny
                    self.pinned += not message.connection.post(
                        Header(Kind.BLOCK, iteration=message.connection.worker), version
                    )
            elif isinstance(message, FrameSent):
                self.pinned -= 1
                message.connection.sending -= 1
            elif isinstance(message, Disconnected):
                self.received["lost"] += 1
                self._connections.discard(message.connection)
                message.connection.close()
            elif isinstance(message, Call):
                message.action()

    def serve_one(self) -> bool:
        """A correct worker pushes three times, and receives a block each time."""
        with contextlib.closing(connect(self.address, SECRET)) as sock:
            sock.settimeout(30)
            send_json(sock, {"worker": PROPER})
            for _ in range(CLOCK_REQUESTS):
                send_json(sock, {})
                receive_json(sock)
            reader = Reader(sock)
            for _ in range(3):
                send(sock, Header(Kind.PUSH), [memoryview(push_payload(PROPER))])
                header = reader.next()
                if header.kind is not Kind.BLOCK or header.iteration != PROPER:
                    return False
                reader.payload(header, [byte_view(torch.empty(header.size // 4))])
            return True


def push_payload(worker: int, iteration: int = 0) -> bytes:
    """A gradient of zeros, and its report."""
    return bytes(PUSH_BYTES - REPORT.size) + pack_report(PushReport(worker, iteration))


def session(worker: int) -> bytes:
    """All that a worker sends after its proof."""
    hello = b'{"worker": %d}' % worker
    data = Header(Kind.JSON, size=len(hello)).pack() + hello
    data += (Header(Kind.JSON, size=2).pack() + b"{}") * CLOCK_REQUESTS
    for iteration in range(4):
        data += Header(Kind.PUSH, size=PUSH_BYTES).pack() + push_payload(worker, iteration)
    return data


def record(target: Target) -> bytes:
    """What a worker sent to this acceptor, from the first byte."""
    with contextlib.closing(dial(target.address)) as sock:
        data = _proof(sock) + session(RECORDED)
        sock.sendall(data)
        sock.settimeout(TIMEOUT_S)
        with contextlib.suppress(TimeoutError):
            while sock.recv(1 << 16):
                if target.received[f"hello of {RECORDED}"]:
                    break
    return data


def _proof(sock: socket.socket) -> bytes:
    asked = bytearray(PREAMBLE.size)
    frames.receive_into(sock, memoryview(asked))
    _, _, nonce = PREAMBLE.unpack(asked)
    mine = os.urandom(handshake.NONCE_BYTES)
    return PREAMBLE.pack(handshake.MAGIC, frames.VERSION, mine) + handshake._proof(SECRET, b"client", nonce, mine)


def mutate(data: bytes, luck: random.Random) -> bytes:
    """Some bytes flipped, inserted, deleted, repeated or truncated."""
    changed = bytearray(data)
    for _ in range(luck.choice((1, 1, 2, 5))):
        place = luck.randrange(len(changed) + 1)
        length = luck.choice((1, 1, 4, 8, 60))
        kind = luck.randrange(5)
        if kind == 0 and place < len(changed):
            changed[place] ^= 1 << luck.randrange(8)
        elif kind == 1:
            changed[place:place] = luck.randbytes(length)
        elif kind == 2:
            del changed[place : place + length]
        elif kind == 3:
            changed[place:place] = changed[place : place + length]
        else:
            del changed[place:]
    return bytes(changed)


def transmit(sock: socket.socket, data: bytes, luck: random.Random) -> None:
    """Send at once or in pieces; perhaps shut down one direction, perhaps read some of the answers."""
    if luck.random() < 0.1:
        while data:
            length = luck.randrange(1, 60)
            sock.sendall(data[:length])
            data = data[length:]
            time.sleep(luck.random() * 0.005)
    else:
        sock.sendall(data)
    if luck.random() < 0.3:
        sock.shutdown(socket.SHUT_WR)
    if luck.random() < 0.8:
        sock.settimeout(0.02)
        for _ in range(luck.randrange(20)):
            if not sock.recv(1 << 16):
                break


def stranger(target: Target, recorded: bytes, luck: random.Random) -> None:
    with contextlib.closing(dial(target.address)) as sock:
        kind = luck.randrange(4)
        if kind == 0:
            data = luck.randbytes(luck.randrange(400))
        elif kind == 1:
            data = recorded
        elif kind == 2:
            data = mutate(recorded, luck)
        else:
            data = (
                PREAMBLE.pack(handshake.MAGIC, frames.VERSION, bytes(handshake.NONCE_BYTES))
                + luck.randbytes(PROOF_BYTES)
                + session(UNPROVED)
            )
        transmit(sock, data, luck)


def insider(target: Target, luck: random.Random, held: list[socket.socket]) -> bool:
    """Returns whether the proof was intact."""
    with contextlib.ExitStack() as stack:
        sock = stack.enter_context(contextlib.closing(dial(target.address)))
        answer = _proof(sock)
        changed = mutate(answer, luck) if luck.random() < 0.2 else answer
        is_proved = changed[:PROVED] == answer
        data = changed + (mutate(session(INSIDER), luck) if is_proved else session(UNPROVED))
        with contextlib.suppress(OSError):
            if is_proved and len(held) < MOST_HELD and luck.random() < 0.05:
                stack.pop_all()
                held.append(sock)
                sock.sendall(data)
            else:
                transmit(sock, data, luck)
        return is_proved


class Fuzz:
    """A few threads that attack random targets."""

    def __init__(self, targets: list[Target], seed: int, seconds: float) -> None:
        self._targets = targets
        self._ends = time.monotonic() + seconds
        self._recorded = [record(target) for target in targets]
        self._lucks = [random.Random(f"{seed}, {number}") for number in range(THREADS)]
        self.made = [Counter[str]() for _ in self._lucks]
        self.held = list[list[socket.socket]]()  # for each thread

    def run(self) -> None:
        threads = [
            threading.Thread(target=self._fuzz, args=(luck, made))
            for luck, made in zip(self._lucks, self.made, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _fuzz(self, luck: random.Random, made: Counter[str]) -> None:
        held = list[socket.socket]()
        self.held.append(held)
        while time.monotonic() < self._ends:
            number = luck.randrange(len(self._targets))
            target = self._targets[number]
            if luck.random() < 0.01:
                made["served" if target.serve_one() else "not served"] += 1
            elif luck.random() < 0.5:
                made["strangers"] += 1
                with contextlib.suppress(OSError):
                    stranger(target, self._recorded[number], luck)
            else:
                made["insiders"] += 1
                with contextlib.suppress(OSError):
                    made["proofs"] += insider(target, luck, held)


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for it, up to a limit."""
    ends = time.monotonic() + 5 * TIMEOUT_S
    while not condition() and time.monotonic() < ends:
        time.sleep(0.02)


def open_sockets() -> int:
    count = 0
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # it was closed
            count += os.readlink(path).startswith("socket:")
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for module in (sockets, handshake):
        vars(module)["HANDSHAKE_S"] = TIMEOUT_S
    crashes = list[str]()
    threading.excepthook = lambda args: crashes.append(f"{args.thread}: {args.exc_type.__name__}: {args.exc_value}")
    threads, num_sockets = threading.active_count(), open_sockets()
    targets = [Target(address) for address in ("unix:", "tcp:127.0.0.1:0")]
    fuzz = Fuzz(targets, options.seed, options.seconds)
    fuzz.run()
    unserved = sum(not target.serve_one() for target in targets)
    for target in targets:
        target.give_up()
    pinned = sum(target.pinned for target in targets)
    for sock in chain.from_iterable(fuzz.held):
        sock.close()
    for target in targets:
        target.close()
    wait_until(lambda: threading.active_count() <= threads and open_sockets() <= num_sockets)
    made = sum(fuzz.made, Counter[str]())
    received = sum((target.received for target in targets), Counter[str]())
    unproved = (
        received[f"hello of {UNPROVED}"] + received[f"hello of {RECORDED}"] - len(targets)
    )  # recorded once at each
    refused = sum(target.acceptor.refused for target in targets)  # those that hung up during the handshake included
    let_in = max(made["strangers"] + made["insiders"] - made["proofs"] - refused, 0)
    unserved += made["not served"]
    endless = received["hello"] - received["lost"]
    left = threading.active_count() - threads, open_sockets() - num_sockets
    stay = sum(map(len, fuzz.held))
    print(f"seed {options.seed}, {options.seconds:g} s, {len(targets)} acceptors")
    print(f"made: {made['strangers']:,} strangers, {made['insiders']:,} insiders ({stay} stay, unread)")
    print(f"{refused:,} refused; {made['proofs']:,} insiders' proofs intact; {made['served']:,} correct workers served")
    print(f"received: {received['hello']:,} hellos, {received['push']:,} pushes, {received['lost']:,} ends")
    print(f"wrong (each must be 0): {unproved} received and {let_in} let in without a proof, {len(crashes)} crashes,")
    print(
        f"  {unserved} not served, {left[0]} threads left, {left[1]} sockets, {pinned} versions, {endless} connections"
    )
    for crash in crashes[:5]:
        print(f"  {crash}")
    wrong = unproved or let_in or crashes or unserved or any(left) or pinned or endless
    return 1 if wrong or not made["served"] else 0


if __name__ == "__main__":
    sys.exit(main())
