"""What decisions cost, as a page of the documentation with its curves. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from picker.bench.decide.rows import find
from picker.bench.decide.tables import (
    COST,
    EVENTS,
    FILTER,
    HELD,
    filter_rows,
    in_kb,
    kb_of,
    part_rows,
    tables_of,
)
from picker.bench.markdown import markdown_table, measured_on

Numbers = Mapping[str, Any]
Row = Mapping[str, Any]


def performance_page(numbers: Numbers) -> str:
    """The whole page."""
    sections = [_HEADER, _costs(numbers), *_curves(numbers["rows"])]
    sections += [_profile(numbers), _filter(numbers), _events(numbers), _held(numbers), _budgets(numbers)]
    return "\n".join(section for section in sections if section)


def performance_section(numbers: Numbers) -> str:
    """What other pages need of it."""
    return f"""## What a decision costs a replica

How it was measured, and all of it: [performance.md](performance.md).

{measured_on(numbers)}"""


_HEADER = """# Performance

What one decision costs a replica, and what it costs beside other things. Made by `make docs` from
`benchmarks/results/decide.json`; `picker bench decide --json` measures anew in about five minutes, `--full` every
transport with every plane and number of workers. `picker bench decide --against HOST:PORT --against-pid PID` runs the
same load on any other ext_proc server, by turns with ours, and prints the ratios.

A real `picker serve` in a process of its own is driven as Envoy drives it, by another process: request headers, the
body in pieces of 16 KiB (`FULL_DUPLEX_STREAMED`), then response headers, then the close; 16 streams at a time on one
connection. Bodies are chat completions. Engines answer scrapes with a page of vLLM's, workers hold the prompts by KV
events. *CPU* is the processor time of the replica's process divided by the decisions, everything it does meanwhile
included (scraping, heartbeats, metrics); *net* without what it takes when nothing is asked. Latency is from a stream's
opening to its pick at a fixed rate, whatever became of earlier ones. The machine has few cores and is shared with the
load itself, so processor time says more than latency. `calibration` in the results is the time of one round of a fixed
loop in the same run: compare machines by it.

*Blocks* are those in the index besides the prompts'. *New* prompts are never sent twice, so their tokens are not
cached. */s* is what 16 streams at a time came to; *at /s* is the rate at which latency was taken.
"""


def _costs(numbers: Numbers) -> str:
    text = "## What a decision costs\n"
    for title, columns, rows in tables_of({"rows": numbers["rows"]}):
        heading = "" if columns is COST else f"### {title}\n\n"
        text += f"\n{heading}{markdown_table(columns, rows)}"
    return text


def _curves(rows: Sequence[Row]) -> list[str]:
    usual = {"transport": "native", "prompts": "known", "replicas": 1}
    plain = usual | {"plane": "off", "index_blocks": 0}
    made = [
        _curve("Against the number of workers", "workers", rows, {**plain}, sizes=(1024, 32_768)),
        _curve("Against the length of the prompt", "kb", rows, {**plain, "workers": 64}),
        _curve(
            "Against the index, in blocks besides the prompts'",
            "index_blocks",
            rows,
            {**usual, "plane": "off", "workers": 64},
            sizes=(1024,),
        ),
        _curve(
            "Against the number of replicas, each of which hears of the others' bookings",
            "replicas",
            rows,
            {"transport": "native", "prompts": "known", "plane": "eventual", "workers": 64},
            sizes=(1024,),
        ),
    ]
    return [text for text in made if text]


def _curve(title: str, along: str, rows: Sequence[Row], fixed: Row, *, sizes: Sequence[int] = ()) -> str:
    """One chart for each size of body, or one for all where the size is what changes."""
    kept = [
        in_kb(row)
        for row in rows
        if row["streams"] is not None and all(row.get(key) == value for key, value in fixed.items())
    ]
    charts = []
    for size in sizes or (0,):
        points = [(row[along], row["cpu_us"]) for row in kept if not size or row["body_bytes"] == size]
        points = sorted(dict(points).items())
        if len(points) > 1:
            name = f"CPU us of a decision, {kb_of(size)} KB" if size else "CPU us of a decision"
            charts.append(_chart(name, along.replace("_", " ").replace("kb", "KB"), points))
    return f"### {title}\n\n" + "\n".join(charts) if charts else ""


def _chart(title: str, along: str, points: Sequence[tuple[float, float]]) -> str:
    places = ", ".join(f'"{at:,}"' for at, _ in points)
    values = ", ".join(f"{value:g}" for _, value in points)
    table = markdown_table({"at": along, "us": "CPU us"}, [{"at": f"{at:,}", "us": us} for at, us in points])
    return f"""```mermaid
xychart-beta
    title "{title}"
    x-axis "{along}" [{places}]
    y-axis "us" 0 --> {_above(max(value for _, value in points))}
    bar [{values}]
```

{table}"""


def _above(value: float) -> int:
    """A round number above a value."""
    step: int = 10 ** max(len(str(int(value))) - 1, 1)
    return (int(value) // step + 1) * step


def _profile(numbers: Numbers) -> str:
    profile = numbers.get("profile")
    if not profile:
        return ""
    columns, rows = part_rows(profile)
    looks = " and ".join(str(one["looks"]) for one in profile)
    return f"""## Where the time goes

A replica of the same kind that looks at its own stack every few milliseconds of its processor time ({looks} looks);
the innermost module of the picker's own decides. Microseconds of a decision. What libraries and the kernel do counts
for the part that called them; the event loop is what nobody called.

{markdown_table(columns, rows)}"""


def _filter(numbers: Numbers) -> str:
    filtered = numbers.get("filter")
    if not filtered:
        return ""
    return f"""## What the gateway's own filter costs

{filtered["clients"]} clients of one Envoy, each with one request at a time of 1 KB, by turns on a listener without the
ext_proc filter (round robin) and one with it; medians of {filtered["rounds"]} rounds, no access log. Envoy pays for the
filter itself, whoever answers it.

{markdown_table(FILTER, filter_rows(filtered))}"""


def _events(numbers: Numbers) -> str:
    events = numbers.get("events")
    if not events:
        return ""
    return f"""## Beside KV events

{events["requests_per_s"]:g} requests/s in an open loop while {events["events_per_s"]:g} KV events/s of
{events["blocks_per_event"]} blocks each arrive from {events["workers"]} workers, and the same without events, by
turns. *Applied* is what the replica's own counter says, *behind* what it had still to apply when the run ended. The
median ratio of the p99s is {events["ratio"]:g}; their medians are {events["p99_ms"]:g} ms with events and
{events["quiet_p99_ms"]:g} ms without, beside a target of 5 ms.

{markdown_table(EVENTS, events["pairs"])}"""


def _held(numbers: Numbers) -> str:
    held = numbers.get("held")
    if not held:
        return ""
    return f"""## Streams that wait

Requests whose response has begun and goes on: each is a stream held open, with its booking and all that the replica
keeps of it. Idle CPU holds the scraping of {held["workers"]} workers.

{markdown_table(HELD, [held])}"""


def _budgets(numbers: Numbers) -> str:
    calibration = numbers["calibration"]
    row = find(numbers["rows"], transport="native", plane="off")
    beside = "" if row is None else f" Calibration beside the first row: {row.get('calibration_ns')} ns."
    return f"""## Budgets

{measured_on(numbers)}
Calibration: {calibration["begin_ns"]} ns at the beginning, {calibration["end_ns"]} ns at the end.{beside}
"""
