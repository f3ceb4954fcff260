"""Who may take a request for a model where workers serve different ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from picker.core.models import narrowed

YES, NO, UNTOLD = True, False, None


@pytest.mark.parametrize(
    ("serves", "full", "left_out"),
    [
        ({"a": YES, "b": NO}, "", {"b"}),
        ({"a": YES, "b": NO, "c": UNTOLD}, "", {"b", "c"}),
        ({"a": YES, "b": NO, "c": UNTOLD}, "a", {"b"}),
        ({"a": YES, "b": YES, "c": UNTOLD}, "a", {"c"}),
        ({"a": YES, "b": NO}, "a", {"b"}),
        ({"a": NO, "b": UNTOLD}, "", {"a"}),
        ({"a": NO, "b": UNTOLD}, "b", {"a"}),
        ({"a": NO, "b": NO}, "", set()),
        ({"a": UNTOLD, "b": UNTOLD}, "", set()),
        ({}, "", set()),
    ],
)
def test_who_is_left_out(serves: dict[str, bool | None], full: str, left_out: set[str]) -> None:
    assert narrowed(serves, full=set(full)) == left_out


WORKERS = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from([YES, NO, UNTOLD]), min_size=1)


@given(serves=WORKERS, full=st.sets(st.sampled_from("abcdef")))
def test_somebody_is_left_and_nobody_who_serves_it_is_left_out(
    serves: dict[str, bool | None], full: set[str]
) -> None:
    left_out = narrowed(serves, full=full)
    assert serves.keys() - left_out
    assert not any(serves[worker] for worker in left_out)


@given(serves=WORKERS, full=st.sets(st.sampled_from("abcdef")))
def test_where_nobody_is_known_to_serve_another_model_nobody_who_may_take_it_is_refused_for_it(
    serves: dict[str, bool | None], full: set[str]
) -> None:
    may = {worker for worker, served in serves.items() if served is not NO and worker not in full}
    left = serves.keys() - narrowed(serves, full=full)
    assert not may or may & left
