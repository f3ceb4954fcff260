"""Rights per role, as text; `tests/contract/events/test_events_access.py` holds a real server to them."""

from __future__ import annotations

import json

import pytest

from picker.events.permissions import User, permissions, server_configuration


def test_a_bridge_may_speak_for_its_own_worker_alone() -> None:
    rights = permissions("bridge", "team.a/llama 3", worker="[fd00::1]:8000")
    assert rights["publish"] == {"allow": ["picker.v1.team=2Ea=2Fllama=203.kv.=5Bfd00=3A=3A1=5D=3A8000.*"]}
    assert rights["subscribe"] == {"allow": ["picker.v1.team=2Ea=2Fllama=203.ask.=5Bfd00=3A=3A1=5D=3A8000.*"]}


def test_a_replica_may_not_publish_events() -> None:
    rights = permissions("replica", "a/b")
    assert not any(".kv." in each for each in rights["publish"]["allow"])


@pytest.mark.parametrize("worker", ["", "a:1@2"])
def test_a_bridge_without_a_worker_gets_no_rights(worker: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        permissions("bridge", "a/b", worker=worker)


@pytest.mark.parametrize(
    "given", [{}, {"name": "x"}, {"nkey": "U"}, {"nkey": "U" * 56, "name": "x", "password": "y"}]
)
def test_a_user_is_one_thing_or_the_other(given: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"NATS user|NKEY"):
        User(**given)


def test_no_name_breaks_out_of_the_configuration() -> None:
    text = server_configuration(
        'a"/}b', replicas=[User(name='r"}', password='"]}')], bridges=[("h:1", User(nkey="U" + "A" * 55))]
    )
    users = json.loads(text)["authorization"]["users"]
    assert users[0]["password"] == '"]}'
    assert users[1]["nkey"] == "U" + "A" * 55
