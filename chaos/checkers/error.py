"""Booking error, and balance: this run against the same seed's other runs, and against other policies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from chaos.checkers import TRUTH
from chaos.policies import Errors, our_errors, policy_errors
from chaos.story import Story
from chaos.verdict import Finding, failed, passed, unknown

NOISE_SECONDS = 3.0
"""Request-seconds that two runs of one seed differ by on a busy machine, faults or none."""


@dataclass(frozen=True, slots=True)
class BookingError:
    """The error that faults add to what replicas believe is carried: at most a share of a stream-bound policy's.

    The integral over time of the distance between booked and truly carried requests, per worker, in request-seconds,
    averaged over replicas, by the engines' own word; minus that of the same seed's fault-free run. Needs the twin
    ``fault_free``.
    """

    needs: ClassVar[frozenset[str]] = frozenset({TRUTH})

    at_most_share: float = 0.1
    of: str = "stream-bound"
    noise: float = NOISE_SECONDS
    """Request-seconds up to which the error is none at all; 0: the share alone decides."""

    @property
    def name(self) -> str:
        """What it demands."""
        return f"booking error that the fault adds is at most {self.at_most_share:.0%} of {self.of}'s"

    def judge(self, story: Story) -> Finding:
        """Computes all three policies over both runs."""
        twin = story.twins.get("fault_free")
        if twin is None:
            return unknown(self.name, "the fault-free run of the same seed is missing")
        ours = _added(our_errors(story), our_errors(twin))
        others = {
            name: _added(policy_errors(story, name), policy_errors(twin, name))
            for name in ("isolated", self.of)
        }
        theirs = others[self.of]
        numbers: dict[str, Any] = {
            "ours": round(ours, 2),
            **{name: round(each, 2) for name, each in others.items()},
        }
        numbers["ours_raw"] = round(our_errors(story).total, 2)
        numbers["isolated_raw"] = round(policy_errors(story, "isolated").total, 2)
        said = f"ours {ours:.1f} request-seconds, {self.of} {theirs:.1f}, isolated {others['isolated']:.1f}"
        said += f" (isolated without the fault-free part: {numbers['isolated_raw']:g})"
        if theirs <= 0:
            return unknown(
                self.name, f"the fault cost {self.of} nothing: nothing to compare with: {said}", **numbers
            )
        if ours <= max(self.at_most_share * theirs, self.noise):
            return passed(self.name, said, **numbers)
        return failed(self.name, said, (), **numbers)


def _added(run: Errors, twin: Errors) -> float:
    """What the faults added: the twin's rate of error, over the time that was counted here, is taken off."""
    rate = twin.during / twin.seconds if twin.seconds else 0.0
    return run.during - rate * run.seconds + run.after - twin.after


@dataclass(frozen=True, slots=True)
class Balanced:
    """The busiest worker carries hardly more, over the mean, than with one replica. Needs the twin ``one_replica``."""

    needs: ClassVar[frozenset[str]] = frozenset({TRUTH})

    within: float = 0.25

    @property
    def name(self) -> str:
        """What it demands."""
        return f"the busiest worker's load over the mean is within {self.within:.0%} of one replica's"

    def judge(self, story: Story) -> Finding:
        """Compares request-seconds by worker."""
        twin = story.twins.get("one_replica")
        if twin is None:
            return unknown(self.name, "the run with one replica is missing")
        ours, theirs = max_over_mean(story), max_over_mean(twin)
        if ours is None or theirs is None:
            return unknown(self.name, "the engines carried nothing")
        said = f"busiest over mean: {ours:.2f}; with one replica {theirs:.2f}"
        good = ours <= theirs * (1 + self.within)
        return (passed if good else failed)(
            self.name, said, ours=round(ours, 3), one_replica=round(theirs, 3)
        )


def max_over_mean(story: Story) -> float | None:
    """Request-seconds of the busiest worker over the mean of all; None where nothing was carried."""
    loads = [
        sum(min(each.until, story.ended) - each.since for each in story.on(worker))
        for worker in set(story.workers.values())
    ]
    mean = sum(loads) / len(loads) if loads else 0.0
    return max(loads) / mean if mean else None


@dataclass(frozen=True, slots=True)
class NoPickOfTheGone:
    """A worker that left the pool is picked no more after some seconds."""

    needs: ClassVar[frozenset[str]] = frozenset({TRUTH})

    seconds: float = 3.0
    """Time that replicas may take to learn of it."""

    @property
    def name(self) -> str:
        """What it demands."""
        return f"no worker is picked that has been gone for more than {self.seconds:g} s"

    def judge(self, story: Story) -> Finding:
        """Looks for requests that began on a worker while it was gone; faults of kind ``leave`` say when it was."""
        gone = [each for each in story.faults if each.kind == "leave"]
        if not gone:
            return unknown(self.name, "no worker left")
        lines = []
        for fault in gone:
            worker = story.workers.get(fault.target, fault.target)
            begin = fault.begun + self.seconds
            end = fault.healing or fault.healed or story.ended
            lines += [
                f"{fault.target} got {each.request} {each.since - fault.begun:.2f} s after it had left"
                for each in story.on(worker)
                if begin < each.since < end
            ]
        if lines:
            return failed(self.name, f"{len(lines)} requests were sent to workers that were gone", lines)
        return passed(self.name, f"{len(gone)} left, none was picked later")
