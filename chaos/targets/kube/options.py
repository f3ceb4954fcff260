"""Which release is met and how: what `picker chaos run --target kube` is told, for the process that plays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import orjson

Reach = Literal["auto", "direct", "forward"]
REACHES: tuple[Reach, ...] = get_args(Reach)
NOTICE_SECONDS = 2.0
NEEDED = {
    "namespace": "the namespace of the release",
    "release": "the name that it was installed under",
    "gateway": "the URL that requests are sent to, such as http://gateway.example:80",
}
"""Option -> what it tells; without one of them nothing is begun."""


class OptionsError(Exception):
    """Options that do not say enough, or what cannot be. Names the option."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a release is found and spoken to."""

    namespace: str = ""
    release: str = ""
    gateway: str = ""
    kubeconfig: str = ""
    """File; empty: the ServiceAccount of the pod that this runs in, or the usual files."""
    context: str = ""
    admin_token_file: str = ""
    """File with the bearer token of the replicas' pages; empty: they are read over loopback, or need none."""
    reach: Reach = "auto"
    """How pods are dialled: by their address, through the API server's port-forward, or whichever works."""
    model: str = ""
    """Model that requests name; empty: the simulated engines'."""
    notice_seconds: float = NOTICE_SECONDS
    """Within which the gateway learns that a replica is gone: what it sends there meanwhile may be lost."""

    def check(self) -> None:
        """Raise OptionsError for what is missing or cannot be."""
        for name, what in NEEDED.items():
            if not getattr(self, name):
                raise OptionsError(f"--{name}: {what}")
        if not self.gateway.startswith(("http://", "https://")):
            raise OptionsError(f"--gateway: {self.gateway!r} does not begin with http:// or https://")
        for name in ("kubeconfig", "admin_token_file"):
            file = getattr(self, name)
            if file and not Path(file).is_file():
                raise OptionsError(f"--{name.replace('_', '-')}: there is no file {file}")

    @property
    def token(self) -> str:
        """The replicas' bearer token. Raises OSError."""
        return Path(self.admin_token_file).read_text().strip() if self.admin_token_file else ""

    def words(self) -> Sequence[str]:
        """The options of the command line that say the same."""
        usual = Options()
        given = {name: value for name, value in asdict(self).items() if value != getattr(usual, name)}
        names = {"notice_seconds": "gateway-notices"}
        found = ["--target", "kube"]
        for name, value in given.items():
            found += [
                f"--{names.get(name, name.replace('_', '-'))}",
                f"{value:g}" if isinstance(value, float) else value,
            ]
        return found

    def absolute(self) -> Options:
        """The same with files by their whole path."""
        return replace(
            self, kubeconfig=_absolute(self.kubeconfig), admin_token_file=_absolute(self.admin_token_file)
        )

    def to_json(self) -> str:
        """As text, for another process."""
        return orjson.dumps(asdict(self)).decode()

    @classmethod
    def from_json(cls, text: str) -> Options:
        """The inverse of `to_json`."""
        told: dict[str, Any] = orjson.loads(text)
        return cls(**told)


def _absolute(file: str) -> str:
    return str(Path(file).absolute()) if file else ""
