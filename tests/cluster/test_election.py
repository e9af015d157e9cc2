"""Three pickers of one pool and a real API server: who leads, and for how long none is ready."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.cluster.control_plane import ControlPlane
from tests.cluster.environment import program
from tests.cluster.pickers import RULES, Picker, site
from tests.cluster.test_picker import needs_mounts

CLEAN_S, REPORTED_S, SILENT_S = 2.0, 3.0, 17.0
"""How long there may be no ready picker: after SIGTERM, after the kubelet's report, and without one."""


@pytest.fixture(scope="module")
def plane(plane: ControlPlane) -> ControlPlane:
    needs_mounts()
    return plane


def listed(picker: Picker) -> dict[str, str]:
    with grpc.insecure_channel(f"127.0.0.1:{picker.health}") as channel:
        answer = health_pb2_grpc.HealthStub(channel).List(health_pb2.HealthListRequest(), timeout=5)
    return {k: health_pb2.HealthCheckResponse.ServingStatus.Name(v.status) for k, v in answer.statuses.items()}


def test_one_of_three_leads_and_a_warm_standby_takes_over_from_it(plane: ControlPlane, tmp_path: Path) -> None:
    with site(plane, tmp_path, "clean") as here:
        leader = here.led()
        assert here.lease()["holderIdentity"].startswith(f"{leader.name}_")
        ext_proc = "envoy.service.ext_proc.v3.ExternalProcessor"
        engine = f"127.0.0.1:{here.engine}"
        for picker in here.pickers:
            ready = "SERVING" if picker is leader else "NOT_SERVING"
            assert listed(picker) == {"liveness": "SERVING", "readiness": ready, ext_proc: ready}
            assert picker.check("inference-extension") == "SERVICE_UNKNOWN"
            assert f"{leader.name}_" in picker.readyz or picker is leader
            here.until(lambda picker=picker: picker.metric(f'tierwise_endpoint_fresh{{endpoint="{engine}"}}') == 1)
            assert picker.picks() == engine
        others = [picker for picker in here.pickers if picker is not leader]
        began = time.monotonic()
        leader.send(signal.SIGTERM)
        here.until(lambda: any(picker.ready for picker in others), CLEAN_S)
        assert time.monotonic() - began < CLEAN_S
        assert here.led().picks() == engine
        assert here.lease()["leaseTransitions"] == 1
        assert leader.process.wait(30) == 0


@pytest.mark.parametrize("report", ["deleted", "not ready"])
def test_after_a_report_of_the_leaders_end_a_standby_is_ready_in_3_s(
    plane: ControlPlane, tmp_path: Path, report: str
) -> None:
    with site(plane, tmp_path, report.replace(" ", "-")) as here:
        leader = here.led()
        here.until(lambda: leader.reported == "True")
        leader.send(signal.SIGKILL)
        leader.process.wait()
        leader.silent = True
        time.sleep(1.0)  # the kubelet is late
        assert here.ready == []
        if report == "deleted":
            plane.delete_pod(here.namespace, leader.name)
        else:
            status = {"conditions": [{"type": "Ready", "status": "False"}]}
            plane.set_status(here.namespace, leader.name, status)
        here.until(lambda: here.ready, REPORTED_S)
        assert here.led() is not leader


def test_a_leader_that_ends_without_a_report_is_replaced_in_17_s(plane: ControlPlane, tmp_path: Path) -> None:
    with site(plane, tmp_path, "silent") as here:
        leader = here.led()
        here.until(lambda: leader.reported == "True")
        leader.silent = True
        leader.send(signal.SIGKILL)
        took = here.until(lambda: here.ready, SILENT_S)
        assert took > 5.0
        assert here.led() is not leader


def test_a_restarted_container_of_the_leader_leads_again_at_once(plane: ControlPlane, tmp_path: Path) -> None:
    with site(plane, tmp_path, "restart", pickers=1) as here:
        leader = here.led()
        leader.send(signal.SIGKILL)
        leader.process.wait()
        here.pickers.remove(leader)
        again = here.start_again(leader.name)
        assert here.until(lambda: again.ready) < 12.0
        assert here.lease()["leaseTransitions"] == 1


def test_without_an_api_server_the_leader_serves_on_and_leads_after_it(plane: ControlPlane, tmp_path: Path) -> None:
    with site(plane, tmp_path, "outage") as here:
        leader = here.led()
        here.until(lambda: leader.reported == "True")
        plane.kill("kube-apiserver")
        try:
            here.until(lambda: "cannot be renewed" in leader.readyz, reports=False)
            end = time.monotonic() + 10.0  # beyond the Lease's duration
            while time.monotonic() < end:
                assert leader.picks() == f"127.0.0.1:{here.engine}"
                assert here.ready == [leader]
        finally:
            plane.start_api_server()
        here.until(lambda: leader.readyz.startswith("ready;"))
        end = time.monotonic() + 5.0
        while time.monotonic() < end:
            assert here.ready == [leader]
        assert here.lease()["leaseTransitions"] == 0
        assert all(picker.runs for picker in here.pickers)
        assert leader.metric("tierwise_election_renewal_failures_total") > 0


def test_a_lease_that_is_written_or_deleted_by_hand_leaves_no_gap(plane: ControlPlane, tmp_path: Path) -> None:
    with site(plane, tmp_path, "rubbish", pickers=2) as here:
        leader = here.led()
        here.until(lambda: leader.reported == "True")
        plane.request("DELETE", here.lease_path)
        here.until(lambda: here.lease_is_there())
        assert here.led() is leader
        rubbish = {"holderIdentity": "rubbish, by hand", "leaseDurationSeconds": 2**31 - 1, "renewTime": None,
                   "leaseTransitions": 2**31 - 1}  # fmt: skip
        plane.request("PATCH", here.lease_path, {"spec": rubbish}, "application/merge-patch+json")
        here.until(lambda: here.ready == [])
        assert here.until(lambda: here.ready, SILENT_S) > 5.0
        assert "rubbish, by hand" in here.ready[0].readyz


def test_pickers_without_a_right_to_leases_are_all_ready_and_name_it(plane: ControlPlane, tmp_path: Path) -> None:
    with site(plane, tmp_path, "no-leases", pickers=2, rules=RULES[:1]) as here:
        here.until(lambda: len(here.ready) == 2)
        for picker in here.pickers:
            here.until(lambda picker=picker: 'cannot get resource "leases"' in picker.readyz)
        role = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{here.namespace}/roles/picker"
        plane.request("PATCH", role, {"rules": RULES}, "application/merge-patch+json")
        here.led()


def test_client_go_and_a_picker_take_over_from_one_another(plane: ControlPlane, tmp_path: Path) -> None:
    elector = str(program("elector"))
    with site(plane, tmp_path, "client-go", pickers=1) as here:
        ours = here.led()
        words = ("-server", plane.url, "-authority", str(plane.authority), "-token-file", str(here.account / "token"),
                 "-namespace", here.namespace, "-name", here.lease_path.rpartition("/")[2],
                 "-identity", "theirs_1")  # fmt: skip
        log = tmp_path / "elector.log"
        role = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{here.namespace}/roles/picker"
        more = [RULES[0], {**RULES[1], "verbs": [*RULES[1]["verbs"], "update"]}]
        plane.request("PATCH", role, {"rules": more}, "application/merge-patch+json")
        with log.open("wb") as written:
            theirs = subprocess.Popen((elector, *words), stdout=written)
        try:
            here.until(lambda: f"leader: {ours.name}_" in log.read_text())
            ours.send(signal.SIGTERM)
            here.until(lambda: "leading" in log.read_text())  # our release is theirs to take
            assert here.lease()["holderIdentity"] == "theirs_1"
            assert here.lease()["leaseTransitions"] == 1
            second = here.start("epp-1")
            here.until(lambda: "theirs_1" in second.readyz)
            assert second.check() == "NOT_SERVING"
            theirs.send_signal(signal.SIGTERM)
            here.until(lambda: second.ready, CLEAN_S)  # and theirs is ours
            assert theirs.wait(10) == 0
            here.until(lambda: here.lease()["holderIdentity"].startswith("epp-1_"))
            assert here.lease()["leaseTransitions"] == 2
        finally:
            theirs.kill()
            theirs.wait()
