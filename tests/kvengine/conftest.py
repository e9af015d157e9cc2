"""What tests of several parts of kvengine begin with."""

from __future__ import annotations

import pytest

from tests.kvengine.clock import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()
