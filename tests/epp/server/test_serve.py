"""The refusals of ``tierwise serve`` when it cannot start."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from epp.errors import ConfigError
from epp.server.command import serve
from epp.server.options import ServeOptions


def test_without_endpoints_it_says_where_they_may_come_from() -> None:
    with pytest.raises(ConfigError, match=r"^nothing says where the endpoints are: pass --endpoint HOST:PORT; "):
        asyncio.run(serve(ServeOptions()))


def test_with_a_pools_name_alone_it_says_that_pools_are_not_read() -> None:
    with pytest.raises(
        ConfigError, match=r"\(--pool-name=mine is a name in metrics only: InferencePools are not read\)"
    ):
        asyncio.run(serve(replace(ServeOptions(), picker=replace(ServeOptions().picker, pool_name="mine"))))
