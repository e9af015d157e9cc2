"""Plugins learn from objects of a real API server."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from epp.config.plan import Notification
from epp.kube.access import HOST, PORT, InCluster
from epp.kube.client import Client
from epp.resources.notifications import Notifications
from tests.cluster.control_plane import ControlPlane
from tests.epp.resources.test_notifications import Learner

PATIENCE_S = 60
MAPS = "/api/v1/namespaces/notified/configmaps"
RULES = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}]


def test_a_plugin_learns_of_each_object_that_comes_changes_and_goes(plane: ControlPlane, tmp_path: Path) -> None:
    async def work() -> None:
        plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": "notified"}})
        (tmp_path / "token").write_text(plane.token_for("notified", "picker"))
        (tmp_path / "ca.crt").write_bytes(plane.authority.read_bytes())
        plane.allow("notified", "picker", RULES)
        learner = Learner()

        def data(name: str) -> object:
            return learner.objects.get(f"v1 ConfigMap {name}", {}).get("data")

        async def until(name: str, wanted: object) -> None:
            async with asyncio.timeout(PATIENCE_S):
                while data(name) != wanted:  # noqa: ASYNC110 - a plugin announces nothing
                    await asyncio.sleep(0.01)

        plane.request("POST", MAPS, {"metadata": {"name": "first"}, "data": {"rack": "1"}})
        async with Client(InCluster({HOST: "127.0.0.1", PORT: str(plane.port)}, tmp_path)) as client:
            wanted = Notification("dataLayer.sources[0]", "", "v1", "ConfigMap", (learner,))
            part = Notifications(client, (wanted,), namespace="notified", random=random.random)
            await part.start()
            try:
                await until("first", {"rack": "1"})
                plane.request("POST", MAPS, {"metadata": {"name": "second"}, "data": {"rack": "2"}})
                await until("second", {"rack": "2"})
                patch = "application/merge-patch+json"
                plane.request("PATCH", f"{MAPS}/first", {"data": {"rack": "3"}}, patch)
                await until("first", {"rack": "3"})
                plane.request("DELETE", f"{MAPS}/second")
                await until("second", None)
                assert "v1 ConfigMap second" not in learner.objects
                plane.kill("kube-apiserver")
                plane.start_api_server()
                plane.request("DELETE", f"{MAPS}/first")
                await until("first", None)
            finally:
                await part.stop()

    asyncio.run(work())
