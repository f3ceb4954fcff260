"""The timeline of one scenario as SVG: requests under way, and for each worker what it carried and what views said."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from chaos.story import FOREVER, Story

WIDTH, LEFT, RIGHT, TOP = 960, 46, 12, 18
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
    """One SVG: the requests above, a strip for each worker below, faults as bands through all of them."""
    axis = Axis(story.begun, story.ended)
    strips = [_requests_strip(story, axis)]
    names = {address: name for name, address in story.workers.items()}
    strips += [
        _worker_strip(story, axis, worker, names[worker]) for worker in sorted(names, key=names.__getitem__)
    ]
    height = TOP + len(strips) * (HEIGHT + GAP) + 6
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="timeline of the run" class="timeline">',
        *_bands(story, axis, height - 14),
    ]
    for number, strip in enumerate(strips):
        parts.append(f'<g transform="translate(0 {TOP + number * (HEIGHT + GAP)})">{strip}</g>')
    parts.append(_seconds(axis, height))
    return "".join((*parts, "</svg>", _legend(story)))


def _legend(story: Story) -> str:
    keys = enumerate(sorted(story.views))
    named = "".join(f'<span class="key k{number % 6}">{escape(replica)}</span>' for number, replica in keys)
    return f'<p class="legend">{named}<span class="key shape">truly carried</span></p>'


def _bands(story: Story, axis: Axis, height: float) -> list[str]:
    found = []
    for number, fault in enumerate(story.faults):
        begin, end = axis.x(fault.begun), axis.x(story.ended if fault.healed is None else fault.healed)
        label = escape(f"{fault.kind} {fault.target}")
        until = "the end" if fault.healed is None else f"{fault.healed - story.begun:.1f} s"
        span = f"{fault.begun - story.begun:.1f} s to {until}"
        found.append(
            f'<g class="fault"><title>{label}, {span}</title>'
            f'<rect x="{begin:.1f}" y="0" width="{max(2.0, end - begin):.1f}" height="{height:.0f}"/>'
            f'<text x="{begin + 3:.1f}" y="{11 + 10 * (number % 2)}">{label}</text></g>'
        )
    return found


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
    return (
        _frame("requests under way; x: one that failed", top)
        + _area(points, axis, top, "calls")
        + "".join(marks)
    )


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
    title = f"{name}: filled = requests it truly carried, lines = what each replica's view booked"
    return _frame(title, top) + "".join(drawn)


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
    every = 5 if axis.end - axis.begin <= 60 else 10
    marks = range(0, int(axis.end - axis.begin) + 1, every)
    return "".join(
        f'<text class="tick" x="{axis.x(axis.begin + mark):.1f}" y="{height - 2:.0f}" text-anchor="middle">'
        f"{mark} s</text>"
        for mark in marks
    )
