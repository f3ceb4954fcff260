"""What Gateway API Inference Extension's conformance suite asks of a picker, for tests of gateways only.

A client may say which endpoints a request may go to, and is told in a header which endpoint served: no client of a
pool in use should. Off unless `PICKER_CONFORMANCE` is set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from picker.serving.effects import Decide, Effect, ResponseSeen, Send
from picker.serving.exchange import Exchange
from picker.serving.shown import Shown
from picker.serving.wire.extproc_pb2 import HeaderValueOption, ProcessingRequest

SELECTION_HEADER = "test-epp-endpoint-selection"
"""``host`` or ``host:port``, several separated by commas."""
SERVED_HEADER = "x-conformance-test-served-endpoint"
MAX_SELECTED = 1_000


class ConformanceExchange(Exchange):
    """An exchange that obeys the suite's headers: the selection takes the place of the gateway's subset hint.

    It narrows the pool and never leaves it: an endpoint that is no worker of the pool is not chosen.
    """

    __slots__ = ()

    def receive(self, message: Shown | ProcessingRequest, now: float) -> list[Effect]:
        """A message of the gateway."""
        effects = [_selected(effect) for effect in super().receive(message, now)]
        served = next((effect.response.served for effect in effects if isinstance(effect, ResponseSeen)), "")
        return [_telling(effect, served) for effect in effects] if served else effects

    def expired(self, now: float) -> list[Effect]:
        """The deadline passed."""
        return [_selected(effect) for effect in super().expired(now)]


def selection_of(headers: Mapping[str, str]) -> tuple[str, ...] | None:
    """The endpoints that a client selects; None where it says nothing. What selects nothing allows nothing."""
    if SELECTION_HEADER not in headers:
        return None
    words = headers[SELECTION_HEADER].split(",", MAX_SELECTED)[:MAX_SELECTED]
    return tuple(word.strip() for word in words if word.strip())


def _selected(effect: Effect) -> Effect:
    if not isinstance(effect, Decide):
        return effect
    selection = selection_of(effect.request.headers)
    return effect if selection is None else Decide(replace(effect.request, subset=selection))


def _telling(effect: Effect, served: str) -> Effect:
    if not isinstance(effect, Send):
        return effect
    message = effect.message
    if not message.HasField("response_headers"):
        return effect
    option = message.response_headers.response.header_mutation.set_headers.add()
    option.header.key, option.header.raw_value = SERVED_HEADER, served.encode()
    option.append_action = HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD
    return Send(message.SerializeToString())
