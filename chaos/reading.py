"""Reads a history into its story."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from chaos.history import HistoryError, Record
from chaos.observe import ROW
from chaos.story import FOREVER, Booked, Call, Carried, FaultLife, Status, Story, View


def read_story(records: Iterable[Record]) -> Story:
    """Read a whole history. Raises HistoryError for one that lacks its beginning or its end."""
    found = list(records)
    if not found or found[0].f != "scenario":
        raise HistoryError("the history does not begin with its scenario")
    if found[-1].f != "end":
        raise HistoryError("the history has no end: the run broke off")
    header = found[0].value
    workers: Mapping[str, str] = header.get("engines", {})
    by: dict[str, list[Record]] = defaultdict(list)
    for record in found:
        by[record.f].append(record)
    try:
        return Story(
            header=header,
            calls=_calls(by["call"]),
            faults=_faults(by["fault"]),
            views=_views(by["view"]),
            carried=_carried(by["carried"], workers, found[0].t),
            statuses=_statuses(by["status"]),
            counters=_counters(by["counters"]),
            gauges=_gauges(by["counters"]),
            silences=_silences((*by["view"], *by["carried"])),
            phases=[(each.t, each.value["name"]) for each in by["phase"]],
            stalls=[(each.t - each.value["seconds"], each.t) for each in by["stall"]],
            audits=by["audit"],
            notes=by["note"],
            workers=workers,
            members=by["members"][-1].value["replicas"] if by["members"] else header["replicas"],
            begun=found[0].t,
            ended=found[-1].t,
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise HistoryError(f"the history does not say what it should: {error!r}") from error


def _calls(records: Sequence[Record]) -> list[Call]:
    begun: dict[str, Record] = {}
    found: dict[str, Call] = {}
    for record in records:
        if record.type == "invoke":
            begun[record.process] = record
            found[record.process] = Call(record.value["number"], record.t, None, "", record.value)
        else:
            first = begun[record.process]
            value = {**first.value, **record.value}
            found[record.process] = Call(
                first.value["number"], first.t, record.t, record.value["outcome"], value
            )
    return list(found.values())


def _faults(records: Sequence[Record]) -> list[FaultLife]:
    lives: dict[str, dict[str, Record]] = {}
    for record in records:
        lives.setdefault(record.value["id"], {})[record.value["phase"]] = record

    def time(phases: Mapping[str, Record], name: str) -> float | None:
        return phases[name].t if name in phases else None

    return [
        FaultLife(
            id=name,
            kind=phases["begin"].value["kind"],
            target=phases["begin"].value["target"],
            begun=phases["begin"].t,
            seen=time(phases, "seen"),
            healing=time(phases, "healing"),
            healed=time(phases, "healed"),
            value=phases["begin"].value["value"],
            proof=phases["seen"].value["value"] if "seen" in phases else {},
        )
        for name, phases in lives.items()
    ]


def _views(records: Sequence[Record]) -> dict[str, list[View]]:
    found: dict[str, list[View]] = defaultdict(list)
    for record in records:
        if record.type != "ok":
            continue
        value = record.value
        bookings = {row[0]: Booked(**dict(zip(ROW, row, strict=False))) for row in value["bookings"]}
        sums = {worker: (each[0], each[1], each[2]) for worker, each in value["sums"].items()}
        view = View(
            record.process, value["asked"], record.t, value["epoch"], value["version"], bookings, sums
        )
        found[record.process].append(view)
    return dict(found)


def _carried(records: Sequence[Record], workers: Mapping[str, str], begun: float) -> list[Carried]:
    """What ended before the run is none of it: an engine tells what it remembers of the scenarios before, too."""
    ended: dict[tuple[str, float, int], Carried] = {}
    running: dict[str, dict[tuple[str, str, float], float]] = defaultdict(dict)
    born: dict[str, float] = {}
    lost: list[Carried] = []
    for record in records:
        if record.type != "ok":
            continue
        value, worker = record.value, workers.get(record.process, record.process)
        if born.setdefault(worker, value["born"]) != value["born"]:
            born[worker] = value["born"]
            lost += [
                Carried(worker, booking, request, since, seen, lost=True)
                for (booking, request, since), seen in running.pop(worker, {}).items()
            ]
        for row in value["ended"]:
            if row["ended"] < begun:
                continue
            key = (worker, value["born"], row["number"])
            ended[key] = Carried(worker, row["booking"], row["name"], row["arrived"], row["ended"])
            running[worker].pop((row["booking"], row["name"], row["arrived"]), None)
        for row in value["carried"]:
            running[worker][row["booking"], row["id"], row["arrived"]] = record.t
    still = [
        Carried(worker, booking, request, since, FOREVER)
        for worker, requests in running.items()
        for (booking, request, since) in requests
    ]
    return sorted([*ended.values(), *lost, *still], key=lambda each: each.since)


def _statuses(records: Sequence[Record]) -> dict[str, list[Status]]:
    found: dict[str, list[Status]] = defaultdict(list)
    for record in records:
        if record.type == "ok":
            found[record.process].append(Status(record.process, record.t, record.value))
    return dict(found)


def _counters(records: Sequence[Record]) -> dict[str, list[tuple[float, Mapping[str, float]]]]:
    found: dict[str, list[tuple[float, Mapping[str, float]]]] = defaultdict(list)
    now: dict[str, dict[str, float]] = defaultdict(dict)
    for record in records:
        changed = record.value["changed"]
        known = now[record.process]
        if any(value < known.get(key, 0.0) for key, value in changed.items()):
            known.clear()  # a new life of the process counts from zero
        known.update(changed)
        found[record.process].append((record.t, dict(known)))
    return dict(found)


def _gauges(records: Sequence[Record]) -> dict[str, list[tuple[float, Mapping[str, float]]]]:
    found: dict[str, list[tuple[float, Mapping[str, float]]]] = defaultdict(list)
    for record in records:
        if record.value.get("gauges"):
            found[record.process].append((record.t, record.value["gauges"]))
    return dict(found)


def _silences(records: Sequence[Record]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = defaultdict(list)
    for record in records:
        if record.type == "fail":
            found[record.process].append(record.t)
    return dict(found)
