"""The device of a process, and what torch is told there."""

import torch

from syncline.config import ConfigError, RunConfig


def pick_device(config: RunConfig, index: int = 0) -> torch.device:
    """The device of `config.device`; with several GPUs, process `index` takes number `index` modulo their number.

    Raises:
        ConfigError: there is no such device.
    """
    device = torch.device("cuda" if config.device != "cpu" and torch.cuda.is_available() else "cpu")
    if config.device == "cuda" and device.type == "cpu":
        raise ConfigError("device=cuda, but torch sees no CUDA device; use device=auto or device=cpu")
    return torch.device("cuda", index % torch.cuda.device_count()) if device.type == "cuda" else device


def configure_torch(config: RunConfig) -> None:
    """The threads of this process. On a GPU the same seed gives the same bits, and float32 is what it says.

    By default cuDNN's convolutions round their inputs to TensorFloat-32.
    """
    torch.set_num_threads(config.threads)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.allow_tf32 = False
