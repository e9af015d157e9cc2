"""Requests through an Envoy and a picker process go by the objectives and rewrites that kubectl applies."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

import pytest

from epp.kube.groups import GROUP
from epp.kube.objects_inference import GROUPS, OBJECTIVE, PLURALS, REWRITE, VERSION
from tests.cluster import crds
from tests.cluster.cluster import Cluster
from tests.cluster.workloads import MODEL, engines, picker
from tests.epp.resources.objects import rule

pytestmark = pytest.mark.timeout(240)
RULES = [
    {"apiGroups": [GROUP], "resources": ["inferencepools"], "verbs": ["list", "watch"]},
    {"apiGroups": list(GROUPS), "resources": list(PLURALS.values()), "verbs": ["list", "watch"]},
    {"apiGroups": list(GROUPS), "resources": [f"{one}/status" for one in PLURALS.values()], "verbs": ["patch"]},
]
POOL = {
    "apiVersion": f"{GROUP}/v1",
    "kind": "InferencePool",
    "metadata": {"name": "llama"},
    "spec": {
        "selector": {"matchLabels": {"app": "engines"}},
        "targetPorts": [{"number": 8000}],
        "endpointPickerRef": {"name": "picker", "port": {"number": 9002}},
    },
}


def of_pool(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUPS[0]}/{VERSION}", "kind": kind, "metadata": {"name": name},
        "spec": {"poolRef": {"name": "llama"}, **spec},
    }  # fmt: skip


def following_a_pool() -> list[dict[str, Any]]:
    """Return the picker of the other tests, which follows a pool in place of a selector."""
    objects = picker()
    for item in objects:
        if item["kind"] == "Role":
            item["rules"] += RULES
        elif item["kind"] == "Deployment":
            epp = item["spec"]["template"]["spec"]["containers"][0]
            epp["args"] = ["--pool-name=llama", "--metrics-endpoint-auth=false"]
    return objects


def answer(address: str, model: str, objective: str = "") -> tuple[int, dict[str, Any]]:
    """Return the status and the body of the answer to a completion; 0 without an answer, as from a pod that starts."""
    body = json.dumps({"model": model, "prompt": "once upon a time", "max_tokens": 2}).encode()
    headers = {"Content-Type": "application/json", "x-llm-d-inference-objective": objective}
    request = urllib.request.Request(f"http://{address}/v1/completions", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, {"text": error.read().decode()}
    except OSError as error:
        return 0, {"text": str(error)}


def metrics(here: Cluster) -> str:
    try:
        with urllib.request.urlopen(f"http://{here.address('picker')}:9090/metrics", timeout=5) as page:
            return str(page.read().decode())
    except OSError as error:
        return str(error)


def test_an_objective_sets_the_priority_and_a_rewrite_the_model_of_requests(here: Cluster) -> None:
    def answers(status: int, model: str, within_s: float = 30.0) -> dict[str, Any]:
        """Wait for a status, and return the body that came with it."""

        def found() -> tuple[int, dict[str, Any]] | None:
            got = answer(address, model, "batch")
            return got if got[0] == status else None

        return here.until(found, lambda: here.log("picker", "-c", "epp"), within_s)[1]

    def shows(text: str) -> None:
        here.until(lambda: text in metrics(here), lambda: metrics(here))

    def accepted(kind: str, name: str) -> None:
        def reasons() -> list[str]:
            conditions = here.get(kind, name).get("status", {}).get("conditions", ())
            return [f"{one['status']} {one['reason']}" for one in conditions if one["type"] == "Accepted"]

        here.until(lambda: reasons() == ["True Accepted"], lambda: here.log("picker", "-c", "epp"))

    crds.install(here.plane, "inference-v1.5.0", kinds=("InferencePool",))
    here.apply(POOL, engines(1), *following_a_pool())
    here.rolled_out("engines", "picker")
    address = here.address("picker")
    answers(200, MODEL)
    shows('priority="0"')
    answers(404, "alias")  # no engine serves it

    crds.apply(here.plane, crds.llm_d())  # later than the picker, which looks for them
    here.apply(
        of_pool(OBJECTIVE, "batch", priority=7),
        of_pool(REWRITE, "alias-rewrite", rules=[rule(MODEL, to="alias")]),
    )
    assert answers(200, "alias", 70.0)["model"] == "alias", "the response has the client's name of the model"
    here.until(lambda: answer(address, "alias", "batch")[0] and 'priority="7"' in metrics(here), lambda: metrics(here))
    shows(f'model_rewrite_name="alias-rewrite",target_model="{MODEL}"')
    accepted(f"{PLURALS[OBJECTIVE]}.llm-d.ai", "batch")
    accepted(f"{PLURALS[REWRITE]}.llm-d.ai", "alias-rewrite")

    here.kubectl("delete", "inferencepool", "llama")
    here.apply(POOL)
    answers(200, "alias", 40.0)
    here.kubectl("delete", f"{PLURALS[REWRITE]}.llm-d.ai", "alias-rewrite")
    answers(404, "alias")
