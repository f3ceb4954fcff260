"""One connection of HTTP/2, the server's side of it: bytes in, bytes out, calls to streams' handlers in between.

No input or output, no clock: `Connection.receive` takes what came and when, `Connection.take` hands out what is to be
written. Nothing raises. What the peer breaks ends its stream, or the connection with a GOAWAY that says why; what a
handler raises ends its stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING

from picker.serving.http2 import frames
from picker.serving.http2.floods import Floods
from picker.serving.http2.frames import HEAD, HEAD_SIZE, ConnectionFault, StreamFault
from picker.serving.http2.headers import Reader, Request
from picker.serving.http2.incoming import Incoming
from picker.serving.http2.limits import WRITE_QUANTUM, Counts, Limits
from picker.serving.http2.stream import Handler, Stream

Accept = Callable[[Stream, Request], Handler]
"""Called for each new stream; whoever refuses one may finish it right there."""
