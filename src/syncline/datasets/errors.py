"""The error of all loaders."""


class DataMissingError(ValueError):
    """Files of a data set are missing; the message says in one line which, where, and what to do."""
