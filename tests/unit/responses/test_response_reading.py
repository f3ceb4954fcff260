"""One response read: told once, counted once, and not at all where it cannot be read."""

from __future__ import annotations

import pytest

from picker.responses.counts import Counts
from picker.responses.reading import Reading
from picker.responses.usage import Usage
from picker.serving.seam import Responded, ResponseReading

JSON, EVENTS = "application/json", "text/event-stream; charset=utf-8"
ANSWER = b'{"model":"engine","usage":{"prompt_tokens":3,"completion_tokens":2}}'


class Told:
    def __init__(self) -> None:
        self.usages: list[tuple[Usage, str]] = []

    def __call__(self, usage: Usage, served: str) -> None:
        self.usages.append((usage, served))


def begun(
    counts: Counts,
    told: Told | None,
    *,
    name: str = "",
    kind: str = JSON,
    encoding: str = "",
    status: int = 200,
) -> Reading:
    reading = Reading(counts, told=told, name=name)
    reading.begin(Responded(status, "10.0.0.1:8000", content_type=kind, content_encoding=encoding))
    return reading


def test_a_reading_is_what_the_gateways_side_asks_for() -> None:
    reading: ResponseReading = Reading(Counts())
    assert not reading.rewrites


def test_usage_is_told_once_with_the_worker_that_served() -> None:
    counts, told = Counts(), Told()
    reading = begun(counts, told)
    assert reading.piece(ANSWER, end=True) is None
    reading.piece(ANSWER, end=True)
    reading.over()
    assert told.usages == [(Usage(3, 2, None), "10.0.0.1:8000")]
    assert (counts.usage_told, counts.input_tokens, counts.output_tokens) == (1, 3, 2)


def test_usage_in_one_piece_and_the_end_in_the_next_are_one_telling() -> None:
    counts, told = Counts(), Told()
    reading = begun(counts, told, kind=EVENTS)
    for piece in (b"data: " + ANSWER + b"\n\n", b"data: [DONE]\n\n"):
        assert reading.piece(piece, end=False) is None
    assert not told.usages
    reading.piece(b"", end=True)
    assert len(told.usages) == 1


def test_name_and_usage_are_read_together() -> None:
    counts, told = Counts(), Told()
    reading = begun(counts, told, name="client", kind=EVENTS)
    assert reading.rewrites
    assert (
        reading.piece(b"data: " + ANSWER + b"\n\n", end=False)
        == b"data: " + ANSWER.replace(b"engine", b"client") + b"\n\n"
    )
    reading.piece(b"", end=True)
    assert (counts.renamed, counts.usage_told) == (1, 1)


@pytest.mark.parametrize(
    ("kind", "encoding", "reason"),
    [(JSON, "gzip", "encoded"), ("audio/mpeg", "", "content_type"), ("", "", "content_type")],
)
def test_what_cannot_be_read_passes_unchanged_and_is_counted(kind: str, encoding: str, reason: str) -> None:
    counts, told = Counts(), Told()
    reading = begun(counts, told, name="client", kind=kind, encoding=encoding)
    assert not reading.rewrites
    assert reading.piece(ANSWER, end=True) is None
    assert not told.usages
    assert counts.usage_unreadable[reason] == counts.rename_unreadable[reason] == 1


def test_an_error_tells_no_usage_and_is_still_named() -> None:
    counts, told = Counts(), Told()
    reading = begun(counts, told, name="client", status=400)
    assert reading.piece(ANSWER, end=True) == ANSWER.replace(b"engine", b"client")
    assert not told.usages
    assert counts.usage_absent == sum(counts.usage_unreadable.values()) == 0


def test_a_stream_that_breaks_off_tells_what_it_had_told() -> None:
    counts, told = Counts(), Told()
    reading = begun(counts, told, kind=EVENTS)
    reading.piece(b"data: " + ANSWER + b"\n\nda", end=False)
    reading.over()
    reading.over()
    assert len(told.usages) == 1
    silent = begun(counts, told, kind=EVENTS)
    silent.piece(b"data: {}\n\n", end=False)
    silent.over()
    assert (counts.usage_told, counts.usage_unreadable["cut"]) == (1, 1)


def test_a_response_whose_headers_were_not_shown_passes_unchanged() -> None:
    reading = Reading(Counts(), told=Told(), name="client")
    assert reading.piece(ANSWER, end=True) is None


def test_an_answer_without_usage_or_name_is_counted() -> None:
    counts = Counts()
    begun(counts, Told(), name="client").piece(b'{"ok":true}', end=True)
    assert (counts.usage_absent, counts.unnamed, counts.renamed) == (1, 1, 0)
