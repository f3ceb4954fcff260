"""APIs beside OpenAI's first two: their bodies into chat bodies, answers into their shapes. Text only, one choice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from picker.sim.engine.api import RequestError

Event = Mapping[str, Any]
"""One event of a stream; its ``type`` is the event's name too."""


@dataclass(frozen=True, slots=True)
class Told:
    """Token counts of one answer."""

    prompt: int
    cached: int
    output: int


class Speech(Protocol):
    """The JSON of one request's answer."""

    def whole(self, text: str, ends_by: str, told: Told) -> Event:
        """A plain answer."""
        ...

    def opening(self, told: Told) -> Iterator[Event]:
        """What a stream begins with."""
        ...

    def piece(self, text: str) -> Event:
        """One streamed piece."""
        ...

    def closing(self, text: str, ends_by: str, told: Told) -> Iterator[Event]:
        """What a stream ends with; ``text`` is all that was said."""
        ...


@dataclass(frozen=True, slots=True)
class Voice:
    """One API."""

    chat: Callable[[Mapping[str, Any]], dict[str, Any]]
    """Its body as a chat body."""
    speech: Callable[[str, str], Speech]
    """Its answers, for a model and a name of the request."""

    def read(self, raw: bytes) -> bytes:
        """The chat body for a body. Raises RequestError where it is no JSON object."""
        try:
            body = orjson.loads(raw)
        except ValueError as fault:
            raise RequestError(f"the body cannot be read: {fault}") from fault
        if not isinstance(body, dict):
            raise RequestError("the body must be an object")
        return orjson.dumps(self.chat(body))


def _shared(body: Mapping[str, Any], limit: str) -> dict[str, Any]:
    kept = {name: body[name] for name in ("model", "stream") if body.get(name) is not None}
    return kept | ({"max_tokens": body[limit]} if body.get(limit) is not None else {})


def _message(role: str, content: Any) -> dict[str, Any]:
    if isinstance(content, list):
        content = "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return {"role": role, "content": content}


def _from_messages(body: Mapping[str, Any]) -> dict[str, Any]:
    given = [each for each in body.get("messages") or [] if isinstance(each, dict)]
    system = [_message("system", body["system"])] if body.get("system") else []
    messages = [_message(str(each.get("role", "user")), each.get("content")) for each in given]
    return {**_shared(body, "max_tokens"), "messages": [*system, *messages]}


def _from_response(body: Mapping[str, Any]) -> dict[str, Any]:
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given or []
    system = [_message("system", body["instructions"])] if body.get("instructions") else []
    messages = [
        _message(str(each.get("role", "user")), each.get("content"))
        for each in items
        if isinstance(each, dict)
    ]
    return {**_shared(body, "max_output_tokens"), "messages": [*system, *messages]}


class _Messages:
    """Anthropic's: the prompt's tokens come first, what was made comes last."""

    def __init__(self, model: str, name: str) -> None:
        self._bare = {"id": f"msg_{name}", "type": "message", "role": "assistant"}
        self._model = model

    def whole(self, text: str, ends_by: str, told: Told) -> Event:
        return {
            **self._bare,
            "content": [{"type": "text", "text": text}],
            "model": self._model,
            "stop_reason": _STOPS.get(ends_by, ends_by),
            "usage": {**_read(told), "output_tokens": told.output},
        }

    def opening(self, told: Told) -> Iterator[Event]:
        usage = {**_read(told), "output_tokens": 0}
        yield {
            "type": "message_start",
            "message": {**self._bare, "content": [], "model": self._model, "usage": usage},
        }
        yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}

    def piece(self, text: str) -> Event:
        return {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}

    def closing(self, text: str, ends_by: str, told: Told) -> Iterator[Event]:
        yield {"type": "content_block_stop", "index": 0}
        reason = {"stop_reason": _STOPS.get(ends_by, ends_by)}
        yield {"type": "message_delta", "delta": reason, "usage": {"output_tokens": told.output}}
        yield {"type": "message_stop"}


_STOPS = {"stop": "end_turn", "length": "max_tokens"}


def _read(told: Told) -> Mapping[str, int]:
    """Anthropic counts apart what came from the cache."""
    return {"input_tokens": told.prompt - told.cached, "cache_read_input_tokens": told.cached}


class _Response:
    """OpenAI's responses: the last event holds the whole answer."""

    def __init__(self, model: str, name: str) -> None:
        self._id, self._model, self._created = f"resp_{name}", model, int(time.time())

    def whole(self, text: str, ends_by: str, told: Told) -> Event:
        said = {"type": "output_text", "text": text, "annotations": []}
        usage = {
            "input_tokens": told.prompt,
            "input_tokens_details": {"cached_tokens": told.cached},
            "output_tokens": told.output,
            "total_tokens": told.prompt + told.output,
        }
        status = "incomplete" if ends_by == "length" else "completed"
        output = [{"type": "message", "role": "assistant", "content": [said]}]
        return {**self._bare(status), "output": output, "usage": usage}

    def _bare(self, status: str) -> dict[str, Any]:
        return {
            "id": self._id, "object": "response", "created_at": self._created, "status": status, "model": self._model,
        }  # fmt: skip

    def opening(self, told: Told) -> Iterator[Event]:
        yield {
            "type": "response.created",
            "response": {**self._bare("in_progress"), "output": [], "usage": None},
        }

    def piece(self, text: str) -> Event:
        return {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": text}

    def closing(self, text: str, ends_by: str, told: Told) -> Iterator[Event]:
        last = self.whole(text, ends_by, told)
        yield {"type": f"response.{last['status']}", "response": last}


VOICES: Mapping[str, Voice] = {
    "/v1/messages": Voice(_from_messages, _Messages),
    "/v1/responses": Voice(_from_response, _Response),
}
"""By path."""
