"""What members tell one another: settings that differ, a log that reaches somebody, bookings seen alive."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from picker import settings
from picker.membership import LOG_GRACE, LOG_MEMORY, RULES_GRACE, Membership, settings_digest
from stateplane.booking import Member, Owner

ME, OTHER = Owner("a", "1"), Owner("b", "1")


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Desk:
    owner: Owner = ME
    members: list[Member] = field(default_factory=list)
    info: dict[str, str] = field(default_factory=dict)

    def publish(self, **info: str) -> None:
        self.info.update(info)


@dataclass
class Underway:
    log_heard: float | None = None
    batch: tuple[str, ...] = ()
    named: list[str] = field(default_factory=list)

    def sightings(self) -> tuple[str, ...]:
        batch, self.batch = self.batch, ()
        return batch

    def sighted(self, ids: list[str]) -> None:
        self.named.extend(ids)


class World:
    def __init__(self, **given: object) -> None:
        self.clock, self.desk, self.underway = Clock(), Desk(), Underway()
        self.rules = "one"
        self.membership = Membership(
            settings.load({}, **given),
            self.desk,
            self.underway,  # type: ignore[arg-type]
            clock=self.clock,
            rules=lambda: self.rules,
        )

    def tick(self, seconds: float = 0.0) -> None:
        self.clock.now += seconds
        self.membership.tick(self.clock.now)


def test_the_digest_changes_with_pool_wide_settings_only() -> None:
    plain = settings_digest(settings.load({}))
    assert plain == settings_digest(settings.load({}, grpc_port=1, pool_name="other"))
    assert plain != settings_digest(settings.load({}, block_size=32))
    assert plain != settings_digest(settings.load({}, booking_ttl_seconds=9))


def test_a_member_with_other_settings_is_told() -> None:
    world = World()
    world.desk.members = [Member(ME, dict(world.desk.info)), Member(OTHER, {"digest": "else"})]
    world.tick()
    assert world.membership.differing == {"b"}
    world.desk.members = [Member(OTHER, {"digest": world.desk.info["digest"]})]
    world.tick()
    assert not world.membership.differing


def test_a_member_with_other_rules_is_told_once_a_new_file_has_had_its_time() -> None:
    world = World()
    world.tick()
    assert world.desk.info["rules"] == "one"
    for theirs in ("", "one"):
        world.desk.members = [Member(OTHER, {"rules": theirs})]
        world.tick(RULES_GRACE + 1)
        assert not world.membership.rules_differing
    world.desk.members = [Member(OTHER, {"rules": "two"})]
    world.tick(1)
    world.tick(RULES_GRACE - 2)
    assert not world.membership.rules_differing
    world.tick(3)
    assert world.membership.rules_differing == {"b"}
    world.rules = "two"
    world.tick(1)
    assert not world.membership.rules_differing
    world.rules = ""
    world.tick(RULES_GRACE * 2)
    assert not world.membership.rules_differing, "what is not known does not differ"


def test_streams_are_held_to_the_response_until_some_member_hears_a_log() -> None:
    world = World()
    world.tick()
    assert world.membership.hold() == "response"
    world.desk.members = [Member(OTHER, {"log": "1"})]
    world.tick(1)
    assert world.membership.hold() == "headers"
    world.desk.members = []
    world.tick(LOG_GRACE / 2)
    assert world.membership.hold() == "headers", "the gateway opens its log anew at another replica"
    world.tick(LOG_GRACE)
    assert world.membership.hold() == "response"


def test_a_log_that_reaches_us_is_told_to_the_others() -> None:
    world = World()
    world.underway.log_heard = world.clock.now
    world.tick()
    assert world.desk.info["log"] == "1"
    world.tick(LOG_MEMORY + 1)
    assert world.desk.info["log"] == "0"


@pytest.mark.parametrize("hold", ["headers", "response"])
def test_a_hold_that_is_set_stays(hold: str) -> None:
    world = World(stream_hold=hold)
    world.tick()
    assert world.membership.hold() == hold


def test_sightings_reach_the_owner_and_the_same_ids_again_are_news() -> None:
    speaker, owner = World(), World()
    heard = []
    for _ in range(6):
        speaker.underway.batch = ("b1", "b2")
        speaker.tick(1.0)
        owner.desk.members = [Member(OTHER, dict(speaker.desk.info))]
        owner.tick(1.0)
        heard.append(list(owner.underway.named))
        owner.underway.named.clear()
    assert all({"b1", "b2"} <= set(ids) for ids in heard)


def test_a_batch_is_said_twice_so_that_a_late_heartbeat_misses_none() -> None:
    speaker = World()
    speaker.underway.batch = ("b1",)
    speaker.tick(1.0)
    speaker.tick(1.0)
    assert "b1" in speaker.desk.info["seen"]
    speaker.tick(1.0)
    assert "b1" not in speaker.desk.info["seen"]
