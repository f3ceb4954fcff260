"""Readiness: what is waited for, and for how long."""

from __future__ import annotations

from picker.readiness import Need, Readiness


def needs(state: dict[str, bool]) -> list[Need]:
    return [Need(name, lambda name=name: state[name], f"no {name}") for name in state]  # type: ignore[misc]


def test_ready_once_everything_was_met_and_then_for_good() -> None:
    state = {"workers": False, "plane": True}
    readiness = Readiness(needs(state), warmup=30, begun=0)
    assert not readiness.look(1)
    assert readiness.shown()["waiting_for"] == ["workers"]
    state["workers"] = True
    assert readiness.look(2)
    assert not readiness.look(3), "it becomes ready once"
    state["plane"] = False
    assert readiness.ready
    assert readiness.shown()["degraded"] == ["plane: no plane"]


def test_after_the_warm_up_it_is_ready_all_the_same_and_says_so() -> None:
    readiness = Readiness(needs({"index": False}), warmup=30, begun=100)
    assert not readiness.look(129.9)
    assert readiness.look(130)
    assert readiness.ready
    assert readiness.shown()["ready_before_warm"]
    assert readiness.shown()["degraded"] == ["index: no index"]


def test_one_that_stops_is_never_ready_again() -> None:
    readiness = Readiness([], warmup=0, begun=0)
    assert readiness.look(0)
    readiness.stop()
    assert not readiness.ready
    assert not readiness.look(1)
    assert readiness.shown()["state"] == "stopping"


def test_one_that_stops_while_starting_never_becomes_ready() -> None:
    readiness = Readiness([], warmup=0, begun=0)
    readiness.stop()
    assert not readiness.look(10)
    assert not readiness.ready
