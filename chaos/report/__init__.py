"""What a run leaves behind: ``verdict.json``, ``junit.xml`` (pytest's own), ``index.html``, the histories.

The page is one file without anything from elsewhere, and is written for somebody who did not write the suite.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from chaos.report.page import page
from chaos.result import Result, versions
from chaos.verdict import Verdict

SCHEMA = 1


class Reported(Protocol):
    """What is reported of a session; `chaos.plugin.Session` is one."""

    seed: int
    suite: str
    folder: Path
    mutant: str
    begun: float
    results: list[Result]
    target: Mapping[str, Any]
    """What it was played on."""
    not_played: Mapping[str, str]
    """Scenarios of the suite that the target cannot play, with the reason."""

    @property
    def where(self) -> Sequence[str]:
        """The options by which the same target is named again."""
        ...

    @property
    def verdict(self) -> Verdict:
        """The worst of all."""
        ...


def write(session: Reported) -> None:
    """Write ``verdict.json`` and ``index.html`` into the session's folder."""
    told = verdict_of(session)
    (session.folder / "verdict.json").write_text(json.dumps(told, indent=2, default=str) + "\n")
    (session.folder / "index.html").write_text(page(told, session.results))


def verdict_of(session: Reported) -> dict[str, Any]:
    """The whole outcome as JSON values."""
    return {
        "schema": SCHEMA,
        "verdict": str(session.verdict),
        "suite": session.suite,
        "seed": session.seed,
        "mutant": session.mutant or None,
        "begun": time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(session.begun)),
        "seconds": round(time.time() - session.begun, 1),
        "machine": {"cores": os.cpu_count(), "system": platform.platform()},
        "versions": versions(),
        "target": dict(session.target),
        "scenarios": [_scenario(result, session) for result in session.results],
        "not_played": _not_played(session),
    }


def _not_played(session: Reported) -> list[dict[str, str]]:
    """Of a pool of the suite's own none: what needs a release in Kubernetes is no part of the suite there."""
    if session.target["kind"] == "local":
        return []
    return [{"name": name, "why": why} for name, why in session.not_played.items()]


def _scenario(result: Result, session: Reported) -> Mapping[str, Any]:
    spec = result.scenario
    where = shlex.join(session.where) or f"--plane {result.topology.plane}"
    words = ["picker chaos run", f"--suite {session.suite}", f"--seed {result.seed}", where]
    return {
        "name": spec.name,
        "says": spec.says,
        "plane": result.topology.plane,
        "verdict": str(result.verdict),
        "seconds": round(result.seconds, 1),
        "topology": result.topology.words(),
        "load": spec.load.words() if spec.load else "its own requests",
        "faults": list(result.faults),
        "findings": _findings(result),
        "history": os.path.relpath(result.history, session.folder),
        "rerun": " ".join((*words, f"-k {spec.name}", f"--report out-{spec.name}")),
        "source": spec.source,
    }


def _findings(result: Result) -> Sequence[Mapping[str, Any]]:
    return [{**asdict(each), "verdict": str(each.verdict)} for each in result.findings]
