"""Paused, not punished: lease and drain time run only while the plane serves."""

from __future__ import annotations

from stateplane.booking import Cause, State
from stateplane.testing.world import RULES, Case, World, absent, booking, standing


async def _survives(world: World, gap: float) -> None:
    """Owners and draining bookings outlive a gap in the plane's service, and nothing else does."""
    a, b = await world.join("a"), await world.join("b")
    await a.book(booking("1"))
    await a.book(booking("2"))
    await a.drain("2", term=1, op=1, cause=Cause.BROKEN, seconds=10)
    await world.live(2, a, b)
    await world.harness.move_clock(gap)
    beat = await b.beat({})
    assert beat.rebased
    assert (beat.lapsed, beat.reaped) == ((), 0)
    await world.harness.move_clock(RULES.heartbeat)
    await b.beat({})
    await a.beat({})
    assert (await standing(b, "1")).state is State.ACTIVE
    await standing(b, "2")
    await world.live(9, a, b)
    await absent(b, "2")


async def nobody_is_reaped_after_the_plane_was_frozen(world: World) -> None:
    """Ten seconds without a heartbeat."""
    await _survives(world, 10)


async def nobody_is_reaped_when_the_clock_steps_forward(world: World) -> None:
    """Five minutes."""
    await _survives(world, 300)


async def nobody_is_held_up_when_the_clock_steps_back(world: World) -> None:
    """Five minutes; deadlines go with it."""
    await _survives(world, -300)


async def operations_between_heartbeats_do_not_see_a_stepped_clock(world: World) -> None:
    """A deadline set right after the step is as long as any."""
    a = await world.join("a")
    await a.book(booking("1"))
    await world.harness.move_clock(300)
    await a.drain("1", term=1, op=1, cause=Cause.BROKEN, seconds=10)
    await world.live(7, a)
    await standing(a, "1")
    await world.live(6, a)
    await absent(a, "1")


async def the_silent_lapse_all_the_same_after_a_pause(world: World) -> None:
    """One lease later."""
    a, b = await world.join("a"), await world.join("b")
    await a.book(booking("1"))
    await world.harness.move_clock(60)
    await b.beat({})
    await world.live(RULES.lease + RULES.heartbeat, b)
    assert (await standing(b, "1")).state is State.DRAINING


async def the_silent_lapse_even_if_heartbeats_are_rare(world: World) -> None:
    """A plane that is heard only each few seconds still moves on."""
    a, b = await world.join("a"), await world.join("b")
    await a.book(booking("1"))
    for _ in range(12):
        await world.harness.move_clock(2.5)
        await b.beat({})
    assert (await standing(b, "1")).state is State.DRAINING


async def members_outlive_a_restart_and_lapse_after_it(world: World) -> None:
    """Those that do not come back are not waited for without end."""
    a, b = await world.join("a"), await world.join("b")
    await world.harness.restart(lose=False)
    beat = await b.start({})
    assert {member.owner.name: member.rebooked for member in beat.members} == {"a": False, "b": False}
    await world.live(RULES.lease + 2 * RULES.heartbeat, b)
    assert [member.owner.name for member in (await b.snapshot()).members] == ["b"]
    await a.close()


CASES: tuple[Case, ...] = (
    nobody_is_reaped_after_the_plane_was_frozen,
    nobody_is_reaped_when_the_clock_steps_forward,
    nobody_is_held_up_when_the_clock_steps_back,
    operations_between_heartbeats_do_not_see_a_stepped_clock,
    the_silent_lapse_all_the_same_after_a_pause,
    the_silent_lapse_even_if_heartbeats_are_rare,
    members_outlive_a_restart_and_lapse_after_it,
)
