"""The booking goes with the request to the endpoint that served it, whoever says so."""

from __future__ import annotations

import pytest

from picker.core.worker import worker_address
from picker.prefills import Run
from picker.serving.seam import End, LogEntry, Picked, Responded
from picker.underway import Underway
from stateplane.booking import Amount, Booking, Owner, Rules, State
from stateplane.desk import Desk
from stateplane.memory import MemoryPlane, MemoryStore
from tests.unit.picking.world import A, B, C, World, completion


async def placed(world: World) -> tuple[str, str, str]:
    """A booking, its worker, and another worker."""
    answer = await world.picking.decide(completion(list(range(17))))
    assert isinstance(answer, Picked)
    first = answer.destination
    return answer.booking_id, first, next(name for name in (A, B, C) if name != first)


def standing(world: World) -> dict[str, tuple[str, State, bool]]:
    bookings: dict[str, Booking] = dict(world.desk.view.bookings())
    return {id_: (one.worker, one.state, one.superseded) for id_, one in bookings.items()}


async def test_a_log_entry_of_a_running_request_moves_its_booking(world: World) -> None:
    booking, first, second = await placed(world)
    world.picking.over(booking, End.CLOSED_BY_US)
    for _ in range(3):
        world.picking.logged([LogEntry(booking, end=False, served=second)])
    assert standing(world) == {
        booking: (second, State.ACTIVE, False),
        f"{booking}~1": (first, State.DRAINING, True),
    }
    assert world.underway.counts.moved_to_served == 1


async def test_the_last_log_entry_ends_it_and_leaves_what_may_still_run_on_the_first_worker(
    world: World,
) -> None:
    booking, first, second = await placed(world)
    world.picking.over(booking, End.CLOSED_BY_US)
    world.picking.logged([LogEntry(booking, end=True, served=second, status=200, attempts=2)])
    assert standing(world) == {f"{booking}~1": (first, State.DRAINING, True)}
    assert len(world.underway) == 0


async def test_a_log_entry_that_names_the_booked_worker_or_a_stranger_moves_nothing(world: World) -> None:
    booking, first, _ = await placed(world)
    for served in (first, "192.0.2.1:1", ""):
        world.picking.logged([LogEntry(booking, end=False, served=served)])
    assert standing(world) == {booking: (first, State.ACTIVE, False)}
    assert world.underway.counts.served_unknown_worker == 1


async def test_another_replica_passes_on_which_worker_its_log_names(world: World) -> None:
    booking, first, second = await placed(world)
    world.picking.over(booking, End.CLOSED_BY_US)
    reader = Underway(
        world.desk, known=lambda _: True, clock=world.clock
    )  # sees the same bookings, placed none
    reader.logged([LogEntry(booking, end=False, served=second)])
    (word,) = reader.sightings()
    world.underway.sighted([word, "unknown=10.0.0.9:1", "="])
    assert standing(world)[booking] == (second, State.ACTIVE, False)
    assert standing(world)[f"{booking}~1"] == (first, State.DRAINING, True)


async def test_a_sighting_of_the_booked_worker_or_of_a_stranger_is_the_id_alone(world: World) -> None:
    booking, first, _ = await placed(world)
    reader = Underway(world.desk, known=lambda name: name in (A, B, C), clock=world.clock)
    for served in (first, "192.0.2.1:1", ""):
        reader.logged([LogEntry(booking, end=False, served=served)])
        assert reader.sightings() == (booking,)


async def test_a_sighting_is_no_proof_that_a_stranger_serves(world: World) -> None:
    booking, first, _ = await placed(world)
    world.underway.sighted([f"{booking}=192.0.2.1:1"])
    assert standing(world) == {booking: (first, State.ACTIVE, False)}
    assert world.underway.counts.served_unknown_worker == 1


@pytest.mark.parametrize(
    ("booked", "served", "pool", "where"),
    [
        (f"{A}@2", B, (f"{B}@2", B), f"{B}@2"),
        (f"{A}@2", B, (B,), B),
        (A, B, (f"{B}@2", B), B),
        (f"{A}@2", A, (A,), f"{A}@2"),
    ],
)
def test_a_request_keeps_its_rank_where_the_other_endpoint_has_it(
    booked: str, served: str, pool: tuple[str, ...], where: str
) -> None:
    owner = Owner("r", "1")
    desk = Desk(MemoryPlane(MemoryStore(Rules()), owner=owner), owner, mode="isolated", clock=lambda: 0.0)
    underway = Underway(desk, known=lambda name: name in pool, clock=lambda: 0.0)
    desk.book("one", key="", worker=booked, amount=Amount(9, 1), now=0.0)
    underway.begin(Run("one", booked, 9, 9, 1, 0.0, None, alone=True))
    underway.responded("one", Responded(200, served=served))
    booking = desk.view.booking("one")
    assert booking is not None
    assert booking.worker == where
    assert worker_address(booking.worker) == served
