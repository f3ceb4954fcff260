"""The admin port's pages about all replicas: the same guard, and the others' answers handed on as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import aiohttp
import pytest

from tests.unit.admin.test_admin import admin

PATHS = ("/peers.json", "/replicas/b/status.json", "/why/known")


class Others:
    """Answers as it is named."""

    async def replicas(self) -> Mapping[str, Any]:
        return {"asked_by": "a"}

    async def status(self, name: str) -> tuple[int, Mapping[str, Any]]:
        return (200, {"replica": {"name": name}}) if name == "b" else (404, {"name": name})

    async def why(self, name: str) -> tuple[int, Mapping[str, Any]]:
        return (200, {"id": name, "answered_by": ["b"]}) if name == "known" else (404, {"id": name})


@pytest.mark.parametrize(
    ("path", "status", "page"),
    [
        ("/peers.json", 200, {"asked_by": "a"}),
        ("/replicas/b/status.json", 200, {"replica": {"name": "b"}}),
        ("/replicas/c%2Fd/status.json", 404, {"name": "c/d"}),
        ("/why/known", 200, {"id": "known", "answered_by": ["b"]}),
        ("/why/other", 404, {"id": "other"}),
    ],
)
async def test_what_others_say_is_handed_on(path: str, status: int, page: Mapping[str, Any]) -> None:
    async with (
        admin(everywhere=Others()) as url,
        aiohttp.ClientSession() as http,
        http.get(url + path) as answer,
    ):
        assert (answer.status, await answer.json()) == (status, page)


@pytest.mark.parametrize("path", PATHS)
async def test_they_are_for_a_token_as_the_status_is(path: str) -> None:
    async with admin(token="s3cret", everywhere=Others()) as url, aiohttp.ClientSession() as http:
        for header, status in (({}, 401), ({"Authorization": "Bearer s3cret"}, 200)):
            async with http.get(url + path, headers=header) as answer:
                assert answer.status == status


@pytest.mark.parametrize("path", PATHS[:2])
async def test_a_replica_that_asks_nobody_says_so(path: str) -> None:
    async with admin() as url, aiohttp.ClientSession() as http, http.get(url + path) as answer:
        assert answer.status == 404
