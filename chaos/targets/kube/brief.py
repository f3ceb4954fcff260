"""What is known of a release before anything is played on it: found out once, and told to the process that plays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import orjson

from chaos.targets.kube.options import Options

SPECIAL = {
    "local": "it needs a pool of the suite's own: wires, clocks, name servers, settings or versions to choose"
}


@dataclass(frozen=True, slots=True)
class Brief:
    """A release to play on."""

    options: Options
    plane: str = "redis"
    offers: frozenset[str] = frozenset()
    missing: Mapping[str, str] = field(default_factory=dict)
    """Faults that cannot be brought about there, with the reason."""
    slack_seconds: float = 0.0

    def lacking(self, needs: Iterable[str]) -> str:
        """Why something that needs these cannot be played; empty: it can."""
        told = [
            SPECIAL.get(each) or self.missing.get(each) or f"there is no {each}"
            for each in needs
            if each not in self.offers
        ]
        return "; ".join(dict.fromkeys(told))

    def to_json(self) -> str:
        """As text."""
        told = {
            "options": self.options.to_json(), "plane": self.plane, "offers": sorted(self.offers),
            "missing": dict(self.missing), "slack_seconds": self.slack_seconds,
        }  # fmt: skip
        return orjson.dumps(told).decode()

    @classmethod
    def from_json(cls, text: str) -> Brief:
        """The inverse of `to_json`."""
        told = orjson.loads(text)
        return cls(
            Options.from_json(told["options"]), told["plane"], frozenset(told["offers"]), told["missing"],
            told["slack_seconds"],
        )  # fmt: skip
