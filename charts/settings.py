"""The picker's settings as the chart sees them: where each one lives among the values, its default, its schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args, get_origin

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from picker.settings import PARTS, Part, Settings, names_of

Kind = Literal["text", "integer", "number", "boolean", "words"]

HOMES: Final[Mapping[str, str]] = {
    "PICKER_POOL_NAME": "pool.name",
    "PICKER_POOL_NAMESPACE": "pool.namespace",
    "PICKER_REPLICA_NAME": "",
    "PICKER_REPLICA_ADDRESS": "",
    "PICKER_GRPC_PORT": "ports.grpc",
    "PICKER_GRPC_HEALTH_PORT": "ports.health",
    "PICKER_METRICS_PORT": "ports.metrics",
    "PICKER_TLS": "tls.mode",
    "PICKER_TLS_CERT_FILE": "tls.existingSecret",
    "PICKER_TLS_KEY_FILE": "tls.existingSecret",
    "PICKER_TLS_CLIENT_CA_FILE": "tls.client.existingSecret",
    "PICKER_TLS_CLIENT_NAMES": "tls.client.names",
    "PICKER_NATS_URL": "events.url",
    "PICKER_NATS_CREDENTIALS_FILE": "events.existingSecret.credentialsKey",
    "PICKER_NATS_NKEY_FILE": "events.existingSecret.nkeyKey",
    "PICKER_NATS_CA_FILE": "events.existingSecret.caKey",
    "PICKER_NATS_CERT_FILE": "events.existingSecret.certificateKey",
    "PICKER_NATS_KEY_FILE": "events.existingSecret.privateKeyKey",
    "PICKER_PLANE_URL": "plane.url",
    "PICKER_PLANE_PASSWORD_FILE": "plane.existingSecret.passwordKey",
    "PICKER_PLANE_CA_FILE": "plane.existingSecret.caKey",
    "PICKER_PLANE_CERTIFICATE_FILE": "plane.existingSecret.certificateKey",
    "PICKER_PLANE_KEY_FILE": "plane.existingSecret.privateKeyKey",
    "PICKER_PEERS": "discovery.peers.addresses",
    "PICKER_PEER_SERVICE": "discovery.peers.service",
    "PICKER_PEERS_PORT": "ports.peers",
    "PICKER_PEERS_SECRET_FILE": "discovery.peers.existingSecret",
    "PICKER_PEERS_TLS_CA_FILE": "discovery.peers.existingSecret",
    "PICKER_PEERS_TLS_CERT_FILE": "discovery.peers.existingSecret",
    "PICKER_PEERS_TLS_KEY_FILE": "discovery.peers.existingSecret",
    "PICKER_PEERS_TLS_NAMES": "discovery.peers.names",
    "PICKER_PEER_SOURCE": "discovery.peers.source",
    "PICKER_WORKER_SOURCE": "discovery.workers.source",
    "PICKER_WORKERS_FILE": "discovery.workers.file",
    "PICKER_API_OBJECTS": "objects",
    "PICKER_IMPORT_KUBECONFIG": "objects.imports.existingSecret",
    "PICKER_ADMIN_TOKEN": "admin.existingSecret",
    "PICKER_METRICS_PROTECTION": "metrics.protection",
}
"""Settings that have a place of their own among the values; an empty one is told by the pod itself."""

WIRED: Final[frozenset[str]] = frozenset(
    {"PICKER_TLS_CLIENT_NAMES", "PICKER_PEERS", "PICKER_PEERS_TLS_NAMES", "PICKER_METRICS_PROTECTION"}
)
"""Those of them whose value becomes the variable as it stands, without a template of their own."""

ALSO: Final[Mapping[str, tuple[str, ...]]] = {"PICKER_SYNC": ("DYN_ROUTER_REPLICA_SYNC",)}
"""Names that speak about the same thing without being aliases: an operator's own word on them silences the chart's."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its variable, where its value stands, and what the schema says of it."""

    variable: str
    also: tuple[str, ...]
    part: str
    title: str
    field: str
    key: str
    kind: Kind
    default: Any
    schema: Mapping[str, Any]
    text: str

    @property
    def home(self) -> str:
        """The path of its value; empty where the pod tells it."""
        return HOMES.get(self.variable, f"settings.{self.part}.{self.key}")

    @property
    def generated(self) -> bool:
        """Whether its value stands in the generated block."""
        return self.variable not in HOMES

    @property
    def path(self) -> tuple[str, ...]:
        """The keys of the value that becomes the variable as it stands; empty where a template makes the variable."""
        return tuple(self.home.split(".")) if self.generated or self.variable in WIRED else ()


def camel(field: str) -> str:
    """``max_body_bytes`` as ``maxBodyBytes``."""
    first, *rest = field.split("_")
    return first + "".join(word.capitalize() for word in rest)


def settings() -> Iterator[Setting]:
    """Every setting, in the order of the models."""
    for name, part in zip(Settings.model_fields, PARTS, strict=True):
        schemas = part.model_json_schema(by_alias=False)["properties"]
        for field, info in part.model_fields.items():
            variable, *aliases = names_of(part, field, info)
            kind = kind_of(info)
            yield Setting(
                variable=variable,
                also=(*aliases, *ALSO.get(variable, ())),
                part=name,
                title=part.title,
                field=field,
                key=_key(name, field),
                kind=kind,
                default=_default(info, kind),
                schema=_schema(schemas[field], kind, info, part),
                text=" ".join((info.description or "").split()),
            )


def _key(part: str, field: str) -> str:
    """The bridge's settings and the peers' carry their section's name, which need not be said twice."""
    return camel(field.removeprefix(f"{part}_") if part in ("bridge", "peers") else field)


def kind_of(info: FieldInfo) -> Kind:
    """What its value is, by the annotation less ``None``."""
    kinds: Mapping[object, Kind] = {bool: "boolean", int: "integer", float: "number"}
    annotation = info.annotation
    if get_origin(annotation) is tuple:
        return "words"
    options = [each for each in get_args(annotation) or (annotation,) if each is not type(None)]
    return kinds.get(options[0], "text") if len(options) == 1 else "text"


def _default(info: FieldInfo, kind: Kind) -> Any:
    default = info.default
    if isinstance(default, SecretStr):
        return default.get_secret_value()
    if default is None:
        return ""
    return list(default) if kind == "words" else default


def _schema(schema: Mapping[str, Any], kind: Kind, info: FieldInfo, part: type[Part]) -> Mapping[str, Any]:
    """The model's schema without what the chart says elsewhere; an unset value is the empty text."""
    if kind == "words":
        words: dict[str, Any] = {"type": "array", "items": {"type": "string", "pattern": "^[^,]+$"}}
        # an empty variable counts as unset, so a list that has words of its own cannot be emptied
        return words | ({"minItems": 1} if info.default else {})
    options = [dict(each) for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
    for each in options:
        for name in ("title", "description", "default", "format", "writeOnly", "deprecated"):
            each.pop(name, None)
    if len(options) != 1:
        raise ValueError(f"{part.__name__}: a setting of several types has no place in the chart: {schema}")
    if info.default is None and kind != "text":
        return {"anyOf": [*options, {"const": ""}]}
    return options[0]
