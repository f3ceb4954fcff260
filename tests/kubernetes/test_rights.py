"""The Role of each feature alone: the API server allows every call that it makes, and nothing else is asked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest

from tests.kubernetes.asking import Asking
from tests.kubernetes.cluster.helm import Release
from tests.kubernetes.cluster.running import Running

NO_WORKERS_OF_A_POOL: Final = {"workers": {"source": "file", "addresses": ["192.0.2.1:8000"]}}
FEATURES: Final[Mapping[str, tuple[Mapping[str, Any], set[str]]]] = {
    "nothing": ({"discovery": NO_WORKERS_OF_A_POOL}, set()),
    "workers": ({}, {"inferencepools", "pods"}),
    "peers": ({"discovery": {**NO_WORKERS_OF_A_POOL, "peers": {"source": "endpointSlices"}}}, {"endpointslices"}),
    "objectives": (
        {"discovery": NO_WORKERS_OF_A_POOL, "objects": {"inferenceObjectives": True}}, {"inferenceobjectives"},
    ),
    "rewrites": (
        {"discovery": NO_WORKERS_OF_A_POOL, "objects": {"inferenceModelRewrites": True}}, {"inferencemodelrewrites"},
    ),
    "imports": (
        {"objects": {"inferencePoolImports": True}}, {"inferencepools", "pods", "inferencepoolimports"},
    ),
    "metrics": (
        {"discovery": NO_WORKERS_OF_A_POOL, "metrics": {"protection": "kubernetes"}},
        {"tokenreviews", "subjectaccessreviews"},
    ),
}  # fmt: skip
"""Values of one feature, and the resources that it asks the API server about."""


@pytest.fixture(scope="module")
def releases(cluster: Running) -> dict[str, Release]:
    """One replica for each feature, in a namespace of its own."""
    made = {name: Release(cluster, name, f"rights-{name}") for name in FEATURES}
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda name: made[name].install(FEATURES[name][0]), FEATURES))
    return made


@pytest.mark.parametrize("feature", FEATURES)
async def test_a_features_own_role_allows_all_that_it_asks(
    cluster: Running, releases: dict[str, Release], feature: str, ask: Asking
) -> None:
    release = releases[feature]
    (address,) = release.replicas().values()
    if feature == "metrics":
        await ask_for_metrics(cluster, release, ask, address)
    account = f"system:serviceaccount:{release.namespace}:{release.objects}"
    calls = [each for each in cluster.audit() if each["user"]["username"] == account]
    assert {each["objectRef"]["resource"] for each in calls if "objectRef" in each} == FEATURES[feature][1]
    denied = [each for each in cluster.denied() if each["user"]["username"] == account]
    assert not denied, json.dumps(denied[0], indent=1)


async def ask_for_metrics(cluster: Running, release: Release, ask: Asking, address: str) -> None:
    """As Prometheus would, once it has been given the right, and without it."""
    namespace, url = release.namespace, f"http://{address}:9090/metrics"
    cluster.kubectl("-n", namespace, "create", "serviceaccount", "prometheus")
    token = cluster.kubectl("-n", namespace, "create", "token", "prometheus").strip()
    headers = {"Authorization": f"Bearer {token}"}
    async with ask.session.get(url) as response:
        assert response.status == 401
    async with ask.session.get(url, headers=headers) as response:
        assert response.status == 403
    reader = f"{namespace}-{release.objects}-metrics-reader"
    subject = f"--serviceaccount={namespace}:prometheus"
    cluster.kubectl("create", "clusterrolebinding", "prometheus", f"--clusterrole={reader}", subject)
    other = cluster.kubectl("-n", namespace, "create", "token", "prometheus", "--duration=1h").strip()
    async with ask.session.get(url, headers={"Authorization": f"Bearer {other}"}) as response:
        assert response.status == 200
