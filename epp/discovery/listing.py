"""A list of endpoints, parsed from a file's text.

    endpoints:
      - {name: vllm-0, namespace: default, address: 10.0.0.7, port: "8000", labels: {role: decode}}

Source: the Go picker's file-discovery, which takes IPv4 literals; host names are accepted here too.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from epp.config.document import parse
from epp.config.strict import convert
from epp.errors import ConfigError
from epp.pool.pool import Endpoint, check_address

MAX_VALUES = 250_000
"""The most values in a file: the 10,000 endpoints of a full pool, with 20 labels each."""


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One endpoint as written."""

    address: str
    """An IP address, IPv6 with or without brackets, or a host name."""
    port: str | int
    name: str = ""
    namespace: str = "default"
    labels: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Listing:
    """The contents of a file."""

    endpoints: tuple[Endpoint, ...]
    """The usable endpoints, with hosts as written: names are not resolved."""
    skipped: tuple[str, ...]
    """One sentence for each entry that cannot be used, its position first."""


def read_listing(raw: bytes) -> Listing:
    """Return the endpoints in ``raw``, which is YAML or JSON.

    Raises: ConfigError if it is neither, has no list ``endpoints``, or has entries of which none can be used.
    """
    entries = _entries(raw)
    endpoints: dict[str, Endpoint] = {}
    skipped: list[str] = []
    for position, data in enumerate(entries):
        where = f"endpoints[{position}]"
        try:
            endpoint = _endpoint(_entry(data, where))
            if endpoint.address in endpoints:
                raise ConfigError(f"{where}: {endpoint.address} is listed already; list each address once")  # noqa: TRY301
            endpoints[endpoint.address] = endpoint
        except ConfigError as error:
            skipped.append(str(error) if str(error).startswith(where) else f"{where}: {error}")
    if entries and not endpoints:
        raise ConfigError(f"none of the {len(entries)} entries can be used; the first: {skipped[0]}")
    return Listing(tuple(endpoints.values()), tuple(skipped))


def _entries(raw: bytes) -> list[object]:
    data: object = None
    if raw.lstrip()[:1] == b"{":
        try:
            data = msgspec.json.decode(raw)  # 50 times faster than as YAML
        except (msgspec.DecodeError, RecursionError):
            data = None
    if not isinstance(data, dict):
        data = parse(raw, begins="endpoints", most_values=MAX_VALUES)
    unknown = sorted(str(key) for key in data if key != "endpoints")
    if unknown:
        raise ConfigError(f"{unknown[0]}: unknown field; the file has one list, endpoints")
    entries = data.get("endpoints")
    if not isinstance(entries, list):
        raise ConfigError("endpoints: missing, or not a list; write endpoints: [] for none")
    return entries


def _entry(data: object, where: str) -> Entry:
    """Convert one entry. Raises: ConfigError if it is not valid."""
    try:
        return msgspec.convert(data, Entry)
    except msgspec.ValidationError:
        return convert(data, Entry, where)  # slower: accepts nulls, and names what is wrong


def _endpoint(entry: Entry) -> Endpoint:
    """Return the endpoint of an entry. Raises: ConfigError if its address is not valid."""
    host = entry.address.strip()
    try:
        ip = ipaddress.ip_address(host.strip("[]"))
        host = f"[{ip}]" if ip.version == 6 else str(ip)
    except ValueError:
        pass  # a host name
    address = f"{host}:{entry.port}"
    check_address(address)
    return Endpoint(address, f"{entry.namespace}/{entry.name}" if entry.name else "", entry.labels)
