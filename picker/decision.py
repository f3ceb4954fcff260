"""One pick, put into words for `/why`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from picker.core.choose import Choice, Reason
from picker.requests.ask import Standing
from stateplane.booking import Booking
from stateplane.values import value

SHOWN_REASONS = 16
"""So many workers' prices are kept per decision, the cheapest first."""


@value
class Way:
    """How a choice came about."""

    mode: str
    by_plane: bool = False
    """The plane chose, by its exact sums."""
    degraded: str = ""
    """Why the choice was made on the view although the plane should have made it; empty: it was not."""
    offered: tuple[str, ...] = ()
    """The workers among which the plane was to choose."""
    unseen: float = 0.0
    """Foreign requests that the view was likely to miss: by so many its foreign load was moved toward the mean."""

    def shown(self) -> Mapping[str, Any]:
        """As JSON values."""
        return {
            "mode": self.mode,
            "by": "plane" if self.by_plane else "view",
            "degraded_because": self.degraded or None,
            "offered": list(self.offered),
            "unseen_requests": round(self.unseen, 3),
        }


@value
class Decision:
    """One pick, for `/why`; put into words only when somebody asks. Holds nothing of the body."""

    booking_id: str
    request_id: str
    replica: str
    at: float
    seconds: float
    model: str
    api: str
    tokens: int
    blocks: int
    untold: str
    choice: Choice
    way: Way
    earlier: tuple[Booking, ...]
    standing: Standing | None = None
    rewritten: Mapping[str, Any] | None = None
    """What the rules did to the model that the client named; None: no rule was for it."""
    tenant: str = ""
    """Whose request it was, as a header said; empty: not said."""
    route: Mapping[str, str] | None = None
    """Which route it took, as the gateway said; None: it did not."""

    @property
    def weight(self) -> int:
        """How many workers were weighed."""
        return self.choice.weighed

    def shown(self) -> Mapping[str, Any]:
        """As JSON values."""
        reasons = self.choice.reasons
        prompt = {"tokens": self.tokens, "blocks": self.blocks, "tokens_known": not self.untold}
        return {
            "booking": self.booking_id,
            "request_id": self.request_id,
            "at": self.at,
            "replica": self.replica,
            "model": self.model,
            "model_rewrite": self.rewritten,
            "api": self.api,
            "worker": self.choice.worker,
            "fallbacks": list(self.choice.fallbacks),
            "tenant": self.tenant or None,
            "route": self.route,
            "standing": None if self.standing is None else asdict(self.standing),
            "prompt": prompt | ({"tokens_unknown_because": self.untold} if self.untold else {}),
            "decision_ms": round(self.seconds * 1000, 3),
            "chosen": self.way.shown(),
            "earlier_attempts": [
                {"booking": old.id, "worker": old.worker, "state": str(old.state), "owner": str(old.owner)}
                for old in self.earlier
            ],
            "candidates": [_reason(reason) for reason in reasons[:SHOWN_REASONS]],
            "candidates_left_off": max(len(reasons) - SHOWN_REASONS, 0),
        }


def _reason(reason: Reason) -> Mapping[str, Any]:
    return {
        "worker": reason.worker,
        "price": reason.price,
        "left_out": reason.left_out,
        "parts": {"prefill": reason.prefill, "blocks": reason.decode, "requests": reason.requests},
        "added": dict(reason.added),
        "cached_tokens": reason.cached_tokens,
        "overlap_blocks": reason.overlap._asdict(),
        "booked": reason.booked._asdict(),
        "unbooked": reason.unbooked._asdict(),
    }
