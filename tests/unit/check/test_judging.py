"""What several replicas' words mean together."""

from __future__ import annotations

from typing import Any

import pytest

from picker.check.judging import CHECKS, Word, judged, read_status
from picker.check.rows import Row, State, as_json, exit_status, table
from picker.peers.shapes import EventsSummary, PlaneSummary, WorkersSummary
from tests.unit.peers.replicas import summary_named

WORKER = {"name": "w:1", "reported": {"running": 0}, "events": {"recovered": True}}
PLANE: dict[str, Any] = {"mode": "eventual", "state": "healthy", "joined": True, "epoch": 7, "number": 1}


def word(name: str, *, workers: list[dict[str, Any]] | None = None, peers: int = 2, **changed: Any) -> Word:
    page: dict[str, Any] = {
        "workers": [WORKER] if workers is None else workers,
        "peers": ["p:1"] * peers,
        "more": {},
    }
    return Word(f"10.0.0.{name}", summary_named(name, **changed), read_status(page))


def well(*changes: dict[str, Any]) -> list[Word]:
    """Three replicas in good order, but for what is changed of the last ones."""
    names = ["a", "b", "c"]
    padded: list[dict[str, Any]] = [{}] * (3 - len(changes)) + list(changes)
    return [word(name, **change) for name, change in zip(names, padded, strict=True)]


def faults(words: list[Word], **more: Any) -> list[Row]:
    arguments = {"expected": 3, "asked": len(words)} | more
    return [row for row in judged(words, **arguments) if row.state in (State.FAILED, State.WARNING)]


def test_three_replicas_in_good_order_fail_nothing_and_every_check_is_made() -> None:
    rows = judged(well(), expected=3, asked=3)
    assert {row.state for row in rows} == {State.OK}
    assert {row.check for row in rows} == set(CHECKS)


@pytest.mark.parametrize(
    ("change", "check", "state", "words"),
    [
        ({"settings_digest": "d2"}, "settings", State.FAILED, "d2: c"),
        ({"version": "0.2.0"}, "versions", State.WARNING, "0.2.0: c"),
        ({"members": ["c"]}, "members", State.FAILED, "does not see a, b"),
        ({"members": ["a", "b", "c", "d"]}, "members", State.FAILED, "sees d too"),
        ({"peers": 1}, "discovery", State.FAILED, "1 peers of 2"),
        ({"plane": PlaneSummary(**PLANE | {"epoch": 8})}, "plane epoch", State.FAILED, "different lives"),
        ({"plane": PlaneSummary(**PLANE | {"joined": False})}, "plane epoch", State.FAILED, "not members"),
        ({"plane": PlaneSummary(**PLANE | {"state": "away"})}, "plane", State.FAILED, "away"),
        ({"plane": PlaneSummary(**PLANE | {"state": "slow"})}, "plane", State.WARNING, "slow"),
        ({"plane": PlaneSummary(**PLANE, lag_seconds=4.0)}, "plane", State.FAILED, "4 s behind"),
        ({"events": EventsSummary(state="away")}, "events", State.FAILED, "NATS is away"),
        ({"workers": [WORKER | {"events": {"recovered": False}}]}, "index", State.WARNING, "w:1"),
        ({"workers": [WORKER | {"reported": None}]}, "workers", State.WARNING, "without a report: w:1"),
    ],
)
def test_one_replica_that_differs_shows_in_the_row_of_that_promise_alone(
    change: dict[str, Any], check: str, state: State, words: str
) -> None:
    (row,) = faults(well(change))
    assert (row.check, row.state) == (check, state)
    assert words in row.reason


def test_replicas_that_do_not_know_a_worker_are_named() -> None:
    rows = faults(well({"workers": [WORKER | {"name": "w:2"}, WORKER]}, {}))
    assert [(row.check, row.where) for row in rows] == [("workers", "a"), ("workers", "c")]
    assert all("w:2" in row.reason for row in rows)


def reporting(known: int, reports: int) -> Word:
    page = {"workers": [WORKER | {"name": f"w:{n}", "reported": None} for n in range(known)], "peers": []}
    summary = summary_named("a", members=["a"])
    return Word("x", type(summary)(**{name: getattr(summary, name) for name in summary.__struct_fields__}
                                   | {"workers": WorkersSummary(known=known, reporting=reports)}),
                read_status(page))  # fmt: skip


@pytest.mark.parametrize(("known", "words"), [(0, "knows no worker"), (2, "none of 2 workers reports")])
def test_no_worker_and_no_report_are_failures(known: int, words: str) -> None:
    (row,) = [row for row in faults([reporting(known, 0)], expected=1) if row.check == "workers"]
    assert row.state is State.FAILED
    assert words in row.reason


def test_a_missing_replica_fails_the_count_and_a_silent_address_is_told() -> None:
    two = [word(name, members=["a", "b"], peers=1) for name in "ab"]
    (row,) = faults(two)
    assert (row.check, row.state) == ("replicas", State.FAILED)
    assert "2 of 3" in row.reason
    (row,) = faults(two, expected=2, asked=3)
    assert (row.check, row.state) == ("replicas", State.WARNING)


def test_a_replica_that_answers_at_two_addresses_is_counted_once() -> None:
    (row,) = faults([*well(), word("c")], expected=4)
    assert (row.check, "3 of 4" in row.reason) == ("replicas", True)


def test_isolated_replicas_share_nothing_and_none_of_it_is_a_fault() -> None:
    isolated = PlaneSummary(**PLANE | {"mode": "isolated", "joined": False, "epoch": 0})
    words = [word(name, plane=isolated, members=[name]) for name in "abc"]
    assert faults(words) == []
    rows = {row.check: row.state for row in judged(words, expected=3, asked=3)}
    assert (rows["members"], rows["plane epoch"], rows["plane"]) == (State.SKIPPED,) * 3


def test_without_events_they_are_skipped() -> None:
    words = [word(name, events=EventsSummary(state="off")) for name in "abc"]
    rows = judged(words, expected=3, asked=3)
    assert {row.state for row in rows if row.check == "events"} == {State.SKIPPED}
    assert not [row for row in rows if row.check == "index"]


def test_a_check_that_is_a_member_for_a_moment_is_nobodys_fault() -> None:
    assert faults(well({"members": ["a", "b", "c", "picker-check-1f2e3d"]})) == []


def test_when_nothing_could_be_read_nothing_is_said_but_that() -> None:
    rows = judged([], expected=3, asked=3)
    assert {row.state for row in rows} == {State.SKIPPED}
    assert {row.check for row in rows} == set(CHECKS)
    assert [row.check for row in judged([], expected=3, asked=2) if row.state is State.FAILED] == ["replicas"]


def test_rows_are_told_to_people_and_to_programs() -> None:
    rows = [
        Row("health", "10.0.0.1", State.OK, "serving", "nothing"),
        Row("plane", "a", State.FAILED, "away", "is it there?"),
        Row("events", "", State.SKIPPED, "off"),
    ]
    assert list(table(rows)) == [
        "ok       health  10.0.0.1  serving",
        "failed   plane   a         away",
        "         -> is it there?",
        "skipped  events            off",
        "3 checks: 1 ok, 0 warning, 1 failed, 1 skipped",
    ]
    assert exit_status(rows) == 1
    assert exit_status([row for row in rows if row.state is not State.FAILED]) == 0
    document = as_json(rows)
    assert document["ok"] is False
    assert document["checks"][1] == {
        "check": "plane",
        "where": "a",
        "state": "failed",
        "reason": "away",
        "remedy": "is it there?",
    }
