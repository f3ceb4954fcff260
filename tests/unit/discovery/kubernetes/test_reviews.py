"""Tokens and rights by the API server's word: what is asked, what is believed, what is never repeated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from discovery.access import Review, ReviewError
from discovery.backends import open_reviewer
from discovery.kubernetes.api import Api
from discovery.kubernetes.reviews import RIGHTS, TOKENS, Reviews
from tests.unit.discovery.kubernetes.conftest import ApiServer, kubeconfig

USER = {
    "username": "system:serviceaccount:monitoring:prometheus",
    "uid": "u-1",
    "groups": ["system:serviceaccounts", "system:authenticated"],
    "extra": {"authentication.kubernetes.io/pod-name": ["prometheus-0"]},
}


def known(entry: dict[str, Any]) -> dict[str, Any]:
    good = entry["spec"]["token"] == "good"
    return {"status": {"authenticated": good, **({"user": USER} if good else {"error": "not known"})}}


def allowing(answer: dict[str, Any]) -> Any:
    return lambda _entry: {"status": answer}


@pytest.fixture
def reviews(api: Api, server: ApiServer) -> Reviews:
    server.creates = {TOKENS: known, RIGHTS: allowing({"allowed": True})}
    return Reviews(api)


async def test_who_bears_the_token_is_asked_first_and_then_what_they_may(
    reviews: Reviews, server: ApiServer
) -> None:
    found = await reviews.review("good", path="/metrics", verb="get")
    assert found == Review(known=True, allowed=True, user=USER["username"])  # type: ignore[arg-type]
    (first, token), (second, right) = server.made
    assert (first, token["kind"], token["apiVersion"]) == (TOKENS, "TokenReview", "authentication.k8s.io/v1")
    assert (second, right["kind"], right["apiVersion"]) == (
        RIGHTS,
        "SubjectAccessReview",
        "authorization.k8s.io/v1",
    )
    assert right["spec"] == {
        "user": USER["username"],
        "uid": USER["uid"],
        "groups": USER["groups"],
        "extra": USER["extra"],
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
    }


async def test_nobodys_token_is_not_asked_about_further(reviews: Reviews, server: ApiServer) -> None:
    assert await reviews.review("stolen", path="/metrics", verb="get") == Review(known=False)
    assert [path for path, _ in server.made] == [TOKENS]


@pytest.mark.parametrize(
    "answer", [{"allowed": False}, {"allowed": True, "denied": True}, {}, {"allowed": "yes"}]
)
async def test_only_a_plain_yes_allows(reviews: Reviews, server: ApiServer, answer: dict[str, Any]) -> None:
    server.creates[RIGHTS] = allowing(answer)
    found = await reviews.review("good", path="/metrics", verb="get")
    assert (found.known, found.allowed) == (True, False)


@pytest.mark.parametrize(
    ("status", "words"),
    [(403, "may not create a TokenReview; the chart's ClusterRole"), (500, "HTTP 500"), (409, "HTTP 409")],
)
async def test_a_server_that_does_not_answer_the_question_is_a_fault_that_holds_no_token(
    reviews: Reviews, server: ApiServer, status: int, words: str
) -> None:
    server.statuses[TOKENS] = status
    with pytest.raises(ReviewError, match=words) as fault:
        await reviews.review("s3cret-token", path="/metrics", verb="get")
    assert "s3cret-token" not in str(fault.value)


async def test_an_answer_without_sense_is_a_fault(reviews: Reviews, server: ApiServer) -> None:
    server.creates[TOKENS] = lambda _: {"status": "yes"}
    with pytest.raises(ReviewError, match="without a status"):
        await reviews.review("good", path="/metrics", verb="get")


async def test_a_server_that_is_away_is_a_fault_and_one_that_returns_is_asked_anew(
    reviews: Reviews, server: ApiServer
) -> None:
    await server.stop()
    with pytest.raises(ReviewError, match="away"):
        await reviews.review("good", path="/metrics", verb="get")
    await server.start()
    assert (await reviews.review("good", path="/metrics", verb="get")).allowed


async def test_the_table_of_sources_makes_one_without_asking(server: ApiServer, tmp_path: Path) -> None:
    reviewer = open_reviewer(kubeconfig=kubeconfig(tmp_path / "k", {"here": server}))
    assert isinstance(reviewer, Reviews)
    await reviewer.close()
    assert not server.made
