"""Standard output and error that cannot be written to: what is lost is the text, and not the run."""

import errno
import io
import os
import sys

GONE = (errno.EPIPE, errno.EIO)  # whoever read the pipe has ended (`| head`); the terminal is gone


def lose_text_alone() -> None:
    """Of this process: text goes nowhere once nobody can read it, and characters that the encoding lacks become `?`."""
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is None:  # closed by whoever started this process; the next file would get its number
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 until the process ends
        elif stream is getattr(sys, f"__{name}__"):
            stream.flush()
            raw = io.BufferedWriter(_Output(number, "w", closefd=False))  # type: ignore[type-var]
            own = io.TextIOWrapper(raw, stream.encoding, "replace", line_buffering=stream.line_buffering)
            setattr(sys, name, own)


class _Output(io.FileIO):
    def write(self, data: bytes) -> int:  # type: ignore[override]
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in GONE:
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            return len(data)
