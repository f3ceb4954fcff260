"""The other replicas as an operator meets them: the port that answers them, and the side that asks them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from discovery.address import AddressError, split_address
from picker.peers.asking import Asking, Peer
from picker.peers.counts import Counts
from picker.peers.credentials import Credentials
from picker.peers.everywhere import Everywhere
from picker.peers.port import PeersPort, Told
from picker.settings import PeersSettings, Settings, SettingsError
from picker.tls import TlsError


class Neighbours:
    """Both sides of one replica, with what they share.

    Args:
        settings: The replica's.
        told: What it tells of itself.
        peers: Everybody's addresses as discovery has them, this replica's own among them.

    Raises:
        SettingsError: the certificates cannot be used.
    """

    def __init__(self, settings: Settings, told: Told, *, peers: Callable[[], Iterable[str]]) -> None:
        self._settings = settings.peers
        self.counts = Counts()
        credentials = open_credentials(settings.peers, self.counts)
        self.port = PeersPort(settings.peers, told, credentials=credentials, counts=self.counts)
        self._asking = Asking(
            Peer(credentials, self.counts),
            peers=peers,
            is_me=lambda address: is_me(address, settings.pool.replica_address),
            seconds=settings.peers.peers_timeout_seconds,
            counts=self.counts,
        )
        self.everywhere = Everywhere(
            self._asking, summary=told.summary, status=told.status, why=told.why, counts=self.counts
        )
        """Pages made of all replicas' answers."""

    async def start(self) -> None:
        """Listen, where something guards the port.

        Raises:
            SettingsError: the port is taken.
        """
        try:
            await self.port.start()
        except OSError as error:
            where = f"{self._settings.peers_host or '*'}:{self._settings.peers_port}"
            raise SettingsError(
                [f"PICKER_PEERS_PORT or PICKER_PEERS_HOST: cannot listen on {where}: {error}"]
            ) from error

    async def stop(self) -> None:
        """Stop listening, and asking."""
        await self.port.stop()
        await self._asking.close()


def open_credentials(settings: PeersSettings, counts: Counts) -> Credentials:
    """What a replica and its peers prove themselves by.

    Raises:
        SettingsError: the certificates cannot be used.
    """
    try:
        return Credentials(settings, counts)
    except TlsError as error:
        raise SettingsError([str(error)]) from error


def is_me(address: str, mine: str) -> bool:
    """Whether a peer's address is our own: by host and port where ``mine`` names a port, else by the host alone."""
    try:
        host, port = split_address(mine)
        there, there_port = split_address(address)
    except AddressError:
        return False
    return host == there and port in (None, there_port)
