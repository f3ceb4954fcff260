"""The engines of a release's pool: the ready pods that its InferencePool selects, and whether they tell the truth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from chaos.targets.kube.server import Server
from chaos.targets.kube.ways import Ways, joined
from discovery.kubernetes.api import ApiError
from discovery.kubernetes.paths import POOL, grouped
from discovery.kubernetes.pods import read_pod
from discovery.kubernetes.pools import ObjectError, Pool, read_pool


@dataclass(frozen=True, slots=True)
class Engines:
    """What was found."""

    workers: Mapping[str, str] = field(default_factory=dict)
    """Engine's name, which is its pod's -> its name in the pool."""
    pages: Mapping[str, str] = field(default_factory=dict)
    """Engine's name -> ``host:port`` at which it is asked."""
    untold: str = ""
    """Why they do not tell what they carry; empty: they do."""


async def find_engines(server: Server, ways: Ways, pool: tuple[str, str]) -> Engines:
    """Those of the pool of that namespace and name. What goes wrong is a reason, not an error."""
    where, name = pool
    try:
        found = await _pods(server, ways, where, name)
    except (ApiError, ObjectError) as error:
        return Engines(untold=f"engines are not known: {error}")
    workers = {pod: worker for pod, worker, _ in found}
    pages = {pod: address for pod, _, address in found}
    untold = "" if pages else f"no ready engine in pool {where}/{name}"
    for pod, address in pages.items():
        if not untold and await ways.status(f"http://{address}/debug/load", token=False) != 200:
            untold = f"{pod} does not tell what it carries: only simulated engines do"
    return Engines(workers, pages, untold)


async def _pods(server: Server, ways: Ways, where: str, name: str) -> list[tuple[str, str, str]]:
    """Engine's name, its name in the pool, and where it is dialled."""
    if not name:
        raise ObjectError("replicas are told of no InferencePool")
    pool = await _pool(server, where, name)
    path = f"/api/v1/namespaces/{quote(where, safe='')}/pods"
    found = []
    for entry in (await server.get(path, labelSelector=pool.query)).get("items") or ():
        pod = read_pod(entry)
        if pod is None:
            continue
        named = str(entry["metadata"]["name"])
        for port in pool.ports:
            if pod.active is None or port in pod.active:
                dialled = await ways.to(where, named, pod.address, port)
                engine = named if len(pool.ports) == 1 else f"{named}:{port}"
                found.append((engine, joined(pod.address, port), dialled))
    return sorted(found)


async def _pool(server: Server, where: str, name: str) -> Pool:
    for path in grouped(where, "inferencepools", *POOL):
        try:
            return read_pool(await server.get(f"{path}/{quote(name, safe='')}"))
        except ApiError as error:
            if error.status != 404:
                raise
    raise ObjectError(f"there is no InferencePool {where}/{name}")
