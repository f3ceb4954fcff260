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

from chaos.topology import PlaneName

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
    plane: PlaneName = "redis"
    """Where it is caught: what the patch breaks is decided there by what a replica brings along."""


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "lease-never-falls",
        "the lease of a replica that died never falls, so its bookings stay active",
        "leases:never_falls",
        "a_replica_dies_and_no_log_tells",
        "no booking outlives its work",
    ),
    Mutant(
        "evidence-off",
        "what a worker reports never disproves a booking",
        "leases:no_evidence",
        "a_replica_dies_and_no_log_tells",
        "no booking outlives its work",
    ),
    Mutant(
        "evidence-judged-by-all",
        "every replica judges every worker, so that more is ended than is over",
        "leases:judged_by_all",
        "half_of_a_dead_replicas_requests_end",
        "as many requests are booked",
    ),
    Mutant(
        "reclaim-off",
        "proof of life is heard and brings no draining booking back",
        "leases:no_reclaim",
        "a_dead_replicas_requests_run_on",
        "no live booking is gone",
        plane="nats",
    ),
    Mutant(
        "rebase-off",
        "leases run on while the plane does not serve",
        "leases:not_rebased",
        "the_plane_stands_still",
        "no lease of a living replica falls",
    ),
    Mutant(
        "view-zero-when-away",
        "a view is empty while the plane does not answer",
        "views:zero_when_away",
        "the_plane_stands_still",
        "no load reads as none",
    ),
    Mutant(
        "resync-clears-the-view",
        "a view that is read anew is emptied first",
        "views:resync_clears",
        "a_far_plane_comes_back_empty",
        "no view forgets",
    ),
    Mutant(
        "release-doubled",
        "what ends is taken off a view's sums twice",
        "bookings:release_doubled",
        "requests_come_and_go",
        "sums are exact",
    ),
    Mutant(
        "end-kept-in-sums",
        "the blocks of what ends stay in the plane's own sums",
        "bookings:end_kept_in_sums",
        "requests_come_and_go",
        "the plane's own sums",
    ),
    Mutant(
        "term-ignored",
        "an operation takes effect in whatever term, sent by whomever",
        "bookings:term_ignored",
        "operations_of_an_older_term_come_late",
        "operations of an older term change nothing",
        plane="nats",
    ),
    Mutant(
        "tombstone-off",
        "the plane forgets at once what has ended, so a late booking brings it back",
        "bookings:no_tombstones",
        "an_end_that_overtakes_its_booking",
        "no booking outlives its work",
    ),
    Mutant(
        "retry-history-lost",
        "the plane knows nothing of a request's earlier attempts",
        "bookings:history_lost",
        "asked_again_while_the_first_worker_works",
        "an attempt that drains beside a newer one",
        plane="nats",
    ),
    Mutant(
        "gap-ignored",
        "events that were missed are never asked for",
        "events:gap_ignored",
        "events_lost",
        "every index is what the engines hold",
    ),
    Mutant(
        "snapshot-not-asked",
        "a replica that starts waits for news and never asks what workers hold already",
        "events:no_snapshot",
        "a_replica_returns_and_asks_what_workers_hold",
        "every index is what the engines hold",
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
