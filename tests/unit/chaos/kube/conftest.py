"""A cluster of the tests' own with one release, and that release as a target."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from chaos.injectors import Fault
from chaos.targets.kube import faults, members, proofs
from chaos.targets.kube.options import Options
from chaos.targets.kube.target import Kube
from tests.unit.chaos.kube.cluster import NAMESPACE, Cluster


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setattr(members, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(proofs, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(proofs, "AGAIN_SECONDS", 0.02)
    monkeypatch.setattr(faults, "AGAIN_SECONDS", 0.02)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """With the release `llama` of three replicas, all ready."""
    mine = Cluster()
    await mine.start()
    mine.install("llama")
    await mine.whole("llama")
    yield mine
    await mine.stop()


@pytest.fixture
def options(cluster: Cluster, tmp_path: Path) -> Options:
    """By which `llama` is met."""
    return Options(
        namespace=NAMESPACE,
        release="llama",
        gateway="http://127.0.0.1:1",
        kubeconfig=cluster.kubeconfig(tmp_path),
    )


@pytest.fixture
async def make(options: Options, tmp_path: Path) -> AsyncIterator[Callable[..., Kube]]:
    """How a target is made; all are left at the end."""
    made: list[Kube] = []

    def kube(**more: Any) -> Kube:
        told = {**{name: getattr(options, name) for name in Options.__dataclass_fields__}, **more}
        made.append(Kube(Options(**told), folder=tmp_path / "run"))
        return made[-1]

    yield kube
    for each in made:
        await each.stop()


@pytest.fixture
async def kube(make: Callable[..., Kube]) -> Kube:
    """The release, met; faults are told to `kube.heard`."""
    mine = make()
    await mine.start()
    return mine


@pytest.fixture
def heard(kube: Kube) -> list[Fault]:
    """Every phase of every fault."""
    told: list[Fault] = []
    kube.begin(told.append)
    return told
