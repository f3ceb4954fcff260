"""Which schema is written while replicas of two versions run side by side."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stateplane.booking import Member, Owner
from stateplane.schema import oldest_of, readable, unreadable, written


def members(*said: str | None) -> list[Member]:
    return [Member(Owner(str(n), "1"), {} if one is None else {"schema": one}) for n, one in enumerate(said)]


def test_the_older_schema_is_written_until_every_member_reads_the_newer() -> None:
    assert written(members("2", "1", "2"), newest=2) == 1
    assert written(members("2", "2", "2"), newest=2) == 2


def test_a_member_that_says_nothing_or_nonsense_is_taken_to_be_old() -> None:
    for said in (None, "", "two", "-2", "2.0", "٢", "9" * 50):
        assert written(members("2", said), newest=2) == 1


def test_a_member_of_a_newer_version_does_not_make_us_write_what_we_do_not_know() -> None:
    assert written(members("3", "2"), newest=2) == 2
    assert written(members("3"), newest=2) == 2


def test_a_pool_without_members_is_written_in_the_older_schema() -> None:
    assert written([], newest=2) == 1
    assert written([], newest=1) == 1


def test_members_two_versions_behind_do_not_make_us_write_what_we_no_longer_know() -> None:
    assert written(members("1", "3"), newest=3) == 2


@given(st.lists(st.one_of(st.none(), st.text(max_size=4), st.integers(0, 9).map(str))), st.integers(1, 9))
def test_what_is_written_is_always_readable_here_and_by_every_member_that_is_one_version_off_at_most(
    said: list[str | None], newest: int
) -> None:
    schema = written(members(*said), newest=newest)
    assert readable(schema, newest=newest)
    for one in said:
        if one is not None and one.isascii() and one.isdigit() and abs(int(one) - newest) <= 1 and int(one):
            assert readable(schema, newest=int(one)) or int(one) > newest


def test_both_numbers_are_told_of_what_cannot_be_read() -> None:
    assert "schema 3" in unreadable(3, newest=2)
    assert "none newer than 2; upgrade the replica" in unreadable(3, newest=2)
    assert oldest_of(5) == 4
    assert "schema 2" in unreadable(2, newest=5)
    assert "none older than 4" in unreadable(2, newest=5)
