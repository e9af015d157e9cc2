"""What the picker shows of itself without a right to the metrics."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp

from epp.config.digest import digest
from epp.metrics.exposition import Exposition
from epp.metrics.telemetry import Telemetry
from epp.pool.ledger import Ledger
from epp.pool.pool import Endpoint, Pool
from epp.runtime.followed_files import FollowedFiles
from epp.server.admin import Admin
from epp.server.readiness import Readiness, facts
from epp.server.reload import ConfigReload


def test_the_digest_is_that_of_the_file_from_which_the_configuration_in_use_was_read(tmp_path: Path) -> None:
    file = tmp_path / "picker.yaml"
    file.write_text("a: 1\n")
    reload = ConfigReload(FollowedFiles(file), lambda: None, lambda _: iter(()))  # type: ignore[arg-type, return-value]
    assert facts(Telemetry(), Pool(), reload)["configuration-digest"] == digest(b"a: 1\n")
    assert facts(Telemetry(), Pool(), reload)["configuration-current"] == "true"
    assert "configuration-digest" not in facts(Telemetry(), Pool(), None)


def test_a_verbose_reader_sees_the_facts_and_a_probe_the_sentence_alone() -> None:
    async def scenario() -> None:
        pool = Pool()
        pool.replace([Endpoint("10.0.0.1:8000", "default/a", {})])
        telemetry = Telemetry()
        admin = Admin(
            Exposition(telemetry, pool, Ledger(pool)),
            lambda: Readiness(True, "ready"),
            facts=lambda: facts(telemetry, pool, None),
        )
        port = await admin.start("127.0.0.1", 0)
        try:
            async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http:
                async with http.get("/readyz") as response:
                    assert await response.text() == "ready\n"
                async with http.get("/readyz?verbose") as response:
                    lines = (await response.text()).splitlines()
        finally:
            await admin.stop()
        assert lines[0] == "ready"
        assert {"endpoints=1", "requests=0"} <= set(lines)

    asyncio.run(scenario())
