from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.site.background import Background, background


@pytest.fixture(scope="module")
def loop() -> Iterator[Background]:
    with background() as running:
        yield running
