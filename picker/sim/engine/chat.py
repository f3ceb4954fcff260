"""Chat messages into the model's prompt text, by the template in the model directory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment


class ChatError(ValueError):
    """The messages cannot be rendered; the message says why."""


class ChatTemplate:
    """One model's template: `chat_template.jinja`, else the one inside `tokenizer_config.json`."""

    def __init__(self, directory: Path) -> None:
        config = json.loads((directory / "tokenizer_config.json").read_text(encoding="utf-8"))
        own = directory / "chat_template.jinja"
        source = own.read_text(encoding="utf-8") if own.exists() else config["chat_template"]
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        self._template = environment.from_string(source)
        self._special = {
            name: value["content"] if isinstance(value, dict) else value
            for name, value in config.items()
            if name in ("bos_token", "eos_token", "pad_token", "unk_token") and value is not None
        }

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        generation_prompt: bool = True,
        more: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt text. Raises ChatError where the template refuses or breaks on the messages."""
        plain = [{**message, "content": _text(message.get("content"))} for message in messages]
        names = {**self._special, **(more or {}), "messages": plain, "tools": tools or None}
        try:
            return self._template.render(**names, add_generation_prompt=generation_prompt)
        except (TemplateError, TypeError) as fault:
            raise ChatError(f"the chat template cannot render these messages: {fault}") from fault


def _text(content: object) -> object:
    """Content given in parts is the texts of its parts, a line each; a medium is words that its data makes."""
    if not isinstance(content, list):
        return content
    texts = [part if isinstance(part, str) else part.get("text", _medium(part)) for part in content]
    if not all(isinstance(text, str) for text in texts):
        raise ChatError("a message has a content part whose text is no string")
    return "\n".join(str(text) for text in texts)


def _medium(part: Mapping[str, Any]) -> object:
    """Looked at by no model: enough words that equal media share blocks and others do not."""
    if part.get("type") in (None, "text"):
        return None
    digest = hashlib.sha256(json.dumps(part, sort_keys=True).encode()).hexdigest()
    return " ".join(digest[at : at + 4] for at in range(0, len(digest), 4))


def _to_json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)
