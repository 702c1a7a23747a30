"""The error of all loaders, and the check of train_size and test_size."""


class DataMissingError(ValueError):
    """Files of a data set are missing; the message says in one line which, where, and what to do."""


def checked_size(dataset: str, option: str, size: int | None, available: int) -> int:
    """The number of samples to use: `size`, or all for None.

    Raises:
        ValueError: a size below 1 or above the available number.
    """
    if size is None:
        return available
    if not 1 <= size <= available:
        raise ValueError(f"dataset {dataset}: {option}={size}, allowed: 1..{available}, or null for all")
    return size
