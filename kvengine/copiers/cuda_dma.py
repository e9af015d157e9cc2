"""Copies by the device's copy engines: one descriptor per fragment, many per call."""

from __future__ import annotations

from kvengine.copiers.base import Direction
from kvengine.copiers.descriptors import HostPieces, batches, cut, ends
from kvengine.cuda.driver import Driver, Stream
from kvengine.layout import Fragments


def begin_copies(
    driver: Driver, stream: Stream, direction: Direction, fragments: Fragments, pieces: HostPieces
) -> None:
    """Begin all copies on ``stream``. Raises: DeviceError, after which some copies may have begun."""
    device, host, sizes = cut(fragments, pieces)
    to, source = ends(direction, device, host)
    for part in batches(len(sizes)):
        driver.copy(stream, to[part], source[part], sizes[part])
