"""From path, headers and body to an `Ask`: what can be read of it, and what is refused."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace
from typing import Any, Literal

import orjson

from picker.requests.ask import BYTES_PER_TOKEN, Api, Ask, BadRequest, Unread
from picker.requests.fields import MAX_NAME
from picker.requests.multipart import model_of
from picker.requests.openai import MAX_TOKEN_IDS, Adapters
from picker.requests.paths import Family, Shown, family_of, path_of, suffix_of
from picker.requests.standing import read_standing

__all__ = ["Ask", "BadRequest", "parse", "path_of", "read", "suffix_of"]

_MARK = b"\xef\xbb\xbf"
"""The byte order mark, which some editors write before UTF-8 and engines overlook."""
MAX_CONTAINERS = 100_000
"""Most objects and arrays in one body. Read, each costs up to 20 times its bytes and stays until tokens are known."""
MAX_STRINGS = 500_000
"""Most strings in one body, names of fields included."""
MAX_COMMAS = MAX_TOKEN_IDS + MAX_STRINGS
"""Most values in one body, as their commas count them; token ids are the most numerous ones."""

BULKY = 32_768
"""Most bytes that a body may hold beside the text of its prompts, or to escape that, without being called bulky."""


def read(
    path: str,
    headers: Mapping[str, str],
    body: bytes | None,
    *,
    complete: bool = True,
    loras: Container[str] = (),
    base_model: str = "",
    unknown_path: Literal["load", "refuse"] = "load",
) -> Ask:
    """
    Read one request.

    Args:
        path: As the client sent it, query included.
        headers: Lower-case names.
        body: None where the gateway does not show it, or there is none.
        complete: False where the gateway cut the body.
        loras: Names of LoRA adapters.
        base_model: The model that they are adapters of.
        unknown_path: What becomes of a path nobody knows: routed by load, or refused.

    Returns:
        What was asked; ``unread`` is set where the request can be routed by load alone.

    Raises:
        BadRequest: the body is not what the path's API takes, or the path is unknown and to be refused.

    """
    family = family_of(path)
    if family is None and unknown_path == "refuse":
        shown = path.partition("?")[0][:200]
        raise BadRequest(f"The path {shown!r} is not served here.", None)
    ask = _read(family, headers, body, Adapters(loras, base_model), complete=complete)
    standing = read_standing(headers, ask.priority)
    return ask if standing is None else replace(ask, standing=standing)


def _read(
    family: Family | None,
    headers: Mapping[str, str],
    body: bytes | None,
    adapters: Adapters,
    *,
    complete: bool,
) -> Ask:
    if family is None or family.reader is None:
        return _other(family, headers, body, adapters, complete=complete)
    unread = _unread(headers, body, complete=complete)
    if unread is not None or body is None:
        return Ask(api=family.api, unread=unread, estimated_tokens=_guess(body) if family.computes else 0)
    ask = family.reader(parse(body), adapters)
    if len(body) - BYTES_PER_TOKEN * ask.estimated_tokens > BULKY:
        ask = replace(ask, bulky=True)
    if not family.computes:
        ask = replace(ask, prompts=(), unread=Unread.UNCOMPUTED, estimated_tokens=0, n=1, sequences=1)
    return ask


def parse(body: bytes) -> Mapping[str, Any]:
    """
    A body as a JSON object; of a repeated key the last one counts.

    Raises:
        BadRequest: it is not JSON, or no object, or holds more values than `MAX_CONTAINERS` and its siblings allow.

    """
    body = body.removeprefix(_MARK)
    if not body.strip():
        raise BadRequest("The request body is empty; a JSON object is needed.")
    _bound(body)
    try:
        value = orjson.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"The request body is not valid JSON: {str(error)[:200]}.") from None
    if not isinstance(value, dict):
        raise BadRequest("The request body must be a JSON object.")
    return value


def _bound(body: bytes) -> None:
    """Refuse a body of too many values before it is read: 16 MiB of ``[],[],`` would stop the process for seconds."""
    if len(body) <= MAX_CONTAINERS or _within(body, strings=body.count(b'"') // 2):
        return
    # Text may hold as many brackets, commas and escaped quotes as it likes: look again at what is outside of strings.
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    strings = plain.count(b'"') // 2
    if strings <= MAX_STRINGS and _within(b"".join(plain.split(b'"')[::2]), strings=strings):
        return
    raise BadRequest(
        f"The request body holds too many values: at most {MAX_CONTAINERS} objects and arrays, {MAX_STRINGS} strings"
        f" and {MAX_COMMAS} values in all are read."
    )


def _within(text: bytes, *, strings: int) -> bool:
    containers = text.count(b"{") + text.count(b"[")
    return containers <= MAX_CONTAINERS and strings <= MAX_STRINGS and text.count(b",") <= MAX_COMMAS


def _unread(headers: Mapping[str, str], body: bytes | None, *, complete: bool) -> Unread | None:
    if body is None or (not body and headers.get(":method", "POST") in {"GET", "HEAD", "OPTIONS", "DELETE"}):
        return Unread.HIDDEN
    if not complete:
        return Unread.CUT
    if headers.get("content-encoding", "identity").strip().lower() not in {"", "identity"}:
        return Unread.ENCODED
    return None


def _guess(body: bytes | None) -> int:
    return -(-len(body or b"") // BYTES_PER_TOKEN)


def _other(
    family: Family | None,
    headers: Mapping[str, str],
    body: bytes | None,
    adapters: Adapters,
    *,
    complete: bool,
) -> Ask:
    """A request routed by load: the model where it is easily told, never an error."""
    model = ""
    if (
        family is not None
        and family.shown is Shown.MODEL
        and _unread(headers, body, complete=complete) is None
    ):
        model = _model(headers.get("content-type", ""), body or b"")
    counted = family is not None and not family.computes
    return Ask(
        api=Api.OTHER if family is None else family.api,
        model=model,
        **adapters.of(model),
        unread=Unread.UNCOMPUTED if counted else Unread.PATH,
    )


def _model(content_type: str, body: bytes) -> str:
    """Of a form, or of a JSON object; empty where it is neither or names none."""
    if content_type.lower().startswith("multipart/"):
        return model_of(content_type, body)
    try:
        value = parse(body).get("model")
    except BadRequest:
        return ""
    return value if isinstance(value, str) and len(value) <= MAX_NAME else ""
