"""Which access log entries count, and what they say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from picker.serving.accesslog import entries_of
from picker.serving.counts import Counts
from picker.serving.seam import BOOKING_HEADER, LogEntry
from picker.serving.wire import accesslog_pb2 as log

WORKER = log.Address(socket_address=log.SocketAddress(address="10.0.0.9", port_value=8000))


def entry(booking: str = "b1", **common: Any) -> log.HTTPAccessLogEntry:
    common = {"upstream_remote_address": WORKER, **common}
    made = log.HTTPAccessLogEntry(common_properties=log.AccessLogCommon(**common))
    if booking:
        made.request.request_headers[BOOKING_HEADER] = booking
    return made


def message(*entries: log.HTTPAccessLogEntry) -> bytes:
    made = log.StreamAccessLogsMessage()
    made.http_logs.log_entry.extend(entries)
    return made.SerializeToString()


def read(*entries: log.HTTPAccessLogEntry) -> tuple[list[LogEntry], Counts]:
    counts = Counts()
    return entries_of(message(*entries), counts), counts


def test_an_end_entry_tells_who_served_how_it_ended_and_after_how_many_tries() -> None:
    address = log.Address(socket_address=log.SocketAddress(address="10.0.0.1", port_value=8000))
    one = entry(
        access_log_type=log.DownstreamEnd,
        upstream_remote_address=address,
        upstream_request_attempt_count=2,
        response_flags=log.ResponseFlags(downstream_connection_termination=True, local_reset=True),
    )
    one.response.response_code.value = 200
    entries, counts = read(one)
    flags = frozenset({"downstream_connection_termination", "local_reset"})
    assert entries == [LogEntry("b1", True, "10.0.0.1:8000", 200, 2, flags)]
    assert counts.log_ends == 1


@pytest.mark.parametrize(
    ("kind", "intermediate", "end"),
    [
        (log.DownstreamEnd, False, True),
        (log.DownstreamPeriodic, True, False),
        (log.NotSet, False, True),
        (log.NotSet, True, False),
        (log.DownstreamStart, True, None),
        (log.UpstreamEnd, False, None),
        (log.TcpConnectionEnd, False, None),
    ],
)
def test_only_the_downstream_side_of_a_request_counts(
    kind: log.AccessLogType.ValueType, intermediate: bool, end: bool | None
) -> None:
    entries, _ = read(entry(access_log_type=kind, intermediate_log_entry=intermediate))
    assert [one.end for one in entries] == ([] if end is None else [end])


def test_an_ipv6_worker_is_named_as_it_is_dialled() -> None:
    address = log.Address(socket_address=log.SocketAddress(address="fd00::1", port_value=8000))
    entries, _ = read(entry(access_log_type=log.DownstreamEnd, upstream_remote_address=address))
    assert entries[0].served == "[fd00::1]:8000"


def test_entries_without_a_booking_are_counted_and_left_out() -> None:
    entries, counts = read(entry("", access_log_type=log.DownstreamEnd), entry("x" * 1000))
    assert entries == []
    assert counts.log_unnamed == 2


@pytest.mark.parametrize("details", ["picker_bad_request", "ext_proc_error_gRPC_error_14"])
def test_a_booking_named_by_a_request_that_we_did_not_let_through_is_not_believed(details: str) -> None:
    forged = entry(access_log_type=log.DownstreamEnd)
    forged.response.response_code_details = details
    entries, counts = read(forged)
    assert entries == []
    assert counts.log_untrusted == 1


@pytest.mark.parametrize("kind", [log.DownstreamEnd, log.DownstreamPeriodic, log.NotSet])
def test_a_booking_named_by_a_request_that_reached_no_worker_is_not_believed(
    kind: log.AccessLogType.ValueType,
) -> None:
    forged = entry(access_log_type=kind, upstream_remote_address=None)
    forged.response.response_code_details = "downstream_remote_disconnect"
    entries, counts = read(forged)
    assert entries == []
    assert counts.log_untrusted == 1


def test_a_message_with_too_many_entries_is_read_in_part_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("picker.serving.accesslog.MAX_ENTRIES", 3)
    entries, counts = read(*[entry(access_log_type=log.DownstreamEnd) for _ in range(5)])
    assert (len(entries), counts.log_dropped) == (3, 2)


@given(st.binary(max_size=200))
def test_no_bytes_make_it_raise(data: bytes) -> None:
    counts = Counts()
    entries_of(data, counts)
    assert counts.log_messages == 1
