"""The OpenAI shapes: bodies into prompts and limits, answers into JSON."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from picker.sim.engine.chat import ChatError, ChatTemplate
from picker.sim.engine.engine import Limits
from picker.sim.engine.options import Options
from picker.sim.engine.tokens import Tokenizer


class RequestError(Exception):
    """The request is answered with an error of this status."""

    def __init__(self, message: str, *, status: int = 400, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.param = param

    def body(self) -> dict[str, object]:
        """The error in OpenAI's shape."""
        kind = {404: "NotFoundError", 503: "ServiceUnavailableError"}.get(self.status, "BadRequestError")
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.status}}


class StreamOptions(msgspec.Struct):
    """What a stream carries besides the answer."""

    include_usage: bool = False


class Body(msgspec.Struct, kw_only=True):
    """What both APIs share; fields that change nothing here are ignored."""

    model: str | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: int | None = None
    max_tokens: int | None = None
    min_tokens: int = 0
    ignore_eos: bool = False
    cache_salt: str | None = None


class CompletionBody(Body, kw_only=True):
    """`POST /v1/completions`."""

    prompt: str | list[str | int | list[int]]


class ChatBody(Body, kw_only=True):
    """`POST /v1/chat/completions`."""

    messages: list[dict[str, Any]]
    max_completion_tokens: int | None = None
    tools: list[dict[str, Any]] | None = None
    add_generation_prompt: bool = True
    chat_template_kwargs: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request that will be served: one prompt per choice to make, in order of the choices' indexes."""

    model: str
    prompts: tuple[list[int], ...]
    limits: Limits
    n: int
    lora: str
    salt: str
    stream: bool
    usage: bool
    chat: bool


class Reader:
    """Bodies into what they want, with this engine's tokenizer and template."""

    def __init__(self, options: Options, tokenizer: Tokenizer) -> None:
        self._options = options
        self._tokenizer = tokenizer
        self._template = ChatTemplate(options.model_dir)
        self._chat = msgspec.json.Decoder(ChatBody)
        self._completion = msgspec.json.Decoder(CompletionBody)

    def read(self, raw: bytes, *, chat: bool) -> Wanted:
        """Raises RequestError with what is wrong."""
        try:
            if chat:
                body: Body = self._chat.decode(raw)
            else:
                body = self._completion.decode(raw)
        except msgspec.DecodeError as fault:
            raise RequestError(f"the body cannot be read: {fault}") from fault
        model = body.model or self._options.model
        if model != self._options.model and model not in self._options.loras:
            raise RequestError(f"The model `{model}` does not exist.", status=404, param="model")
        most = body.max_tokens
        if isinstance(body, ChatBody):
            most = body.max_completion_tokens if body.max_completion_tokens is not None else most
        elif most is None:
            most = 16
        if most is not None and most < 1:
            raise RequestError(f"max_tokens must be at least 1, not {most}", param="max_tokens")
        n = 1 if body.n is None else body.n
        if not 1 <= n <= 128:
            raise RequestError(f"n must be 1 to 128, not {n}", param="n")
        return Wanted(
            model=model,
            prompts=tuple(self.prompts(body)),
            limits=Limits(most, body.min_tokens, body.ignore_eos),
            n=n,
            lora="" if model == self._options.model else model,
            salt=body.cache_salt or "",
            stream=body.stream,
            usage=bool(body.stream_options and body.stream_options.include_usage),
            chat=chat,
        )

    def prompts(self, body: Body) -> list[list[int]]:
        """Token ids of every prompt in the body."""
        if isinstance(body, ChatBody):
            found = [self._tokenizer.encode(self._render(body))]
        elif isinstance(body, CompletionBody):
            found = [
                self._tokenizer.encode(each) if isinstance(each, str) else each
                for each in _several(body.prompt)
            ]
        else:
            raise TypeError(f"a body is of chat or of completions, not {type(body).__name__}")
        if not found:
            raise RequestError("there is no prompt", param="prompt")
        for prompt in found:
            self._check(prompt)
        return found

    def _render(self, body: ChatBody) -> str:
        if not body.messages:
            raise RequestError("messages must not be empty", param="messages")
        try:
            return self._template.render(
                body.messages,
                tools=body.tools,
                generation_prompt=body.add_generation_prompt,
                more=body.chat_template_kwargs,
            )
        except ChatError as fault:
            raise RequestError(str(fault), param="messages") from fault

    def _check(self, prompt: Sequence[int]) -> None:
        if not prompt:
            raise RequestError("the prompt must not be empty", param="prompt")
        if min(prompt) < 0 or max(prompt) >= len(self._tokenizer):
            raise RequestError(
                f"a token id is outside the vocabulary of {len(self._tokenizer)}", param="prompt"
            )
        longest = min(self._options.max_model_len, self._options.blocks * self._options.block_size)
        if len(prompt) >= longest:
            raise RequestError(
                f"the prompt has {len(prompt)} tokens; the longest context is {longest}", param="prompt"
            )


def _several(prompt: str | list[str | int | list[int]]) -> list[str | list[int]]:
    """The prompts in any of the four forms: a text, token ids, a list of texts, a list of lists of ids."""
    if isinstance(prompt, str):
        return [prompt]
    numbers = [each for each in prompt if isinstance(each, int)]
    others = [each for each in prompt if not isinstance(each, int)]
    if numbers and others:
        raise RequestError(
            "prompt must be one text, token ids, or a list of either; it mixes them", param="prompt"
        )
    return [numbers] if numbers else others


class Shapes:
    """The JSON of one request's answer."""

    def __init__(self, wanted: Wanted, name: str) -> None:
        self._chat = wanted.chat
        self._common = {"id": name, "created": int(time.time()), "model": wanted.model}
        self._kind = "chat.completion" if wanted.chat else "text_completion"

    def opening(self, index: int) -> dict[str, object]:
        """The first piece of a chat choice, which names the speaker."""
        return self._piece(
            {"index": index, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
        )

    def piece(self, index: int, text: str, ends_by: str | None) -> dict[str, object]:
        """One streamed piece of a choice."""
        said = {"delta": {"content": text}} if self._chat else {"text": text}
        return self._piece({"index": index, **said, "logprobs": None, "finish_reason": ends_by})

    def closing(self, usage: Mapping[str, object]) -> dict[str, object]:
        """The last piece of a stream that was asked for usage."""
        return {**self._piece(None), "usage": usage}

    def _piece(self, choice: object) -> dict[str, object]:
        kind = self._kind + ".chunk" if self._chat else self._kind
        return {**self._common, "object": kind, "choices": [choice] if choice else []}

    def whole(self, answers: Sequence[tuple[str, str]], usage: Mapping[str, object]) -> dict[str, object]:
        """A plain answer: text and reason of the end of every choice."""
        choices = []
        for index, (text, ends_by) in enumerate(answers):
            said = {"message": {"role": "assistant", "content": text}} if self._chat else {"text": text}
            choices.append({"index": index, **said, "logprobs": None, "finish_reason": ends_by})
        return {**self._common, "object": self._kind, "choices": choices, "usage": usage}


def usage_of(prompt: int, cached: int, output: int) -> dict[str, object]:
    """Token counts of a request in OpenAI's shape."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
