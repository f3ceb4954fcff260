"""The history: what is written is read back, and what cannot be believed is refused."""

from pathlib import Path

import pytest

from chaos.history import HistoryError, Record, Writer, parse, read
from chaos.reading import read_story
from chaos.testing import WORKER, Tale


def line(t: float, process: str = "run", f: str = "phase", type_: str = "info") -> bytes:
    return f'{{"t": {t}, "process": "{process}", "f": "{f}", "type": "{type_}", "value": {{}}}}\n'.encode()


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "history.jsonl"
    times = iter([1.0, 2.5])
    with Writer(file, clock=lambda: next(times)) as history:
        history.write("client-1", "call", "invoke", number=1)
        history.write("client-1", "call", "ok", outcome="complete")
    assert read(file) == [
        Record(1.0, "client-1", "call", "invoke", {"number": 1}),
        Record(2.5, "client-1", "call", "ok", {"outcome": "complete"}),
    ]


def test_time_never_falls_even_where_the_clock_does(tmp_path: Path) -> None:
    times = iter([5.0, 4.0])
    with Writer(tmp_path / "h.jsonl", clock=lambda: next(times)) as history:
        history.write("run", "phase", "info")
        history.write("run", "phase", "info")
    assert [record.t for record in read(tmp_path / "h.jsonl")] == [5.0, 5.0]


def test_a_history_is_never_written_over(tmp_path: Path) -> None:
    Writer(tmp_path / "h.jsonl").close()
    with pytest.raises(FileExistsError):
        Writer(tmp_path / "h.jsonl")


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        ([], "empty"),
        ([line(1)[:-1]], "cut short"),
        ([b"nonsense\n"], "no record"),
        ([b'{"t": 1}\n'], "no record"),
        ([line(1, type_="maybe")], "wrong kind"),
        ([line(2), line(1)], "time falls"),
        ([line(1, "client-1", "call", "ok")], "without having begun"),
        ([line(1, "client-1", "call", "invoke"), line(2, "client-1", "call", "invoke")], "second time"),
        (
            [
                line(1, "client-1", "call", "invoke"),
                line(2, "client-1", "call", "ok"),
                line(3, "client-1", "call", "fail"),
            ],
            "twice",
        ),
    ],
)
def test_a_history_that_cannot_be_believed_is_refused(lines: list[bytes], what: str) -> None:
    with pytest.raises(HistoryError, match=what):
        list(parse(lines))


def test_a_missing_file_is_a_history_error(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="cannot be read"):
        read(tmp_path / "nothing.jsonl")


def test_a_run_that_broke_off_has_no_story() -> None:
    with pytest.raises(HistoryError, match="no end"):
        read_story([Record(0.0, "run", "scenario", "info", {})])
    with pytest.raises(HistoryError, match="begin"):
        read_story([Record(0.0, "run", "end", "info", {})])


def test_a_record_without_its_values_is_no_story() -> None:
    tale = Tale()
    tale.add(1.0, "picker-0", "view", "ok", bookings=[])
    with pytest.raises(HistoryError, match="does not say"):
        tale.story()


def test_work_that_vanished_with_its_engine_ended_when_it_was_last_seen() -> None:
    tale = Tale()
    row = {"id": "r", "booking": "a", "arrived": 1.0, "state": "running"}
    tale.add(2.0, "engine-0", "carried", "ok", asked=2.0, born=0.5, carried=[row], ended=[])
    tale.add(3.0, "engine-0", "carried", "ok", asked=3.0, born=2.5, carried=[], ended=[])
    (one,) = tale.story().carried
    assert (one.worker, one.since, one.until, one.lost) == (WORKER, 1.0, 2.0, True)


def test_work_of_earlier_scenarios_is_not_of_this_one() -> None:
    tale = Tale()
    row = {"number": 1, "name": "r", "booking": "a", "arrived": -9.0, "ended": -5.0}
    tale.add(1.0, "engine-0", "carried", "ok", asked=1.0, born=-20.0, carried=[], ended=[row])
    assert tale.story().carried == []


def test_an_end_told_twice_is_one_end() -> None:
    tale = Tale()
    row = {"number": 1, "name": "r", "booking": "a", "arrived": 1.0, "ended": 2.0}
    for t in (2.0, 3.0):
        tale.add(t, "engine-0", "carried", "ok", asked=t, born=0.5, carried=[], ended=[row])
    assert len(tale.story().carried) == 1


def test_counters_of_a_new_life_count_from_zero() -> None:
    tale = Tale()
    tale.counters("picker-0", 1, a_total=5, b_total=2)
    tale.counters("picker-0", 2, a_total=1)
    assert tale.story().counters["picker-0"][-1] == (2, {"a_total": 1})


def test_a_looks_silence_is_told() -> None:
    tale = Tale()
    tale.add(1.0, "picker-0", "view", "fail", asked=0.9, fault="gone")
    assert tale.story().silences == {"picker-0": [1.0]}
