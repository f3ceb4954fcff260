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
UNTOLD_SECONDS = 9.0
"""For ends that nobody could tell, and where no replica knows yet how a worker's reports usually vary: three seconds
more, until a booking counts as silent or a deficit is beyond doubt."""
UNTOLD: tuple[Check, ...] = tuple(
    none_outlives(UNTOLD_SECONDS) if each == none_outlives() else each for each in BOOKINGS
)
"""`BOOKINGS`, where a fault takes the gateway's word or every replica away."""
ALWAYS: tuple[Check, ...] = (answered(), whole(), *BOOKINGS)
"""What holds in every scenario in which nothing that a request needs is taken away: nothing fails, nothing is cut."""


def always(*, lost: int = 0, refused: int = 0, by: tuple[str, ...] = ()) -> tuple[Check, ...]:
    """`ALWAYS`, where a fault may take some picks in hand with it, or cut what it carries itself."""
    return (answered(lost=lost, refused=refused), whole(by=by), *BOOKINGS)
