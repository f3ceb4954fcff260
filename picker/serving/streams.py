"""What all ext_proc streams of one server share, whatever transport they come by."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

import structlog

from picker.serving import refusals
from picker.serving.buffers import Budget
from picker.serving.conformance import ConformanceExchange
from picker.serving.counts import Counts
from picker.serving.exchange import Exchange, Hold, Limits
from picker.serving.modes import mode_named
from picker.serving.seam import Requests
from picker.settings import ServingSettings

log = structlog.get_logger(__name__)

WRITE_SECONDS = 30.0
"""How long the gateway may take to accept our answers to one message."""
CLOSE_SECONDS = 5.0
"""How long closed streams may take to be gone."""

_FAULTS_OF_THE_GATEWAY = {
    "refused_mode": "the gateway uses an ext_proc body mode that is not served, its requests get 500",
    "refused_order": "the gateway sends ext_proc messages out of order, it must send request headers",
    "overrides_ignored": "the gateway ignores ext_proc mode overrides, its filter must set allow_mode_override",
    "modes_guessed": "the gateway names no ext_proc body mode, bodies are not read: set PICKER_EXTPROC_MODE",
}
"""Counts that an operator has to hear of, each once: the gateway's settings are at fault, not one request."""
_faults_in = attrgetter(*_FAULTS_OF_THE_GATEWAY)


class Streams:
    """Opens exchanges, counts them, and knows how many are open."""

    def __init__(
        self,
        settings: ServingSettings,
        requests: Requests,
        *,
        hold: Callable[[], Hold],
        counts: Counts,
        clock: Callable[[], float],
    ) -> None:
        self.requests = requests
        self.counts = counts
        self.clock = clock
        self.budget = Budget(settings.max_buffered_bytes)
        self.open = 0
        self._hold = hold
        self._most = settings.max_streams
        self.max_body = settings.max_body_bytes
        self._limits = Limits(
            max_body=settings.max_body_bytes,
            body_timeout=settings.body_timeout_seconds,
            stream_timeout=settings.stream_timeout_seconds,
            mode=mode_named(settings.extproc_mode),
            mode_override=settings.mode_override,
        )
        self._exchange = ConformanceExchange if settings.conformance else Exchange
        self._unsaid = dict(_FAULTS_OF_THE_GATEWAY)
        self._faults = _faults_in(counts)

    def begin(self, now: float) -> Exchange:
        """The exchange of a new stream."""
        counts = self.counts
        counts.streams += 1
        full = self.open >= self._most
        if full:
            counts.refused_streams += 1
        self.open += 1
        return self._exchange(
            self._limits,
            budget=self.budget,
            hold=self._hold,
            counts=counts,
            now=now,
            refuse=refusals.STREAMS_FULL if full else None,
        )

    def ended(self) -> None:
        """A stream is over."""
        self.open -= 1
        faults = _faults_in(self.counts)
        if faults != self._faults:
            self._faults = faults
            self._say_once()

    def _say_once(self) -> None:
        for name in [name for name in self._unsaid if getattr(self.counts, name)]:
            log.warning(self._unsaid.pop(name), count=name)
