"""Values: dataclasses that never change once they are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def value(cls: type[T]) -> type[T]:
    """A frozen, slotted dataclass, whose being frozen the type checker alone watches over.

    ``dataclass(frozen=True)`` sets each field through `object.__setattr__`, which makes a booking three times as dear:
    a pick makes a dozen values of ten fields. Elsewhere take that.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)
