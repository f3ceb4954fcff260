"""``docs/ext-proc.md``, made from the table of duties."""

from __future__ import annotations

from tests.transcripts.cases import CASES
from tests.unit.serving.rows.duties import RECORDED, ROWS, Duty, chapters

HEAD = """# The gateway's protocol: every duty and its test

What ext_proc, the endpoint picker protocol of Gateway API Inference Extension and the gateways that speak them ask of a
picker, duty by duty, with the tests that hold us to it: once with the messages alone, and once through the real Envoy
1.40 where it can bring the case about. This page is made from `tests/unit/serving/rows/duties.py` by `make docs`; one
test checks that every test named here exists.

Which message gets which answer, mode by mode, stands in [ext-proc-modes.md](ext-proc-modes.md).

Transcripts (`tests/transcripts/recorded`) are recorded from the real Envoy by `python tests/transcripts/record.py`. The
unit tests replay each against the exchange and compare every answer field by field; the serving tests record each anew.
"""

BESIDE = """## Beside the Go pickers

What the pickers in Go answer to the same requests, as their sources say, for those who migrate. Their refusals are
plain text; ours are JSON in OpenAI's error shape.

| request | ours | theirs | transcript |
|---|---|---|---|
"""

FOOT = """
## Conformance of gateways

The conformance suite of Gateway API Inference Extension tests gateways, with a picker that obeys a header of its tests.
`PICKER_CONFORMANCE=true` makes ours such a picker: `test-epp-endpoint-selection` takes the place of the subset hint (it
narrows the pool and never leaves it), and `x-conformance-test-served-endpoint` tells in the response which endpoint
served. It is off by default and never for a pool in use: any client could choose.

Rebuilt against a local Envoy in `tests/serving/conformance/test_conformance.py`: routing follows the picker, data
parallelism, weights between two pools, the served endpoint, failing open without a picker, cleartext HTTP/2, several
gateways and pools by host and path with and without a body. Not rebuilt: the cases that read the status which a gateway
writes into its Kubernetes objects, and the header by which the suite's own picker makes its echo server answer with a
header of its choice.

## Lists of endpoints

With `PICKER_FALLBACKS` above 0 further endpoints stand behind the chosen one. Gateways that follow the list try them in
order: Envoy by its load balancing policy `override_host` with a retry policy on the route, which
`picker up --fallbacks N` writes. With Envoy 1.40 a body of 200 KB reaches each endpoint that is tried once and whole,
in every request body mode, also where the first one had read it before it failed. The booking goes with the request, by
whichever tells first: the served metadata, response attributes, or the access log, also where the log reaches another
replica than the one that decided. A plain ORIGINAL_DST cluster takes a single endpoint: leave the setting at 0 there.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for number, title, duties in chapters():
        lines = [f"## {number} {title}", "", "| | duty | messages | through Envoy |", "|---|---|---|---|"]
        parts.append("\n".join([*lines, *(_line(duty) for duty in duties), ""]))
    beside = [
        f"| {case.about} | {case.answers['ours']} | {case.answers['go-pickers']} | `{case.name}` |"
        for case in CASES
        if case.answers
    ]
    return "\n".join([*parts, BESIDE + "\n".join(beside)]) + "\n" + FOOT


def _line(duty: Duty) -> str:
    message = "<br>".join(_short(one) for one in duty.message) if duty.ours else f"not ours: {duty.reason}"
    through = [_short(one) for one in duty.envoy]
    if duty.reason and duty.ours:
        through.append(duty.reason)
    return f"| {duty.id} | {duty.duty} | {message} | {'<br>'.join(through)} |"


def _short(node: str) -> str:
    if node.startswith(ROWS):
        return f"row `{node[len(ROWS) + 1 : -1]}`"
    if node.startswith(RECORDED):
        return f"transcript `{node[len(RECORDED) + 1 : -1]}`"
    file, _, name = node.partition("::")
    return f"`{file.rpartition('/')[2].removesuffix('.py')}`: {name.removeprefix('test_').replace('_', ' ')}"
