"""What all streams share: a gateway whose settings are at fault is told of, each fault once."""

from __future__ import annotations

from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from picker.serving.counts import Counts
from picker.serving.streams import _FAULTS_OF_THE_GATEWAY, Streams
from picker.settings import ServingSettings


@pytest.fixture
def streams() -> Streams:
    return Streams(
        ServingSettings(), cast("Any", None), hold=lambda: "response", counts=Counts(), clock=lambda: 0.0
    )


def test_a_stream_without_a_fault_says_nothing(streams: Streams) -> None:
    with capture_logs() as said:
        streams.begin(0.0)
        streams.ended()
    assert said == []
    assert streams.open == 0


def test_each_fault_is_said_once_with_the_stream_that_shows_it(streams: Streams) -> None:
    for name, text in _FAULTS_OF_THE_GATEWAY.items():
        with capture_logs() as said:
            for _ in range(3):
                streams.begin(0.0)
                setattr(streams.counts, name, getattr(streams.counts, name) + 1)
                streams.ended()
                streams.begin(0.0)
                streams.ended()
        assert [each["event"] for each in said] == [text]
