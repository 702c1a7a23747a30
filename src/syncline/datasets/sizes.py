"""How much of a part is kept: train_size and test_size."""


def checked_size(dataset: str, option: str, size: int | None, available: int) -> int:
    """How many samples to keep: the first `size`, all of them where it is None.

    Raises:
        ValueError: a size below 1 or above what there is.
    """
    if size is None:
        return available
    if not 1 <= size <= available:
        raise ValueError(f"dataset {dataset}: {option}={size}, allowed: 1..{available}, or null for all")
    return size
