"""A file of workers: JSON, or one a line. Pure: text in, endpoints out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from discovery.address import AddressError, read_address
from discovery.found import Endpoint

MAX_WORKERS = 100_000
MAX_LABELS = 64
MAX_LABEL = 1024
"""Longest name or value of a label, in characters."""
MAX_RANK = 65_535


class WorkerFileError(ValueError):
    """A file that cannot be used; the message names the line or entry, what is wrong and what is allowed."""


def read_workers(text: str) -> frozenset[Endpoint]:
    """
    Read ``{"workers": [{"address": "host:port", "rank": 0, "labels": {}}]}``, or one worker a line.

    A line is ``host:port`` or ``host:port@rank``; a ``#`` begins a comment. Lines that name nobody are refused, for a
    file being written looks like that: only ``{"workers": []}`` empties a pool.

    Raises:
        WorkerFileError: something in it is wrong; nothing of it is used.

    """
    entries = _of_json(text) if text.lstrip().startswith(("{", "[")) else _of_lines(text)
    found: dict[tuple[str, int], tuple[str, Endpoint]] = {}
    for place, endpoint in entries:
        key = (endpoint.address, endpoint.rank)
        before, same = found.setdefault(key, (place, endpoint))
        if same != endpoint:
            raise WorkerFileError(f"{place} names the same worker as {before} with other labels")
        if len(found) > MAX_WORKERS:
            raise WorkerFileError(f"more than {MAX_WORKERS} workers")
    return frozenset(endpoint for _, endpoint in found.values())


def _of_lines(text: str) -> Iterator[tuple[str, Endpoint]]:
    some = False
    for number, line in enumerate(text.splitlines(), 1):
        word = line.partition("#")[0].strip()
        if not word:
            continue
        some = True
        address, sign, rank = word.partition("@")
        if sign and not (rank.isascii() and rank.isdigit() and len(rank) <= 5 and int(rank) <= MAX_RANK):
            raise WorkerFileError(
                f"line {number}: the rank must be a number from 0 to {MAX_RANK}, not {rank[:20]!r}"
            )
        yield f"line {number}", Endpoint(_address(address, f"line {number}"), int(rank) if sign else 0)
    if not some:
        raise WorkerFileError('it names no worker; to empty the pool write {"workers": []}')


def _of_json(text: str) -> Iterator[tuple[str, Endpoint]]:
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WorkerFileError(f"not valid JSON: {error}") from error
    workers = whole.get("workers") if isinstance(whole, dict) else whole
    if not isinstance(workers, list):
        raise WorkerFileError('it must hold {"workers": [...]}')
    for index, entry in enumerate(workers):
        place = f"workers[{index}]"
        yield place, _endpoint(entry, place)


def _endpoint(entry: Any, place: str) -> Endpoint:
    if isinstance(entry, str):
        return Endpoint(_address(entry, place))
    if not isinstance(entry, dict) or not isinstance(entry.get("address"), str):
        raise WorkerFileError(f'{place} must be an object with an "address" of the form host:port')
    if unknown := sorted(entry.keys() - {"address", "rank", "labels"}):
        raise WorkerFileError(
            f"{place} has an unknown field {unknown[0][:100]!r}; allowed are address, rank, labels"
        )
    rank = entry.get("rank", 0)
    if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank <= MAX_RANK:
        raise WorkerFileError(f"{place}: rank must be a whole number from 0 to {MAX_RANK}")
    return Endpoint(_address(entry["address"], place), rank, _labels(entry.get("labels", {}), place))


def _labels(labels: Any, place: str) -> dict[str, str]:
    if not isinstance(labels, dict) or len(labels) > MAX_LABELS:
        raise WorkerFileError(f"{place}: labels must be an object of at most {MAX_LABELS} texts")
    for name, value in labels.items():
        if not isinstance(value, str) or max(len(name), len(value)) > MAX_LABEL:
            raise WorkerFileError(
                f"{place}: label {name[:100]!r} must be a text of at most {MAX_LABEL} characters"
            )
    return labels


def _address(text: str, place: str) -> str:
    try:
        return read_address(text)
    except AddressError as error:
        raise WorkerFileError(f"{place}: {error}") from error
