"""The checks that scenarios name. Short names; each is a value of `chaos.checkers`."""

from __future__ import annotations

from chaos.checkers import Check
from chaos.checkers.agreement import ViewsAgree
from chaos.checkers.away import NeverEmpty, PeersDiffered, PeersKept, SeenByAll
from chaos.checkers.bookings import (
    NoLiveBookingGone,
    NoneOutlivesItsWork,
    NothingLeft,
    OneActiveEach,
    SumsExact,
)
from chaos.checkers.calls import Answered, CallsMade, Counted, FaultSeen, InFlight, PicksWithin, Whole
from chaos.checkers.enough import AsManyBooked
from chaos.checkers.error import Balanced, BookingError, NoPickOfTheGone
from chaos.checkers.events import IndexesTrue
from chaos.checkers.plane import LateChangesNothing, LeasesKept, NothingForgotten, PlaneExact
from chaos.checkers.retries import AttemptsKnown
from chaos.checkers.shown import (
    BookingShown,
    EventsHealthy,
    PoisonRefused,
    PrefixesFound,
    Retried,
    SchemaFollows,
    Together,
)
from chaos.checkers.soak import Flat

answered, whole, picks_within = Answered, Whole, PicksWithin
calls_made, fault_seen, in_flight, counted = CallsMade, FaultSeen, InFlight, Counted
sums_exact, no_live_gone, none_outlives = SumsExact, NoLiveBookingGone, NoneOutlivesItsWork
one_active_each, nothing_left, views_agree = OneActiveEach, NothingLeft, ViewsAgree
flat, indexes_true = Flat, IndexesTrue
never_empty, seen_by_all = NeverEmpty, SeenByAll
plane_exact, leases_kept, nothing_forgotten = PlaneExact, LeasesKept, NothingForgotten
late_changes_nothing, attempts_known, as_many_booked = LateChangesNothing, AttemptsKnown, AsManyBooked
peers_kept, peers_differed = PeersKept, PeersDiffered
booking_shown, retried, under_way_at_once = BookingShown, Retried, Together
events_healthy, prefixes_found, schema_follows, poison_refused = (
    EventsHealthy,
    PrefixesFound,
    SchemaFollows,
    PoisonRefused,
)
booking_error, balanced, no_pick_of_the_gone = BookingError, Balanced, NoPickOfTheGone

BOOKINGS: tuple[Check, ...] = (
    sums_exact(),
    no_live_gone(),
    none_outlives(),
    one_active_each(),
    nothing_left(),
    views_agree(),
    attempts_known(),
    plane_exact(),
)
"""What holds of bookings in every scenario."""
UNTOLD_SECONDS = 8.0
"""Where an end can only be told by workers' reports, and by replicas that do not know yet how these usually vary.

Up to 4 s pass before the booking drains: a lease falls at the next heartbeat (3 + 1 s), or the log has to be heard
again and to miss the request three times (1 + 3 s). Then one report too few may be chance: against a spread of reports
that is not known (0.5; measured are 0.1 to 0.45, in bursts 0.8) it takes seven of them, one each 0.5 s, where four do
against a known one. With the way to the first report that makes 8 s. To trust fewer would be faster, and end bookings
of requests that run."""
UNTOLD: tuple[Check, ...] = tuple(
    none_outlives(UNTOLD_SECONDS) if each == none_outlives() else each for each in BOOKINGS
)
"""`BOOKINGS`, where a fault takes the word of the gateway away, and with it what reports usually say, or every replica.

Not where only the gateway dies: what it carried is cut, and reports show that at once. On a cluster also where a
replica ends in good order: see `chaos.run.Run.ending_in_good_order`."""
ALWAYS: tuple[Check, ...] = (answered(), whole(), *BOOKINGS)
"""What holds in every scenario in which nothing that a request needs is taken away: nothing fails, nothing is cut."""


def always(*, lost: int = 0, refused: int = 0, by: tuple[str, ...] = ()) -> tuple[Check, ...]:
    """`ALWAYS`, where a fault may take some picks in hand with it, or cut what it carries itself."""
    return (answered(lost=lost, refused=refused), whole(by=by), *BOOKINGS)
