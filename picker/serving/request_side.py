"""The request's half of one stream: what was shown of it, and the decision on its way to the gateway.

Pure, and without a say in when the stream ends: `picker.serving.exchange` asks it at the right time.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING

from picker.serving import encoded, refusals
from picker.serving.buffers import Body, Budget
from picker.serving.counts import Counts
from picker.serving.effects import Effect, Send, SendBody
from picker.serving.modes import (
    BUFFERED,
    BUFFERED_PARTIAL,
    FULL_DUPLEX,
    MODE_UNTOLD,
    NONE,
    STREAMED,
    UNTOLD,
    BodyMode,
    Told,
    UnsupportedModeError,
    modes_told,
)
from picker.serving.reading import declared_length
from picker.serving.refusals import RefusedError
from picker.serving.seam import HttpRequest, Picked
from picker.serving.shown import Shown

if TYPE_CHECKING:
    from picker.serving.exchange import Limits

MAX_PIECES = 100_000
"""Most messages of one request's body."""

_NOTHING = Shown("")


class Awaiting(Enum):
    """The message of the gateway that waits for the decision."""

    HEADERS = auto()
    BODY = auto()
    DUPLEX = auto()  # headers held back; the body follows them, the last piece ends the stream
    TRAILERS = auto()  # headers held back; the body follows them, trailers end the stream


AT_HEADERS, AT_BODY, AT_DUPLEX, AT_TRAILERS = Awaiting


class RequestSide:
    """What one request showed so far. Methods that read raise `RefusedError` for what is to be refused."""

    __slots__ = (
        "_awaiting",
        "_counts",
        "_first",
        "_limits",
        "_overrides",
        "_owed",
        "_pieces",
        "_rewritable",
        "ahead",
        "body",
        "mode",
        "told",
    )

    def __init__(self, limits: Limits, *, budget: Budget, counts: Counts) -> None:
        self.mode = limits.mode
        """The mode that the body is served in: set, else told, else found out from the messages."""
        self.told: Told = UNTOLD
        self.ahead = False
        """Whether a body that is not held back for us comes without being asked for: it can be read, not changed."""
        self._limits = limits
        self._counts = counts
        self._first = _NOTHING
        self.body = Body(budget)
        """What came of the body."""
        self._pieces = 0
        self._awaiting = AT_HEADERS
        self._overrides = False
        self._rewritable = False
        self._owed: list[tuple[bytes, bool] | None] = []

    # -- reading ------------------------------------------------------------------------------------------------

    def headers(self, message: Shown) -> None:
        """Read the first message."""
        if message.headers is None:
            self._counts.refused_headers += 1
            raise RefusedError(refusals.HEADERS_TOO_LARGE)
        self._first = message
        try:
            self.told = modes_told(message.modes)
        except UnsupportedModeError as mode:
            self._counts.refused_mode += 1
            raise RefusedError(refusals.unsupported_mode(mode.number)) from None
        if self.mode is MODE_UNTOLD:
            self.mode = self.told.request
        self.ahead = self.told.ahead and self.mode is STREAMED

    def check_declared(self) -> None:
        """Refuse a body that is declared too large before it comes."""
        if (declared_length(self._headers) or 0) > self._limits.max_body:
            raise self._too_large()

    def add(self, piece: bytes) -> None:
        """Append to the body."""
        self._pieces += 1
        if self._pieces > MAX_PIECES:
            raise self._too_many()
        if self.body.size + len(piece) > self._limits.max_body:
            raise self._too_large()
        if not self.body.add(piece):
            raise self._no_memory()

    def add_ahead(self, piece: bytes, *, end: bool) -> bool:
        """Append a piece that came ahead, and owe its answer; False where no more of the body can be kept."""
        self.owe(b"", end=end)
        if self.body.size + len(piece) <= self._limits.max_body and self.body.add(piece):
            return True
        self.body.forget()
        return False

    def owe(self, piece: bytes, *, end: bool) -> None:
        """Keep a piece that came before the decision: it is answered after it, in its order."""
        self._pieces += 1
        if self._pieces > MAX_PIECES:
            raise self._too_many()
        # only a full duplex body has to go back
        kept = piece if self.mode in (MODE_UNTOLD, FULL_DUPLEX) else b""
        if self.body.paid + len(kept) > self._limits.max_body:
            raise self._too_large()
        if not self.body.charge(len(kept)):
            raise self._no_memory()
        self._owed.append((kept, end))

    def owe_trailers(self) -> None:
        """Keep in mind that trailers came before the decision."""
        self._pieces += 1
        if self._pieces > MAX_PIECES:
            raise self._too_many()
        self._owed.append(None)

    def drop(self) -> None:
        """Free everything: nothing of the request is needed any more."""
        self.body.forget()
        self._owed = []
        self._first = _NOTHING

    @property
    def _headers(self) -> Mapping[str, str]:
        return self._first.headers or {}

    # -- deciding -----------------------------------------------------------------------------------------------

    def asked(self, awaiting: Awaiting, *, ended: bool = True, collected: bool = False) -> HttpRequest:
        """The request as far as it is shown, to be decided for the message ``awaiting``.

        ``ended``: whether the end of the body was seen; ``collected``: whether a body that came ahead was read.
        """
        self._awaiting = awaiting
        held = awaiting is not AT_HEADERS
        whole = self.body.whole() if held or (collected and (ended or self.body.size)) else None
        complete = ended
        if awaiting is AT_BODY and not ended:
            # trailers follow, or the gateway cut the body: in partial mode its length must tell
            partial = self.mode is BUFFERED_PARTIAL
            complete = not partial or len(whole or b"") == declared_length(self._headers)
            self._counts.bodies_cut += not complete
        self._rewritable = held and complete
        self._overrides = not held and self._limits.mode_override and self.told.overridable
        return HttpRequest(
            headers=self._headers,
            body=whole,
            complete=complete,
            subset=self._first.subset,
            attributes=self._first.attributes,
            response_shown=self.told.response.shows or (self._overrides and self.told.response is NONE),
            rewritable=self._rewritable,
        )

    def answers(self, picked: Picked, *, shown: BodyMode | None) -> list[Effect]:
        """The decision where the message that waits for it wants it; ``shown``: the response body mode to ask for.

        Then what came after that message, in its order.
        """
        body = self._rewritten(picked)
        override = None
        if shown is not None:
            self._counts.modes_overridden += 1
            override = (self.told.request, shown)
        if self._awaiting is AT_BODY:
            length = self.mode is BUFFERED and "content-length" in self._headers
            effects: list[Effect] = [
                Send(encoded.body_decided(picked, self._first.control, body=body, length=length))
            ]
        else:
            effects = [Send(encoded.headers_decided(picked, self._first.control, override))]
            if self._awaiting is not AT_HEADERS:
                effects += self._given_back()
        # a held stream lives long and needs none of this any more
        self._first = _NOTHING
        owed, self._owed = self._owed, []
        for piece in owed:
            effects += self.trailers_passed() if piece is None else self.passed(piece[0], end=piece[1])
        return effects

    def override(self, *, reads: bool) -> BodyMode | None:
        """The response body mode to ask the gateway for, or None where its own is right or cannot be changed."""
        if not self._overrides:
            return None
        if reads:
            return STREAMED if self.told.response is NONE else None
        return NONE if self.told.response.shows else None

    def _rewritten(self, picked: Picked) -> bytes | None:
        if picked.body is None:
            return None
        if not self._rewritable:
            self._counts.rewrites_ignored += 1
            return None
        if not self.body.replace(picked.body):
            raise self._no_memory()
        self._counts.bodies_rewritten += 1
        return picked.body

    def _given_back(self) -> list[Effect]:
        end = self._awaiting is AT_DUPLEX
        body = self.body.taken()
        effects: list[Effect] = [SendBody(body, end)] if body or end else []
        return effects if end else [*effects, *self.trailers_passed()]

    # -- passing ------------------------------------------------------------------------------------------------

    def headers_passed(self) -> list[Effect]:
        """The headers that a buffering gateway wants answered before it sends the body."""
        return [Send(encoded.headers_passed(self._first.control))]

    def trailers_passed(self) -> list[Effect]:
        """Trailers that nobody here waits for."""
        return [Send(encoded.TRAILERS_PASSED)]

    def passed(self, piece: bytes, *, end: bool) -> list[Effect]:
        """A piece of a body that nobody here waits for any more."""
        if self.mode is MODE_UNTOLD:
            # After a guess. Buffered bodies come whole; a duplex gateway's first piece does not end its body.
            self.mode = BUFFERED if end and piece else FULL_DUPLEX
        if self.mode is not FULL_DUPLEX:
            return [Send(encoded.BODY_PASSED)]
        return [SendBody(piece, end)] if piece or end else []

    # -- faults -------------------------------------------------------------------------------------------------

    def _too_many(self) -> RefusedError:
        self._counts.refused_too_large += 1
        return RefusedError(refusals.TOO_MANY_PIECES)

    def _too_large(self) -> RefusedError:
        self._counts.refused_too_large += 1
        return RefusedError(refusals.too_large(self._limits.max_body))

    def _no_memory(self) -> RefusedError:
        self._counts.refused_memory += 1
        return RefusedError(refusals.MEMORY_FULL)
