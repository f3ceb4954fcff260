"""Pools whose workers serve different models: who may take a request for one of them."""

from __future__ import annotations

from collections.abc import Container, Mapping

MODEL = "model"
"""`Reason.left_out` of a worker that is not known to serve the request's model."""

_NONE: frozenset[str] = frozenset()


def narrowed(serves: Mapping[str, bool | None], *, full: Container[str] = _NONE) -> frozenset[str]:
    """Who is left out of these workers; None: the worker does not say what it serves.

    Those that serve other models are left out as long as anybody else may serve this one. Where none may nobody is: the
    engine tells the client. Those that do not say may serve it: they are left out only where a worker that does has
    room, so that what is not known never refuses a request. ``full``: workers at their limit.
    """
    others = frozenset(worker for worker, served in serves.items() if served is False)
    if len(others) == len(serves):
        return _NONE
    if any(served and worker not in full for worker, served in serves.items()):
        return frozenset(worker for worker, served in serves.items() if not served)
    return others
