"""Ways to break the replicas on purpose, by which the suite shows that its invariants would notice.

A mutant is a function that patches the product inside a replica's process before the replica starts. The suite gets it
in there with a ``sitecustomize.py`` in a folder of its own, which it puts on the ``PYTHONPATH`` of the replicas that
it starts itself; nothing in the product knows of it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

VARIABLE = "CHAOS_MUTANT"
_SITE = """\
import os

if os.environ.get({variable!r}):
    from chaos.mutants import plant

    plant(os.environ[{variable!r}])
"""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One way to break a replica, and who must notice."""

    name: str
    breaks: str
    """What it breaks, in words."""
    function: str
    """``module:function`` of the patch, below `chaos.mutants`."""
    scenario: str
    """Name of the scenario in which it must be noticed."""
    caught_by: str
    """How the name of the invariant begins that must say *fail*."""
    plane: str = "redis"


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "lease-never-falls",
        "the lease of a replica that died never falls, so its bookings stay active",
        "leases:never_falls",
        "replica_killed_where_no_log_tells",
        "nothing is booked",
    ),
    Mutant(
        "release-doubled",
        "a booking's end is taken off the sums twice",
        "sums:release_doubled",
        "replica_killed_where_no_log_tells",
        "sums are exact",
    ),
)
"""The table; each further mutant is one entry and one function."""


def mutant(name: str) -> Mutant:
    """The mutant of that name. KeyError names those there are."""
    for each in MUTANTS:
        if each.name == name:
            return each
    raise KeyError(f"no mutant {name!r}; there are: {', '.join(each.name for each in MUTANTS)}")


def environment(name: str, folder: Path) -> Mapping[str, str]:
    """What a replica's environment must say for it to break in that way; writes the plug-in into ``folder``."""
    mutant(name)
    place = folder / "mutant"
    place.mkdir(parents=True, exist_ok=True)
    (place / "sitecustomize.py").write_text(_SITE.format(variable=VARIABLE))
    before = os.environ.get("PYTHONPATH", "")
    return {VARIABLE: name, "PYTHONPATH": os.pathsep.join([str(place), *([before] if before else [])])}


def plant(name: str) -> None:
    """Break this process. Called by the plug-in, in a replica, before the replica starts."""
    module, _, function = mutant(name).function.partition(":")
    getattr(import_module(f"chaos.mutants.{module}"), function)()
