from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from picker.events.subjects import MAX_NAME, Subjects, token, untoken

names = st.text(max_size=60)


@given(names)
def test_any_name_is_one_safe_token_and_comes_back(name: str) -> None:
    packed = token(name)
    assert re.fullmatch(r"[A-Za-z0-9_=-]+", packed)
    assert untoken(packed) == name


@given(names, names)
def test_no_two_names_share_a_token(one: str, other: str) -> None:
    assert (token(one) == token(other)) == (one == other)


@given(st.text(alphabet="=AFaf09._*> \n\udc80é", max_size=12))
def test_what_no_name_packs_to_has_no_name(packed: str) -> None:
    name = untoken(packed)
    assert name is None or token(name) == packed


def test_a_workers_subjects_hold_one_token_for_its_address_and_one_for_its_rank() -> None:
    subjects = Subjects("team.a/llama 3")
    assert (
        subjects.events("[fd00::1]:8000@3") == "picker.v1.team=2Ea=2Fllama=203.kv.=5Bfd00=3A=3A1=5D=3A8000.3"
    )
    assert subjects.asks("10.0.0.1:80") == "picker.v1.team=2Ea=2Fllama=203.ask.10=2E0=2E0=2E1=3A80.0"
    assert subjects.all_events == "picker.v1.team=2Ea=2Fllama=203.kv.*.*"


def test_a_name_too_long_for_a_subject_is_refused() -> None:
    with pytest.raises(ValueError, match="too long"):
        token("x" * (MAX_NAME + 1))
