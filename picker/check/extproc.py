"""One request of a gateway: health, a pick over ext_proc, and its end in good order."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import orjson
from cryptography import x509
from cryptography.x509.oid import NameOID

from discovery.address import split_address
from picker.serving.gateway import headers_set, request_body, request_headers, response_headers
from picker.serving.methods import CHECK, PROCESS
from picker.serving.modes import BodyMode
from picker.serving.seam import BOOKING_HEADER, DESTINATION_HEADER, REASON_HEADER
from picker.serving.wire.extproc_pb2 import ProcessingRequest, ProcessingResponse
from picker.serving.wire.health_pb2 import HealthCheckRequest, HealthCheckResponse

PATH = "/v1/completions"
PROMPT = "picker check"
STATUS = 204
"""Of the response that never was: it has no body, so that its headers are its end."""
MOST_ANSWERS = 8
"""So many messages are read for the end of a stream."""


class ProbeError(Exception):
    """A probe did not come to its end; the text says why."""


@dataclass(frozen=True, slots=True)
class Security:
    """How a gateway reaches the ext_proc port."""

    tls: bool = False
    certificate: Path | None = None
    """What the gateway shows, where the replicas ask for certificates."""
    key: Path | None = None
    authorities: Path | None = None
    """Who signs the replicas' certificate; None: whatever certificate is shown is taken."""


@dataclass(frozen=True, slots=True)
class Pick:
    """A replica's answer."""

    worker: str
    """``host:port``."""
    booking: str


async def healthy(address: str, *, service: str = "readiness", seconds: float) -> bool:
    """Whether the health port says serving. Raises `ProbeError`."""
    async with grpc.aio.insecure_channel(address, options=_OPTIONS) as channel:
        try:
            answer = await channel.unary_unary(
                CHECK,
                request_serializer=HealthCheckRequest.SerializeToString,
                response_deserializer=HealthCheckResponse.FromString,
            )(HealthCheckRequest(service=service), timeout=seconds)
        except grpc.aio.AioRpcError as error:
            raise ProbeError(_said(error)) from None
    return bool(answer.status == HealthCheckResponse.SERVING)


async def pick(
    address: str,
    *,
    request_id: str,
    model: str,
    security: Security,
    seconds: float,
    mode: BodyMode = BodyMode.BUFFERED,
) -> Pick:
    """Ask for a worker as a gateway does, and show a response's end at once, so that the booking ends.

    Raises:
        ProbeError: nobody answered, or no worker was named.
    """
    try:
        async with asyncio.timeout(seconds), _channel(address, security) as channel:
            call: Any = channel.stream_stream(
                PROCESS,
                request_serializer=ProcessingRequest.SerializeToString,
                response_deserializer=ProcessingResponse.FromString,
            )()
            try:
                return await _asked(call, request_id, model, mode)
            finally:
                call.cancel()
    except grpc.aio.AioRpcError as error:
        raise ProbeError(_said(error)) from None
    except TimeoutError:
        raise ProbeError(f"no answer within {seconds:g} s") from None
    except asyncio.InvalidStateError as error:
        raise ProbeError(f"the stream broke: {error}") from None


async def _asked(call: Any, request_id: str, model: str, mode: BodyMode) -> Pick:
    body = {"prompt": PROMPT, "max_tokens": 1} | ({"model": model} if model else {})
    headers = {
        ":method": "POST",
        ":path": PATH,
        "content-type": "application/json",
        "x-request-id": request_id,
        "user-agent": "picker-check",
    }
    await call.write(request_headers(headers, mode=mode))
    told: Mapping[str, str] = {}
    if mode is not BodyMode.FULL_DUPLEX_STREAMED:
        told = await _told(call)
    if DESTINATION_HEADER not in told:
        await call.write(request_body(orjson.dumps(body)))
        told = await _told(call)
    if DESTINATION_HEADER not in told:
        raise ProbeError(f"the answer names no worker in {DESTINATION_HEADER}")
    worker = told[DESTINATION_HEADER].partition(",")[0].strip()
    await _end(call, worker)
    return Pick(worker, told.get(BOOKING_HEADER, ""))


async def _told(call: Any) -> Mapping[str, str]:
    answer = await call.read()
    _look_for_refusal(answer)
    return headers_set(answer)


async def _end(call: Any, worker: str) -> None:
    """Show the end of a response, and leave once the replica has taken it in."""
    attributes: dict[str, str | float] = {"upstream.address": worker}
    await call.write(response_headers(STATUS, end=True, attributes=attributes))
    await call.done_writing()
    for _ in range(MOST_ANSWERS):
        if await call.read() is grpc.aio.EOF:
            return


def _look_for_refusal(answer: Any) -> None:
    if answer is grpc.aio.EOF:
        raise ProbeError("the stream was closed before an answer")
    if answer.HasField("immediate_response"):
        refused = answer.immediate_response
        reasons = {each.header.key: each.header.raw_value.decode("utf-8", "replace") or each.header.value
                   for each in refused.headers.set_headers}  # fmt: skip
        said = reasons.get(REASON_HEADER, "") or refused.body.decode("utf-8", "replace")[:200]
        raise ProbeError(f"answered with {refused.status.code}: {said}")


_OPTIONS = (("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1))


@asynccontextmanager
async def _channel(address: str, security: Security) -> AsyncIterator[grpc.aio.Channel]:
    if not security.tls:
        async with grpc.aio.insecure_channel(address, options=_OPTIONS) as channel:
            yield channel
        return
    own = (
        security.certificate
        and security.key
        and (security.certificate.read_bytes(), security.key.read_bytes())
    )
    shown, name = await _certificate_at(address, security)
    roots = shown if security.authorities is None else security.authorities.read_bytes()
    credentials = grpc.ssl_channel_credentials(roots, *((own[1], own[0]) if own else (None, None)))
    # asked by address; which names a gateway verifies is its own configuration's to say
    options = (*_OPTIONS, ("grpc.ssl_target_name_override", name))
    async with grpc.aio.secure_channel(address, credentials, options=options) as channel:
        yield channel


async def _certificate_at(address: str, security: Security) -> tuple[bytes, str]:
    """The certificate that is shown there, as PEM, and a name in it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    host, port = split_address(address)
    try:
        if security.certificate is not None and security.key is not None:
            context.load_cert_chain(security.certificate, security.key)
        _, writer = await asyncio.open_connection(host, port, ssl=context)
    except OSError as error:
        raise ProbeError(f"no TLS connection: {error}") from None
    try:
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    finally:
        writer.close()
    try:
        return ssl.DER_cert_to_PEM_cert(shown).encode(), _a_name_in(x509.load_der_x509_certificate(shown))
    except ValueError as error:
        # what OpenSSL takes is not always a certificate by the book
        raise ProbeError(f"the certificate that is shown there makes no sense: {error}") from None


def _a_name_in(certificate: x509.Certificate) -> str:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        found = names.get_values_for_type(x509.DNSName)
    except x509.ExtensionNotFound:
        found = [str(each.value) for each in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    return found[0].replace("*", "picker") if found else "picker"


def _said(error: grpc.aio.AioRpcError) -> str:
    return f"{error.code().name}: {error.details() or ''}"[:300]
