"""
Token ids from an engine: its own ``POST /tokenize``, as vLLM serves it for texts and for conversations.

An engine is asked within the request's budget and never waited for beyond. One that fails several times in a row is
left alone until it has answered a question of our own, asked beside the requests: being away it costs them nothing.
"""

from __future__ import annotations

import asyncio
import io
import secrets
from array import array
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import aiohttp
import msgspec
import orjson
import structlog
import xxhash
from yarl import URL

from picker.requests.ask import Ask, Chat, Ids, TokenIds, Untold, Why
from picker.requests.counts import Counts
from picker.requests.pieces import PieceCache

log = structlog.get_logger(__name__)

CACHE_BYTES = 64 * 1024 * 1024
"""Size of the cache of one engine's answers."""
CALLS = 64
"""Most calls to one engine at one time."""
FAILURES = 3
"""So many failures in a row, and the engine is left alone."""
PROBE_TIMEOUT = 2.0
PROBE_SECONDS = 1.0
"""Between the first two questions to an engine that is left alone, doubling up to `PROBE_MOST`."""
PROBE_MOST = 15.0
SHORT_BYTES = 65_536
"""An engine that is late with a longer question has not failed."""
MOST_BYTES = 8 * 1024 * 1024
"""Longest question."""
ANSWER_BYTES = 65_536
"""Most bytes of an answer, beside `ANSWER_RATIO` for every byte of the question."""
ANSWER_RATIO = 12

_SEED = secrets.randbits(64)
"""Of the digests that answers are kept by; new at each start, so that no client can make two prompts meet."""


class _Answer(msgspec.Struct):
    """What is read of an engine's answer."""

    tokens: list[Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]]
    count: int | None = None


_decoder = msgspec.json.Decoder(_Answer)


class _FailedError(Exception):
    """A call brought no ids. ``fault``: the engine's, rather than the question's."""

    def __init__(self, why: Why, text: str, *, fault: bool = True) -> None:
        super().__init__(text)
        self.why = why
        self.fault = fault


class Engine:
    """
    One engine that tokenises.

    Args:
        url: Its address; ``/tokenize`` is put behind it.
        model: The model to name in questions of our own; empty: none.
        counts: Where calls are counted.

    """

    def __init__(self, url: URL, model: str, counts: Counts) -> None:
        self._url = url / "tokenize"
        self._model = model
        self._counts = counts
        self._cache = PieceCache(CACHE_BYTES)
        self._session: aiohttp.ClientSession | None = None
        self._calls = 0
        self._failures = 0
        self._broken = asyncio.Event()
        self._tried = asyncio.Event()
        self.state: Literal["loading", "ready", "away"] = "loading"
        self.detail = ""

    async def run(self) -> None:
        """Ask whether it answers, at the start and whenever it has failed. Never returns."""
        connector = aiohttp.TCPConnector(limit=CALLS)
        async with aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=None),
        ) as self._session:
            try:
                while True:
                    self._broken.clear()
                    await self._until_it_answers()
                    await self._broken.wait()
                    await asyncio.sleep(PROBE_SECONDS)
            finally:
                self._session = None

    async def _until_it_answers(self) -> None:
        pause = PROBE_SECONDS
        while True:
            try:
                async with asyncio.timeout(PROBE_TIMEOUT):
                    await self._call(_question({"prompt": "a"}, self._model))
            except (_FailedError, TimeoutError) as error:
                self._left_alone(str(error) or f"no answer in {PROBE_TIMEOUT:g} s")
                self._tried.set()
            else:
                break
            await asyncio.sleep(pause)
            pause = min(pause * 2, PROBE_MOST)
        log.info("engine tokenises", url=str(self._url))
        self.state, self.detail, self._failures = "ready", "", 0
        self._tried.set()

    async def tried(self) -> None:
        """Wait until it was asked once."""
        await self._tried.wait()

    async def ids(self, ask: Ask, budget: float) -> TokenIds | Untold:
        """
        The token ids of every prompt, or why there are none.

        Past ``budget`` seconds it answers with the first prompt's, if they are known by then.
        """
        if self.state != "ready":
            return Untold(Why.LOADING if self.state == "loading" else Why.AWAY)
        if self._calls >= CALLS:
            return Untold(Why.BUSY)
        told: list[Ids] = []
        size = 0
        self._calls += 1
        try:
            async with asyncio.timeout(budget):
                for prompt in ask.prompts:
                    if isinstance(prompt, array):
                        told.append(prompt)
                        continue
                    question = _question(_content(prompt, ask), ask.model)
                    size = len(question)
                    told.append(await self._answer(question))
        except TimeoutError:
            self._failed(f"no answer in {budget:g} s", fault=size <= SHORT_BYTES)
            return TokenIds((told[0],), complete=False) if told else Untold(Why.LATE)
        except _FailedError as error:
            self._failed(str(error), fault=error.fault)
            return Untold(error.why)
        finally:
            self._calls -= 1
        return TokenIds(tuple(told))

    async def _answer(self, question: bytes) -> Ids:
        digest = xxhash.xxh3_128_hexdigest(question, seed=_SEED)
        if (known := self._cache.get(digest)) is not None:
            self._counts.engine_hit += 1
            return known
        self._counts.engine_calls += 1
        ids = await self._call(question)
        self._failures = 0
        self._cache.put(digest, ids)
        return ids

    def _failed(self, text: str, *, fault: bool) -> None:
        """Count it; several in a row, and the engine is left alone."""
        self._counts.engine_failures += fault
        self._failures += fault
        if fault and self._failures >= FAILURES and self.state == "ready":
            self._counts.engine_breaks += 1
            self._left_alone(text)
            self._broken.set()

    def _left_alone(self, text: str) -> None:
        if self.state != "away" or self.detail != text:
            log.warning("engine does not tokenise, prompts are not known", url=str(self._url), reason=text)
        self.state, self.detail = "away", text

    async def _call(self, question: bytes) -> Ids:
        """One call. The caller sets the deadline."""
        if self._session is None:
            raise _FailedError(Why.CLOSED, "shutting down", fault=False)
        try:
            async with self._session.post(
                self._url,
                data=io.BytesIO(question),
                headers={"Content-Type": "application/json", "Accept-Encoding": "identity"},
                allow_redirects=False,
            ) as response:
                _check(response)
                body = await _body(response, ANSWER_BYTES + ANSWER_RATIO * len(question))
        except TimeoutError:
            raise
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _FailedError(Why.AWAY, f"{type(error).__name__}: {error}"[:200]) from None
        return _read(body)

    def status(self) -> Mapping[str, Any]:
        """For ``/status.json``."""
        cache = {"answers": len(self._cache), "bytes": self._cache.bytes}
        return {
            "engine": str(self._url),
            "state": self.state,
            "detail": self.detail,
            "calls": self._calls,
            "cache": cache,
        }


def _question(content: Mapping[str, Any], model: str) -> bytes:
    """
    The body of a call.

    Raises:
        _FailedError: it is too long, or holds what JSON does not.

    """
    try:
        question = orjson.dumps({"model": model, **content} if model else content)
    except (TypeError, ValueError) as error:
        raise _FailedError(Why.FAILED, f"{type(error).__name__}: {error}"[:200], fault=False) from None
    if len(question) > MOST_BYTES:
        raise _FailedError(Why.TOO_LONG, f"more than {MOST_BYTES} bytes", fault=False)
    return question


def _content(prompt: str | Chat, ask: Ask) -> Mapping[str, Any]:
    if isinstance(prompt, str):
        return {"prompt": prompt, "add_special_tokens": ask.add_special_tokens}
    if prompt.documents or prompt.exact_until is not None:
        # The endpoint takes no documents; pictures it would fetch.
        raise _FailedError(Why.UNASKABLE, "documents, or content that is no text", fault=False)
    content: dict[str, Any] = {
        "messages": prompt.messages,
        "add_generation_prompt": prompt.add_generation_prompt,
        "continue_final_message": prompt.continue_final_message,
        "add_special_tokens": ask.add_special_tokens,
    }
    if prompt.tools:
        content["tools"] = prompt.tools
    if prompt.arguments:
        content["chat_template_kwargs"] = prompt.arguments
    return content


def _check(response: aiohttp.ClientResponse) -> None:
    """A refusal, and an error inside, may be a client's doing: neither is held against the engine."""
    status = response.status
    encoding = response.headers.get("Content-Encoding", "identity").lower()
    if status == 200 and encoding == "identity":
        return
    if status == 200:
        raise _FailedError(Why.AWAY, f"it answered in {encoding[:20]!r}, unasked")
    refused = 400 <= status < 500 and status != 429
    raise _FailedError(
        Why.REFUSED if refused else Why.AWAY, f"it answered {status}", fault=not refused and status != 500
    )


async def _body(response: aiohttp.ClientResponse, most: int) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > most:
            response.close()
            raise _FailedError(Why.AWAY, f"its answer is longer than {most} bytes")
    return bytes(body)


def _read(body: bytes) -> Ids:
    try:
        answer = _decoder.decode(body)
    except msgspec.DecodeError as error:
        raise _FailedError(Why.AWAY, f"its answer cannot be read: {error}"[:200]) from None
    if not answer.tokens or answer.count not in {None, len(answer.tokens)}:
        raise _FailedError(Why.AWAY, f"it told {len(answer.tokens)} tokens and counted {answer.count}")
    return array("I", answer.tokens)
