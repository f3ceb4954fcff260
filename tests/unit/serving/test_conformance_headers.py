"""The headers of the conformance suite: obeyed where that is set, and as if they were any others where not."""

from __future__ import annotations

import pytest

from picker.serving.buffers import Budget
from picker.serving.conformance import (
    SELECTION_HEADER,
    SERVED_HEADER,
    ConformanceExchange,
    selection_of,
)
from picker.serving.counts import Counts
from picker.serving.effects import Decide, Effect
from picker.serving.exchange import Exchange
from picker.serving.gateway import headers_set, request_body, request_headers, response_headers
from picker.serving.modes import BodyMode
from picker.serving.reading import SUBSET_KEY, SUBSET_NAMESPACE
from picker.serving.testing import LIMITS, PICKED, answers
from picker.settings import ServingSettings


def opened(kind: type[Exchange]) -> Exchange:
    return kind(LIMITS, budget=Budget(1 << 20), hold=lambda: "response", counts=Counts(), now=0.0)


def subset(effects: list[Effect]) -> tuple[str, ...] | None:
    (decide,) = [effect for effect in effects if isinstance(effect, Decide)]
    return decide.request.subset


@pytest.mark.parametrize(
    ("value", "selection"),
    [
        ("10.0.0.1", ("10.0.0.1",)),
        ("10.0.0.1:80, 10.0.0.2", ("10.0.0.1:80", "10.0.0.2")),
        ("", ()),
        (" , ", ()),
        ("a," * 5000, ("a",) * 1000),
    ],
)
def test_a_selection_is_a_list_of_endpoints_and_never_widens(value: str, selection: tuple[str, ...]) -> None:
    assert selection_of({SELECTION_HEADER: value}) == selection
    assert selection_of({}) is None


@pytest.mark.parametrize("kind", [Exchange, ConformanceExchange])
def test_the_selection_wins_over_the_subset_hint_where_it_is_obeyed(kind: type[Exchange]) -> None:
    message = request_headers({SELECTION_HEADER: "10.0.0.9"}, end=True)
    message.metadata_context.filter_metadata[SUBSET_NAMESPACE].update({SUBSET_KEY: "10.0.0.1"})
    expected = ("10.0.0.9",) if kind is ConformanceExchange else ("10.0.0.1",)
    assert subset(opened(kind).receive(message, 0.0)) == expected


def test_without_a_selection_the_subset_hint_stands() -> None:
    message = request_headers(end=True)
    assert subset(opened(ConformanceExchange).receive(message, 0.0)) is None
    message.metadata_context.filter_metadata[SUBSET_NAMESPACE].update({SUBSET_KEY: ["10.0.0.1"]})
    assert subset(opened(ConformanceExchange).receive(message, 0.0)) == ("10.0.0.1",)


def test_the_selection_is_obeyed_in_every_mode_and_without_a_named_one() -> None:
    for mode in BodyMode:
        exchange = opened(ConformanceExchange)
        effects = exchange.receive(request_headers({SELECTION_HEADER: "10.0.0.9"}, mode=mode), 0.0)
        if mode.collects and mode is not BodyMode.UNTOLD:
            effects += exchange.receive(request_body(b"{}"), 0.0)
        effects += exchange.expired(1.0) if mode is BodyMode.UNTOLD else []
        assert subset(effects) == ("10.0.0.9",), mode


@pytest.mark.parametrize("kind", [Exchange, ConformanceExchange])
def test_the_endpoint_that_served_is_told_in_the_response_where_that_is_set(kind: type[Exchange]) -> None:
    exchange = opened(kind)
    exchange.receive(request_headers(end=True), 0.0)
    exchange.decided(PICKED, 0.0)
    message = response_headers(attributes={"upstream.address": "10.0.0.1:8000"})
    (answer,) = answers(exchange.receive(message, 0.0))
    told = {SERVED_HEADER: "10.0.0.1:8000"} if kind is ConformanceExchange else {}
    assert headers_set(answer) == told


def test_it_is_off_unless_it_is_set() -> None:
    assert ServingSettings().conformance is False
