"""A gateway's message out of its bytes, whatever clients wrote into it."""

from __future__ import annotations

from google.protobuf.message import DecodeError, Message

from picker.serving.wire.extproc_pb2 import ProcessingRequest
from picker.serving.wire.lenient_pb2 import Request

_read = ProcessingRequest.FromString


def message_of(data: bytes) -> ProcessingRequest:
    """The message; one without content where it is none. Never raises.

    Bytes in its texts that are no UTF-8 are replaced: gateways copy what a client wrote into texts of theirs, as
    attributes and metadata, and one such byte must not cost the request.
    """
    try:
        return _read(data)
    except DecodeError:
        pass
    try:
        lenient = Request.FromString(data)
        _mend(lenient)
        return _read(lenient.SerializeToString())
    except DecodeError:
        return ProcessingRequest()


def _mend(message: Message) -> None:
    for field, value in message.ListFields():
        if field.type == field.TYPE_BYTES:
            setattr(message, field.name, value.decode("utf-8", "replace").encode())
        else:
            for each in value if field.is_repeated else (value,):
                _mend(each)
