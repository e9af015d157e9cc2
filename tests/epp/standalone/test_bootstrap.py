"""The configuration as values, and its validation by Envoy itself."""

from __future__ import annotations

import itertools
import subprocess
from pathlib import Path
from typing import Any

import pytest

from epp.extproc.options import ErrorFormat
from epp.standalone.binary import find_envoy
from epp.standalone.bootstrap import bootstrap, written
from epp.standalone.endpoints import write_endpoints
from epp.standalone.routes import routes
from epp.standalone.settings import MIB, ProxySettings, RequestMode, ResponseMode


def settings(folder: Path = Path("/folder"), **chosen: Any) -> ProxySettings:
    file = folder / "endpoints.json"
    return ProxySettings(**({"port": 1, "picker_port": 2, "admin_port": 3, "endpoints_file": file} | chosen))


EVERY = list(
    itertools.product(RequestMode, ResponseMode, ErrorFormat, [True, False], [0.0, 0.01, 1.0], ["0.0.0.0", "::1"])
)


@pytest.mark.e2e
@pytest.mark.parametrize("chosen", EVERY[::7], ids=str)
def test_envoy_accepts_it(chosen: tuple[Any, ...], tmp_path: Path) -> None:
    names = ("request_mode", "response_mode", "error_format", "fail_open", "sample_rate", "host")
    write_endpoints(tmp_path / "endpoints.json", ["10.0.0.7:8000", "[fd00::1]:8000"])
    config = tmp_path / "envoy.json"
    made = settings(tmp_path, **dict(zip(names, chosen, strict=True)))
    config.write_text(written(bootstrap(made), made))
    checked = subprocess.run(
        [find_envoy(None), "--mode", "validate", "-c", config, "--log-level", "warning"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
    assert "deprecated" not in checked.stderr


def test_it_survives_its_own_bytes() -> None:
    made = bootstrap(settings())
    assert type(made).parse(bytes(made)) == made


@pytest.mark.parametrize(
    ("mode", "rate", "names"),
    [
        (ResponseMode.LEAN, 0.01, ["closed", "websocket", "sample", "all", "closed"]),
        (ResponseMode.LEAN, 0.0, ["closed", "websocket", "all", "closed"]),
        (ResponseMode.FULL, 0.01, ["closed", "websocket", "all", "closed"]),
    ],
)
def test_only_a_lean_proxy_samples(mode: ResponseMode, rate: float, names: list[str]) -> None:
    assert [route.name for route in routes(settings(response_mode=mode, sample_rate=rate))] == names


def test_no_limit_is_below_what_a_busy_picker_needs() -> None:
    resources = bootstrap(settings()).static_resources
    assert resources is not None
    for cluster in resources.clusters:
        assert cluster.circuit_breakers is not None
        for threshold in cluster.circuit_breakers.thresholds:
            limits = (threshold.max_connections, threshold.max_requests, threshold.max_pending_requests)
            assert min(limit or 0 for limit in (*limits, threshold.max_retries)) >= 1_000_000
        assert (cluster.per_connection_buffer_limit_bytes or 0) >= 32 * MIB
    (listener,) = resources.listeners
    assert (listener.per_connection_buffer_limit_bytes or 0) >= 32 * MIB
