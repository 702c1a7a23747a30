"""python -m benchmarks.fuzz_compressed --frames 1000000 --seed 0: hostile compressed pushes against a shard's reader.

Each frame is a correct push of one of the compressions with one fault: places that do not ascend, lie beyond the block
or below 0, a negative seed, a payload that is too short or too long, a header that lies about its length. It goes over
a socket to the function that reads a worker's pushes. The exit code is 1 if one is accepted, or if anything but an
end of the connection with its reason comes of it.
"""

import argparse
import queue
import random
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Sequence

import torch

from syncline.learning.compression import Compression, Int8, RandK, Sign, TopK
from syncline.live.connections import Connection, Disconnected, GradientPool, Inbox
from syncline.live.frames import HEADER, Header, Kind, pack_report
from syncline.server.report import PushReport

SIZE = 200  # elements of the block
SCHEMES: list[Compression] = [TopK(0.05), RandK(0.05), Int8(), Sign()]
REPORT = pack_report(PushReport(worker=0, iteration=0))


def faulty(scheme: Compression, content: bytes, generator: random.Random) -> tuple[str, bytes]:
    """What is wrong, and the frame."""
    kinds = ["too short", "too long", "a false length"]
    if isinstance(scheme, TopK):
        kinds += ["equal places", "descending places", "a place beyond the block", "a place below 0"] * 2
    elif isinstance(scheme, RandK):
        kinds.append("a negative seed")
    kind = generator.choice(kinds)
    false_length = 0
    if kind == "too short":
        content = content[: generator.randrange(len(content))]
    elif kind == "too long":
        content += generator.randbytes(generator.randrange(1, 50))
    elif kind == "a false length":
        false_length = generator.choice([-1, 1, 7, 2**20, 2**40])
    elif kind == "a negative seed":
        content = struct.pack("<q", -generator.randrange(1, 2**63)) + content[8:]
    else:
        num = len(content) // 8
        places = list(struct.unpack(f"<{num}i", content[: 4 * num]))
        at = generator.randrange(1, num)
        if kind == "equal places":
            places[at] = places[at - 1]
        elif kind == "descending places":
            places[at - 1], places[at] = places[at], places[at - 1]
        elif kind == "a place beyond the block":
            places[-1] = generator.choice([SIZE, SIZE + 1, 2**31 - 1])
        else:
            places[0] = -generator.randrange(1, 2**31)
        content = struct.pack(f"<{num}i", *places) + content[4 * num :]
    size = max(0, len(REPORT) + len(content) + false_length)
    return kind, Header(Kind.PUSH, size=size).pack() + REPORT + content


def told(pool: GradientPool, frame: bytes) -> list[object]:
    """What the reader of a connection puts into its shard's inbox when it receives this and no more."""
    inbox: Inbox = queue.SimpleQueue()
    theirs, ours = socket.socketpair()
    with theirs, ours:
        theirs.sendall(frame)
        theirs.shutdown(socket.SHUT_WR)
        Connection(ours, 0, pool, inbox).read()
    return [inbox.get() for _ in range(inbox.qsize())]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    generator, block = random.Random(options.seed), torch.randn(SIZE)
    pools = [GradientPool(SIZE, 0, 1, compression=scheme) for scheme in SCHEMES]
    correct = [scheme.encode(block, 5).numpy().tobytes() for scheme in SCHEMES]
    for pool, content in zip(pools, correct, strict=True):  # the control: these are accepted
        frame = Header(Kind.PUSH, size=len(REPORT) + len(content)).pack() + REPORT + content
        assert len(frame) == HEADER.size + len(REPORT) + len(content)
        assert len(told(pool, frame)) == 2, "a push, and the end of the connection"
    sent, wrong, begun = Counter[str](), Counter[str](), time.monotonic()
    for _ in range(options.frames):
        number = generator.randrange(len(SCHEMES))
        kind, frame = faulty(SCHEMES[number], correct[number], generator)
        sent[kind] += 1
        answers = told(pools[number], frame)
        if len(answers) != 1 or not isinstance(answers[0], Disconnected) or not answers[0].why:
            wrong[kind] += 1
    for kind, num in sent.most_common():
        print(f"{kind:26} {num:9,} sent, {wrong[kind]} accepted or without a reason")
    print(f"{options.frames:,} frames in {time.monotonic() - begun:.0f} s, {wrong.total()} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
