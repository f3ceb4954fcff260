"""A replica in short, as its peers and `picker check` read it."""

from __future__ import annotations

from importlib.metadata import version

from picker.peers.shapes import BookingsSummary, EventsSummary, PlaneSummary, Summary, WorkersSummary
from picker.status import Parts, events_state

VERSION = version("replicated-endpoint-picker")


def summary_of(parts: Parts, *, uptime: float, now: float) -> Summary:
    """This replica in short; ``now`` is monotonic, ``uptime`` seconds since its start."""
    it = parts
    plane, names = it.desk.status(), it.registry.names
    shown = it.readiness.shown()
    return Summary(
        name=it.owner.name[:300],
        incarnation=it.owner.incarnation,
        pool=it.settings.pool.pool[:300],
        version=VERSION,
        state=str(shown["state"]),
        settings_digest=it.membership.digest,
        plane=PlaneSummary(
            mode=str(plane.mode), state=str(plane.state), joined=plane.joined, epoch=plane.version.epoch,
            number=plane.version.number, lag_seconds=round(plane.lag, 3),
        ),
        events=EventsSummary(
            state=events_state(it.subscriber), unrecovered=len(it.subscriber.unrecovered())
        ),
        workers=WorkersSummary(
            known=len(names), reporting=sum(it.registry.report(name, now) is not None for name in names)
        ),
        bookings=BookingsSummary(own=plane.own, foreign=plane.foreign, draining=plane.draining),
        degraded=[need[:300] for need in it.readiness.degraded][:32],
        members=sorted(member.owner.name[:300] for member in it.desk.members)[:1024],
        uptime_seconds=round(uptime, 1),
        index_entries=len(it.index),
        open_streams=it.server.open_streams,
        requests_under_way=len(it.underway),
    )  # fmt: skip
