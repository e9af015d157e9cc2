"""What clients see that are with a pod of the standalone chart when it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.load import Load
from tests.cluster.streams import KeptConnection, Stream
from tests.cluster.test_chart_changes import CHART, PLAIN, values

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("two_engines")]
DRAIN_S = 40
TOKENS = 2400
"""Of a stream of about 38 s: it is under way when its pod's Envoy would have ended without the pause for streams."""
WAIT = ("--wait", "--timeout", "90s")
CLOSED = ("--set", "router.proxy.failOpen=false", "--set", f"tierwise.drainSeconds={DRAIN_S}")


def ended(here: Cluster, pod: str) -> bool:
    return pod not in {one["metadata"]["name"] for one in here.get("pods")["items"]}


def ending(here: Cluster, pod: str) -> bool:
    return "deletionTimestamp" in here.get("pod", pod)["metadata"]


def test_an_upgrade_cuts_no_stream_and_no_connection_that_is_kept(here: Cluster, tmp_path: Path) -> None:
    here.helm("install", "long", CHART, *values(tmp_path, PLAIN), *CLOSED, *WAIT)
    (old,) = [pod["metadata"]["name"] for pod in here.pods("llm-d-router-standalone=long-epp")]
    address = f"{here.address('long-epp')}:8081"
    with KeptConnection(address) as kept, Load(address, threads=2) as load:
        here.until(lambda: kept.answered, lambda: str(kept.lost))
        stream = Stream(address, TOKENS)
        stream.has_begun()
        here.helm("upgrade", "long", CHART, *values(tmp_path, PLAIN, v=4), *CLOSED, *WAIT)
        here.until(lambda: ending(here, old), here.story)
        load.serves()
        assert stream.is_whole(), f"{stream}\n{here.story()}"
        assert ending(here, old), "the stream has ended before its pod"
        here.until(lambda: ended(here, old), here.story, within_s=DRAIN_S + 30)
        load.serves()
    print(stream, kept.connections, kept.answered)
    assert kept.lost == []
    assert load.lost == []
    here.helm("uninstall", "long")
