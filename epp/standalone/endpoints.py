"""The file from which the proxy learns the endpoints."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from envoy_data_plane.envoy.service.discovery.v3 import DiscoveryResponse
from envoy_data_plane.google.protobuf import Any

from epp.standalone.clusters import ENDPOINTS, assignment


def write_endpoints(path: Path, addresses: Sequence[str]) -> None:
    """Replace the file at ``path`` by one that lists ``addresses`` (``ip:port``, IPv6 in brackets), at once.

    Envoy takes a file that is renamed into place; it never sees half of one.
    """
    members = [(host.strip("[]"), int(port)) for host, _, port in (a.rpartition(":") for a in addresses)]
    response = DiscoveryResponse(resources=[Any.pack(assignment(ENDPOINTS, members))])
    unfinished = path.with_name(f".{path.name}.new")
    unfinished.write_text(response.to_json(indent=2))
    os.replace(unfinished, path)  # noqa: PTH105 - the word for it
