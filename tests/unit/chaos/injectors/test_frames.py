"""Whatever the pieces in which bytes arrive: every byte comes out once, in order, and messages are told apart."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.injectors.frames import Frame, Frames, matches

TOKENS = st.text(
    st.characters(min_codepoint=33, max_codepoint=126, exclude_characters=".*>"), min_size=1, max_size=8
)
SUBJECTS = st.lists(TOKENS, min_size=1, max_size=4).map(".".join)
PAYLOADS = st.binary(max_size=300) | st.sampled_from([b"\r\n", b"PUB a 3\r\nabc\r\n", b"\r\n\r\n", b""])


@st.composite
def messages(draw: st.DrawFn) -> Frame:
    verb = draw(
        st.sampled_from(
            ["PUB", "HPUB", "MSG", "HMSG", "PING", "PONG", "INFO", "CONNECT", "SUB", "+OK", "-ERR"]
        )
    )
    if verb in ("PING", "PONG", "+OK"):
        return Frame(f"{verb}\r\n".encode(), verb)
    if verb in ("INFO", "CONNECT", "SUB", "-ERR"):
        return Frame(f'{verb} {{"a": 1}} b c\r\n'.encode(), verb)
    subject, reply, payload = draw(SUBJECTS), draw(st.none() | SUBJECTS), draw(PAYLOADS)
    words = [verb, subject]
    words += [str(draw(st.integers(1, 99)))] if "MSG" in verb else []
    words += [reply] if reply is not None else []
    head = b"NATS/1.0\r\nA: b\r\n\r\n" if verb.startswith("H") else b""
    words += [str(len(head))] if head else []
    words += [str(len(head) + len(payload))]
    return Frame(" ".join(words).encode() + b"\r\n" + head + payload + b"\r\n", verb, subject, reply or "")


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in pairwise(places)]


@given(st.lists(messages(), max_size=12), st.lists(st.integers(0, 10_000), max_size=30))
def test_messages_are_told_apart_however_the_bytes_are_cut(told: list[Frame], cuts: list[int]) -> None:
    frames = Frames()
    data = b"".join(one.raw for one in told)
    assert [frame for piece in pieces(data, cuts) for frame in frames.feed(piece)] == told
    assert frames.rest() == b""
    assert not frames.lost


@given(
    st.lists(messages(), max_size=3), st.binary(max_size=400), st.lists(st.integers(0, 10_000), max_size=30)
)
def test_no_byte_is_lost_or_changed_where_the_stream_is_not_nats(
    told: list[Frame], noise: bytes, cuts: list[int]
) -> None:
    frames = Frames()
    data = b"".join(one.raw for one in told) + noise
    out = b"".join(frame.raw for piece in pieces(data, cuts) for frame in frames.feed(piece))
    assert out + frames.rest() == data


@pytest.mark.parametrize(
    "line",
    [b"PUB a b c d\r\n", b"PUB a -1\r\n", b"MSG a 1 x\r\n", b"\x16\x03\x01\r\n", b"PUB a 99999999999\r\n"],
)
def test_what_is_no_message_is_passed_on_as_it_is_from_there_on(line: bytes) -> None:
    frames = Frames()
    assert [frame.raw for frame in frames.feed(line + b"PING\r\n")] == [line + b"PING\r\n"]
    assert frames.lost
    assert [frame.raw for frame in frames.feed(b"half a li")] == [b"half a li"]


@given(messages())
def test_a_message_with_another_reply_differs_in_nothing_else(told: Frame) -> None:
    if not told.reply:
        return
    changed = told.with_reply("other.reply")
    (back,) = Frames().feed(changed.raw)
    assert back == changed
    assert back.with_reply(told.reply).raw == told.raw


@pytest.mark.parametrize(
    ("pattern", "subject", "yes"),
    [
        ("a.b", "a.b", True), ("a.b", "a.b.c", False), ("a.b.c", "a.b", False), ("a.*", "a.b", True),
        ("*.b", "a.b", True), ("a.*", "a", False), ("a.>", "a.b.c", True), ("a.>", "a", False), (">", "a", True),
        ("picker.v1.*.kv.>", "picker.v1.pool.kv.w.0", True), ("picker.v1.*.kv.>", "picker.v1.pool.ask.w.0", False),
    ],
)  # fmt: skip
def test_patterns_match_as_on_a_server(pattern: str, subject: str, yes: bool) -> None:
    assert matches(pattern, subject) is yes
