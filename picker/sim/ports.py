"""The ports file of `picker up`, read: for scripts, tests and suites that meet a cluster which runs already."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from picker.sim.programs import Replica, Worker


@dataclass(frozen=True, slots=True)
class Ports:
    """A running cluster by its ports file. Every look reads the file: process ids change when a part comes back."""

    file: Path

    @property
    def page(self) -> dict[str, Any]:
        """The file as it is now. Raises FileNotFoundError while the cluster is not ready."""
        found: dict[str, Any] = json.loads(self.file.read_text())
        return found

    @property
    def envoy(self) -> str:
        """URL of the gateway."""
        return str(self.page["envoy"])

    @property
    def model(self) -> str:
        """The model that the engines serve."""
        return str(self.page["model"])

    @property
    def replicas(self) -> list[Replica]:
        """Where the replicas listen."""
        return [
            Replica(each["name"], each["extproc"], each["health"], each["admin"], each.get("peers", ""))
            for each in self.page["replicas"]
        ]

    @property
    def workers(self) -> list[Worker]:
        """Where the engines listen; how their events travel is not told."""
        return [Worker(each["name"], each["address"], "", "", "", "") for each in self.page["workers"]]

    @property
    def peers_secret_file(self) -> Path | None:
        """The secret that the replicas share; None where the file does not say."""
        named = self.page.get("peers_secret_file")
        return Path(named) if isinstance(named, str) else None

    def pids(self) -> dict[str, int]:
        """Process id by name: replicas and workers under theirs, ``plane``, ``nats``."""
        page = self.page
        found = {each["name"]: each["pid"] for each in (*page["replicas"], *page["workers"])}
        found |= {name: page[name]["pid"] for name in ("plane", "nats")}
        return {name: pid for name, pid in found.items() if pid is not None}
