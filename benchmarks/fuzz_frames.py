"""python -m benchmarks.fuzz_frames --frames 1000000 --seed 0: hostile frames at every door that reads from a socket.

    push                a shard reads a worker's push
    compressed push     likewise, with each compression
    block               a worker reads a shard's block
    compressed block    likewise
    message             the coordinator and the other processes read a control message

Each frame is a correct one with one fault, after the proof that the peer knows the secret: another kind, version or
length, places that do not ascend, fields that are absent, of another type or too many, text that is no JSON. It goes
over a socket to the function that reads there. The exit code is 1 if one is accepted, or if anything but an end of the
connection with its reason comes of it.
"""

import argparse
import json
import queue
import random
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import torch

from syncline.learning.compression import Compression, Int8, RandK, Sign, TopK
from syncline.live.node.control import read_messages
from syncline.live.shard.connections import Connection, Disconnected, GradientPool, Inbox
from syncline.live.wire import control_messages as messages
from syncline.live.wire.clock import Clock
from syncline.live.wire.frames import MAX_JSON, VERSION, Header, Kind, Reader, pack_report
from syncline.live.worker.links import Differences, Link, Links, ShardLost
from syncline.server.report import PushReport

SIZE = 200  # elements of the block
SCHEMES: list[Compression] = [TopK(0.05), RandK(0.05), Int8(), Sign()]
REPORT = pack_report(PushReport(worker=0, iteration=0))
MESSAGES: list[messages.ControlMessage] = [  # of every class
    messages.Hello("shard", 1, "tcp:a:1", 7, 1e-5, "a", {"torch": "2"}),
    messages.Ready(),
    messages.Stopped(),
    messages.ProgressReport(3, 96, 0.5, None, 1437),
    messages.ProgressReport(3, 96, 0.5, 1.25, 1437, 4),
    messages.SnapshotWritten(2),
    messages.Warn("text", 1.0),
    messages.Unreachable("why"),
    messages.RestartNeeded("why"),
    messages.Done("epochs", {"updates": 3}),
    messages.Activity("starting"),
    messages.Addresses(["unix:a"]),
    messages.Begin(0.5),
    messages.Stop(1.0001),
    messages.ReportActivity(),
    messages.WorkerLost(1, 7, "timed out"),
    messages.End("target"),
]
WITH_FIELDS = [message for message in MESSAGES if len(messages.encode(message)) > 1]  # beside its kind

MESSAGE_FAULTS = ["a field less", "a field more", "another type", "an unknown kind", "no object", "no JSON"]
MESSAGE_FAULTS += ["too deep", "too large", "the frame"]

Fault = tuple[str, bytes]  # what is wrong, and the frame
Outcome = tuple[int, str]  # frames that were accepted, and why the connection ended


def faulty_frame(kind: Kind, content: bytes, luck: random.Random) -> Fault:
    """Something is wrong with the frame, whatever its content."""
    size = len(content)
    what = luck.choice(["another kind", "no kind", "another version", "a false length", "too short", "too long"])
    if what == "another kind":
        return what, Header(luck.choice([other for other in Kind if other != kind]), size=size).pack() + content
    header = bytearray(Header(kind, size=size).pack())
    if what == "no kind":
        header[0] = luck.randrange(max(Kind) + 1, 256)
    elif what == "another version":
        place = header.index(struct.pack("!H", VERSION))
        header[place : place + 2] = struct.pack("!H", luck.choice([0, VERSION + 1, 2**16 - 1]))
    elif what == "a false length":
        false = luck.choice([-1, 1, 7, 2**20, 2**40])
        header = bytearray(Header(kind, size=max(0, size + false)).pack())
    elif what == "too short":
        content = content[: luck.randrange(size)]
        header = bytearray(Header(kind, size=len(content)).pack())
    else:
        content += b"\1" + luck.randbytes(luck.randrange(50))  # JSON may end with white space
        header = bytearray(Header(kind, size=len(content)).pack())
    return what, bytes(header) + content


def faulty_content(scheme: Compression, content: bytes, luck: random.Random) -> Fault | None:
    """Compressed content of the right length that stands for nothing; None: this scheme has none."""
    if isinstance(scheme, RandK):
        return "a negative seed", struct.pack("<q", -luck.randrange(1, 2**63)) + content[8:]
    if not isinstance(scheme, TopK):
        return None
    num = len(content) // 8
    places, at = list(struct.unpack(f"<{num}i", content[: 4 * num])), luck.randrange(1, num)
    what = luck.choice(["equal places", "descending places", "a place beyond the block", "a place below 0"])
    if what == "equal places":
        places[at] = places[at - 1]
    elif what == "descending places":
        places[at - 1], places[at] = places[at], places[at - 1]
    elif what == "a place beyond the block":
        places[-1] = luck.choice([SIZE, SIZE + 1, 2**31 - 1])
    else:
        places[0] = -luck.randrange(1, 2**31)
    return what, struct.pack(f"<{num}i", *places) + content[4 * num :]


def another_type(value: object, luck: random.Random) -> object:
    """What no field that holds this value may hold."""
    if isinstance(value, str | dict):
        return 7
    if isinstance(value, list):
        return luck.choice([7, [7]])
    return luck.choice(["x", True, 1.0] if isinstance(value, int) else ["x", True])


class Blocks:
    """A reader of blocks of weights; the first one of a compressed link came before.

    Args:
        schemes: of the compressions; None: a block is not compressed.
    """

    kind = Kind.BLOCK
    behind = b""  # what follows the content in a frame

    def __init__(self, schemes: Sequence[Compression | None]) -> None:
        self._schemes, self._block = schemes, torch.randn(SIZE)
        self._contents = [
            (self._block.numpy() if scheme is None else scheme.encode(self._block, 5).numpy()).tobytes()
            for scheme in schemes
        ]

    def correct(self) -> list[tuple[bytes, int]]:
        """Frames that are accepted, and by which way."""
        return [(frame(self.kind, content + self.behind), way) for way, content in enumerate(self._contents)]

    def faulty(self, luck: random.Random) -> tuple[Fault, int]:
        way = luck.randrange(len(self._schemes))
        scheme, content = self._schemes[way], self._contents[way]
        wrong = faulty_content(scheme, content, luck) if scheme is not None and luck.random() < 0.6 else None
        if wrong is not None:
            return (wrong[0], frame(self.kind, wrong[1] + self.behind)), way
        return self.faulty_whole(content, luck), way

    def faulty_whole(self, content: bytes, luck: random.Random) -> Fault:
        """A fault of a frame with this content."""
        return faulty_frame(self.kind, content + self.behind, luck)

    def read(self, sock: socket.socket, way: int) -> Outcome:
        scheme, weights, none = self._schemes[way], self._block.clone(), torch.zeros(0)
        staging = SimpleNamespace(weights=weights, gradient=weights, buffers=none)
        links = Links(0, staging, [slice(0, SIZE)])  # type: ignore[arg-type]  # the module itself is not needed
        link = Link(0, sock, Reader(sock), Clock(), weights, slice(0, SIZE), weights, none, none, none)
        if scheme is not None:
            link.pulls = Differences(scheme, weights.clone())
            link.last = Header(Kind.BLOCK)
        links._links.append(link)
        accepted = 0
        try:
            while True:
                links._receive_ready(None)
                accepted += link.is_answered
                link.is_answered = False
        except ShardLost as error:
            return accepted, str(error).removeprefix("shard 0: ")


class Pushes(Blocks):
    """A shard's reader of pushes, with a report behind each."""

    kind = Kind.PUSH
    behind = REPORT

    def faulty_whole(self, content: bytes, luck: random.Random) -> Fault:
        if luck.random() < 0.2:
            report = pack_report(PushReport(worker=luck.choice([1, 2**15 - 1, 2**31 - 1]), iteration=0))
            return "another worker", frame(self.kind, content + report)
        return super().faulty_whole(content, luck)

    def read(self, sock: socket.socket, way: int) -> Outcome:
        inbox: Inbox = queue.SimpleQueue()
        Connection(sock, 0, GradientPool(SIZE, 0, 1, compression=self._schemes[way]), inbox).read()
        *accepted, last = [inbox.get() for _ in range(inbox.qsize())]
        return len(accepted), last.why if isinstance(last, Disconnected) else ""


class ControlMessage:
    """A reader of control messages."""

    def correct(self) -> list[tuple[bytes, int]]:
        return [(as_json(messages.encode(message)), 0) for message in MESSAGES]

    def faulty(self, luck: random.Random) -> tuple[Fault, int]:
        fields = messages.encode(luck.choice(WITH_FIELDS))
        name = luck.choice([name for name in fields if name != "kind"])
        what = luck.choice(MESSAGE_FAULTS)
        if what == "the frame":
            return faulty_frame(Kind.JSON, json.dumps(fields).encode(), luck), 0
        if what == "a field less":
            del fields[luck.choice([*fields])]
        elif what == "a field more":
            fields[luck.choice(["x", "Kind", "", "__class__"])] = luck.choice([0, None, "x", [1]])
        elif what == "another type":
            fields[name] = another_type(fields[name], luck)
        elif what == "an unknown kind":
            fields["kind"] = luck.choice(["Tagged", "hello", "", 7, None, ["Hello"], {}])
        elif what == "no object":
            return (what, as_json(luck.choice([[fields], 7, "Stop", None, True]))), 0
        elif what == "no JSON":
            text = bytearray(json.dumps(fields).encode())
            text[0] = luck.choice([0, 0x20, 0xFF, ord("["), ord("}")])
            return (what, frame(Kind.JSON, bytes(text))), 0
        elif what == "too deep":
            return (what, frame(Kind.JSON, b"[" * luck.randrange(2_000, 20_000))), 0
        else:
            return (what, Header(Kind.JSON, size=luck.choice([MAX_JSON + 1, 2**31, 2**63])).pack()), 0
        return (what, as_json(fields)), 0

    def read(self, sock: socket.socket, way: int) -> Outcome:
        accepted = list[messages.ControlMessage]()
        why = read_messages(sock, accepted.append)
        return len(accepted), why


DOORS: dict[str, Callable[[], Blocks | ControlMessage]] = {
    "push": lambda: Pushes([None]),
    "compressed push": lambda: Pushes(SCHEMES),
    "block": lambda: Blocks([None]),
    "compressed block": lambda: Blocks(SCHEMES),
    "message": ControlMessage,
}


def frame(kind: Kind, content: bytes) -> bytes:
    return Header(kind, size=len(content)).pack() + content


def as_json(content: object) -> bytes:
    return frame(Kind.JSON, json.dumps(content).encode())


def came_of(door: Blocks | ControlMessage, data: bytes, way: int) -> Outcome:
    """What comes of it at the door that receives this and no more."""
    theirs, ours = socket.socketpair()
    with theirs, ours:
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        return door.read(ours, way)


def fuzz(name: str, num_frames: int, luck: random.Random) -> int:
    """Returns how many faults were accepted, or had no reason."""
    door, begun = DOORS[name](), time.monotonic()
    for data, way in door.correct():  # the control
        assert came_of(door, data, way) == (1, "the connection was closed")
    sent, wrong = Counter[str](), Counter[str]()
    for _ in range(num_frames):
        (what, data), way = door.faulty(luck)
        sent[what] += 1
        accepted, why = came_of(door, data, way)
        if accepted or not why:
            wrong[what] += 1
    print(f"{name}: {num_frames:,} frames in {time.monotonic() - begun:.0f} s, {wrong.total()} faults")
    for what, num in sent.most_common():
        print(f"    {what:26} {num:9,} sent, {wrong[what]} accepted or without a reason")
    return wrong.total()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=1_000_000, help="at each door")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--doors", nargs="+", choices=DOORS, default=list(DOORS))
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    wrong = [fuzz(name, options.frames, random.Random(f"{options.seed}, {name}")) for name in options.doors]
    return 1 if any(wrong) else 0


if __name__ == "__main__":
    sys.exit(main())
