"""A release of three pickers with an election is upgraded and rolled back under load: one is ready at each moment."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.load import Load
from tests.cluster.ready import ReadyAddresses
from tests.cluster.test_chart_changes import CHART, PLAIN, pods, values

pytestmark = [pytest.mark.timeout(400), pytest.mark.usefixtures("two_engines")]
GAP_S = 3.0
"""The longest time without a ready picker that passes. The page promises 2 s, and the order of the rollout gives 0 s;
the rest is for machines with other work. An order that ends the leader first shows the start of a pod, about 8 s."""
WAIT = ("--wait", "--timeout", "150s")
CLOSED = (
    "--set", "router.proxy.mode=service", "--set", "router.proxy.replicas=1", "--set", "router.proxy.failOpen=false",
)  # fmt: skip
"""An Envoy that outlives the pickers and refuses every request that none of them answers."""


def progress(here: Cluster) -> str:
    """Return how far the controller is with the rollout; once it has ended, that stays so until the next one."""
    status = here.get("deployment", "three-epp")["status"]
    return next(one["reason"] for one in status["conditions"] if one["type"] == "Progressing")


def test_an_upgrade_with_an_election_has_a_ready_picker_at_each_moment_and_ends(here: Cluster, tmp_path: Path) -> None:
    here.helm("install", "three", CHART, *values(tmp_path, PLAIN, 3), *CLOSED, *WAIT)
    with Load(f"{here.address('three-proxy')}:8081") as load, ReadyAddresses(here.plane, "three-epp") as ready:
        for words in ("upgrade", "three", CHART, *values(tmp_path, PLAIN, 3, v=4), *CLOSED), ("rollback", "three", "1"):
            here.until(lambda: sorted(pods(here, "three").values()) == [False, False, True], here.story, within_s=90.0)
            before = pods(here, "three")
            load.serves()
            here.helm(*words, *WAIT)
            here.until(lambda: progress(here) == "NewReplicaSetAvailable", here.story)
            assert not before.keys() & pods(here, "three").keys()
        load.serves()
    print(f"{ready.longest_gap_s:.2f} s without a ready picker, {load.longest_pause_s:.2f} s without an answer")
    assert ready.longest_gap_s < GAP_S
    assert load.longest_pause_s < GAP_S
    assert load.lost == []
    here.helm("uninstall", "three")
