"""What happens to a request after its pick: prefill ends, moves, ends, silence, the access log."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from picker.core.blocks import sequence_hashes
from picker.prefills import Run
from picker.serving.seam import End, LogEntry, Picked, Responded
from picker.underway import Underway
from stateplane.booking import Amount, Booked, Booking, Cause, Owner, Rules, Snapshot, State, Version
from stateplane.desk import Desk
from stateplane.memory import MemoryPlane, MemoryStore
from stateplane.view import View
from tests.unit.picking.world import A, B, C, Clock, World, completion

PROMPT = list(range(1, 18))


async def placed(world: World, prompt: list[int] = PROMPT) -> str:
    answer = await world.picking.decide(completion(prompt))
    assert isinstance(answer, Picked)
    return answer.booking_id


def booking(world: World, booking_id: str) -> Booking:
    found = world.desk.view.booking(booking_id)
    assert found is not None
    return found


def gone(world: World, booking_id: str) -> bool:
    return world.desk.view.booking(booking_id) is None


async def test_prefill_ends_when_the_worker_announces_the_last_full_block(world: World) -> None:
    booking_id = await placed(world)
    worker = booking(world, booking_id).worker
    hashes = sequence_hashes(PROMPT, 4)
    world.underway.stored(worker, hashes[:-1])
    assert booking(world, booking_id).amount.prefill_tokens == 17
    other = next(name for name in (A, B, C) if name != worker)
    world.underway.stored(other, hashes)
    assert booking(world, booking_id).amount.prefill_tokens == 17
    world.underway.stored(worker, hashes[-1:])
    assert booking(world, booking_id).amount.prefill_tokens == 0
    assert booking(world, booking_id).amount.blocks == 5


async def test_prefill_ends_at_the_first_body_piece_but_never_at_headers(world: World) -> None:
    booking_id = await placed(world)
    world.picking.responded(booking_id, Responded(200, event_stream=True))
    assert booking(world, booking_id).amount.prefill_tokens == 17
    world.picking.body_seen(booking_id)
    assert booking(world, booking_id).amount.prefill_tokens == 0


async def test_prefill_ends_by_time_where_nothing_else_tells(world: World) -> None:
    booking_id = await placed(world)
    world.underway.tick(world.clock.now, log_expected=False)
    assert booking(world, booking_id).amount.prefill_tokens == 17
    world.clock.now += 1
    world.underway.tick(world.clock.now, log_expected=False)
    assert booking(world, booking_id).amount.prefill_tokens == 0
    assert world.underway.counts.prefill_ended_by_time == 1


async def test_the_booking_follows_the_endpoint_that_served(world: World) -> None:
    booking_id = await placed(world)
    first = booking(world, booking_id).worker
    second = next(name for name in (A, B, C) if name != first)
    world.picking.responded(booking_id, Responded(200, served=second, attempts=2))
    assert booking(world, booking_id).worker == second
    left_behind = [other for other in world.desk.view.bookings().values() if other.id != booking_id]
    assert [(other.worker, other.state, other.superseded) for other in left_behind] == [
        (first, State.DRAINING, True)
    ]
    world.picking.responded(booking_id, Responded(200, served=second, attempts=3))
    assert len(world.desk.view.bookings()) == 2


async def test_an_endpoint_outside_the_pool_moves_nothing(world: World) -> None:
    booking_id = await placed(world)
    before = booking(world, booking_id).worker
    world.picking.responded(booking_id, Responded(200, served="192.0.2.1:1"))
    assert booking(world, booking_id).worker == before
    assert world.underway.counts.served_unknown_worker == 1


async def test_a_proven_end_and_a_half_close_end_the_booking(world: World) -> None:
    for end in (End.PROVEN, End.HALF_CLOSED):
        booking_id = await placed(world)
        world.picking.over(booking_id, end)
        assert gone(world, booking_id)
    assert len(world.underway) == 0


async def test_a_broken_stream_drains_because_the_worker_may_still_work(world: World) -> None:
    booking_id = await placed(world)
    world.picking.over(booking_id, End.CANCELLED)
    assert booking(world, booking_id).state is State.DRAINING
    world.picking.logged([LogEntry(booking_id, end=True, status=200)])
    assert gone(world, booking_id)
    assert len(world.underway) == 0


async def test_after_we_let_go_the_log_tells_the_end(world: World) -> None:
    booking_id = await placed(world)
    world.picking.over(booking_id, End.CLOSED_BY_US)
    assert booking(world, booking_id).state is State.ACTIVE
    world.picking.logged([LogEntry(booking_id, end=True, status=200)])
    assert gone(world, booking_id)
    assert len(world.underway) == 0


async def test_a_request_that_the_log_names_is_believed_and_a_silent_one_drains(world: World) -> None:
    booking_id = await placed(world)
    world.picking.over(booking_id, End.CLOSED_BY_US)
    for _ in range(20):
        world.clock.now += 1
        world.picking.logged([LogEntry(booking_id, end=False)])
        world.underway.tick(world.clock.now, log_expected=True)
    assert booking(world, booking_id).state is State.ACTIVE
    world.clock.now += 3.5
    world.underway.tick(world.clock.now, log_expected=True)
    assert booking(world, booking_id).state is State.DRAINING
    world.picking.logged([LogEntry(booking_id, end=False)])
    assert booking(world, booking_id).state is State.ACTIVE


async def test_a_request_believed_again_after_a_silence_is_lost_at_the_next_one(world: World) -> None:
    booking_id = await placed(world)
    world.picking.over(booking_id, End.CLOSED_BY_US)
    for _ in range(3):
        world.clock.now += 3.5
        world.underway.tick(world.clock.now, log_expected=True)
        assert booking(world, booking_id).state is State.DRAINING
        world.picking.logged([LogEntry(booking_id, end=False)])
        assert booking(world, booking_id).state is State.ACTIVE
        world.clock.now += 2.5
        world.underway.tick(world.clock.now, log_expected=True)
        assert booking(world, booking_id).state is State.ACTIVE


async def test_silence_is_no_sign_while_the_plane_is_away_but_not_forever(world: World) -> None:
    booking_id = await placed(world)
    world.picking.over(booking_id, End.CLOSED_BY_US)

    def wait(seconds: float, *, deaf: bool) -> State:
        for _ in range(round(seconds * 2)):
            world.clock.now += 0.5
            world.underway.tick(world.clock.now, log_expected=True, deaf=deaf)
        return booking(world, booking_id).state

    assert wait(20, deaf=True) is State.ACTIVE
    assert wait(2, deaf=False) is State.ACTIVE, "the others pass it on with their next heartbeats"
    world.underway.sighted([booking_id])
    assert wait(2, deaf=False) is State.ACTIVE
    assert wait(29, deaf=True) is State.ACTIVE
    assert wait(6, deaf=True) is State.DRAINING


async def test_without_any_log_a_request_let_go_drains_at_once(world: World) -> None:
    booking_id = await placed(world)
    world.picking.over(booking_id, End.CLOSED_BY_US)
    world.underway.tick(world.clock.now, log_expected=False)
    assert booking(world, booking_id).state is State.DRAINING


async def test_a_run_whose_booking_is_over_is_forgotten(world: World) -> None:
    booking_id = await placed(world)
    world.picking.over(booking_id, End.CANCELLED)
    world.desk.end_foreign(booking_id, Cause.LOGGED)
    world.clock.now += 2
    world.underway.tick(world.clock.now, log_expected=True)
    assert len(world.underway) == 0


async def test_a_worker_that_left_takes_its_requests_along(world: World) -> None:
    booking_id = await placed(world)
    world.underway.worker_left(booking(world, booking_id).worker)
    assert gone(world, booking_id)
    world.picking.over(booking_id, End.PROVEN)
    assert len(world.underway) == 0


async def test_entries_that_name_nothing_we_know_change_nothing(world: World) -> None:
    booking_id = await placed(world)
    world.picking.logged([LogEntry("x" * 16, end=False), LogEntry("\n", end=True), LogEntry("", end=False)])
    assert booking(world, booking_id).state is State.ACTIVE
    assert world.underway.log_heard is None


async def test_what_drains_on_a_worker_that_does_not_report_counts_for_the_blind_time_only() -> None:
    lost: dict[str, float | None] = {}

    class Hand(Desk):
        def lose(self, booking_id: str, cause: Cause, *, seconds: float | None = None) -> None:
            lost[booking_id] = seconds

    def reporting(worker: str) -> bool:
        return seconds is None

    for seconds in (None, 4.0):
        owner = Owner("r", "1")
        desk = Hand(MemoryPlane(MemoryStore(Rules()), owner=owner), owner, mode="isolated")
        underway = Underway(
            desk,
            known=lambda _: True,
            clock=lambda: 0.0,
            reports=reporting,
            blind_seconds=4.0,
        )
        for booking_id, end in (("broken", End.CANCELLED), ("silent", End.CLOSED_BY_US)):
            underway.begin(Run(booking_id, A, 10, 0, 1, 0.0, None, alone=False))
            underway.over(booking_id, end)
        underway.tick(10.0, log_expected=False)
        assert lost == {"broken": seconds, "silent": seconds}


async def test_ends_of_bookings_that_nobody_knows_are_passed_on_but_never_in_a_flood(world: World) -> None:
    told = []
    world.desk.end_foreign = lambda booking_id, cause: told.append(booking_id)  # type: ignore[method-assign]
    world.picking.logged([LogEntry("not-one-of-ours", end=True), LogEntry("A" * 16, end=True)])
    assert told == ["A" * 16]
    world.picking.logged([LogEntry(f"{number:016d}", end=True) for number in range(5000)])
    assert len(told) < 600
    assert world.underway.counts.log_entries_dropped > 4000
    world.clock.now += 10
    world.picking.logged([LogEntry("B" * 16, end=True)])
    assert told[-1] == "B" * 16


ME, OTHER = Owner("me", "1"), Owner("other", "1")


class Taker:
    """A desk that takes over what it is asked to; what the plane says is the test's to say."""

    def __init__(self, *standing: Booking) -> None:
        self.view = View(owner=ME)
        self.view.reset(Snapshot(Version(1, 1), standing, ()), 0.0)
        self.asked: list[str] = []
        self.owned: set[str] = set()
        self.said: list[tuple[object, ...]] = []

    def says(self, number: int, booking: Booking) -> None:
        assert self.view.apply(Booked(Version(1, number), booking), 0.0)

    def adjust(self, booking_id: str, amount: Amount) -> None:
        self.said.append(("adjust", booking_id, amount))

    def serve(self, booking_id: str, worker: str, amount: Amount) -> None:
        self.said.append(("serve", booking_id, worker))

    def end(self, booking_id: str, cause: Cause) -> None:
        self.said.append(("end", booking_id, cause))

    def lose(self, booking_id: str, cause: Cause, *, seconds: float | None = None) -> None:
        self.said.append(("lose", booking_id, cause))

    def alive(self, booking_ids: Iterable[str]) -> None:
        self.asked += booking_ids
        self.owned |= set(booking_ids)

    def end_foreign(self, booking_id: str, cause: Cause) -> None:
        self.said.append(("end foreign", booking_id, cause))

    def owns(self, booking_id: str) -> bool:
        return booking_id in self.owned


ORPHAN = Booking("orphan", "", A, OTHER, Amount(10_000, 7), term=2, state=State.DRAINING, drain_left=30.0)
TAKEN = replace(ORPHAN, owner=ME, term=3, state=State.ACTIVE, drain_left=None)


def taking(*standing: Booking) -> tuple[Taker, Underway, Clock]:
    desk, clock = Taker(*standing), Clock()
    return desk, Underway(desk, known=lambda _: True, clock=clock), clock


def test_what_was_taken_over_from_a_dead_replica_ends_its_prefill_in_time_and_is_lost_when_the_log_falls_silent() -> (
    None
):
    desk, underway, clock = taking(ORPHAN)
    underway.logged([LogEntry("orphan", end=False)])
    assert desk.asked == ["orphan"]
    desk.says(2, TAKEN)
    for _ in range(5):
        clock.now += 1.0
        underway.logged([LogEntry("orphan", end=False)])
        underway.tick(clock.now, log_expected=True)
    assert desk.said == [("adjust", "orphan", Amount(0, 7))]
    clock.now += 3.5
    underway.tick(clock.now, log_expected=True)
    assert desk.said[1:] == [("lose", "orphan", Cause.SILENT)]


def test_what_was_taken_over_and_never_named_again_is_lost_too() -> None:
    desk, underway, clock = taking(ORPHAN)
    underway.logged([LogEntry("orphan", end=False)])
    desk.says(2, TAKEN)
    clock.now += 3.5
    underway.tick(clock.now, log_expected=True)
    clock.now += 0.1
    underway.tick(clock.now, log_expected=True)
    assert ("lose", "orphan", Cause.SILENT) in desk.said


def test_what_somebody_else_took_over_first_is_not_ours_to_follow() -> None:
    desk, underway, clock = taking(ORPHAN)
    underway.logged([LogEntry("orphan", end=False)])
    desk.owned.clear()
    desk.says(2, replace(TAKEN, owner=Owner("third", "1")))
    clock.now += 5
    underway.tick(clock.now, log_expected=True)
    assert desk.said == []
    assert len(underway) == 0


def test_a_booking_that_went_without_proof_is_offered_to_the_desk_when_the_log_names_it() -> None:
    desk, underway, _ = taking()
    underway.logged([LogEntry("made-up", end=False), LogEntry("W" * 16, end=False)])
    assert desk.asked == ["W" * 16]
