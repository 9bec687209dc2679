"""The errors of the library as exceptions; `code` is the exit status of the command line."""


class Error(Exception):
    """A run that failed. The message names the thing, its value, the expectation and a remedy; `field` is the
    argument that it is about, or ""."""

    code: int = 1
    field: str = ""

    def __init__(self, message: str) -> None:
        super().__init__(message)


class UsageError(Error, ValueError):
    """An argument, a size or a prompt does not fit."""

    code = 2


class ModelError(Error):
    """A model folder or file is missing, damaged or not what it says."""

    code = 3


class ModelNotFoundError(ModelError, FileNotFoundError):
    """There is no such folder, and no shipped or downloaded model of that name."""


class PlanError(Error, ValueError):
    """The plan cannot run."""

    code = 4


class RankError(Error):
    """A rank or its network failed."""

    code = 5


class OutOfMemoryError(Error, MemoryError):
    """It does not fit in memory; nothing was begun."""

    code = 6


class Cancelled(Error):
    """A CancelToken asked to stop."""

    code = 130


def error_of(code: int, message: str) -> Error:
    """The exception that stands for a code of the library."""
    for kind in (UsageError, ModelError, PlanError, RankError, OutOfMemoryError, Cancelled):
        if kind.code == code:
            return kind(message)
    return Error(message)
