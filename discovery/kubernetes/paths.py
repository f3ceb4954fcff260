"""Where each kind stands in the API, newest version first."""

from __future__ import annotations

from urllib.parse import quote


def core(namespace: str, plural: str) -> tuple[str, ...]:
    """A kind of the core group."""
    return (f"/api/v1/namespaces/{quote(namespace, safe='')}/{plural}",)


def grouped(namespace: str, plural: str, *groups: str) -> tuple[str, ...]:
    """A kind of other groups; each is ``group/version``."""
    return tuple(f"/apis/{group}/namespaces/{quote(namespace, safe='')}/{plural}" for group in groups)


POOL = ("inference.networking.k8s.io/v1", "inference.networking.x-k8s.io/v1alpha2")
OBJECTIVE = REWRITE = ("inference.networking.x-k8s.io/v1alpha2", "llm-d.ai/v1alpha2")
IMPORT = ("inference.networking.x-k8s.io/v1alpha1",)
SLICE = ("discovery.k8s.io/v1",)
