"""Errors that loaders share."""


class DataMissingError(ValueError):
    """Files of a dataset are not where they are looked for; the text says, in one line, which, where and what to do."""
