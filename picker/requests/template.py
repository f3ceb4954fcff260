"""
Chat templates: a conversation rendered to the text that the engine will tokenise.

Does what ``transformers.apply_chat_template`` does for a template, on messages shaped as vLLM shapes them: text parts
joined by line ends, or kept as parts where the template walks over them; tool arguments as objects.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser

from picker.requests.ask import Chat, JsonObject
from picker.requests.content import part_text
from picker.requests.media import identity
from picker.requests.sandbox import Sandbox
from picker.requests.writing import to_json

CONTINUE_TAG = "CONTINUE_FINAL_MESSAGE_TAG "
"""What transformers puts behind the message to be continued, and cuts at; some templates know it by name."""

_MARK = f"MEDIA{secrets.token_hex(12)}"
"""
Stands, with a number behind it, where what is known ends (0) and for each medium; new at each start, so that no client
can write it.
"""
_MARKED = re.compile(_MARK + r"(\d+)\.")


class Rendered(NamedTuple):
    """A conversation's text."""

    text: str
    """As the engine sees it, up to where that is known."""
    behind: tuple[str | bytes, ...] = ()
    """What follows: texts, and for each medium its identity."""
    whole: bool = True
    """Nothing follows."""


class RenderError(Exception):
    """The template cannot render this conversation."""


class TextTooLongError(RenderError):
    """The text grows past what it may have."""


class _Generation(Extension):
    """``{% generation %}``: marks the assistant's text for training; here it is its content."""

    tags = {"generation"}  # noqa: RUF012 - the attribute's type is the library's

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Read up to the end tag and keep what is between."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: str) -> None:
    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _environment() -> Sandbox:
    environment = Sandbox(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_Generation, loopcontrols],
        autoescape=False,
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


class Template:
    """
    One model's chat template. Safe to use from several threads.

    Raises:
        TemplateError: the source is no template.

    """

    def __init__(self, source: str, special_tokens: Mapping[str, Any]) -> None:
        self._environment = environment = _environment()
        self._template = environment.from_string(source)
        self._template.globals = dict(self._template.globals)  # looked through for each conversation
        self._standing = {**self._template.globals, **special_tokens}
        """Variables of every conversation: the template language's own, and the model's special tokens."""
        self.walks_parts = _walks_parts(environment.parse(source))
        """Whether it walks over the parts of a message's content: then contents are given as lists of parts."""

    def render(self, chat: Chat, *, limit: int) -> Rendered:
        """
        The prompt's text, up to the first message that the engine alone can render, and what follows it.

        Raises:
            TextTooLongError: the text grows past ``limit`` characters.
            RenderError: the template refuses the conversation.

        """
        try:
            media: list[bytes] = []
            messages = [
                _shaped(message, self.walks_parts, media, cut=index == chat.exact_until)
                for index, message in enumerate(chat.messages)
            ]
            if chat.continue_final_message:
                messages[-1] = _tagged(messages[-1])
            text = self._text(messages, chat, limit)
            if chat.continue_final_message:
                text = _continued(text)
            return Rendered(text) if chat.exact_until is None else _split(text, media)
        except RenderError:
            raise
        except Exception as error:
            raise RenderError(f"{type(error).__name__}: {error}"[:500]) from error

    def _text(self, messages: Sequence[JsonObject], chat: Chat, limit: int) -> str:
        variables = {
            **self._standing,
            "messages": messages,
            "tools": [_tool(tool) for tool in chat.tools] if chat.tools else None,
            "documents": chat.documents,
            **chat.arguments,
            "add_generation_prompt": chat.add_generation_prompt,
        }
        variables.pop("continue_final_message", None)  # transformers keeps it from the template
        pieces: list[str] = []
        length = 0
        # as `generate` does it, but without copying the language's own variables through a chain of mappings
        context = self._environment.context_class(
            self._environment, variables, self._template.name, self._template.blocks
        )
        for piece in self._template.root_render_func(context):
            length += len(piece)
            if length > limit:
                raise TextTooLongError(f"the rendered prompt has more than {limit} characters")
            pieces.append(piece)
        return "".join(pieces)


def _split(text: str, media: Sequence[bytes]) -> Rendered:
    """Cut at the marks; numbers and texts take turns. A template may leave out or repeat what it was given."""
    known, *marked = _MARKED.split(text)
    if not marked:
        raise RenderError("the template leaves out the message at which it is to be cut")
    behind: list[str | bytes] = []
    for number, part in zip(marked[::2], marked[1::2], strict=True):
        if int(number):
            behind.append(media[int(number) - 1])
        if part:
            behind.append(part)
    return Rendered(known, tuple(behind), whole=False)


def _shaped(message: JsonObject, as_parts: bool, media: list[bytes], *, cut: bool) -> JsonObject:
    """A message as templates expect it; ``cut``: what it holds is not known, and marked from there on."""
    given = message.get("content")
    if (
        type(given) is str
        and not as_parts
        and not cut
        and len(message) == 2
        and next(iter(message)) == "role"
    ):
        return message
    role = message["role"]
    content = _content(given, as_parts, media, cut=cut)
    shaped: dict[str, Any] = {"role": role, "content": content}
    for name in ("name", "tool_call_id", "tools"):
        if message.get(name) is not None:
            shaped[name] = message[name]
    if role == "assistant":
        if calls := message.get("tool_calls"):
            shaped["tool_calls"] = [_call(call) for call in calls]
        reasoning = message.get("reasoning") or message.get("reasoning_content")
        if isinstance(reasoning, str):
            shaped["reasoning"] = shaped["reasoning_content"] = reasoning
    return shaped


def _content(content: Any, as_parts: bool, media: list[bytes], *, cut: bool) -> str | list[dict[str, str]]:
    """The content with a mark for each medium: where it stands among parts, else before the text, as vLLM has it."""
    parts: Sequence[Any] = [content] if isinstance(content, str) else content or []
    marks: list[str] = []
    texts: list[str] = []
    for part in parts:
        text = part_text(part)
        if text is None:
            media.append(identity(part))
            text = f"{_MARK}{len(media)}."
            (texts if as_parts else marks).append(text)
        else:
            texts.append(text)
    whole = [*marks, *texts]
    edge = f"{_MARK}0." if cut else ""
    if not as_parts:
        return edge + "\n".join(whole)
    return [{"type": "text", "text": text} for text in ([edge] if cut else []) + whole]


def _call(call: JsonObject) -> dict[str, Any]:
    """A tool call whose arguments are an object, as templates want them; clients send them as JSON text."""
    function = dict(call["function"])
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        function["arguments"] = orjson.loads(arguments) if arguments.strip() else {}
    elif arguments is None:
        function["arguments"] = {}
    return {**call, "function": function}


def _tool(tool: JsonObject) -> dict[str, Any]:
    """A tool in the order of fields in which vLLM hands it to the template."""
    function = dict(tool.get("function") or {})
    named = {name: function.pop(name, None) for name in ("name", "description", "parameters")}
    rest = {key: value for key, value in tool.items() if key not in {"type", "function"}}
    return {"type": tool.get("type", "function"), "function": {**named, **function}, **rest}


def _tagged(message: JsonObject) -> JsonObject:
    """The message with the tag behind its text."""
    content = message["content"]
    if isinstance(content, str):
        return {**message, "content": content + CONTINUE_TAG}
    if not content:
        raise RenderError("continue_final_message is set, and the final message has no text")
    return {
        **message,
        "content": [*content[:-1], {**content[-1], "text": content[-1]["text"] + CONTINUE_TAG}],
    }


def _continued(text: str) -> str:
    """Cut at the tag; where the template trimmed the tag's blank it trims the content too."""
    at = text.rindex(CONTINUE_TAG.strip())
    kept = text[:at]
    return kept if text.startswith(CONTINUE_TAG, at) else kept.rstrip()


def _walks_parts(root: nodes.Template) -> bool:
    """Whether a loop runs over ``message.content``, or over a variable named or made of it."""
    names = {"content"}
    for assigned in root.find_all(nodes.Assign):
        if isinstance(assigned.target, nodes.Name) and _is_content(assigned.node, names):
            names.add(assigned.target.name)
    return any(_is_content(loop.iter, names) for loop in root.find_all(nodes.For))


def _is_content(node: nodes.Node, names: set[str]) -> bool:
    if isinstance(node, nodes.Name):
        return node.name in names
    if isinstance(node, nodes.Getattr):
        return node.attr == "content"
    if isinstance(node, nodes.Getitem):
        if isinstance(node.arg, nodes.Slice):
            return _is_content(node.node, names)
        return isinstance(node.arg, nodes.Const) and node.arg.value == "content"
    if isinstance(node, nodes.Filter | nodes.Test) and node.node is not None:
        return _is_content(node.node, names)
    return False


def find_template(directory: Path, *, tools: bool = False) -> tuple[str, str] | None:
    """
    The source of a model's chat template and the file's name, in transformers' order of preference; None: it has none.

    Args:
        directory: Where ``chat_template.jinja``, ``additional_chat_templates/`` or ``tokenizer_config.json`` lie.
        tools: Prefer the template named ``tool_use``, where there is one.

    Raises:
        OSError, ValueError: a file is unreadable or holds no JSON.

    """
    named: dict[str, tuple[str, str]] = {}
    config = read_json(directory / "tokenizer_config.json").get("chat_template")
    if isinstance(config, str):
        named["default"] = (config, "tokenizer_config.json")
    elif isinstance(config, list):
        named.update(
            (entry["name"], (entry["template"], "tokenizer_config.json"))
            for entry in config
            if isinstance(entry, dict)
            and isinstance(entry.get("name"), str)
            and isinstance(entry.get("template"), str)
        )
    main = directory / "chat_template.jinja"
    if main.is_file():
        named["default"] = (main.read_text("utf-8"), main.name)
    for file in sorted((directory / "additional_chat_templates").glob("*.jinja")):
        named[file.stem] = (file.read_text("utf-8"), file.name)
    return (named.get("tool_use") if tools else None) or named.get("default")


def read_json(file: Path) -> dict[str, Any]:
    """
    A file's JSON object; empty where there is no such file.

    Raises:
        OSError, ValueError: it is unreadable or holds no JSON object.

    """
    if not file.is_file():
        return {}
    value = orjson.loads(file.read_bytes())
    if not isinstance(value, dict):
        raise ValueError(f"{file.name} must hold a JSON object")  # noqa: TRY004 - one kind of fault for a bad file
    return value
