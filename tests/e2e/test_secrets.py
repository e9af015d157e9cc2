"""The whole router at its most verbose, with Envoy's own log, shows no prompt, no answer and no key."""

from __future__ import annotations

import signal
from http.client import HTTPConnection

import pytest

from tests.e2e.site.background import PATIENCE_S
from tests.e2e.site.engine import Engine
from tests.e2e.site.router import LOOPBACK
from tests.e2e.test_command import command
from tests.epp.server.test_secrets import BODIES, CANARY, PATH, SECRETS, encoded

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("mode", ["lean", "full"])
def test_the_routers_log_tells_no_secret(engines: list[Engine], mode: str) -> None:
    flags = (f"--endpoint={engines[0].address}", f"--response-mode={mode}", "--v=5", "--max-request-bytes=200000")
    with command(*flags, "--drain-timeout=1s", "--debug-port=0") as router:
        statuses = []
        for path, body in (*BODIES.values(), (PATH, encoded(prompt=f"{CANARY} once more", stream=True))):
            connection = HTTPConnection(LOOPBACK, router.port, timeout=PATIENCE_S)
            connection.request("POST", path, body, {**SECRETS, "content-type": "application/json"})
            response = connection.getresponse()
            statuses.append(response.status)
            response.read()
            connection.close()
        router.until(lambda: router.said.count("ended") >= 3)
        assert router.end(signal.SIGTERM) == 0
        assert {200, 400, 413} <= set(statuses)
        assert "envoy: " in router.said
        assert "picked to" in router.said
        assert "refused" in router.said
        assert CANARY not in router.said
        assert "tell nobody" not in router.said
