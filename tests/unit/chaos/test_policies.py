"""What other policies would have booked, computed by hand."""

import pytest

from chaos.policies import EXPIRY_SECONDS, our_errors, policy_errors
from chaos.testing import Tale


def quiet_pair() -> Tale:
    """Two replicas, one request of picker-0 from 10 s to 20 s, seen by both all the time."""
    tale = Tale()
    tale.carried("a", 10, 20)
    tale.views(0, 10)
    tale.views(10, 20, "a", owner="picker-0")
    tale.views(20, 60)
    return tale


def test_a_replica_alone_does_not_see_the_others_requests() -> None:
    assert policy_errors(quiet_pair().story(), "isolated").total == pytest.approx(10 / 2)


def test_messages_that_arrive_leave_no_error() -> None:
    assert policy_errors(quiet_pair().story(), "stream-bound").total == pytest.approx(0)


def test_a_dead_owners_bookings_are_believed_until_they_expire() -> None:
    tale = quiet_pair()
    tale.fault("kill", "picker-0", begun=15, healed=30)
    error = policy_errors(tale.story(), "stream-bound")
    # picker-1 believes it from its end at 20 s until 310 s; picker-0, back at 30 s, never knew it; dead it errs not
    assert error.during == pytest.approx((60 - 20) / 2)
    assert error.after == pytest.approx((10 + EXPIRY_SECONDS - 60) / 2)


def test_an_end_told_while_nobody_hears_is_lost() -> None:
    tale = quiet_pair()
    tale.fault("freeze", "plane", begun=15, healed=30)
    assert policy_errors(tale.story(), "stream-bound").total == pytest.approx((10 + EXPIRY_SECONDS - 20) / 2)


def test_a_booking_told_while_nobody_hears_is_never_known() -> None:
    tale = quiet_pair()
    tale.fault("freeze", "plane", begun=5, healed=12)
    assert policy_errors(tale.story(), "stream-bound").total == pytest.approx(10 / 2)


def test_views_that_follow_have_hardly_an_error() -> None:
    assert our_errors(quiet_pair().story()).total <= 0.5


def test_a_view_that_lags_errs_by_its_lag() -> None:
    tale = Tale()
    tale.carried("a", 10, 20)
    tale.views(0, 10)
    tale.views(10, 24, "a", owner="picker-0")
    tale.views(24, 60)
    assert our_errors(tale.story()).total == pytest.approx(4, abs=0.5)


def test_time_without_a_look_is_not_counted() -> None:
    tale = Tale(replicas=("picker-0",))
    tale.views(0, 10)
    tale.views(30, 40)
    assert our_errors(tale.story()).seconds == pytest.approx(19.5, abs=0.1)
