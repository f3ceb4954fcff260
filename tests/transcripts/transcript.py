"""One ext_proc stream on paper: what happened to an exchange, in its order, and what it asked for each time.

A file has a head of ``name: value`` lines, then entries, each a title line and a message in protobuf's text format, or
JSON. ``===> word`` is something that happened, with the seconds since the stream began; ``===< word`` something that
the exchange then asked for. A long run of one character is written ``<<x*200000>>``.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from picker.serving import encoded
from picker.serving.buffers import Budget
from picker.serving.counts import Counts
from picker.serving.effects import BodySeen, Decide, Effect, Over, ResponseSeen, Send, SendBody
from picker.serving.exchange import Exchange, Limits
from picker.serving.seam import HttpRequest, Picked, Refused, Responded
from picker.serving.wire.extproc_pb2 import ProcessingRequest, ProcessingResponse

FOLDER = Path(__file__).with_name("recorded")
MAX_BODY = 1 << 20
_RUN = re.compile(r"(\w)\1{99,}")
_FOLDED = re.compile(r"<<(\w)\*(\d+)>>")


@dataclass(frozen=True, slots=True)
class Entry:
    """Something that happened, or something that the exchange asked for."""

    word: str
    text: str = ""


@dataclass(slots=True)
class Event:
    """Something that happened, and what the exchange asked for."""

    at: float
    entry: Entry
    asked: list[Entry] = field(default_factory=list)


@dataclass(slots=True)
class Transcript:
    """A whole stream."""

    head: dict[str, str]
    events: list[Event] = field(default_factory=list)

    def answers(self) -> list[ProcessingResponse]:
        """The messages that went to the gateway."""
        return [
            text_format.Parse(entry.text, ProcessingResponse())
            for event in self.events
            for entry in event.asked
            if entry.word == "send"
        ]

    def asked(self, word: str) -> list[str]:
        """The texts of everything of that kind that the exchange asked for."""
        return [entry.text for event in self.events for entry in event.asked if entry.word == word]


# on paper


def written(transcript: Transcript) -> str:
    """The file's text."""
    lines = [f"{name}: {value}" for name, value in transcript.head.items()]
    for event in transcript.events:
        lines += ["", f"===> {event.entry.word} {event.at:.2f}", *_body(event.entry.text)]
        for entry in event.asked:
            lines += [f"===< {entry.word}", *_body(entry.text)]
    return "\n".join(lines) + "\n"


def _body(text: str) -> list[str]:
    return [_RUN.sub(lambda run: f"<<{run[1]}*{len(run[0])}>>", text)] if text else []


def read(path: Path) -> Transcript:
    """A file's transcript."""
    head, _, rest = path.read_text().partition("\n===> ")
    transcript = Transcript(dict(_named(line) for line in head.splitlines() if line.strip()))
    for block in re.split(r"\n+===> ", rest):
        first, *asked = block.split("\n===< ")
        word, at = _title(first).rsplit(" ", 1)
        event = Event(
            float(at), Entry(word, _unfolded(first)), [Entry(_title(one), _unfolded(one)) for one in asked]
        )
        transcript.events.append(event)
    return transcript


def _named(line: str) -> tuple[str, str]:
    name, _, value = line.partition(": ")
    return name, value


def _title(block: str) -> str:
    return block.partition("\n")[0].strip()


def _unfolded(block: str) -> str:
    return _FOLDED.sub(lambda run: run[1] * int(run[2]), block.partition("\n")[2].strip())


# from an exchange


def entries_of(effect: Effect) -> list[Entry]:
    """One effect on paper: of what is sent, the messages that go to the gateway."""
    match effect:
        case Send(message):
            return [_sent(message)]
        case SendBody(body, end, response):
            return [
                _sent(ProcessingResponse.FromString(data))
                for data in encoded.streamed(body, end=end, response=response)
            ]
        case Decide(request):
            return [Entry("decide", json.dumps(_shown(request), sort_keys=True))]
        case ResponseSeen(_, response):
            return [Entry("response", json.dumps(_response(response), sort_keys=True))]
        case BodySeen():
            return [Entry("body")]
        case Over(_, end):
            return [Entry(f"over {end}")]
        case _:
            return [Entry(type(effect).__name__.lower())]


def _sent(message: ProcessingResponse) -> Entry:
    return Entry("send", text_format.MessageToString(message).strip())


def _shown(request: HttpRequest) -> dict[str, Any]:
    body = None if request.body is None else hashlib.sha256(request.body).hexdigest()[:16]
    size = None if request.body is None else len(request.body)
    subset = None if request.subset is None else list(request.subset)
    return {
        "path": request.headers.get(":path", ""),
        "headers": len(request.headers),
        "bytes": size,
        "digest": body,
        "complete": request.complete,
        "subset": subset,
        "attributes": dict(request.attributes),
    }


def _response(response: Responded) -> dict[str, Any]:
    return {
        "status": response.status,
        "served": response.served,
        "attempts": response.attempts,
        "event_stream": response.event_stream,
    }


def answer_text(answer: Picked | Refused) -> Entry:
    """A pick's answer on paper; of a Picked only what stands in a message."""
    if isinstance(answer, Refused):
        return Entry("refused", json.dumps(asdict(answer), sort_keys=True))
    told = {
        "destination": answer.destination,
        "booking_id": answer.booking_id,
        "set_headers": [list(pair) for pair in answer.set_headers],
    }
    if answer.body is not None:
        told["body"] = answer.body.decode()
    return Entry("picked", json.dumps(told, sort_keys=True))


def _answer(entry: Entry) -> Picked | Refused:
    told = json.loads(entry.text)
    if entry.word == "refused":
        return Refused(**told)
    body = told["body"].encode() if "body" in told else None
    headers = tuple((name, value) for name, value in told["set_headers"])
    return Picked(told["destination"], told["booking_id"], headers, body=body)


# once more


def replayed(transcript: Transcript) -> Transcript:
    """The same things happen to a new exchange: what it asks for now."""
    again = Transcript(transcript.head)
    for event, effects in zip(transcript.events, _happening(transcript), strict=True):
        asked = [one for effect in effects for one in entries_of(effect)]
        again.events.append(Event(event.at, event.entry, asked))
    return again


def request_of(transcript: Transcript) -> HttpRequest:
    """The request that had to be decided."""
    (decide,) = [one for effects in _happening(transcript) for one in effects if isinstance(one, Decide)]
    return decide.request


def _happening(transcript: Transcript) -> Iterator[list[Effect]]:
    began = 1000.0
    exchange = Exchange(
        Limits(MAX_BODY, 60.0, 600.0),
        budget=Budget(1 << 30),
        hold=lambda: "headers" if transcript.head.get("hold") == "headers" else "response",
        counts=Counts(),
        now=began,
    )
    for event in transcript.events:
        effects = _happen(exchange, event.entry, began + event.at)
        exchange.performed()
        yield effects


def _happen(exchange: Exchange, entry: Entry, now: float) -> list[Effect]:
    match entry.word:
        case "receive":
            return exchange.receive(text_format.Parse(entry.text, ProcessingRequest()), now)
        case "picked" | "refused":
            return exchange.decided(_answer(entry), now)
        case "half_closed":
            return exchange.half_closed(now)
        case "cancelled":
            return exchange.cancelled(now)
        case "expired":
            return exchange.expired(now)
        case _:
            raise ValueError(f"nothing is known to happen that is called {entry.word!r}")


# what two recordings of one request have in common


def gist(transcript: Transcript) -> list[str]:
    """What happened without times, and without what depends on how bytes were cut into pieces or on who was faster."""
    lines: list[str] = []
    for event in transcript.events:
        lines += [_plain(entry) for entry in (event.entry, *event.asked)]
    return list(_joined(lines))


def _plain(entry: Entry) -> str:
    word = "let go" if entry.word in ("half_closed", "cancelled") else entry.word
    if entry.word == "decide" and '"complete": false' in entry.text:
        return "decide what was cut"
    if entry.word == "receive" and "_body {" in entry.text:
        # a message for each piece, however many pieces there are
        return f"piece of {entry.text.partition(' ')[0]}"
    if entry.word == "send" and "_body {" in entry.text and "streamed_response" in entry.text:
        return f"piece of {entry.text.partition(' ')[0]} back"
    return f"{word} {entry.text}".strip()


def _joined(lines: Iterable[str]) -> Iterable[str]:
    seen: set[str] = set()
    for line in lines:
        piece = line.startswith(("piece of", "send response_body {", "send request_body {"))
        if not piece or line not in seen:
            yield line
        seen.add(line)


def paths(folder: Path = FOLDER) -> Sequence[Path]:
    """All files."""
    return sorted(folder.glob("*.txt"))
