"""Processes that decode photographs in the background. Legend: B images, S pixels a side."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from io import BufferedReader
from queue import SimpleQueue
from typing import BinaryIO, cast

import numpy as np
import numpy.typing as npt

from syncline.datasets import decoding

Pixels = npt.NDArray[np.uint8]

PORTION = 8  # images of one request: about a megabyte to return


class Loaders:
    """Decodes photographs in the order of requests, in processes that start when needed.

    Args:
        num: number of processes, >= 0; with 0 this process decodes, when `decode` is called.
        size: S.
    """

    def __init__(self, num: int, size: int) -> None:
        self._num, self._size = num, size
        self._loaders: list[_Loader] = []
        self._idle: SimpleQueue[_Loader] = SimpleQueue()
        self._threads = ThreadPoolExecutor(max(num, 1), thread_name_prefix="loader")  # one a process, waiting for it

    def decode(self, paths: Sequence[str], seeds: Sequence[int] | None) -> Callable[[], Pixels]:
        """Start to decode; see decoding.decode.

        Args:
            paths: of B photographs.
            seeds: one each, for training; None for evaluation.

        Returns:
            A function that waits for the images and returns them, uint8 [B, 3, S, S]. It raises ValueError, one line,
            for a file that cannot be decoded, and RuntimeError, one line, if a process was killed.
        """
        pixels = np.empty((len(paths), 3, self._size, self._size), np.uint8)
        if not self._num:
            for i, path in enumerate(paths):
                image = decoding.decode(path, self._size, None if seeds is None else seeds[i])
                pixels[i] = np.frombuffer(image, np.uint8).reshape(pixels.shape[1:])
            return lambda: pixels
        while len(self._loaders) < self._num:
            self._loaders.append(_Loader(self._size))
            self._idle.put(self._loaders[-1])
        parts = [
            self._threads.submit(self._ask, paths[part], None if seeds is None else seeds[part], pixels[part])
            for part in (slice(start, start + PORTION) for start in range(0, len(paths), PORTION))
        ]

        def finish() -> Pixels:
            for part in parts:
                part.result()
            return pixels

        return finish

    def close(self) -> None:
        """End the processes; unfinished requests are cancelled.

        No thread is awaited: garbage collection calls this in any thread, also in one that holds what they need to end.
        """
        self._threads.shutdown(wait=False, cancel_futures=True)
        for loader in self._loaders:
            loader.end()

    def _ask(self, paths: Sequence[str], seeds: Sequence[int] | None, pixels: Pixels) -> None:
        loader = self._idle.get()
        try:
            loader.decode(paths, seeds, pixels)
        finally:
            self._idle.put(loader)


class _Loader:
    """A process that runs decoding.py: it starts in a tenth of a second, without torch, and inherits nothing.

    It ends when this process ends in any way, as that closes the pipe from which it reads.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._process = subprocess.Popen(
            [sys.executable, "-P", decoding.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,  # Ctrl-C is for this process, which then ends the loader
        )
        self._requests = cast(BinaryIO, self._process.stdin)
        self._answers = cast(BufferedReader, self._process.stdout)

    def decode(self, paths: Sequence[str], seeds: Sequence[int] | None, pixels: Pixels) -> None:
        """Fill `pixels` [B, 3, S, S]."""
        try:
            self._requests.write(json.dumps((paths, self._size, seeds)).encode() + b"\n")
            self._requests.flush()
            header = self._answers.readline()
            if not header.endswith(b"\n"):
                raise BrokenPipeError
            fault = json.loads(header)
            if fault is None and self._answers.readinto(pixels.data.cast("B")) < pixels.nbytes:
                raise BrokenPipeError
        except BrokenPipeError:
            code = self._process.wait()
            advice = "dataset.loaders=0 decodes without them"
            raise RuntimeError(f"a loader process has ended (exit code {code}); {advice}") from None
        if fault is not None:
            raise ValueError(fault)

    def end(self) -> None:
        with suppress(BrokenPipeError):
            self._requests.close()
        self._answers.close()
        self._process.wait()
