"""Evidence against draining bookings: proofs at once, deficits only when they last, and never too much."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from picker.core.evidence import SCRAPES, Draining, Judge

W = "w:1"


def test_fewer_requests_than_draining_bookings_prove_the_excess_at_once_oldest_first() -> None:
    judge = Judge()
    draining = [Draining("young", 5.0), Draining("old", 1.0), Draining("middle", 3.0)]
    assert judge.reported(W, begun=10, requests=1, active=(), draining=draining) == ("old", "middle")


def test_a_draining_that_began_after_the_scrape_is_not_judged() -> None:
    judge = Judge()
    assert judge.reported(W, begun=10, requests=0, active=(), draining=[Draining("late", 10.0)]) == ()


def test_a_deficit_counts_only_when_it_lasts() -> None:
    judge = Judge()
    active = [f"a{n}" for n in range(4)]
    drained = [Draining("d", 1.0)]
    judge.reported(W, begun=9, requests=4, active=active, draining=())
    answers = [
        judge.reported(W, begun=10 + n, requests=4, active=active, draining=drained) for n in range(SCRAPES)
    ]
    assert answers == [(), (), ("d",)]


def test_a_deficit_that_comes_and_goes_ends_nothing() -> None:
    judge = Judge()
    active = [f"a{n}" for n in range(4)]
    judge.reported(W, begun=9, requests=4, active=active, draining=())
    for n in range(20):
        requests = 4 if n % 3 else 5
        assert (
            judge.reported(W, begun=10 + n, requests=requests, active=active, draining=[Draining("d", 1.0)])
            == ()
        )


def test_a_workers_usual_deficit_is_not_evidence() -> None:
    judge = Judge()
    active = [f"a{n}" for n in range(6)]
    for n in range(5):  # two of the booked ones are always on their way
        judge.reported(W, begun=n, requests=4, active=active, draining=())
    for n in range(10):
        assert judge.reported(W, begun=10 + n, requests=5, active=active, draining=[Draining("d", 6.0)]) == ()


def test_bookings_new_since_the_last_report_are_no_part_of_the_deficit() -> None:
    judge = Judge()
    for n in range(10):
        fresh = [f"{n}-{i}" for i in range(50)]
        assert judge.reported(W, begun=10 + n, requests=1, active=fresh, draining=[Draining("d", 1.0)]) == ()


@given(
    st.integers(0, 8),
    st.integers(0, 8),
    st.lists(st.booleans(), min_size=0, max_size=8),
)
def test_what_still_runs_is_never_all_ended_by_a_true_report(
    active: int, on_the_way: int, runs: list[bool]
) -> None:
    """However many of the draining ones still run, a worker that reports truly keeps at least so many."""
    judge = Judge()
    ids = [f"a{n}" for n in range(active)]
    draining = [Draining(f"d{n}", float(n)) for n in range(len(runs))]
    truth = active + sum(runs)
    for n in range(6):
        ended = judge.reported(W, begun=100 + n, requests=truth + on_the_way, active=ids, draining=draining)
        draining = [one for one in draining if one.id not in ended]
        assert len(draining) >= sum(runs)
