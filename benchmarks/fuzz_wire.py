"""python -m benchmarks.fuzz_wire --seconds 60: hostile bytes against the door of a shard.

Connections say random bytes, or a valid session with the secret in which bytes were changed, left out, put in or cut
off. None may crash a thread, be heard without a proof, or leave a thread behind; a worker is served all the while.
"""

import argparse
import contextlib
import queue
import random
import sys
import threading
import time

from syncline.live.server import CLOCK_QUESTIONS, Door, GradientPool, Hello, Inbox, Lost, Pushed
from syncline.live.transport import Socket, address_of, dial, listen
from syncline.live.wire import Frame, Kind, connect, receive_json, send, send_json

SECRET = b"of this fuzz"
SIZE = 16


class Twisted:
    """A socket that changes what is sent through it, sometimes."""

    def __init__(self, sock: Socket, luck: random.Random, rate: float) -> None:
        self._sock, self._luck, self._rate = sock, luck, rate

    def twist(self, data: bytes) -> bytes:
        luck, changed = self._luck, bytearray(data)
        while changed and luck.random() < self._rate:
            place = luck.randrange(len(changed))
            kind = luck.randrange(4)
            if kind == 0:
                changed[place] ^= 1 << luck.randrange(8)
            elif kind == 1:
                del changed[place]
            elif kind == 2:
                changed[place:place] = luck.randbytes(luck.randrange(1, 20))
            else:
                del changed[place:]
        return bytes(changed)

    def say(self, frame: Frame, payload: bytes) -> None:
        frame.size = len(payload)
        self._sock.sendall(self.twist(frame.pack() + payload))


def stranger(address: str, luck: random.Random) -> None:
    """No proof: random bytes."""
    with dial(address) as sock:
        sock.sendall(luck.randbytes(luck.randrange(300)))
        sock.settimeout(0.05)
        with contextlib.suppress(OSError):
            sock.recv(1000)


def insider(address: str, luck: random.Random) -> None:
    """A proof, then a session in which something is wrong, perhaps."""
    sock = connect(address, SECRET)
    try:
        twisted = Twisted(sock, luck, 0.08)
        twisted.say(Frame(Kind.JSON), b'{"worker": 1}')
        for _ in range(CLOCK_QUESTIONS):
            twisted.say(Frame(Kind.JSON), b"{}")
        for iteration in range(3):
            twisted.say(Frame(Kind.PUSH, 1, iteration), luck.randbytes(4 * SIZE))
        if luck.random() < 0.5:
            sock.sendall(luck.randbytes(luck.randrange(200)))
    finally:
        sock.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    luck = random.Random(options.seed)
    crashes = list[str]()
    threading.excepthook = lambda args: crashes.append(f"{args.exc_type.__name__}: {args.exc_value}")
    listener = listen("unix:")
    address = address_of(listener)
    inbox: Inbox = queue.SimpleQueue()
    door = Door(listener, SECRET, None, GradientPool(SIZE, 0, 1), inbox)
    door.open()
    threads_before = threading.active_count()
    made = {"stranger": 0, "insider": 0}
    greeted = heard = served = 0
    ends = time.monotonic() + options.seconds
    while time.monotonic() < ends:
        kind = luck.choice(("stranger", "insider"))
        made[kind] += 1
        with contextlib.suppress(OSError):
            (stranger if kind == "stranger" else insider)(address, luck)
        while True:
            try:
                message = inbox.get(timeout=0.0 if kind == "stranger" else 0.002)
            except queue.Empty:
                break
            heard += isinstance(message, Pushed)
            greeted += isinstance(message, Hello)
            if isinstance(message, Lost):
                message.connection.close()
        if sum(made.values()) % 100 == 0:
            served += serve_one(address, inbox)
    time.sleep(0.5)
    left = threading.active_count() - threads_before
    print(f"seed {options.seed}, {options.seconds:.0f} s: {made['stranger']:,} strangers, {made['insider']:,} insiders")
    print(f"{door.refused:,} refused; {greeted:,} greeted, {heard:,} pushes heard; {served} workers served meanwhile")
    print(f"{len(crashes)} crashes, {left} threads left {crashes[:3]}")
    return 1 if crashes or left > 0 or door.refused < made["stranger"] or greeted > made["insider"] or not served else 0


def serve_one(address: str, inbox: Inbox) -> bool:
    """A proper worker is heard."""
    sock = connect(address, SECRET)
    send_json(sock, {"worker": 2})
    for _ in range(CLOCK_QUESTIONS):
        send_json(sock, {})
        receive_json(sock)
    send(sock, Frame(Kind.PUSH, 2), [memoryview(bytes(4 * SIZE))])
    was_heard = False
    with contextlib.suppress(queue.Empty):
        while not was_heard:
            message = inbox.get(timeout=5)
            was_heard = isinstance(message, Pushed) and message.connection.worker == 2
            if isinstance(message, Pushed | Lost):
                message.connection.close()
    sock.close()
    return was_heard


if __name__ == "__main__":
    sys.exit(main())
