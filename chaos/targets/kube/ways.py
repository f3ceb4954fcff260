"""Ways to pods and their pages: by their addresses, or through the API server's port-forward."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import aiohttp

from chaos.targets import TargetError
from chaos.targets.kube.forward import Forwards
from chaos.targets.kube.options import Options
from chaos.targets.kube.release import Release, Replica
from chaos.targets.kube.server import Server

DIAL_SECONDS = 2.0
_ADMIN = "a replica's pages answer to loopback only, or to its token"
_BROKEN = (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError, TypeError)


class Ways:
    """How pods are dialled. ``open()`` first; ``close()`` never raises."""

    def __init__(self, server: Server, options: Options) -> None:
        self._options = options
        self.forwards = Forwards(server)
        self.direct = options.reach == "direct"
        """Whether pods are dialled by their addresses."""
        self._http: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Be able to ask."""
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=DIAL_SECONDS))

    async def close(self) -> None:
        """End all."""
        await self.forwards.close()
        if self._http is not None:
            await self._http.close()

    @property
    def headers(self) -> Mapping[str, str]:
        """What the replicas' pages ask for."""
        token = self._options.token
        return {"Authorization": f"Bearer {token}"} if token else {}

    @property
    def words(self) -> str:
        """How pods are reached."""
        return "directly" if self.direct else "through port-forward"

    async def to(self, namespace: str, pod: str, address: str, port: int) -> str:
        """``host:port`` at which a pod's port is dialled from here."""
        return joined(address, port) if self.direct else await self.forwards.to(namespace, pod, port)

    async def choose(self, release: Release, replicas: Iterable[Replica]) -> None:
        """Directly, where every replica can be dialled by its address and shows its pages; else by port-forward."""
        if self._options.reach == "auto":
            addresses = [
                joined(each.address, release.admin_port) for each in replicas if each.ready and each.address
            ]
            shown = [await self.status(f"http://{each}/bookings.json") for each in addresses]
            self.direct = bool(shown) and all(status == 200 for status in shown)

    async def leave(self, release: Release, there: Callable[[str], bool]) -> None:
        """Close what led to replicas that are gone."""
        mine = f"{release.deployment}-"
        await self.forwards.leave(
            lambda where, pod: where == release.namespace and pod.startswith(mine) and not there(pod)
        )

    async def check(self, pages: Mapping[str, str]) -> None:
        """Raise TargetError where replicas do not show what is judged, with what is to be done about it."""
        for name, address in pages.items():
            status = await self.status(f"http://{address}/bookings.json")
            if status != 200:
                raise TargetError(f"{name} does not show its bookings: {self._why(status)}")
            known = await self.name_of(address)
            if known != name:
                raise TargetError(
                    f"pod {name} calls itself {known!r}: PICKER_REPLICA_NAME must be the pod's name, as the chart says"
                )

    async def name_of(self, address: str) -> str:
        """The name of the replica that answers there. Raises TargetError."""
        try:
            return str((await self._page(address))["replica"]["name"])
        except _BROKEN as error:
            raise TargetError(
                f"{address} does not show its status: {type(error).__name__}: {error}"
            ) from error

    async def members_of(self, address: str) -> frozenset[str] | None:
        """Whom the replica there knows as members of the plane; None: it does not say."""
        try:
            return frozenset(str(each["name"]) for each in (await self._page(address))["members"])
        except _BROKEN:
            return None

    async def status(self, url: str, *, token: bool = True) -> int:
        """The HTTP status of a page; 0: no answer."""
        assert self._http is not None, "ways are opened first"
        try:
            async with self._http.get(url, headers=self.headers if token else {}) as response:
                await response.read()
                return response.status
        except (aiohttp.ClientError, OSError, TimeoutError):
            return 0

    async def _page(self, address: str) -> Mapping[str, Any]:
        assert self._http is not None, "ways are opened first"
        async with self._http.get(f"http://{address}/status.json", headers=self.headers) as response:
            response.raise_for_status()
            page: Mapping[str, Any] = await response.json(content_type=None)
            return page

    def _why(self, status: int) -> str:
        way = "directly" if self.direct else "through the API server's port-forward"
        if status in (401, 403):
            return (
                f"HTTP {status} {way}. {_ADMIN}: give the release admin.existingSecret and this command"
                " --admin-token-file with the same token, or --reach forward"
            )
        told = "; ".join(self.forwards.faults[:2])
        return f"{f'HTTP {status}' if status else 'no answer'} {way}" + (f" ({told})" if told else "")


def joined(host: str, port: int) -> str:
    """``host:port``, IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
