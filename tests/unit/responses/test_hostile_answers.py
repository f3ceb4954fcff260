"""Answers that mean harm: nothing raises, little is kept, and the time grows as the answer does."""

from __future__ import annotations

import pytest

from picker.responses.counts import Counts
from picker.responses.naming import FIRST_STEPS, MOST_PREFIX, Naming
from picker.responses.reading import Reading
from picker.responses.shape import Shape
from picker.responses.usage import UsageReading
from picker.serving.seam import Responded

SIZE = 200_000
"""At this size a step of work for each pair of members takes minutes."""
ANSWERS: dict[str, bytes] = {
    "usages that never end": b'{"usage":' * (SIZE // 9),
    "members that never end": b'"usage":{' * (SIZE // 9),
    "usages in a row": b'"usage":{"a":1},' * (SIZE // 16),
    "usages that nest": b'{"usage":' * (SIZE // 10) + b"1" + b"}" * (SIZE // 10),
    "a usage, then brackets": b'{"usage":{"prompt_tokens":1},"a":'
    + b"[" * (SIZE // 2)
    + b"]" * (SIZE // 2)
    + b"}",
    "models that nest": b'{"model":' * (SIZE // 9),
    "quotes": b'"' * SIZE,
    "backslashes": b'{"' + b"\\" * SIZE,
    "blanks": b'{"usage"' + b" " * SIZE + b":{",
    "events": b'data: {"usage":{}}\n' * (SIZE // 19),
    "an event that never ends": b"data: " + b"usage" * (SIZE // 5),
    "line ends": b"\r\n" * (SIZE // 2),
    "names of fields": b"data:" * (SIZE // 5),
    "zeros": b"\0" * SIZE,
    "numbers as text": b'data: {"usage":{"prompt_tokens":"' + b"9" * SIZE + b'"}}\n\n',
    "a number too large": b'data: {"usage":{"prompt_tokens":' + b"9" * SIZE + b"}}\n\n",
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize("shape", Shape)
@pytest.mark.timeout(40)
def test_no_answer_takes_longer_than_its_length_allows(answer: bytes, shape: Shape) -> None:
    for size in (len(answer), 16_384, 1000):
        usage, naming = UsageReading(shape), Naming(shape, "name")
        for at in range(0, len(answer), size):
            piece = answer[at : at + size]
            usage.piece(piece, end=at + size >= len(answer))
            naming.piece(piece)
        told = usage.usage
        assert told is None or 0 <= told.input + told.output <= 2**41


def test_of_many_usages_in_the_end_of_a_long_answer_the_last_one_counts() -> None:
    usage = UsageReading(Shape.JSON)
    usage.piece(b'{"choices":[{"usage":{"prompt_tokens":1}},' + b" " * 40_000, end=False)
    usage.piece(b'{"usage":{"prompt_tokens":2}}' * 100, end=False)
    usage.piece(b'],"usage":{"prompt_tokens":7,"completion_tokens":3},"x":null}', end=True)
    assert usage.usage is not None
    assert (usage.usage.input, usage.usage.output) == (7, 3)


@pytest.mark.parametrize("unit", [b"[", b'{"a":', b'"a",', b'{"model":"\\', b"{}\n{", b"\n"])
@pytest.mark.parametrize("shape", Shape)
def test_an_answer_costs_no_more_steps_than_its_length_grants(unit: bytes, shape: Shape) -> None:
    counts = Counts()
    reading = Reading(counts, name="name")
    kind = "application/json" if shape is Shape.JSON else "text/event-stream"
    reading.begin(Responded(200, content_type=kind))
    answer = b"{" + unit * (1_000_000 // len(unit))
    passed = reading.piece(answer, end=False)
    assert len(passed or answer) >= len(answer) - MOST_PREFIX
    reading.piece(b"", end=True)
    assert counts.rename_unreadable["intricate"] <= 1


def test_a_name_past_the_granted_steps_stays_and_one_before_them_is_put_back() -> None:
    noise = b'"noise":' + b"[" * (2 * FIRST_STEPS) + b"]" * (2 * FIRST_STEPS)
    for answer, named in (
        (b'{"model":"engine",' + noise + b"}", True),
        (b"{" + noise + b',"model":"engine"}', False),
    ):
        counts = Counts()
        reading = Reading(counts, name="client")
        reading.begin(Responded(200, content_type="application/json"))
        changed = reading.piece(answer, end=True)
        assert (changed == answer.replace(b'"engine"', b'"client"')) if named else changed is None
        assert (counts.renamed, counts.rename_unreadable["intricate"], counts.unnamed) == (
            named,
            not named,
            0,
        )
