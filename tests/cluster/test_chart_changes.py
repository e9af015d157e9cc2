"""What a change of a release does to the requests that are served meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.charts.helm import CHARTS
from tests.cluster.cluster import Cluster
from tests.cluster.workloads import complete

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("two_engines")]
CHART = str(CHARTS / "standalone")
PLAIN = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
  - type: queue-scorer
  - type: kv-cache-utilization-scorer
schedulingProfiles:
  - name: default
    plugins: [{pluginRef: queue-scorer, weight: 1}]
"""
WEIGHED = PLAIN.replace("weight: 1", "weight: 3")
BAD = PLAIN.replace("kv-cache-utilization-scorer", "metrics-data-source").replace("queue-scorer", "no-such-scorer")


class Asking:
    """A client that sends one request after the other over new connections."""

    def __init__(self, address: str) -> None:
        self.answered, self.failed = 0, list[str]()
        self._address, self._over = address, threading.Event()

    def run(self) -> None:
        """Ask until it is over."""
        while not self._over.wait(0.02):
            try:
                complete(self._address)
                self.answered += 1
            except OSError as error:
                self.failed.append(str(error))

    @contextmanager
    def meanwhile(self) -> Iterator[None]:
        """Ask while the block runs."""
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()


def values(folder: Path, config: str, replicas: int = 1, **flags: object) -> tuple[str, ...]:
    """Return the arguments of helm for a release with this configuration."""
    tree = {
        "inferencePool": {"create": False},
        "modelServers": {"matchLabels": {"app": "engines"}},
        "epp": {
            "replicas": replicas,
            "pluginsConfigFile": "own.yaml",
            "pluginsCustomConfig": {"own.yaml": config},
            "flags": flags,
        },
    }
    path = folder / "values.yaml"
    path.write_text(yaml.safe_dump({"router": tree}))
    return ("--values", str(path))


def pods(here: Cluster, release: str) -> dict[str, bool]:
    """Return the pods of a release, and whether each is ready."""
    found = here.get("pods", "-l", f"llm-d-router-standalone={release}-epp")["items"]
    return {
        pod["metadata"]["name"]: any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for condition in pod["status"].get("conditions", ())
        )
        for pod in found
        if "deletionTimestamp" not in pod["metadata"]
    }


def test_an_upgrade_that_replaces_the_picker_loses_no_request(here: Cluster, tmp_path: Path) -> None:
    wait = ("--wait", "--timeout", "90s")
    here.helm("install", "moving", CHART, *values(tmp_path, PLAIN), *wait)
    asking = Asking(f"{here.address('moving-epp')}:8081")
    with asking.meanwhile():
        here.helm("upgrade", "moving", CHART, *values(tmp_path, PLAIN, v=4), *wait)
    assert asking.failed == []
    assert asking.answered > 10
    here.helm("uninstall", "moving", *wait)


def test_an_upgrade_of_active_pickers_loses_no_request(here: Cluster, tmp_path: Path) -> None:
    active = ("--set", "tierwise.highAvailability=active", "--wait", "--timeout", "150s")
    here.helm("install", "active", CHART, *values(tmp_path, PLAIN, 2), *active)
    asking = Asking(f"{here.address('active-epp')}:8081")
    with asking.meanwhile():
        here.helm("upgrade", "active", CHART, *values(tmp_path, PLAIN, 2, v=4), *active)
    assert asking.failed == []
    assert sorted(pods(here, "active").values()) == [True, True]
    here.helm("uninstall", "active")


def test_a_changed_configuration_is_taken_by_the_running_picker_and_a_bad_one_ends_no_pod(
    here: Cluster, tmp_path: Path
) -> None:
    wait = ("--wait", "--timeout", "90s")
    here.helm("install", "kept", CHART, *values(tmp_path, PLAIN), *wait)
    before = pods(here, "kept")
    here.helm("upgrade", "kept", CHART, *values(tmp_path, WEIGHED), *wait)
    here.until(lambda: "is in use from now on" in here.log("kept-epp", "-c", "epp"), here.story)
    assert pods(here, "kept") == before

    for config, flags, refused in ((PLAIN, {"no-such-flag": 1}, "no-such-flag"), (BAD, {}, "no-such-scorer")):
        asking = Asking(f"{here.address('kept-epp')}:8081")
        with asking.meanwhile():
            wrong = values(tmp_path, config, **flags)
            said = here.helm("upgrade", "kept", CHART, *wrong, "--wait", "--timeout", "15s", wrong=True)
        assert "deadline" in said or "timed out" in said
        assert asking.failed == []
        assert before.items() <= pods(here, "kept").items(), "the pod that served is gone"
        assert sorted(pods(here, "kept").values()) == [False, True]
        [new] = [name for name in pods(here, "kept") if name not in before]
        assert refused in check_of(here, new)
        here.helm("rollback", "kept", "2", *wait)
        here.until(lambda: pods(here, "kept") == before, lambda: str(pods(here, "kept")))
    (old,) = before
    assert "no-such-scorer" in here.kubectl("logs", old, "-c", "epp"), "the running picker refuses it too"
    here.helm("uninstall", "kept", *wait)


def check_of(here: Cluster, pod: str) -> str:
    """Return what the init container of a pod has printed, once it has refused to go on."""

    def status() -> str:
        (found,) = here.get("pod", pod)["status"].get("initContainerStatuses") or [{}]
        return str(found.get("lastState"))

    here.until(lambda: "'exitCode': 2" in status(), status)
    return here.kubectl("logs", pod, "-c", "check-configuration", "--previous")
