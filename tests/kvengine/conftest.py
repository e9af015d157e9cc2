"""Fixtures that the tests of several modules of kvengine share."""

from __future__ import annotations

import pytest

from tests.kvengine.clock import Clock
from tests.kvengine.requests import Requests


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def requests() -> Requests:
    return Requests()
