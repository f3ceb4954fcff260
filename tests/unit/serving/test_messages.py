"""Whatever bytes a client has a gateway put into a message, the message is read."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from picker.serving.messages import message_of
from picker.serving.reading import (
    ATTRIBUTES,
    SUBSET_KEY,
    SUBSET_NAMESPACE,
    attributes_of,
    headers_of,
    subset_of,
)
from picker.serving.wire.extproc_pb2 import HeaderValue, HttpBody, ProcessingMode, ProcessingRequest

MARKS = ("MARKhEADER", "MARKtRAILER", "MARKaTTRIBUTE", "MARKhINT", "MARKlISTED", "MARKnESTED")
"""Stand where gateways put what clients wrote."""


def marked() -> ProcessingRequest:
    message = ProcessingRequest()
    message.request_headers.headers.headers.extend(
        [HeaderValue(key=":path", raw_value=b"/v1/\xff"), HeaderValue(key="x-text", value=MARKS[0])]
    )
    message.request_headers.end_of_stream = True
    message.attributes[ATTRIBUTES].update({"request.id": MARKS[2], "number": 7, "yes": True})
    hints = message.metadata_context.filter_metadata
    hints[SUBSET_NAMESPACE].update({SUBSET_KEY: ["10.0.0.1:80", MARKS[4]]})
    hints["other"].update({"text": MARKS[3], "more": {"deep": [{"deeper": MARKS[5]}]}})
    message.protocol_config.request_body_mode = ProcessingMode.FULL_DUPLEX_STREAMED
    return message


@given(st.lists(st.binary(min_size=1, max_size=8), min_size=len(MARKS), max_size=len(MARKS)))
def test_bytes_that_are_no_text_are_replaced_and_all_else_is_as_it_came(written: list[bytes]) -> None:
    message, data = marked(), marked().SerializeToString()
    for mark, text in zip(MARKS, written, strict=True):
        data = data.replace(mark.encode(), text.ljust(len(mark), b"."))
    read = message_of(data)
    shown = [
        text.ljust(len(mark), b".").decode("utf-8", "replace")
        for mark, text in zip(MARKS, written, strict=True)
    ]
    headers = {":path": "/v1/\ufffd", "x-text": shown[0]}
    assert headers_of(read.request_headers.headers) == headers
    assert read.request_headers.end_of_stream
    assert attributes_of(read) == {"request.id": shown[2], "number": "7", "yes": "true"}
    assert subset_of(read) == ("10.0.0.1:80", shown[4].strip())
    other = read.metadata_context.filter_metadata["other"].fields
    assert other["text"].string_value == shown[3]
    deep = other["more"].struct_value.fields["deep"].list_value.values[0]
    assert deep.struct_value.fields["deeper"].string_value == shown[5]
    assert read.protocol_config == message.protocol_config


def test_a_body_beside_what_is_no_text_stays_byte_for_byte() -> None:
    message = ProcessingRequest(request_body=HttpBody(body=bytes(range(256)), end_of_stream=True))
    message.attributes["a"].update({"b": MARKS[0]})
    read = message_of(message.SerializeToString().replace(MARKS[0].encode(), b"\xff" * len(MARKS[0])))
    assert read.request_body == message.request_body


@given(st.binary(max_size=200), st.integers(0, 2**32))
def test_no_bytes_raise(data: bytes, seed: int) -> None:
    message_of(data)
    rng, whole = random.Random(seed), bytearray(marked().SerializeToString())
    for _ in range(4):
        whole[rng.randrange(len(whole))] = rng.randrange(256)
    message_of(bytes(whole))
