"""From Python's arguments to the library's requests."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, SupportsIndex, TypeVar, Union

from .errors import UsageError


class HasSeed(Protocol):
    """A generator of random numbers that knows its seed, such as torch.Generator."""

    def initial_seed(self) -> int:
        """The seed that it began with."""


Seed = Union[SupportsIndex, HasSeed]
Request = TypeVar("Request")


def fill(request: Request, **values: Any) -> Request:
    """Sets what is not None; what does not fit is a TypeError that names it."""
    for name, value in values.items():
        if value is None:
            continue
        try:
            setattr(request, name, value)
        except AttributeError:
            raise TypeError(f"{name!r} is no argument of a {type(request).__name__}") from None
        except (TypeError, RuntimeError):
            raise TypeError(f"{name}={value!r} is a {type(value).__name__}, or out of the range, that "
                            f"the library does not take for it") from None
    return request


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
