"""The Grafana dashboard: what an operator wants to see first, made here so that its queries can be checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

OURS: Final = '{namespace=~"$namespace",pod=~"$release.*"}'
"""Series of one release: the scrape's own labels, by ServiceMonitor and PodMonitor alike."""
COLUMNS: Final = 24


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel: its title, its queries by legend, what it counts in."""

    title: str
    queries: Mapping[str, str]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    text: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """Panels that answer one question."""

    title: str
    panels: tuple[Panel, ...]


def _sum(metric: str, by: str = "") -> str:
    return f"sum{f' by ({by}) ' if by else ''}({metric}{OURS})"


def _rate(metric: str, by: str = "") -> str:
    return f"sum{f' by ({by}) ' if by else ''}(rate({metric}{OURS}[$__rate_interval]))"


def _quantile(share: float, metric: str) -> str:
    return f"histogram_quantile({share}, sum by (le) (rate({metric}_bucket{OURS}[$__rate_interval])))"


ROWS: Final[tuple[Row, ...]] = (
    Row(
        "Are all replicas there, and do they agree?",
        (
            Panel("Ready replicas", {"ready": _sum("picker_ready")}, kind="stat", width=4),
            Panel("Workers", {"workers": f"max(endpoint_picker_pool_size{OURS})"}, kind="stat", width=4),
            Panel(
                "Members less peers and self",
                {"{{pod}}": f"picker_members{OURS} - picker_peers{OURS} - 1"},
                width=8,
                text="0 where the state plane and discovery know the same replicas.",
            ),
            Panel(
                "Other pool-wide settings",
                {"{{pod}}": f"picker_settings_differ{OURS}"},
                text="1: a replica runs with another block size, price or lease than this one.",
            ),
        ),
    ),
    Row(
        "Picks",
        (
            Panel(
                "Picks by result", {"{{result}}": _rate("endpoint_picker_requests_total", "result")}, "reqps"
            ),
            Panel(
                "Time to decide",
                {
                    "p50": _quantile(0.5, "endpoint_picker_decision_duration_seconds"),
                    "p99": _quantile(0.99, "endpoint_picker_decision_duration_seconds"),
                },
                "s",
            ),
            Panel("Picks by replica", {"{{pod}}": _rate("endpoint_picker_requests_total", "pod")}, "reqps"),
            Panel("Refused", {"{{code}}": _rate("picker_refused_total", "code")}, "reqps"),
            Panel(
                "Routed by load alone",
                {"{{reason}}": _rate("picker_routed_by_load_total", "reason")},
                "reqps",
            ),
            Panel("Open ext_proc streams", {"{{pod}}": f"picker_streams_open{OURS}"}),
        ),
    ),
    Row(
        "Balance",
        (
            Panel(
                "Booked requests by worker",
                {"{{worker}}": f"max by (worker) (picker_worker_booked_requests{OURS})"},
                width=12,
            ),
            Panel(
                "Busiest worker against the mean",
                {
                    "max / mean": (
                        f"max(max by (worker) (picker_worker_booked_requests{OURS})) / "
                        f"clamp_min(avg(max by (worker) (picker_worker_booked_requests{OURS})), 0.001)"
                    )
                },
                width=6,
            ),
            Panel(
                "Reported less booked",
                {"{{worker}}": f"max by (worker) (picker_load_drift_requests{OURS})"},
                width=6,
                text="Load that nobody booked, or bookings whose requests are over.",
            ),
        ),
    ),
    Row(
        "Shared state",
        (
            Panel(
                "State plane",
                {"{{pod}}": f"picker_plane_state{OURS}"},
                text="0 healthy, 1 slow, 2 away.",
                width=6,
            ),
            Panel(
                "From a pick to its sight", {"{{pod}}": f"picker_plane_staleness_seconds{OURS}"}, "s", width=6
            ),
            Panel("Bookings waiting to be written", {"{{pod}}": f"picker_plane_outbox{OURS}"}, width=6),
            Panel(
                "Bookings seen",
                {
                    "own": _sum("picker_bookings_own"),
                    "draining": f"max(picker_bookings_draining{OURS})",
                },
                width=6,
            ),
        ),
    ),
    Row(
        "What workers hold",
        (
            Panel(
                "Workers not recovered, or silent",
                {
                    "not recovered": f"max(picker_events_unrecovered_workers{OURS})",
                    "silent": f"max(picker_events_silent_workers{OURS})",
                },
            ),
            Panel("Entries of the index", {"{{pod}}": f"picker_index_entries{OURS}"}),
            Panel(
                "Predicted blocks that come true",
                {"{{model}}": f"min by (model) (picker_predicted_confirmed_ratio{OURS})"},
                "percentunit",
                text="Below one half tokenizer, template or block size are not the engine's.",
            ),
        ),
    ),
    Row(
        "Replicas",
        (
            Panel("Memory", {"{{pod}}": f"process_resident_memory_bytes{OURS}"}, "bytes"),
            Panel("Processor", {"{{pod}}": f"rate(process_cpu_seconds_total{OURS}[$__rate_interval])"}),
            Panel("Bodies held", {"{{pod}}": f"picker_buffered_bytes{OURS}"}, "bytes"),
        ),
    ),
)


def _panel(panel: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": source,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": 8},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}}
        if panel.kind == "timeseries"
        else {},
        "targets": [
            {"refId": chr(ord("A") + place), "datasource": source, "expr": query, "legendFormat": legend}
            for place, (legend, query) in enumerate(panel.queries.items())
        ],
    }


def _panels() -> list[dict[str, Any]]:
    laid: list[dict[str, Any]] = []
    y = 0
    for row in ROWS:
        place = {"x": 0, "y": y, "w": COLUMNS, "h": 1}
        laid.append({"id": len(laid) + 1, "type": "row", "title": row.title, "gridPos": place, "panels": []})
        x, y = 0, y + 1
        for panel in row.panels:
            if x + panel.width > COLUMNS:
                x, y = 0, y + 8
            laid.append(_panel(panel, len(laid) + 1, x, y))
            x += panel.width
        y += 8
    return laid


def _variable(name: str, label: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
    }


def dashboards() -> dict[str, str]:
    """Each dashboard's file name and JSON."""
    board = {
        "uid": "endpoint-picker",
        "title": "Endpoint picker",
        "tags": ["endpoint-picker", "inference"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
                _variable("namespace", "Namespace", "label_values(picker_ready, namespace)"),
                _variable(
                    "release",
                    "Deployment",
                    # the pod's name without the hashes that the ReplicaSet adds
                    'query_result(label_replace(picker_ready{namespace=~"$namespace"}, '
                    '"deployment", "$1", "pod", "(.*)-[^-]+-[^-]+"))',
                )
                | {"regex": '/deployment="([^"]+)"/'},
            ]
        },
        "panels": _panels(),
    }
    return {"picker.json": json.dumps(board, indent=1) + "\n"}
