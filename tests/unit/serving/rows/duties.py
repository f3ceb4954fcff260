"""What ext_proc, Gateway API Inference Extension and gateways ask of an endpoint picker, and which test holds us to it.

Data alone: ``docs/ext-proc.md`` is made of it (`tests.unit.serving.rows.page`); a test checks the tests that it names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

ROWS = "tests/unit/serving/rows/test_rows.py::test_a_duty_is_kept"
RECORDED = "tests/serving/conformance/test_recording.py::test_a_fresh_recording_says_what_the_stored_one_says"
MODES, FAILURES = "tests/serving/test_modes.py::", "tests/serving/test_failures.py::"
CONFORMANCE, FALLBACKS = (
    "tests/serving/conformance/test_conformance.py::",
    "tests/serving/conformance/test_fallbacks.py::",
)
CHANGED, REWRITE = "tests/serving/test_changed_bodies.py::", "tests/serving/test_model_rewrite.py::"
CONNECTIONS = "tests/serving/test_connections.py::"
SERVER, SIM = "tests/serving/test_server.py::", "tests/unit/sim/test_envoy.py::"

NAMES_MODES = "Envoy 1.40 names its modes on every stream."
WRITES_RAW = "Envoy 1.40 writes raw bytes."
NO_CAPACITY_RULE = "There is no flow control across replicas yet: nothing queues, sheds, evicts or denies."


@dataclass(frozen=True, slots=True)
class Duty:
    """One duty."""

    id: str
    """Chapter and number."""
    duty: str
    envoy: tuple[str, ...] = ()
    """Tests through the real Envoy."""
    reason: str = ""
    """Why the real Envoy shows nothing of it; of a duty that is not ours, why it is not."""
    ours: bool = True
    own: bool = True
    """Whether a row of its own shows it at message level; else those in ``also`` do."""
    also: tuple[str, ...] = ()
    """Further tests at message level."""

    @property
    def message(self) -> tuple[str, ...]:
        """Tests at message level."""
        row = (f"{ROWS}[{self.id}]",) if self.ours and self.own else ()
        return (*row, *self.also)


def recorded(*names: str) -> tuple[str, ...]:
    """Transcripts recorded anew from the real Envoy, and held to the stored ones that the exchange replays."""
    return tuple(f"{RECORDED}[{name}]" for name in names)


def modes(*names: str) -> tuple[str, ...]:
    """Tests of every body mode."""
    return tuple(MODES + name for name in names)


def failures(*names: str) -> tuple[str, ...]:
    """Tests of what goes wrong."""
    return tuple(FAILURES + name for name in names)


CHAPTERS: dict[str, str] = {
    "2": "Streams and their messages",
    "2.1": "The request's direction",
    "2.2": "Buffered requests and streamed responses",
    "2.3": "The response's direction",
    "2.4": "How a stream ends",
    "3": "Headers, lengths and rewritten models",
    "4": "Refusals",
    "5": "Paths, prompts and usage",
    "6": "Cases that other pickers and gateways met",
}

DUTIES: tuple[Duty, ...] = (
    # -- 2 ------------------------------------------------------------------------------------------------------
    Duty("2-1", "An answer is of the kind of the message that it answers; one stream carries one HTTP request.",
         recorded("pair-buffered-streamed", "pair-full-duplex-streamed-full-duplex-streamed")),
    Duty("2-2", "Within a direction headers are answered before the body, and the body before trailers.",
         recorded("trailers-duplex", "long-duplex")),
    Duty("2-3", "Outside full duplex each message gets exactly one answer, and nothing is said unasked.",
         recorded("pair-streamed-streamed", "pair-buffered-partial-streamed", "pair-buffered-buffered")),
    Duty("2-4", "The body modes that the first message names hold, each for its own direction.",
         recorded("pair-none-full-duplex-streamed", "pair-full-duplex-streamed-buffered", "pair-streamed-none")),
    Duty("2-5", "A gateway that names no mode is understood from its messages, and never left waiting.",
         reason=NAMES_MODES),
    Duty("2-6", "A setting wins over what the gateway names.",
         reason="It is for gateways that name their mode wrongly, which Envoy does not."),
    Duty("2-7", "A mode that is not served is refused at the first message, with the mode's number, and logged once.",
         also=(f"{SERVER}test_a_gateway_set_to_what_is_not_served_is_told_of_once",),
         reason="The modes that Envoy 1.40 has for HTTP are all served."),
    Duty("2-8", "No answer is without content.", recorded("pair-none-none", "pair-buffered-streamed")),
    Duty("2-9", "A stream is ended with OK, so that the gateway goes on without us.",
         modes("test_hold_headers_lets_go_at_response_headers_and_the_response_completes")
         + failures("test_a_replica_that_drains_cuts_no_response")),
    Duty("2-10", "A filter that only watches gets no answer, and books nothing.", recorded("observed")),
    # -- 2.1 ----------------------------------------------------------------------------------------------------
    Duty("2.1-1", "Full duplex: headers that a body follows get no answer yet.", recorded("long-duplex")),
    Duty("2.1-2", "Full duplex: the late answer to the headers carries the decision: the header, the same value in "
         "the metadata, the cleared route cache; the body follows it.", recorded("long-duplex", "chunked-duplex")),
    Duty("2.1-3", "BUFFERED: headers get an empty answer at once, for the body comes only after it.",
         recorded("pair-buffered-none", "long-buffered")),
    Duty("2.1-4", "BUFFERED: the answer to the whole body carries the decision, with the cleared route cache.",
         recorded("pair-buffered-none", "chunked-buffered")),
    Duty("2.1-5", "BUFFERED_PARTIAL is answered like BUFFERED, and a body that was cut is not parsed: the request "
         "goes by load.", recorded("pair-buffered-partial-none", "cut-partial")),
    Duty("2.1-6", "STREAMED: the decision stands in the answer to the headers, made without the body.",
         recorded("pair-streamed-none")),
    Duty("2.1-7", "STREAMED: each piece of the body gets one empty answer.", recorded("pair-streamed-none")),
    Duty("2.1-8", "NONE: the decision stands in the answer to the headers.", recorded("pair-none-none")),
    Duty("2.1-9", "Headers without a body are decided on at once in every mode, and no length is written.",
         recorded("get-buffered", "get-duplex")
         + modes("test_a_request_without_a_body_is_served")),
    Duty("2.1-10", "Headers are kept under lower-case names.", reason="Envoy writes all names in lower case."),
    Duty("2.1-11", "Full duplex: pieces before the last one are collected without an answer.",
         recorded("chunked-duplex")),
    Duty("2.1-12", "Full duplex: the body goes back in pieces of at most 62,000 bytes, byte for byte; the last one, "
         "and only it, ends the stream.",
         recorded("long-duplex") + modes("test_a_body_arrives_at_the_picked_worker_byte_for_byte")),
    Duty("2.1-13", "Full duplex: an empty body goes back as exactly one empty piece that ends the stream.",
         recorded("empty-duplex")),
    Duty("2.1-14", "Full duplex: trailers end a body that no piece ended: headers, body and trailers are answered.",
         recorded("trailers-duplex") + modes("test_a_body_that_ends_with_trailers_is_served")),
    Duty("2.1-15", "Full duplex: every answer to a body gives bytes back; none is a plain empty one.",
         recorded("pair-full-duplex-streamed-none", "long-duplex")),
    Duty("2.1-16", "Full duplex: an empty piece may come first, and ends nothing.", recorded("chunked-duplex")),
    Duty("2.1-17", "The gateway is configured to send trailers wherever a body mode is full duplex.",
         (f"{SIM}test_the_real_envoy_accepts_every_pair_of_body_modes",)),
    Duty("2.1-18", "Pieces that a gateway sends without waiting for the answer to the headers are not lost, and "
         "are answered after it.", recorded("sent-ahead")),
    # -- 2.2 ----------------------------------------------------------------------------------------------------
    Duty("2.2-1", "The first, empty answer changes nothing but the client's control headers, which it removes.",
         recorded("pair-buffered-streamed", "forged-post")),
    Duty("2.2-2", "A body that did not change is not sent back, nor is its length written.",
         recorded("pair-buffered-streamed", "chunked-buffered")),
    Duty("2.2-3", "The route cache is cleared wherever the destination is written, and only together with it.",
         recorded("pair-buffered-streamed", "get-buffered")),
    Duty("2.2-4", "An answer to headers is never held back where the body waits for it.",
         recorded("pair-buffered-streamed", "pair-buffered-partial-streamed")),
    Duty("2.2-5", "A body that changed goes with its new content-length in the same answer.",
         recorded("rewritten-buffered")),
    Duty("2.2-6", "A changed body of a client that declared no length gets none.", recorded("rewritten-chunked")),
    Duty("2.2-7", "Bytes are given back in the streamed form in full duplex only.",
         recorded("pair-buffered-streamed", "pair-streamed-streamed")),
    Duty("2.2-8", "A refusal after the empty answer reaches the client whole.",
         recorded("refused-buffered") + failures("test_a_refusal_reaches_the_client_as_json")),
    Duty("2.2-9", "A response before any body (the gateway's own 413) is let pass, and nothing is booked.",
         recorded("over-buffer-limit")),
    Duty("2.2-10", "Half-close and reset after a complete response mean the same.",
         recorded("pair-buffered-none", "pair-buffered-streamed")),
    Duty("2.2-11", "A client that leaves in the middle of a stream ends the booking.",
         recorded("leaves-held", "leaves-shown")
         + failures("test_a_client_that_leaves_in_mid_response_ends_its_booking")),
    Duty("2.2-12", "STREAMED: the decision is never left to the body's answer.", recorded("pair-streamed-streamed")),
    Duty("2.2-13", "A gateway's own limit of time is kept by deciding early; no answer asks for more of it.",
         recorded("pair-buffered-streamed", "pair-full-duplex-streamed-none")),
    Duty("2.2-14", "What the gateway does while no picker can be reached.", ours=False,
         envoy=(f"{CONFORMANCE}test_a_picker_that_is_gone_is_done_without_where_the_pool_fails_open",),
         reason="The gateway's own, by `failure_mode_allow`; what a lost replica needs stands in the configuration "
         "that `picker up` writes."),
    # -- 2.3 ----------------------------------------------------------------------------------------------------
    Duty("2.3-1", "Where nothing of the response is shown, nothing is answered; the booking goes by the access log.",
         recorded("skipped-response")),
    Duty("2.3-2", "NONE: response headers get one empty answer.", recorded("pair-buffered-none")),
    Duty("2.3-3", "STREAMED and BUFFERED: each piece gets exactly one answer, empty where nothing changed.",
         recorded("pair-buffered-streamed", "pair-buffered-buffered", "pair-buffered-buffered-partial")),
    Duty("2.3-4", "A piece that changed goes back as the body that replaces it, never in the streamed form.",
         (f"{REWRITE}test_the_engine_reads_its_model_and_the_client_its_own",)),
    Duty("2.3-5", "Full duplex: all bytes come back, the end is copied, and headers are answered at once.",
         recorded("response-pieces", "response-long", "response-broken-json")),
    Duty("2.3-6", "A stream of events goes on piece by piece, and is not collected.",
         recorded("pair-full-duplex-streamed-full-duplex-streamed")
         + modes("test_an_event_stream_reaches_the_client_whole")),
    Duty("2.3-7", "Another response mode is asked for in an answer to headers alone, where a setting allows it, and "
         "never where a direction is full duplex.",
         (f"{CHANGED}test_overrides_are_obeyed_where_they_can_be_and_every_response_is_whole",)),
    Duty("2.3-8", "An empty piece that ends the response is answered like any other.",
         recorded("response-empty", "pair-buffered-streamed")),
    # -- 2.4 ----------------------------------------------------------------------------------------------------
    Duty("2.4-1", "Whatever ends a stream, its booking is over exactly once.",
         recorded("pair-buffered-streamed", "worker-resets", "leaves-waiting")
         + modes("test_every_booking_is_over_exactly_once_with_the_worker_named")),
    Duty("2.4-2", "A stream that breaks without a word is over too, and its worker is believed to go on.",
         also=(f"{SERVER}test_a_lost_connection_ends_its_streams_once_each",),
         reason="A connection is cut in the test of the server; Envoy has no way to be made to."),
    Duty("2.4-3", "Response headers of a gateway that reached no worker end the booking.",
         recorded("unreachable") + failures("test_a_worker_that_cannot_be_reached_ends_its_booking")),
    Duty("2.4-4", "A client that leaves while its pick waits leaves nothing booked.",
         recorded("leaves-waiting")
         + failures("test_a_client_that_leaves_while_its_pick_waits_leaves_nothing")),
    Duty("2.4-5", "The booking follows the endpoint that served, where the gateway tried several.",
         (*recorded("walked"), f"{FALLBACKS}test_the_booking_moves_to_the_endpoint_that_serves_told_by")),
    # -- 3 ------------------------------------------------------------------------------------------------------
    Duty("3-1", "Values are written as raw bytes, in refusals too.", recorded("pair-buffered-none", "refused-get")),
    Duty("3-2", "A value is read from the raw bytes, or from the text where there are none.", reason=WRITES_RAW),
    Duty("3-3", "One value is written per header, and replaces what is there.",
         recorded("forged-post") + modes("test_what_a_client_forges_reaches_neither_the_route_nor_the_worker")),
    Duty("3-4", "Pseudo headers, host and the gateway's own headers are neither written nor removed.",
         recorded("forged-post", "forged-get")),
    Duty("3-5", "Headers are written in a body's answer only where the gateway still holds them back.",
         recorded("pair-buffered-partial-none", "pair-streamed-none")),
    Duty("3-6", "content-length is written where the gateway keeps it and the body changed, and nowhere else.",
         recorded("rewritten-buffered", "rewritten-partial", "rewritten-duplex")),
    Duty("3-7", "Only what changes is written: the client's other headers are not set again.",
         recorded("pair-full-duplex-streamed-none")),
    Duty("3-8", "A client's control headers reach neither the choice nor the worker.",
         recorded("forged-post", "forged-get")
         + modes("test_what_a_client_forges_reaches_neither_the_route_nor_the_worker")),
    Duty("3-9", "A client's trace context goes on to the worker as it came.", recorded("get-duplex"),
         reason="We make no spans yet."),
    Duty("3-10", "Rewriting: a header that names a model goes before the rules, and an unchanged body keeps its bytes.",
         (*recorded("rewritten-buffered", "pair-buffered-none"),
          f"{REWRITE}test_the_engine_reads_its_model_and_the_client_its_own")),
    Duty("3-11", "The client sees the model's name that it sent in the answer, also where a cut goes through it.",
         (f"{REWRITE}test_the_engine_reads_its_model_and_the_client_its_own",)),
    # -- 4 ------------------------------------------------------------------------------------------------------
    Duty("4-1", "A pool that is empty answers 503 no_endpoints, on any method.",
         recorded("policy-empty-pool", "policy-empty-pool-get")),
    Duty("4-2", "A subset hint that is empty or holds no worker of ours answers 503 no_endpoints, on any method.",
         recorded("policy-subset-none", "policy-subset-empty", "policy-subset-get")),
    Duty("4-3", "A replica that shuts down answers 503 shutting_down to what it has not decided.",
         reason="The gateway has gone elsewhere by then, as the health check tells it; the message level shows it."),
    Duty("4-4", "Workers that are all at their limit answer 429 saturated.", recorded("refused-buffered")),
    Duty("4-5", "Queues, shedding, admission, eviction: 429.", ours=False, reason=NO_CAPACITY_RULE),
    Duty("4-6", "A body that cannot be understood answers 400 bad_request.",
         recorded("policy-not-json", "policy-no-prompt")),
    Duty("4-7", "A conditional decode that misses answers 412.", ours=False,
         reason="Prefill and decode are not split yet."),
    Duty("4-8", "A fault of ours answers 500 internal.",
         also=(f"{SERVER}test_a_pick_that_raises_is_answered_500_and_counted",),
         reason="A defect cannot be asked for through a gateway."),
    Duty("4-9", "A client that is gone gets no answer.", recorded("leaves-waiting")),
    Duty("4-10", "The body of a refusal is JSON in OpenAI's error shape, and says so in content-type.",
         recorded("refused-get") + failures("test_a_refusal_reaches_the_client_as_json")),
    Duty("4-11", "429 and 503 say when to come again, and the drop reason where one is named.",
         failures("test_a_refusal_reaches_the_client_as_json")),
    Duty("4-12", "The response code details of a refusal say why, in the gateway's log.", recorded("refused-duplex")),
    Duty("4-13", "A refusal goes before any other answer where the mode allows.", recorded("refused-duplex")),
    # -- 5 ------------------------------------------------------------------------------------------------------
    Duty("5-1", "The API is told by the longest known suffix of the path, without its query.",
         recorded("policy-query")),
    Duty("5-2", "The path is taken from `:path`, else from what proxies keep of it, else it is that of completions.",
         reason="Envoy always has a path."),
    Duty("5-3", "A path that nobody knows goes by load, or is refused by setting.", recorded("policy-unknown-path")),
    Duty("5-4", "OpenAI's, Anthropic's, vLLM's and SGLang's own paths are known.",
         reason="What a path means is read behind the exchange; Envoy shows no other messages for it."),
    Duty("5-5", "gRPC requests of vLLM: no frame, however long it claims to be, breaks anything; they go by load.",
         reason="They are bodies like others to the gateway."),
    Duty("5-6", "Prompts may be a text, several, token ids, or several lists of them; content may be text or parts.",
         reason="What a body means is read behind the exchange; Envoy shows no other messages for it."),
    Duty("5-7", "Usage is read from answers and event streams, with or without a blank after the colon, under the "
         "names of each API, merged field by field, and told once.",
         recorded("pair-buffered-streamed"),),
    Duty("5-8", "Google's Vertex paths.", ours=False, reason="No engine serves them; they go by load."),
    # -- 6 ------------------------------------------------------------------------------------------------------
    Duty("6-1", "A list of endpoints keeps its order in the header and in the metadata, the chosen one first.",
         (*recorded("walked"),
          f"{FALLBACKS}test_the_second_endpoint_gets_the_same_body_when_the_first_is_dead")),
    Duty("6-2", "A gateway's own retry sends the whole body once to each endpoint, in every request body mode.",
         (f"{FALLBACKS}test_the_body_goes_once_to_each_endpoint_when_the_first_fails_after_it_had_it",),
         "The message level shows that one stream with two tries is one booking."),
    Duty("6-3", "A body over the limit, full duplex: one refusal, and nothing before it.",
         failures("test_a_body_over_the_limit_is_answered_413_in_json")),
    Duty("6-4", "A large body that comes in one message is taken.",
         modes("test_a_body_of_16_mib_arrives_by_default"),
         also=(f"{CONNECTIONS}test_a_message_that_one_body_needs_is_read",)),
    Duty("6-5", "Answers to a response carry no metadata, so none can be lost or come twice.",
         recorded("pair-buffered-full-duplex-streamed")),
    Duty("6-6", "A request without a body goes the same way as one with: hint, booking, end.",
         recorded("policy-subset-get", "get-buffered")),
    Duty("6-7", "The subset hint is text or a list; an address with a port means that port alone, without one all of "
         "its ports.",
         (*recorded("policy-subset-text", "policy-subset-partial"),
          f"{CONFORMANCE}test_with_data_parallelism_an_address_with_a_port_means_that_rank_alone",
          f"{CONFORMANCE}test_with_data_parallelism_a_pods_address_means_any_of_its_ports")),
    Duty("6-8", "The status of a response is read from `:status`, where gateways write it.", recorded("unreachable")),
    Duty("6-9", "A request's body is held once, and let go when it is answered.",
         modes("test_many_requests_at_once_leave_nothing_open")),
    Duty("6-10", "A response that is not rewritten is not collected, however long it is.", recorded("response-long")),
    Duty("6-11", "A response that is no JSON, or breaks off, goes on as it came.",
         recorded("response-broken-json", "worker-resets")),
    Duty("6-12", "TLS clients that offer HTTP/2 by ALPN get it.",
         failures("test_tls_with_a_self_signed_certificate_serves_gateways_that_do_not_verify"),
         own=False, also=(f"{SERVER}test_tls_negotiates_http2_by_alpn",)),
)  # fmt: skip


def chapters() -> Iterator[tuple[str, str, list[Duty]]]:
    """Each chapter with its duties."""
    for number, title in CHAPTERS.items():
        yield number, title, [duty for duty in DUTIES if duty.id.rpartition("-")[0] == number]
