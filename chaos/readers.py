"""Callers that read nothing for a while: their buffers are small, so the answer stands in somebody else's."""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import socket
import struct
import termios

from chaos.history import Writer
from chaos.streams import PATH, completion

RECEIVE_BYTES = 2304
"""The least that a kernel gives to a socket."""
READ_SECONDS = 45.0
_NUMBERS = itertools.count(200_000)


class IdleReader:
    """One streaming request by hand. ``send`` sends it, ``read`` reads the answer to its end and records the call."""

    def __init__(self, history: Writer, gateway: str) -> None:
        self._history = history
        self._host, _, port = gateway.removeprefix("http://").rpartition(":")
        self._port = int(port)
        self._number = next(_NUMBERS)
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        self._socket.setblocking(False)

    async def send(self, *, tokens: int, prompt: str) -> None:
        """Send a completion of so many tokens; nothing of the answer is read."""
        body = completion(tokens, prompt)
        head = (
            f"POST {PATH} HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json\r\n"
            f"x-request-id: idle-reader-{self._number}\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        loop = asyncio.get_running_loop()
        self._history.write(self._who, "call", "invoke", number=self._number, tokens=tokens)
        async with asyncio.timeout(READ_SECONDS):
            await loop.sock_connect(self._socket, (self._host, self._port))
            await loop.sock_sendall(self._socket, head.encode() + body)

    @property
    def unread(self) -> int:
        """Bytes of the answer that wait in the socket."""
        return int(struct.unpack("i", fcntl.ioctl(self._socket, termios.FIONREAD, b"\0" * 4))[0])

    async def read(self) -> None:
        """Read the whole answer."""
        loop, answer = asyncio.get_running_loop(), bytearray()
        fault = ""
        try:
            async with asyncio.timeout(READ_SECONDS):
                while piece := await loop.sock_recv(self._socket, 65_536):
                    answer += piece
        except (OSError, TimeoutError) as error:
            fault = f"{type(error).__name__}: {error}"
        finally:
            self._socket.close()
        whole = b"data: [DONE]" in answer
        status = int(answer[9:12]) if answer.startswith(b"HTTP/1.1 ") else 0
        outcome = "complete" if whole else "refused" if status not in (0, 200) else "cut"
        self._history.write(
            self._who, "call", "ok" if whole else "fail", outcome=outcome, status=status, fault=fault,
            answer_bytes=len(answer),
        )  # fmt: skip

    @property
    def _who(self) -> str:
        return f"reader-{self._number}"
