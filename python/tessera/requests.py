"""From Python's arguments to the library's requests."""

from __future__ import annotations

import contextlib
import operator
import re
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, SupportsIndex, TypeVar, Union

from .errors import Error, UsageError


class HasSeed(Protocol):
    """A generator of random numbers that knows its seed, such as torch.Generator."""

    def initial_seed(self) -> int:
        """The seed that it began with."""


Seed = Union[SupportsIndex, HasSeed]
Request = TypeVar("Request")


def fill(request: Request, arguments: Mapping[str, str] = {}, /, **values: Any) -> Request:
    """Sets what is not None; what does not fit is a TypeError that names it, as `arguments` do."""
    for name, value in values.items():
        if value is None:
            continue
        if not isinstance(value, (bool, int, float, str)):
            with contextlib.suppress(TypeError):  # what else it raises is for the caller
                value = operator.index(value)
        try:
            with in_python(arguments):
                setattr(request, name, value)
        except AttributeError:
            raise TypeError(f"{name!r} is no argument here") from None
        except (TypeError, RuntimeError):
            raise TypeError(f"{arguments.get(name, name)}={reprlib.repr(value)} is not of the type, or not "
                            f"in the range, that it takes") from None
    return request


def expect(value: Any, kind: Any, name: str, what: str) -> None:
    """Refuses an argument that is of another kind, and not None."""
    if value is not None and (not isinstance(value, kind) or isinstance(value, (str, bytes))):
        raise TypeError(f"{name}={reprlib.repr(value)}: expected {what}")


# Quoted text, which an apostrophe does not begin or end; or a field of the library.
_QUOTED_OR_FIELD = re.compile(r"(?<!\w)'.*?'(?!\w)|`([a-z0-9_]+)`")


def in_arguments(sentence: str, arguments: Mapping[str, str] = {}) -> str:
    """Returns a message of the library with Python's arguments: the field `top_k` as top_k, or as `arguments`
    says. Text in quotes is not changed."""

    def named(match: re.Match[str]) -> str:
        return arguments.get(match[1], match[1]) if match[1] else match[0]

    return _QUOTED_OR_FIELD.sub(named, sentence)


@contextlib.contextmanager
def in_python(arguments: Mapping[str, str] = {}) -> Iterator[None]:
    """The errors of what is inside name Python's arguments."""
    try:
        yield
    except Error as error:
        beginning = re.match(r"`([a-z0-9_]+)`", str(error))
        if beginning:
            error.field = arguments.get(beginning[1], beginning[1])
        error.args = (in_arguments(str(error), arguments),)
        raise


def listed(value: Any) -> list[Any] | None:
    """One thing or several as a list."""
    if value is None:
        return None
    if hasattr(value, "tolist"):  # numbers of NumPy or torch
        value = value.tolist()
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        return [value]
    return list(value)


def one_text(value: str | Sequence[str] | None, name: str) -> str | None:
    """A text that all of a request share."""
    if value is None or isinstance(value, str):
        return value
    expect(value, Sequence, name, "a text")
    texts = set(value)
    if len(texts) != 1:
        raise UsageError(f"{name}: one text for all prompts, not {len(texts)}; make a call for each")
    return texts.pop()


def seed_of(generator: Seed) -> int:
    """The seed of a generator, or the seed itself."""
    if isinstance(generator, SupportsIndex):
        return operator.index(generator)
    if callable(getattr(generator, "initial_seed", None)):
        return int(generator.initial_seed())
    raise TypeError(f"generator={generator!r}: expected a seed, an object with initial_seed() such as "
                    f"torch.Generator, or a list of them")


def plan_text(plan: str | Mapping[str, Any]) -> str:
    """A plan as the command line reads it."""
    if isinstance(plan, str):
        return plan
    if not isinstance(plan, Mapping):
        raise UsageError(f"plan={plan!r}: give a text, as 'cfg=2', or a dict, as {{'cfg': 2}}")
    return ",".join(f"{name}={value}" for name, value in plan.items())


def tiling_of(vae_tiling: bool | int | None) -> tuple[bool | None, int | None]:
    """Whether a VAE works in tiles, and the side of one in pixels where it is given."""
    if vae_tiling is None or isinstance(vae_tiling, bool):
        return vae_tiling, None
    return True, vae_tiling
