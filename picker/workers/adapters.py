"""Which names are LoRA adapters, and where a worker's labels and list of models say so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

MOST_NAMES = 16_384
"""Most adapter names that are known at one time; past it those learned first are forgotten."""
MOST_MODELS = 1024
"""Most models of one worker that count."""
LONGEST_NAME = 512
"""Longest name of a model, in characters."""

LABEL = "loras"
"""Label of a worker that names its adapters, separated by commas."""
LABEL_PREFIX = "lora/"
"""A label ``lora/NAME`` names one adapter, where labels' values take no commas; the value ``false`` takes it back."""


class AdapterNames(Mapping[str, str]):
    """All names that mean a LoRA adapter, with the base model of each; empty where that is not known.

    Names that an operator fixed stay. Others are learned from workers and kept when no worker names them any more: an
    adapter that rests keeps its prefixes. A name by which some worker calls a base model is never an adapter's.
    """

    def __init__(self, fixed: Iterable[str] = (), base_model: str = "") -> None:
        self.forgotten = 0
        """Names that had to make room for others."""
        self._fixed = dict.fromkeys(fixed, base_model)
        self._base_model = base_model
        self._learned: dict[str, str] = {}
        self._bases = self._own_bases = frozenset({base_model} - {""})

    def __getitem__(self, name: str) -> str:
        if name in self._fixed:
            return self._fixed[name]
        if name in self._bases:
            raise KeyError(name)
        return self._learned[name] or self._base_model

    def __contains__(self, name: object) -> bool:
        return name in self._fixed or (name in self._learned and name not in self._bases)

    def __iter__(self) -> Iterator[str]:
        yield from self._fixed
        yield from (name for name in self._learned if name not in self._bases and name not in self._fixed)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def learn(self, names: Iterable[str], bases: Mapping[str, str] | None = None) -> None:
        """These are adapters, of these base models where that is known."""
        for name in filter(_name, names):
            base = (bases or {}).get(name, "")
            if name not in self._learned or (base and self._learned[name] != base):
                self._learned[name] = base
        while len(self._learned) > MOST_NAMES:
            del self._learned[next(iter(self._learned))]
            self.forgotten += 1

    def call_bases(self, names: Iterable[str]) -> None:
        """These are all names of base models that workers tell."""
        self._bases = self._own_bases.union(names)


@dataclass(frozen=True, slots=True)
class Models:
    """A worker's list of models."""

    adapters: Mapping[str, str]
    """Name -> base model; empty where the list does not say."""
    bases: frozenset[str]
    names: frozenset[str] = frozenset()
    """Those of the adapters."""


class NoModels(ValueError):  # noqa: N818 - what was read is no list of models
    """An answer that is no list of models; the text says why."""


def read_models(text: bytes) -> Models:
    """Read the answer of ``/v1/models``: a model with a ``parent`` is an adapter of it.

    Raises:
        NoModels: it is no such list.
    """
    try:
        whole = orjson.loads(text)
    except ValueError as error:
        raise NoModels(f"it is not JSON: {str(error)[:100]}") from None
    cards = whole.get("data") if isinstance(whole, dict) else None
    if not isinstance(cards, list):
        raise NoModels('it holds no "data": [...]')
    adapters: dict[str, str] = {}
    bases: set[str] = set()
    for card in cards[:MOST_MODELS]:
        name, parent = (
            (_name(card.get(part)) for part in ("id", "parent")) if isinstance(card, dict) else ("", "")
        )
        if name and parent and parent != name:
            adapters[name] = parent
        elif name:
            bases.add(name)
    return Models(adapters, frozenset(bases), frozenset(adapters))


def labelled(labels: Mapping[str, str]) -> frozenset[str] | None:
    """The adapters that a worker's labels name; None where no label speaks of adapters."""
    if not labels:
        return None
    told = [LABEL in labels, *(label.startswith(LABEL_PREFIX) for label in labels)]
    if not any(told):
        return None
    names = [name.strip() for name in labels.get(LABEL, "").split(",")]
    names += [
        label.removeprefix(LABEL_PREFIX)
        for label, value in labels.items()
        if label.startswith(LABEL_PREFIX) and value.strip().lower() != "false"
    ]
    return frozenset(name for name in names[:MOST_MODELS] if _name(name))


def _name(value: Any) -> str:
    return value if isinstance(value, str) and 0 < len(value) <= LONGEST_NAME and value.isprintable() else ""
