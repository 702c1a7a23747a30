"""Where a run was made: versions, hardware and commit."""

import os
import platform
import subprocess
import sys
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from syncline.installation import IS_INSTALLED

AVX512 = {"avx512vl", "avx512bw", "avx512dq"}  # what oneDNN needs for bfloat16
WITHOUT_BFLOAT16 = {"SSE41", "AVX", "AVX2", "AVX2_VNNI"}  # values of ONEDNN_MAX_CPU_ISA


def environment() -> dict[str, Any]:
    """Versions, hardware and commit of this process."""
    facts = {**_facts(), "command": sys.argv}
    torch = sys.modules.get("torch")  # not worth an import; unusable while another thread imports it
    is_whole = torch is not None and not getattr(torch.__spec__, "_initializing", False)
    if torch is not None and is_whole and torch.cuda.is_available():
        facts["gpu"] = torch.cuda.get_device_name(0)
    return facts


@cache
def _facts() -> dict[str, Any]:
    """What stays the same for the life of a process; takes 20 ms to collect."""
    versions = {}
    for name in ("torch", "torchvision", "numpy", "scipy", "scikit-learn", "hydra-core", "pyarrow"):
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _cpuinfo("model name") or platform.processor(),
        "cores": cores(),
        "packages": versions,
        "commit": _commit(),
    }


def cores() -> int:
    """Cores that this process may use; all of the machine's where the system does not say."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def free_cores() -> int:
    """Cores that are this process's: not every cluster binds a task of Slurm to those that it was allotted."""
    allotted = os.environ.get("SLURM_CPUS_PER_TASK", "")
    return min(cores(), int(allotted)) if allotted.isdigit() else cores()


def has_gpu() -> bool:
    """Whether processes here may use one of NVIDIA's; found without torch, whose import takes seconds."""
    return os.environ.get("CUDA_VISIBLE_DEVICES") != "" and any(Path("/dev").glob("nvidia[0-9]*"))


def emulates_bfloat16() -> bool:
    """Whether torch emulates bfloat16 on this CPU: one of x86-64 that lacks, or must not use, what it needs."""
    flags = set((_cpuinfo("flags") or "").split())
    may_use = os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper() not in WITHOUT_BFLOAT16
    return bool(flags) and not (may_use and (flags >= AVX512 or "avx_ne_convert" in flags))


def _cpuinfo(key: str) -> str | None:
    """What Linux says of the first core; None if nothing."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), None)


def _commit() -> str | None:
    """Of the checkout; of what was built and installed the version, as a tag."""
    if IS_INSTALLED:  # perhaps within a repository of the user
        return f"v{metadata.version('syncline')}"
    # In a container the checkout may be another user's: git would tell nothing ("dubious ownership").
    command = ["git", "-c", "safe.directory=*", "-C", str(Path(__file__).parent)]
    command += ["describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
