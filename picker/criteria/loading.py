"""Finds criteria by the names of their entry points and makes them. Whatever is wrong with one stops the start."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from picker.core.criteria import SEAM, Criterion, Setup
from picker.criteria.judging import Criteria

GROUP = "picker.criteria"
"""Group of entry points in which packages name their criteria."""

OWN = (EntryPoint("labels", "picker.criteria.labels:Labels", GROUP),)
"""Those that ship with the picker, for when it runs without having been installed."""

MOST = 16
"""Most criteria at one time."""


class CriteriaError(ValueError):
    """A criterion cannot be used; the text says which one, why, and what to do."""


def open_criteria(names: Sequence[str], setup: Setup) -> Criteria:
    """Make the criteria of these names, in this order.

    Raises:
        CriteriaError: one is unknown, named twice, broken, or written for another seam.
    """
    if len(names) > MOST:
        raise CriteriaError(f"{len(names)} criteria are named; at most {MOST} can be asked for every request")
    twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if twice is not None:
        raise CriteriaError(f"{twice!r} is named twice; name each criterion once")
    return Criteria([(name, _made(name, setup)) for name in names])


def _made(name: str, setup: Setup) -> Criterion:
    make = _found(name)
    try:
        criterion: Criterion = make(setup)
        seam = getattr(criterion, "seam", None)
    except Exception as error:
        raise CriteriaError(f"{name!r} cannot be made: {_why(error)}") from error
    if seam != SEAM:
        told = (
            "does not say for which seam it is written"
            if seam is None
            else f"is written for seam {seam!r:.40}"
        )
        raise CriteriaError(
            f"{name!r} {told}, and this picker has seam {SEAM}: take a version of it that has `seam = {SEAM}`"
        )
    if not callable(getattr(criterion, "prepare", None)):
        raise CriteriaError(f"{name!r} is {type(criterion).__name__}, which has no method prepare(request)")
    return criterion


def _found(name: str) -> Callable[[Setup], Any]:
    known = (*OWN, *entry_points(group=GROUP))
    points = {point.value: point for point in known if point.name == name}
    if len(points) > 1:
        places = ", ".join(sorted(f"{_package(point)} ({value})" for value, point in points.items()))
        raise CriteriaError(f"{name!r} is offered by several packages: {places}; uninstall all but one")
    if points:
        return _loaded(name, next(iter(points.values())))
    names = sorted({point.name for point in known})
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(names)}."
    raise CriteriaError(
        f"no criterion is called {name!r}; {hint} Criteria are entry points of installed packages in the group {GROUP}"
    )


def _loaded(name: str, point: EntryPoint) -> Callable[[Setup], Any]:
    try:
        make = point.load()
    except Exception as error:
        raise CriteriaError(
            f"{name!r} of {_package(point)} ({point.value}) cannot be loaded: {_why(error)}"
        ) from error
    if not callable(make):
        raise CriteriaError(
            f"{name!r} of {_package(point)} ({point.value}) is {type(make).__name__}; it must be a class or a function "
            "that takes a Setup and gives a criterion"
        )
    return make  # type: ignore[no-any-return]


def _package(point: EntryPoint) -> str:
    return "this picker" if point.dist is None else point.dist.name


def _why(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:500]
