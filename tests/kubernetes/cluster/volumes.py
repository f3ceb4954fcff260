"""What pods read from the API: variables, and volumes written as folders."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.kubernetes.cluster.api import Api, ApiError, Object
from tests.kubernetes.cluster.network import NODE

_VARIABLE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")
_TOKEN_SECONDS = 3600


class MissingError(Exception):
    """Something that the pod names and that is not there, as its container's status tells it."""


class Pages:
    """What one pod may read: ConfigMaps, Secrets, its own fields and its ServiceAccount's token."""

    def __init__(self, api: Api, pod: Object, address: str) -> None:
        self._api, self._pod = api, pod
        self._address = address
        self._namespace: str = pod["metadata"]["namespace"]

    def field(self, path: str) -> str:
        """A field of the pod, as the downward API tells it."""
        metadata, spec = self._pod["metadata"], self._pod["spec"]
        simple = {
            "metadata.name": metadata["name"], "metadata.namespace": self._namespace, "metadata.uid": metadata["uid"],
            "status.podIP": self._address, "status.podIPs": self._address, "status.hostIP": NODE,
            "spec.nodeName": spec["nodeName"], "spec.serviceAccountName": spec.get("serviceAccountName", "default"),
        }  # fmt: skip
        if path in simple:
            return str(simple[path])
        found = _SUBSCRIPT.fullmatch(path)
        return str(metadata.get(found[1], {}).get(found[2], "")) if found else ""

    async def config(self, name: str, *, optional: bool = False) -> dict[str, bytes]:
        """The entries of a ConfigMap."""
        found = await self._read("configmaps", name, optional=optional)
        binary = {key: base64.b64decode(value) for key, value in (found.get("binaryData") or {}).items()}
        return {key: value.encode() for key, value in (found.get("data") or {}).items()} | binary

    async def secret(self, name: str, *, optional: bool = False) -> dict[str, bytes]:
        """The entries of a Secret."""
        found = await self._read("secrets", name, optional=optional)
        return {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}

    async def _read(self, plural: str, name: str, *, optional: bool) -> Object:
        try:
            return await self._api.get(f"/api/v1/namespaces/{self._namespace}/{plural}/{name}")
        except ApiError as error:
            if error.status == 404 and optional:
                return {}
            raise MissingError(f"{plural}/{name}: {error}") from error

    async def environment(self, container: Object) -> dict[str, str]:
        """The container's own variables; `envFrom` first, later ones may name earlier ones."""
        found: dict[str, str] = {}
        for source in container.get("envFrom", ()):
            entries = await self._source(source)
            found |= {source.get("prefix", "") + key: value.decode() for key, value in entries.items()}
        for variable in container.get("env", ()):
            value = await self._value(variable, found)
            if value is not None:
                found[variable["name"]] = value
        return found

    async def _source(self, source: Object) -> dict[str, bytes]:
        if "configMapRef" in source:
            ref = source["configMapRef"]
            return await self.config(ref["name"], optional=ref.get("optional", False))
        ref = source["secretRef"]
        return await self.secret(ref["name"], optional=ref.get("optional", False))

    async def _value(self, variable: Object, found: Mapping[str, str]) -> str | None:
        source = variable.get("valueFrom")
        if not source:
            return expanded(variable.get("value", ""), found)
        if "fieldRef" in source:
            return self.field(source["fieldRef"]["fieldPath"])
        if "resourceFieldRef" in source:
            return "1"
        kind, ref = next(iter(source.items()))
        read = self.config if kind == "configMapKeyRef" else self.secret
        optional = ref.get("optional", False)
        entries = await read(ref["name"], optional=optional)
        if ref["key"] not in entries:
            if optional:
                return None
            raise MissingError(f"no key {ref['key']} in {ref['name']}, for {variable['name']}")
        return entries[ref["key"]].decode()

    async def volume(self, volume: Mapping[str, Any], folder: Path, group: int) -> Path:
        """Write a volume and return where it is: ``folder``, or the machine's own for a hostPath."""
        if "hostPath" in volume:
            return Path(volume["hostPath"]["path"])
        _make(folder, 0o2777 if group else 0o777)
        if "configMap" in volume:
            source = volume["configMap"]
            entries = await self.config(source["name"], optional=source.get("optional", False))
            _write(folder, _picked(entries, source))
        elif "secret" in volume:
            source = volume["secret"]
            entries = await self.secret(source["secretName"], optional=source.get("optional", False))
            _write(folder, _picked(entries, source))
        elif "projected" in volume:
            for source in volume["projected"]["sources"]:
                _write(folder, await self._projected(source))
        elif "downwardAPI" in volume:
            _write(folder, self._fields(volume["downwardAPI"]))
        elif "emptyDir" not in volume:
            raise MissingError(f"volume {volume['name']}: no such kind here")
        return folder

    async def _projected(self, source: Object) -> dict[str, bytes]:
        if "configMap" in source:
            ref = source["configMap"]
            return _picked(await self.config(ref["name"], optional=ref.get("optional", False)), ref)
        if "secret" in source:
            ref = source["secret"]
            return _picked(await self.secret(ref["name"], optional=ref.get("optional", False)), ref)
        if "downwardAPI" in source:
            return self._fields(source["downwardAPI"])
        asked = source["serviceAccountToken"]
        return {asked["path"]: await self._token(asked)}

    def _fields(self, source: Object) -> dict[str, bytes]:
        items = source.get("items", ())
        return {each["path"]: self.field(each["fieldRef"]["fieldPath"]).encode() for each in items}

    async def _token(self, asked: Object) -> bytes:
        """A token of the pod's ServiceAccount, bound to the pod: what it may do is what RBAC says."""
        metadata = self._pod["metadata"]
        account = self._pod["spec"].get("serviceAccountName", "default")
        spec = {
            "expirationSeconds": max(asked.get("expirationSeconds", _TOKEN_SECONDS), _TOKEN_SECONDS),
            "audiences": [asked["audience"]] if asked.get("audience") else [],
            "boundObjectRef": {
                "apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"],
            },
        }  # fmt: skip
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = f"/api/v1/namespaces/{self._namespace}/serviceaccounts/{account}/token"
        answer = await self._api.call("POST", path, request)
        return str(answer["status"]["token"]).encode()


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """`$(NAME)` replaced where the name is known."""
    return _VARIABLE.sub(lambda found: variables.get(found[1], found[0]), text)


def _picked(entries: Mapping[str, bytes], source: Object) -> dict[str, bytes]:
    """The entries that `items` name, under their paths; all of them where it names none."""
    items = source.get("items")
    if items is None:
        return dict(entries)
    return {each["path"]: entries[each["key"]] for each in items if each["key"] in entries}


def _make(folder: Path, mode: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(mode)


def _write(folder: Path, entries: Mapping[str, bytes]) -> None:
    for name, content in entries.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
