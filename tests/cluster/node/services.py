"""Cluster addresses of services, forwarded to their endpoints, and their names."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from contextlib import suppress

from tests.cluster.node.api import Copy
from tests.cluster.node.network import DNS_ADDRESS
from tests.cluster.node.pods import DOMAIN

SERVICE_NAME = "kubernetes.io/service-name"
CONNECT_S = 5.0
TTL_S = 1
A, NO_SUCH_NAME = 1, 3
Listener = tuple[str, int]


class Forwarder:
    """Listens at every cluster address and forwards each connection to an endpoint that is ready."""

    def __init__(self, services: Copy, slices: Copy) -> None:
        self._services, self._slices = services, slices
        self._listening: dict[Listener, asyncio.Server] = {}

    async def follow(self, changed: asyncio.Event) -> None:
        """Open and close listeners for ever, as services come and go."""
        while True:
            await changed.wait()
            changed.clear()
            wanted: dict[Listener, tuple[str, str, str]] = {}
            for (namespace, name), service in self._services.objects.items():
                address = service["spec"].get("clusterIP", "None")
                if address not in ("None", ""):
                    for port in service["spec"].get("ports", ()):
                        wanted[address, port["port"]] = namespace, name, port.get("name", "")
            for gone in self._listening.keys() - wanted.keys():
                self._listening.pop(gone).close()
            for listener in wanted.keys() - self._listening.keys():
                self._listening[listener] = await self._listen(listener)

    def close(self) -> None:
        """Stop listening at every address."""
        for server in self._listening.values():
            server.close()

    def endpoints(self, namespace: str, service: str, port: str | None) -> list[tuple[str, int]]:
        """Return the ready endpoints of a service's port; of its first one for None."""
        found = []
        for (where, _), one in list(self._slices.objects.items()):
            if where == namespace and one["metadata"].get("labels", {}).get(SERVICE_NAME) == service:
                ports = [p for p in one.get("ports") or () if port is None or (p.get("name") or "") == port]
                for endpoint in one.get("endpoints") or ():
                    if ports and endpoint.get("conditions", {}).get("ready", True):
                        found += [(address, ports[0]["port"]) for address in endpoint["addresses"]]
        return found

    async def _listen(self, listener: Listener) -> asyncio.Server:
        async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._forward(listener, reader, writer)

        return await asyncio.start_server(forward, *listener, backlog=1024)

    async def _forward(self, listener: Listener, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        service = next(
            (
                (namespace, name, port.get("name", ""))
                for (namespace, name), one in self._services.objects.items()
                for port in one["spec"].get("ports", ())
                if (one["spec"].get("clusterIP"), port["port"]) == listener
            ),
            None,
        )
        found = self.endpoints(*service) if service else []
        if not found:
            writer.transport.abort()
            return
        try:
            async with asyncio.timeout(CONNECT_S):
                there, back = await asyncio.open_connection(*random.choice(found))
        except (OSError, TimeoutError):
            writer.transport.abort()
            return
        await asyncio.gather(_pump(reader, back), _pump(there, writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one direction until it ends, and then end it on the other side."""
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
            return
    except OSError:
        pass
    with suppress(OSError):
        writer.transport.abort()


class Names(asyncio.DatagramProtocol):
    """A name server for services, and for the pods of headless ones."""

    def __init__(self, services: Copy, slices: Copy) -> None:
        self._services, self._slices = services, slices
        self._transport: asyncio.DatagramTransport | None = None

    async def listen(self) -> None:
        """Begin to answer at the address in the pods' resolv.conf."""
        loop = asyncio.get_running_loop()
        await loop.create_datagram_endpoint(lambda: self, local_addr=(DNS_ADDRESS, 53))

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        self._transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Answer one question, where a name without addresses of the type has an empty answer."""
        name, end = _question(data)
        (kind,) = struct.unpack_from("!H", data, end)
        addresses = self.addresses(name)
        found = [socket.inet_aton(one) for one in addresses or ()] if kind == A else []
        code = NO_SUCH_NAME if addresses is None else 0
        header = data[:2] + struct.pack("!HHHHH", 0x8580 | code, 1, len(found), 0, 0)
        answers = b"".join(b"\xc0\x0c" + struct.pack("!HHIH", A, 1, TTL_S, 4) + one for one in found)
        if self._transport is not None:
            self._transport.sendto(header + data[12 : end + 4] + answers, addr)

    def addresses(self, name: str) -> list[str] | None:
        """Return the addresses of a name, or None if there is no such name."""
        suffix = f".svc.{DOMAIN}"
        if not name.endswith(suffix):
            return None
        *host, service, namespace = name.removesuffix(suffix).rsplit(".", 2) if "." in name else ("", "")
        found = self._services.get(namespace, service)
        if found is None:
            return None
        if found["spec"].get("clusterIP", "None") != "None" and not host:
            return [found["spec"]["clusterIP"]]
        return self._headless(namespace, service, host[0] if host else None)

    def _headless(self, namespace: str, service: str, host: str | None) -> list[str] | None:
        addresses = []
        for (where, _), one in list(self._slices.objects.items()):
            if where == namespace and one["metadata"].get("labels", {}).get(SERVICE_NAME) == service:
                for endpoint in one.get("endpoints") or ():
                    ready = endpoint.get("conditions", {}).get("ready", True)
                    if ready and host in (None, endpoint.get("hostname")):
                        addresses += endpoint["addresses"]
        return addresses or ([] if host is None else None)


def _question(data: bytes) -> tuple[str, int]:
    """Return the name that is asked for, and where it ends."""
    labels, at = [], 12
    while data[at]:
        labels.append(data[at + 1 : at + 1 + data[at]].decode(errors="replace").lower())
        at += 1 + data[at]
    return ".".join(labels), at + 1
