"""Children: watched, started again, ended; none is left behind."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from picker.sim.processes import Children, ProcessError, Program, accepts, free_ports, lives, until

SERVER = """
import socket, sys, time
print("serving", flush=True)
s = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    s.accept()[0].close()
"""


def server(name: str, port: int, code: str = SERVER) -> Program:
    argv = (sys.executable, "-c", textwrap.dedent(code), str(port))
    return Program(name, argv, accepts(f"127.0.0.1:{port}"), ready_seconds=10, stop_seconds=0.5)


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
async def children(tmp_path: Path, said: list[str]) -> AsyncIterator[Children]:
    these = Children(tmp_path, say=said.append, restart_seconds=0.05)
    yield these
    await these.close()


async def test_a_child_is_ready_when_its_probe_says_so_and_gone_after_close(children: Children) -> None:
    (port,) = free_ports(1)
    child = await children.start(server("one", port))
    assert await accepts(f"127.0.0.1:{port}")()
    await children.close()
    assert not lives(child.pid)


async def test_a_child_that_dies_at_the_start_is_reported_with_its_last_lines(children: Children) -> None:
    code = "print('the port is taken by a cat'); raise SystemExit(3)"
    with pytest.raises(ProcessError, match=r"(?s)one ended with exit code 3.*taken by a cat"):
        await children.start(server("one", 1, code))


async def test_a_program_that_is_not_there_is_named(children: Children) -> None:
    with pytest.raises(ProcessError, match="one does not start: /no/such/thing"):
        await children.start(Program("one", ("/no/such/thing",), accepts("127.0.0.1:1")))


async def test_a_child_killed_from_outside_comes_back_on_its_port(
    children: Children, said: list[str]
) -> None:
    (port,) = free_ports(1)
    changes: list[int] = []
    child = await children.start(server("one", port))
    children.changed = lambda: changes.append(child.pid)
    first = child.pid
    os.kill(first, signal.SIGKILL)
    await until(lambda: bool(changes), seconds=10, what="the child is back")
    assert changes == [child.pid]
    assert child.pid != first
    assert await accepts(f"127.0.0.1:{port}")()
    assert "one was ended by SIGKILL" in said[0]
    assert f"one is back, pid {child.pid}" in said[1]


async def test_a_child_killed_on_purpose_stays_away_until_it_is_restarted(children: Children) -> None:
    (port,) = free_ports(1)
    child = await children.start(server("one", port))
    await children.kill("one")
    await asyncio.sleep(0.3)
    assert not child.alive
    await children.restart("one")
    assert await accepts(f"127.0.0.1:{port}")()


async def test_a_stopped_child_is_no_dead_child(children: Children) -> None:
    (port,) = free_ports(1)
    child = await children.start(server("one", port))
    await children.kill("one", signal.SIGSTOP)
    assert child.alive
    assert child.revive
    await children.close()
    assert not lives(child.pid)


async def test_a_child_that_keeps_dying_is_given_up_with_the_reason(children: Children) -> None:
    (port,) = free_ports(1)
    code = """
        import socket, sys, threading, os
        s = socket.create_server(("127.0.0.1", int(sys.argv[1])))
        s.accept()[0].close()
        print("I cannot go on", flush=True)
        import time; time.sleep(0.2)
        os._exit(7)
    """
    await children.start(server("one", port, code))
    with pytest.raises(ProcessError, match=r"(?s)one ended 5 times.*exit code 7.*I cannot go on"):
        await asyncio.wait_for(children.given_up(), 20)


async def test_one_that_ignores_sigterm_is_killed_by_its_pid(children: Children) -> None:
    (port,) = free_ports(1)
    child = await children.start(
        server("one", port, "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SERVER)
    )
    await children.close()
    assert not lives(child.pid)


async def test_nothing_starts_once_the_end_has_begun(children: Children) -> None:
    await children.close()
    with pytest.raises(ProcessError, match="being stopped"):
        await children.start(server("one", 1))


def test_children_die_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    code = f"""
        import asyncio, sys
        from pathlib import Path
        from picker.sim.processes import Children, Program, accepts
        async def main():
            children = Children(Path({str(tmp_path)!r}), say=print)
            program = Program("one", (sys.executable, "-c", {SERVER!r}, "{port}"), accepts("127.0.0.1:{port}"))
            child = await children.start(program)
            print(child.pid, flush=True)
            await asyncio.sleep(60)
        asyncio.run(main())
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert lives(pid)
        parent.kill()
        asyncio.run(until(lambda: not lives(pid), seconds=10, what="the child dies"))
    finally:
        parent.kill()
        parent.wait()
        if parent.stdout:
            parent.stdout.close()


def test_free_ports_are_different_and_outside_the_range_of_outgoing_connections() -> None:
    ports = free_ports(50)
    assert len(set(ports)) == 50
    assert max(ports) < 32_768


def test_unknown_children_are_answered_with_the_known_ones(tmp_path: Path) -> None:
    async def ask() -> None:
        children = Children(tmp_path, say=print)
        with pytest.raises(KeyError, match="no child named 'two'"):
            children["two"]

    asyncio.run(ask())
