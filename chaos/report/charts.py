"""The timeline of one scenario as SVG: requests under way, and for each worker what it carried and what views said."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from chaos.story import FOREVER, FaultLife, Story

WIDTH, LEFT, RIGHT, TOP = 960, 46, 12, 6
LANE, LETTER = 17, 6.4
"""Height of a fault's lane, and about the width of a letter in it."""
HEIGHT = 84
GAP = 30
STEP = 0.2
BAD = {"refused": "refused", "unreachable": "no answer", "cut": "cut", "timeout": "unknown"}

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Axis:
    """Seconds of the run to pixels."""

    begin: float
    end: float

    def x(self, t: float) -> float:
        """Where a time is."""
        share = (t - self.begin) / max(1e-9, self.end - self.begin)
        return LEFT + (WIDTH - LEFT - RIGHT) * min(1.0, max(0.0, share))


def charts(story: Story) -> str:
    """One SVG: the faults and the requests above, a strip for each worker below, the faults' bands through them all."""
    axis = Axis(story.begun, story.ended)
    names = {address: name for name, address in story.workers.items()}
    workers = sorted(names, key=names.__getitem__)
    strips = [
        _requests_strip(story, axis),
        *(_worker_strip(story, axis, each, names[each]) for each in workers),
    ]
    lanes = _lanes(story, axis)
    top = TOP + LANE * (1 + max((lane for _, lane in lanes), default=-1)) + GAP - 8
    height = top + len(strips) * (HEIGHT + GAP) - 4
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="timeline of the run" class="timeline">',
        *(_band(story, axis, fault, lane, height - 16) for fault, lane in lanes),
    ]
    for number, strip in enumerate(strips):
        parts.append(f'<g transform="translate(0 {top + number * (HEIGHT + GAP)})">{strip}</g>')
    parts.append(_seconds(axis, height))
    return "".join((*parts, "</svg>", _legend(story)))


def _legend(story: Story) -> str:
    keys = enumerate(sorted(story.views))
    named = "".join(
        f'<span class="key k{number % 6}">booked, as {escape(replica)} sees it</span>'
        for number, replica in keys
    )
    failed = (
        '<span class="key cross">a request that failed</span>'
        if any(c.outcome in BAD for c in story.calls)
        else ""
    )
    return f'<p class="legend"><span class="key shape">truly carried by the engine</span>{named}{failed}</p>'


def _label(fault: FaultLife) -> str:
    return f"{fault.kind} {fault.target}"


def _span(story: Story, axis: Axis, fault: FaultLife) -> tuple[float, float]:
    begin, end = axis.x(fault.begun), axis.x(story.ended if fault.healed is None else fault.healed)
    return begin, max(begin + 2.0, end)


def _lanes(story: Story, axis: Axis) -> list[tuple[FaultLife, int]]:
    """Each fault with a lane in which neither its bar nor its name meets another's."""
    taken: list[float] = []
    found = []
    for fault in sorted(story.faults, key=lambda each: each.begun):
        begin, end = _span(story, axis, fault)
        begin = min(begin, _text_x(begin, fault))
        end = max(end, _text_x(begin, fault) + LETTER * len(_label(fault))) + 6
        lane = next((n for n, until in enumerate(taken) if until <= begin), len(taken))
        taken[lane : lane + 1] = [end]
        found.append((fault, lane))
    return found


def _text_x(begin: float, fault: FaultLife) -> float:
    return min(begin + 4, WIDTH - RIGHT - LETTER * len(_label(fault)))


def _band(story: Story, axis: Axis, fault: FaultLife, lane: int, height: float) -> str:
    begin, end = _span(story, axis, fault)
    y, width = TOP + LANE * lane, f'width="{end - begin:.1f}"'
    until = "the end" if fault.healed is None else f"{fault.healed - story.begun:.1f} s"
    span = f"{fault.begun - story.begun:.1f} s to {until}"
    return (
        f'<g class="fault"><title>{escape(_label(fault))}, {span}</title>'
        f'<rect class="through" x="{begin:.1f}" y="{y}" {width} height="{height - y:.0f}"/>'
        f'<rect class="bar" x="{begin:.1f}" y="{y}" {width} height="{LANE - 3}"/>'
        f'<text x="{_text_x(begin, fault):.1f}" y="{y + 11}">{escape(_label(fault))}</text></g>'
    )


def _requests_strip(story: Story, axis: Axis) -> str:
    def under_way(t: float) -> float:
        return sum(c.begun <= t < (FOREVER if c.ended is None else c.ended) for c in story.calls)

    points = _sampled(under_way, axis)
    top = max([1.0, *(y for _, y in points)])
    marks = []
    for call in story.calls:
        if call.outcome in BAD and call.ended is not None:
            what = escape(f"request {call.number}: {BAD[call.outcome]} at {call.ended - story.begun:.2f} s")
            x = axis.x(call.ended)
            marks.append(f'<g class="bad"><title>{what}</title><path d="M{x - 3:.1f} 4l6 6m0 -6l-6 6"/></g>')
    return _frame("all callers: requests under way", top) + _area(points, axis, top, "calls") + "".join(marks)


def _worker_strip(story: Story, axis: Axis, worker: str, name: str) -> str:
    carried = _sampled(lambda t: float(len(story.carried_at(worker, t))), axis)
    lines: list[tuple[str, list[Point]]] = []
    for replica, views in sorted(story.views.items()):
        lines.append((replica, [(view.at, float(view.sums.get(worker, (0, 0, 0))[2])) for view in views]))
    top = max([1.0, *(y for _, y in carried), *(y for _, points in lines for _, y in points)])
    drawn = [_area(carried, axis, top, "carried")]
    for number, (replica, points) in enumerate(lines):
        drawn.append(
            _line(points, axis, top, f"view v{number % 6}", f"what {escape(replica)} books on {escape(name)}")
        )
    return _frame(f"{name} ({worker}): requests", top) + "".join(drawn)


def _sampled(value: Callable[[float], float], axis: Axis) -> list[Point]:
    count = min(400, max(2, int((axis.end - axis.begin) / STEP)))
    times = [axis.begin + (axis.end - axis.begin) * n / count for n in range(count + 1)]
    return [(t, value(t)) for t in times]


def _y(value: float, top: float) -> float:
    return HEIGHT - (HEIGHT - 4) * value / top


def _path(points: Sequence[Point], axis: Axis, top: float) -> str:
    """Steps, broken where nothing was seen for a while."""
    parts, last = [], None
    for t, value in points:
        x, y = axis.x(t), _y(value, top)
        if last is None or t - last[0] > 1.5:
            parts.append(f"M{x:.1f} {y:.1f}")
        else:
            parts.append(f"H{x:.1f}V{y:.1f}")
        last = (t, value)
    return "".join(parts)


def _area(points: Sequence[Point], axis: Axis, top: float, css: str) -> str:
    begin, end = axis.x(points[0][0]), axis.x(points[-1][0])
    body = "".join(f"H{axis.x(t):.1f}V{_y(value, top):.1f}" for t, value in points)
    return f'<path class="{css}" d="M{begin:.1f} {HEIGHT}{body}H{end:.1f}V{HEIGHT}Z"/>'


def _line(points: Sequence[Point], axis: Axis, top: float, css: str, title: str) -> str:
    if not points:
        return ""
    return f'<path class="{css}" d="{_path(points, axis, top)}"><title>{title}</title></path>'


def _frame(title: str, top: float) -> str:
    return (
        f'<text class="title" x="{LEFT}" y="-5">{escape(title)}</text>'
        f'<text class="tick" x="{LEFT - 6}" y="12" text-anchor="end">{top:.0f}</text>'
        f'<text class="tick" x="{LEFT - 6}" y="{HEIGHT}" text-anchor="end">0</text>'
        f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{HEIGHT}" y2="{HEIGHT}"/>'
    )


def _seconds(axis: Axis, height: float) -> str:
    every = next((each for each in (5, 10, 30, 60, 300, 600) if axis.end - axis.begin <= 14 * each), 3600)
    marks = range(0, int(axis.end - axis.begin) + 1, every)
    return "".join(
        f'<text class="tick" x="{axis.x(axis.begin + mark):.1f}" y="{height - 2:.0f}" text-anchor="middle">'
        f"{mark} s</text>"
        for mark in marks
    )
