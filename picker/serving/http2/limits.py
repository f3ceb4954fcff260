"""What one connection may take, and what is counted of all."""

from __future__ import annotations

from dataclasses import dataclass

WRITE_QUANTUM = 16_384
"""Most bytes that one stream sends before the next one has its turn."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one connection. Sizes in bytes."""

    streams: int = 10_000
    """Streams at one time; those beyond are refused, which tells the peer to try again later."""
    stream_window: int = 256 * 1024
    """What a peer may send on one stream before it is consumed."""
    connection_window: int = 16 * 1024 * 1024
    """... on all streams together."""
    pending: int = 64 * 1024 * 1024
    """Bytes that wait for the peer to take them, past which no more is taken from it."""
    header_list: int = 32 * 1024
    """Headers of one stream, as RFC 9113 6.5.2 counts them; a stream with more is refused."""
    header_list_hard: int = 128 * 1024
    """... past which the connection is given up: they may be the result of a decompression bomb."""
    header_block: int = 64 * 1024
    """Headers of one stream as they come, compressed."""
    continuations: int = 16
    """Frames that one block of headers may have after its first."""
    remembered: int = 1_024
    """Closed streams remembered, so that late frames on them are known for what they are."""


@dataclass(slots=True)
class Counts:
    """Totals of all connections since the start."""

    connections: int = 0
    """Connections taken."""
    connections_refused: int = 0
    """Connections closed at once because `PICKER_MAX_CONNECTIONS` were open."""
    connections_silent: int = 0
    """Connections closed because they did not begin to speak HTTP/2 in time."""
    connections_dead: int = 0
    """Connections closed because a ping was not answered for `PICKER_KEEPALIVE_TIMEOUT_SECONDS`."""
    connections_stale: int = 0
    """Connections whose peer had left before its last words were read: they are not heeded, for this replica stood
    still."""
    connections_lingering: int = 0
    """Connections cut because the peer did not take the rest of what we had to say before we closed them."""
    connection_errors: int = 0
    """Connections closed because the peer broke HTTP/2, floods not counted."""
    stream_errors: int = 0
    """Streams reset because the peer broke HTTP/2 on them."""
    handler_errors: int = 0
    """Streams reset because serving them raised: a defect."""
    streams_refused: int = 0
    """Streams refused because `PICKER_MAX_CONNECTION_STREAMS` were open on their connection."""
    streams_denied: int = 0
    """Streams that asked for no method of ours, or in no way that gRPC knows."""
    resets_premature: int = 0
    """Streams that the peer reset before anything was answered: clients that left, unless there are very many."""
    headers_decoded: int = 0
    """Blocks of headers decoded anew; all others were known from an earlier stream."""
    messages_compressed: int = 0
    """Streams ended because a message was compressed, which nobody asked for."""
    messages_too_large: int = 0
    """Streams ended because of a message over `PICKER_MAX_MESSAGE_BYTES`."""
    deadlines: int = 0
    """Streams ended because the deadline that their client named had passed."""
    flooded_resets: int = 0
    """Connections cut off for too many streams that were reset before an answer, or had to be reset."""
    flooded_pings: int = 0
    """Connections cut off for too many PING frames."""
    flooded_settings: int = 0
    """... SETTINGS frames."""
    flooded_empty: int = 0
    """... DATA frames without data."""
    flooded_idle: int = 0
    """... PRIORITY frames, frames of unknown types, and frames on streams that are over."""
    flooded_windows: int = 0
    """... WINDOW_UPDATE frames."""
    flooded_headers: int = 0
    """... CONTINUATION frames, or too large headers."""
    flooded_unread: int = 0
    """Connections cut off because they did not read what their own frames made us answer."""
