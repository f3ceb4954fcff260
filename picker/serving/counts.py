"""What the gateway's side counts: nothing is dropped, guessed or refused without a number."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counts:
    """Totals since the start."""

    streams: int = 0
    """ext_proc streams opened."""
    observed: int = 0
    """Streams in observability mode: answered with nothing, booked nowhere."""
    decided: int = 0
    """Requests answered with a worker."""
    refused: int = 0
    """Requests answered with an immediate response, all those below included."""
    refused_too_large: int = 0
    """... for a body over `PICKER_MAX_BODY_BYTES`."""
    refused_memory: int = 0
    """... because all streams together held `PICKER_MAX_BUFFERED_BYTES`."""
    refused_streams: int = 0
    """... because `PICKER_MAX_STREAMS` streams were open."""
    refused_headers: int = 0
    """... for too many or too large headers."""
    refused_mode: int = 0
    """... because the gateway named a body mode that is not served."""
    refused_order: int = 0
    """... for messages out of order."""
    refused_draining: int = 0
    """... because this replica was shutting down."""
    refused_identity: int = 0
    """Streams ended with PERMISSION_DENIED: the client's certificate carries none of `PICKER_TLS_CLIENT_NAMES`."""
    body_timeouts: int = 0
    """Requests whose body did not come in time."""
    pick_timeouts: int = 0
    """Picks that took longer than a body may."""
    pick_errors: int = 0
    """Picks that raised: a defect."""
    modes_guessed: int = 0
    """Requests decided without their body because the gateway named no mode and sent no body in time."""
    bodies_ahead: int = 0
    """Requests decided without their whole body, which the gateway sends ahead: it came too slowly or was too large."""
    bodies_cut: int = 0
    """Requests whose body the gateway cut (BUFFERED_PARTIAL): decided without it."""
    bodies_rewritten: int = 0
    """Requests that went on with another body than the client's."""
    rewrites_ignored: int = 0
    """Bodies that a pick wanted to send where the gateway takes none: a defect."""
    responses_read: int = 0
    """Responses whose body was read."""
    responses_rewritten: int = 0
    """Responses of which at least one piece went on changed."""
    reading_errors: int = 0
    """Readings of a response that failed: the rest of it went on unchanged. A defect."""
    reading_overruns: int = 0
    """Readings ended early because they kept too much of a response, or the memory for bodies was in use."""
    response_tails_lost: int = 0
    """
    Responses of which bytes held back could not be sent: by a reading that failed, before trailers, or before a close
    of ours.
    """
    modes_overridden: int = 0
    """Requests whose answer asked the gateway for another response body mode."""
    overrides_ignored: int = 0
    """... where the gateway showed the body all the same."""
    out_of_order: int = 0
    """Messages that no state of a stream waits for."""
    unreadable: int = 0
    """Messages that are none of ext_proc's, or hold nothing."""
    local_replies: int = 0
    """Responses that the gateway gave by itself before a pick was made."""
    abandoned: int = 0
    """Picks cancelled because their stream ended or the gateway answered by itself."""
    closed_silent: int = 0
    """Streams closed because no first message came for `PICKER_BODY_TIMEOUT_SECONDS`."""
    closed_idle: int = 0
    """Held streams closed because nothing came for `PICKER_STREAM_TIMEOUT_SECONDS`."""
    closed_flooded: int = 0
    """Streams closed because they sent more messages than any request has."""
    closed_draining: int = 0
    """Streams closed with OK while their response ran, because this replica was shutting down."""
    write_timeouts: int = 0
    """Streams given up because the gateway did not take our answers."""
    log_streams: int = 0
    """Access log streams opened."""
    log_messages: int = 0
    """Access log messages received."""
    log_ends: int = 0
    """Access log entries that name a booking and end it."""
    log_alive: int = 0
    """Access log entries that name a booking which still runs."""
    log_unnamed: int = 0
    """Access log entries without a booking."""
    log_untrusted: int = 0
    """Access log entries whose booking may be the client's own word: requests that we did not let through."""
    log_unreadable: int = 0
    """Access log messages that could not be read."""
    log_dropped: int = 0
    """Access log entries beyond the most that one message may hold."""
    tls_handshakes: int = 0
    """TLS handshakes begun: less the connections that live, those that failed."""
    tls_reloads: int = 0
    """Renewed certificates put in force."""
    tls_reload_failures: int = 0
    """Looks at certificate files that could not be used; what was in force stayed."""
