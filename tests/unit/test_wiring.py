"""Which modes start on which planes, and what is said of those that do not."""

from __future__ import annotations

import time

import pytest

from picker import settings
from picker.settings import SettingsError
from picker.wiring import open_desk
from stateplane.booking import Owner

ME = Owner("r1", "1")


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1", "memory://"])
def test_atomic_is_served_by_planes_that_choose_and_book_in_one_step(url: str) -> None:
    desk, plane = open_desk(settings.load({}, sync="atomic", plane_url=url), ME, clock=time.monotonic)
    assert desk.mode == "atomic"
    assert "select" in plane.capabilities


def test_atomic_on_nats_does_not_start_and_says_why() -> None:
    given = settings.load({}, sync="atomic", plane_url="nats://user:secret@127.0.0.1:1")
    with pytest.raises(SettingsError) as error:
        open_desk(given, ME, clock=time.monotonic)
    [line] = error.value.lines
    assert line.startswith("PICKER_SYNC: atomic needs")
    assert "nats://" in line
    assert "PICKER_SYNC=eventual" in line
    assert "secret" not in line


@pytest.mark.parametrize("sync", ["eventual", "atomic"])
def test_the_memory_plane_is_not_shared_with_peers(sync: str) -> None:
    given = settings.load({}, sync=sync, plane_url="memory://", peers="10.0.0.1:9092")
    with pytest.raises(SettingsError, match="memory plane"):
        open_desk(given, ME, clock=time.monotonic)


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1", "nats://127.0.0.1:1", "memory://"])
def test_eventual_and_isolated_start_on_every_plane(url: str) -> None:
    for sync in ("eventual", "isolated"):
        desk, _ = open_desk(settings.load({}, sync=sync, plane_url=url), ME, clock=time.monotonic)
        assert desk.mode == sync
