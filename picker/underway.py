"""Requests under way: from the pick to the end, as this replica sees them.

Keeps, per booking whose request this replica placed, what is needed to say when its prefill is over and when it has
ended, and tells the desk. Knows no socket and no plane: times are passed in.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from picker.core.worker import worker_address, worker_name, worker_rank
from picker.prefills import Prefills, Run
from picker.serving.seam import End, LogEntry, Responded
from stateplane.booking import Amount, Booking, Cause, State
from stateplane.view import View

LOG_INTERVAL = 1.0
"""Seconds between two periodic access log entries of a running request, as the gateway is configured."""

SILENT_INTERVALS = 3
"""So many intervals without its name in the log, and a request whose stream is over is no longer believed."""

DEAF_MOST = 30.0
"""Seconds for which silence is no sign while the others cannot pass on what their logs name."""

SWEEP_SECONDS = 1.0
"""Between two looks for requests whose booking somebody else has ended, or has left to us."""

MINTED = re.compile(r"[A-Za-z0-9_-]{16}")
"""How our booking ids look."""

UNHEARD_RATE, UNHEARD_BURST = 100.0, 500.0
"""Entries of bookings that are not known here: so many a second are passed on, after a burst of so many."""

SEEN_CAP = 5_000
"""Most bookings of other replicas that one batch of sightings names."""

AT = "="
"""Between a booking of which a log says that another worker than the booked one serves it, and that worker."""


class Desk(Protocol):
    """What this module asks of the replica's hand in the plane. Nothing waits, nothing raises."""

    view: View

    def adjust(self, booking_id: str, amount: Amount) -> None:
        """Set what a booking of ours occupies."""
        ...

    def serve(self, booking_id: str, worker: str, amount: Amount) -> None:
        """Move a booking of ours to the endpoint that served."""
        ...

    def end(self, booking_id: str, cause: Cause) -> None:
        """End a booking of ours."""
        ...

    def lose(self, booking_id: str, cause: Cause, *, seconds: float | None = None) -> None:
        """Let a booking of ours drain, for ``seconds`` (default: the pool's rule) at most."""
        ...

    def alive(self, booking_ids: Iterable[str]) -> None:
        """Proof of life."""
        ...

    def end_foreign(self, booking_id: str, cause: Cause) -> None:
        """A proven end of anybody's booking."""
        ...

    def owns(self, booking_id: str) -> bool:
        """Whether this replica still speaks for that booking."""
        ...


@dataclass(slots=True)
class Counts:
    """What happened to requests after their pick."""

    prefill_ended_by_event: int = 0
    prefill_ended_by_body: int = 0
    prefill_ended_by_time: int = 0
    moved_to_served: int = 0
    served_unknown_worker: int = 0
    ended_by_stream: int = 0
    ended_by_log: int = 0
    ended_by_log_for_others: int = 0
    broken_streams: int = 0
    silent: int = 0
    adopted_sightings: int = 0
    sightings_dropped: int = 0
    log_entries_unknown: int = 0
    """Entries that name bookings not known here."""
    log_entries_dropped: int = 0
    """Of those, such as came too fast to be passed on."""
    responses: dict[str, int] = field(default_factory=lambda: {f"{n}xx": 0 for n in range(1, 6)})


class Underway:
    """The requests under way. Every call is cheap; `tick` is called a few times a second."""

    def __init__(
        self,
        desk: Desk,
        *,
        known: Callable[[str], bool],
        clock: Callable[[], float],
        reports: Callable[[str], bool] = lambda _: True,
        blind_seconds: float = 10.0,
    ) -> None:
        """``reports`` says whether a worker reports its load: where not, no evidence ever ends what drains there, so
        that it counts for ``blind_seconds`` only.
        """
        self.counts = Counts()
        self._desk = desk
        self._known = known
        self._reports = reports
        self._blind_seconds = blind_seconds
        self._clock = clock
        self._runs: dict[str, Run] = {}
        self._prefills = Prefills()
        self._loose: OrderedDict[str, None] = OrderedDict()
        """Runs whose stream we let go of, oldest first."""
        self._over: dict[str, None] = {}
        """Runs whose stream is over, for whatever reason."""
        self._taking: dict[str, float] = {}
        """Bookings that we ask the plane for, because the log named them and nobody cares for them -> when it did."""
        self._deaf_since: float | None = None
        self._deaf_until = float("-inf")
        self._swept_at = float("-inf")
        self._unheard, self._unheard_at = UNHEARD_BURST, clock()
        self._seen: OrderedDict[str, None] = OrderedDict()
        self.log_heard: float | None = None
        """When an access log entry last named a booking that is ours or known."""

    def __len__(self) -> int:
        return len(self._runs)

    # the pick

    def begin(self, run: Run) -> None:
        """A request was placed."""
        self._runs[run.booking_id] = run
        self._prefills.begin(run)

    # prefill

    def stored(self, worker: str, hashes: Sequence[int]) -> None:
        """The worker announced blocks: the prompts whose last full block is among them are computed."""
        for run in self._prefills.announced(worker, hashes):
            self.counts.prefill_ended_by_event += 1
            self._prefill_over(run, self._clock() - run.begun)

    def body_seen(self, booking_id: str) -> None:
        """The first piece of the response's body was seen."""
        run = self._runs.get(booking_id)
        if run is not None and run.prefilling:
            self.counts.prefill_ended_by_body += 1
            self._prefill_over(run, self._clock() - run.begun)

    def _prefill_over(self, run: Run, seconds: float | None = None) -> None:
        self._prefills.end(run, seconds=seconds)
        self._desk.adjust(run.booking_id, Amount(0, run.blocks))

    # the response

    def responded(self, booking_id: str, response: Responded) -> None:
        """Response headers were seen: who served, with what status. Prefill never ends here: engines answer at once."""
        family = f"{response.status // 100}xx"
        if family in self.counts.responses:
            self.counts.responses[family] += 1
        run = self._runs.get(booking_id)
        if run is None or not response.served:
            return
        self._served(run, response.served)

    def _served(self, run: Run, endpoint: str) -> None:
        if endpoint == worker_address(run.worker):
            return
        worker = self._worker_at(endpoint, run.worker)
        if not worker:
            self.counts.served_unknown_worker += 1
            return
        self.counts.moved_to_served += 1
        was_prefilling = run.prefilling
        self._prefills.stop(run)
        run.worker = worker
        run.uncached_tokens = run.prompt_tokens if was_prefilling else 0
        self._desk.serve(run.booking_id, worker, Amount(run.uncached_tokens, run.blocks))
        if was_prefilling:
            run.prefilling, run.begun, run.alone = True, self._clock(), False
            self.begin(run)

    def _worker_at(self, endpoint: str, booked: str) -> str:
        """The worker that serves there: of the rank that the request's headers name, else of the first; empty: none."""
        ranked = worker_name(endpoint, worker_rank(booked))
        return ranked if self._known(ranked) else endpoint if self._known(endpoint) else ""

    # the end

    def over(self, booking_id: str, end: End) -> None:
        """The request's stream is over."""
        run = self._runs.get(booking_id)
        if run is None:
            return
        if end in (End.PROVEN, End.HALF_CLOSED):
            self.counts.ended_by_stream += 1
            self._forget(run)
            self._desk.end(booking_id, Cause.ENDED)
            return
        run.stream_open = False
        self._over[booking_id] = None
        if end in (End.CLOSED_BY_US, End.DRAINED):
            run.released_at = self._clock()
            self._loose[booking_id] = None
        else:
            self.counts.broken_streams += 1
            self._loose.pop(booking_id, None)
            run.released_at = self._clock()
            self._lose(run, Cause.BROKEN)

    def _lose(self, run: Run, cause: Cause) -> None:
        seconds = None if self._reports(run.worker) else self._blind_seconds
        self._desk.lose(run.booking_id, cause, seconds=seconds)

    def logged(self, entries: Sequence[LogEntry]) -> None:
        """Access log entries: ends are proof for any replica's booking, periodic ones proof of life."""
        now = self._clock()
        for entry in entries:
            run = self._runs.get(entry.booking_id)
            if run is not None:
                self.log_heard = now
                run.named = now
                self._own_entry(run, entry)
                continue
            booking = self._desk.view.booking(entry.booking_id)
            if booking is not None:
                self.log_heard = now
            self._other_entry(booking, entry)

    def _own_entry(self, run: Run, entry: LogEntry) -> None:
        if entry.served:
            self._served(run, entry.served)
        if entry.end:
            self.counts.ended_by_log += 1
            self._forget(run)
            self._desk.end(run.booking_id, Cause.LOGGED)
            return
        booking = self._desk.view.booking(run.booking_id)
        if booking is None or booking.state is State.DRAINING:
            self._desk.alive([run.booking_id])
            if not run.stream_open:
                self._loose[run.booking_id] = None

    def _other_entry(self, booking: Booking | None, entry: LogEntry) -> None:
        if entry.end:
            if booking is not None:
                self.counts.ended_by_log_for_others += 1
            elif not self._may_pass_on(entry.booking_id):
                return
            self._desk.end_foreign(entry.booking_id, Cause.LOGGED)
        elif booking is None or booking.state is State.DRAINING:
            if booking is None and not self._may_pass_on(entry.booking_id):
                return
            self.counts.adopted_sightings += booking is not None
            self._desk.alive([entry.booking_id])
            if self._desk.owns(entry.booking_id):
                self._taking[entry.booking_id] = self._clock()
        elif entry.booking_id in self._taking:
            self._taking[entry.booking_id] = self._clock()
        else:
            moved = (
                entry.served and entry.served != worker_address(booking.worker) and self._known(entry.served)
            )
            self._seen[f"{entry.booking_id}{AT}{entry.served}" if moved else entry.booking_id] = None
            if len(self._seen) > SEEN_CAP:
                self._seen.popitem(last=False)
                self.counts.sightings_dropped += 1

    def _may_pass_on(self, booking_id: str) -> bool:
        """Whether what a log says of a booking not known here is passed on: it may overtake the booking's own news.

        A log is no proof that such a booking ever was: what does not look like an id of ours is ignored, and a flood
        of made-up ones must not push real news aside.
        """
        self.counts.log_entries_unknown += 1
        if not MINTED.fullmatch(booking_id):
            return False
        now = self._clock()
        self._unheard = min(self._unheard + (now - self._unheard_at) * UNHEARD_RATE, UNHEARD_BURST)
        self._unheard_at = now
        if self._unheard < 1:
            self.counts.log_entries_dropped += 1
            return False
        self._unheard -= 1
        return True

    def sightings(self) -> tuple[str, ...]:
        """Bookings of other replicas seen alive since the last call, to be passed on to their owners.

        ``id``, or ``id=host:port`` where another worker than the booked one serves it.
        """
        seen = tuple(self._seen)
        self._seen.clear()
        return seen

    def sighted(self, sightings: Iterable[str]) -> None:
        """Another replica's log named bookings of ours, as `sightings` words them."""
        now = self._clock()
        for sighting in sightings:
            booking_id, _, served = sighting.partition(AT)
            run = self._runs.get(booking_id)
            if run is not None:
                run.named = now
                if served:
                    self._served(run, served)

    def worker_left(self, worker: str) -> None:
        """The worker is no longer in the pool: what we placed there is over."""
        for run in [run for run in self._runs.values() if run.worker == worker]:
            self._forget(run)
            self._desk.end(run.booking_id, Cause.LEFT)
        self._prefills.left(worker)

    def _follow_taken(self) -> None:
        """Runs of other replicas that became ours: from here on we say when their prefill and they themselves end."""
        for booking_id, named in tuple(self._taking.items()):
            booking = self._desk.view.booking(booking_id)
            if booking is not None and booking.state is State.ACTIVE and self._desk.owns(booking_id):
                uncached = booking.amount.prefill_tokens
                run = Run(
                    booking_id, booking.worker, uncached, uncached, booking.amount.blocks, named, None,
                    alone=False, stream_open=False, named=named, released_at=named,
                )  # fmt: skip
                self._over[booking_id] = self._loose[booking_id] = None
                self.begin(run)
            elif self._desk.owns(booking_id):
                continue  # the plane has not answered yet
            del self._taking[booking_id]

    def _forget(self, run: Run) -> None:
        self._prefills.stop(run)
        self._runs.pop(run.booking_id, None)
        self._loose.pop(run.booking_id, None)
        self._over.pop(run.booking_id, None)

    # time

    def tick(self, now: float, *, log_expected: bool, deaf: bool = False) -> None:
        """Let prefills end by their measured time, and stop believing requests that the log no longer names.

        ``deaf``: the plane is away, and with it what the logs of other replicas name.
        """
        for run in self._prefills.due(now):
            self.counts.prefill_ended_by_time += 1
            self._prefill_over(run)
        self._lose_silent(now, log_expected=log_expected, deaf=deaf)
        if now - self._swept_at >= SWEEP_SECONDS:
            self._swept_at = now
            self._follow_taken()
            for booking_id in [one for one in self._over if not self._desk.owns(one)]:
                self._forget(self._runs[booking_id])

    def _lose_silent(self, now: float, *, log_expected: bool, deaf: bool) -> None:
        self._deaf_since = (now if self._deaf_since is None else self._deaf_since) if deaf else None
        if self._deaf_since is not None and now - self._deaf_since < DEAF_MOST:
            self._deaf_until = now
        patience = LOG_INTERVAL * SILENT_INTERVALS if log_expected else 0.0
        for booking_id in list(self._loose):
            run = self._runs[booking_id]
            if max(run.released_at, run.named, self._deaf_until) + patience > now:
                continue
            self.counts.silent += 1
            del self._loose[booking_id]
            self._lose(run, Cause.SILENT)
