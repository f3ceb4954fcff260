"""What was recorded with the real Envoy happens again: every answer is the same, field by field."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from google.protobuf import text_format

from picker.serving.seam import Picked, Refused
from picker.serving.wire.extproc_pb2 import ProcessingResponse
from tests.transcripts.cases import CASES, Case
from tests.transcripts.transcript import Entry, Transcript, paths, read, replayed, request_of, written

PATHS = paths()
POLICIES = [case for case in CASES if case.answers]


def name_of(path: Path) -> str:
    return path.stem


def comparable(entry: Entry) -> object:
    """A message as a message, so that a difference is one of fields and not of writing."""
    return (
        text_format.Parse(entry.text, ProcessingResponse())
        if entry.word == "send"
        else (entry.word, entry.text)
    )


def test_every_case_has_a_transcript_and_every_transcript_a_case() -> None:
    assert {path.stem for path in PATHS} == {case.name for case in CASES}


@pytest.mark.parametrize("path", PATHS, ids=name_of)
def test_what_is_read_and_written_again_is_the_same_file(path: Path) -> None:
    assert written(read(path)) == path.read_text()


@pytest.mark.parametrize("path", PATHS, ids=name_of)
def test_an_exchange_answers_as_it_was_recorded(path: Path) -> None:
    recorded = read(path)
    for was, now in zip(recorded.events, replayed(recorded).events, strict=True):
        where = f"{was.entry.word} at {was.at}"
        assert [comparable(entry) for entry in now.asked] == [comparable(entry) for entry in was.asked], where


@pytest.mark.parametrize("path", PATHS, ids=name_of)
def test_every_pick_that_was_recorded_is_over_exactly_once(path: Path) -> None:
    recorded = read(path)
    picks = [event for event in recorded.events if event.entry.word == "picked"]
    overs = [entry for event in recorded.events for entry in event.asked if entry.word.startswith("over ")]
    assert len(overs) == len(picks) <= 1


def answered(transcript: Transcript) -> str:
    """What the client got of us, in short: ``picked``, or the status and the code of a refusal."""
    for answer in transcript.answers():
        if answer.HasField("immediate_response"):
            immediate = answer.immediate_response
            return f"{immediate.status.code} {json.loads(immediate.body)['error']['code']}"
    return "picked" if any(event.entry.word == "picked" for event in transcript.events) else "nothing"


@pytest.mark.parametrize("case", POLICIES, ids=lambda case: case.name)
def test_the_answer_is_what_the_head_says_beside_what_other_pickers_do(case: Case) -> None:
    (path,) = [path for path in PATHS if path.stem == case.name]
    recorded = read(path)
    assert recorded.head["ours"] == case.answers["ours"]
    assert recorded.head["go-pickers"] == case.answers["go-pickers"]
    assert answered(recorded) == recorded.head["ours"]


@pytest.mark.parametrize("case", POLICIES, ids=lambda case: case.name)
async def test_the_product_still_decides_as_it_was_recorded(case: Case) -> None:
    (path,) = [path for path in PATHS if path.stem == case.name]
    recorded = read(path)
    answer = await case.pick(request_of(recorded))
    (event,) = [event for event in recorded.events if event.entry.word in ("picked", "refused")]
    was = json.loads(event.entry.text)
    if isinstance(answer, Picked):
        assert answer.destination == was["destination"]
    else:
        assert isinstance(answer, Refused)
        assert (answer.status, answer.type, answer.code, answer.reason) == (
            was["status"], was["type"], was["code"], was["reason"],
        )  # fmt: skip
