"""The gateway's access log: from its messages to the entries that name bookings. No input or output here."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from picker.serving.counts import Counts
from picker.serving.reading import MAX_ENDPOINT
from picker.serving.replies import DETAILS_PREFIX
from picker.serving.seam import BOOKING_HEADER, LogEntry
from picker.serving.wire import accesslog_pb2 as log

MAX_ENTRIES = 10_000
"""Most entries of one message that are read."""
MAX_BOOKING_ID = 256

_ENDS = log.DownstreamEnd
_ALIVE = log.DownstreamPeriodic
_FOREIGN_DETAILS = (DETAILS_PREFIX, "ext_proc_")
"""Response code details of requests that no picker let through."""


def entries_of(data: bytes, counts: Counts) -> list[LogEntry]:
    """The entries of one message that concern bookings; what is left out is counted."""
    counts.log_messages += 1
    try:
        message = log.StreamAccessLogsMessage.FromString(data)
    except DecodeError:
        counts.log_unreadable += 1
        return []
    entries = message.http_logs.log_entry
    counts.log_dropped += max(0, len(entries) - MAX_ENTRIES)
    return [read for entry in entries[:MAX_ENTRIES] if (read := _entry(entry, counts)) is not None]


def _entry(entry: log.HTTPAccessLogEntry, counts: Counts) -> LogEntry | None:
    booking_id = entry.request.request_headers.get(BOOKING_HEADER, "")
    if not booking_id or len(booking_id) > MAX_BOOKING_ID:
        counts.log_unnamed += 1
        return None
    common = entry.common_properties
    kind = common.access_log_type
    if kind not in (_ENDS, _ALIVE, log.NotSet):
        return None
    served = _endpoint(common.upstream_remote_address)
    if not served or entry.response.response_code_details.startswith(_FOREIGN_DETAILS):
        # It reached no worker, so its headers may still be the client's own: one that left before it was answered.
        counts.log_untrusted += 1
        return None
    end = kind == _ENDS or (kind == log.NotSet and not common.intermediate_log_entry)
    if end:
        counts.log_ends += 1
    else:
        counts.log_alive += 1
    return LogEntry(
        booking_id=booking_id,
        end=end,
        served=served,
        status=entry.response.response_code.value,
        attempts=common.upstream_request_attempt_count,
        flags=frozenset(field.name for field, _ in common.response_flags.ListFields()),
    )


def _endpoint(address: log.Address) -> str:
    socket = address.socket_address
    if not socket.address or len(socket.address) > MAX_ENDPOINT:
        return ""
    host = f"[{socket.address}]" if ":" in socket.address else socket.address
    return f"{host}:{socket.port_value}"
