"""Istio's control plane as a process beside the API server, with plain Envoys as its gateways.

Istio has filters of its own, which a plain Envoy lacks; the variables switch them off, and nothing else is missing.
Each Gateway's Envoy and Service are made here, since Istio's own deployment needs its image.
"""

from __future__ import annotations

import json
import urllib.request
from typing import Any

from tests.cluster import crds
from tests.cluster.cluster import Cluster
from tests.cluster.environment import program
from tests.cluster.node.api import MERGE
from tests.cluster.node.network import GATEWAY
from tests.cluster.workloads import Object, deployment

SYSTEM = "istio-system"
XDS_PORT, HTTP_PORT, ADMIN_PORT = 15010, 15080, 15000
VARIABLES = {
    "ENABLE_GATEWAY_API_INFERENCE_EXTENSION": "true",
    "PILOT_ENABLE_METADATA_EXCHANGE": "false",
    "PILOT_ENABLE_ALPN_FILTER": "false",
    "PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER": "false",
    "ENABLE_CA_SERVER": "false",
    "PILOT_CERT_PROVIDER": "none",
    "INJECT_ENABLED": "false",
    "VALIDATION_WEBHOOK_CONFIG_NAME": "",
    "INJECTION_WEBHOOK_CONFIG_NAME": "",
    "CLUSTER_ID": "Kubernetes",
    "POD_NAME": "istiod",
    "POD_NAMESPACE": SYSTEM,
}
MESH = {"trustDomain": "cluster.local", "accessLogFile": "/dev/stdout", "enableAutoMtls": False}
DEFINITIONS = ("gateway-api-v1.6.1", "inference-v1.6.0", "istio")


def start(here: Cluster) -> None:
    """Install the definitions, start Istio, and wait until it has accepted its GatewayClass. Raises: Unavailable."""
    pilot = program("pilot-discovery")
    crds.install(here.plane, *DEFINITIONS)
    here.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
    mesh = here.folder / "mesh.json"
    mesh.write_text(json.dumps(MESH))
    here.plane.run(
        "istio",
        ["env", *(f"{name}={value}" for name, value in VARIABLES.items()), str(pilot), "discovery",
         f"--kubeconfig={here.kubeconfig}", f"--meshConfig={mesh}", "--domain=cluster.local",
         f"--grpcAddr={GATEWAY}:{XDS_PORT}", "--secureGRPCAddr=", f"--httpAddr={GATEWAY}:{HTTP_PORT}", "--httpsAddr=",
         "--monitoringAddr=", "--ctrlz_port=0"],
    )  # fmt: skip
    here.until(lambda: _ready() and _accepted(here), lambda: story(here))


def story(here: Cluster) -> str:
    """Return the end of Istio's log, for a test that failed."""
    return (here.folder / "istio.log").read_text()[-5000:]


def debug(page: str) -> str:
    """Return a page of Istio's own, such as ``configz``."""
    with urllib.request.urlopen(f"http://{GATEWAY}:{HTTP_PORT}/{page}", timeout=10) as response:
        return str(response.read().decode())


def data_plane(here: Cluster, gateway: str, namespace: str = "default") -> None:
    """Run an Envoy for a Gateway, behind a Service whose cluster address is the external one, too."""
    here.apply(*objects(gateway, namespace))
    name = f"{gateway}-istio"
    path = f"/api/v1/namespaces/{namespace}/services/{name}/status"
    status = {"loadBalancer": {"ingress": [{"ip": here.address(name, namespace)}]}}
    here.plane.request("PATCH", path, {"status": status}, MERGE)


def objects(gateway: str, namespace: str) -> list[Object]:
    """Return the ConfigMap, the Deployment and the Service of a Gateway's Envoy, by the names that Istio expects."""
    name, labels = f"{gateway}-istio", {"gateway.networking.k8s.io/gateway-name": gateway}
    node = f"router~$(POD_IP)~$(POD_NAME).{namespace}~{namespace}.svc.cluster.local"
    from_pod = {"POD_IP": "status.podIP", "POD_NAME": "metadata.name"}
    envoy = {
        "name": "istio-proxy", "image": "example.test/envoy:1",
        "args": ["--config-path", "/etc/envoy/envoy.json", "--service-node", node, "--service-cluster", name,
                 "--log-level", "warning", "--concurrency", "1"],
        "env": [{"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in from_pod.items()],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": ADMIN_PORT}, "periodSeconds": 1},
        "securityContext": {"runAsUser": 0},  # it listens on port 80
        "volumeMounts": [{"name": "envoy", "mountPath": "/etc/envoy", "readOnly": True}],
    }  # fmt: skip
    spec = {"containers": [envoy], "volumes": [{"name": "envoy", "configMap": {"name": name}}]}
    made = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
         "data": {"envoy.json": json.dumps(bootstrap(namespace, labels))}},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "labels": labels},
         "spec": {"type": "LoadBalancer", "selector": labels, "ports": [{"name": "http", "port": 80}]}},
        deployment(name, 1, labels, spec),
    ]  # fmt: skip
    for one in made:
        one["metadata"]["namespace"] = namespace
    return made


def bootstrap(namespace: str, labels: dict[str, str]) -> Object:
    """Return what an Envoy starts with: who it is, and where it gets everything else."""
    source = {"ads": {}, "resource_api_version": "V3"}
    http2 = {
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
    }
    istio = {"address": {"socket_address": {"address": GATEWAY, "port_value": XDS_PORT}}}
    everywhere = {"address": {"socket_address": {"address": "0.0.0.0", "port_value": ADMIN_PORT}}}
    metadata: dict[str, Any] = {
        "NAMESPACE": namespace, "LABELS": labels, "CLUSTER_ID": "Kubernetes", "ISTIO_VERSION": "1.31.0",
        "MESH_ID": "cluster.local", "SERVICE_ACCOUNT": "default",
    }  # fmt: skip
    return {
        "node": {"metadata": metadata},
        "admin": everywhere,
        "dynamic_resources": {
            "lds_config": source,
            "cds_config": source,
            "ads_config": {
                "api_type": "GRPC",
                "transport_api_version": "V3",
                "set_node_on_first_message_only": True,
                "grpc_services": [{"envoy_grpc": {"cluster_name": "istio"}}],
            },
        },
        "static_resources": {
            "clusters": [
                {
                    "name": "istio",
                    "type": "STATIC",
                    "connect_timeout": "1s",
                    "typed_extension_protocol_options": {
                        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http2
                    },
                    "load_assignment": {
                        "cluster_name": "istio", "endpoints": [{"lb_endpoints": [{"endpoint": istio}]}]
                    },
                }
            ]
        },
    }  # fmt: skip


def _ready() -> bool:
    try:
        debug("ready")
    except OSError:
        return False
    return True


def _accepted(here: Cluster) -> bool:
    found = json.loads(here.kubectl("get", "gatewayclass", "-o", "json"))["items"]
    return any(
        one["metadata"]["name"] == "istio" and condition["type"] == "Accepted" and condition["status"] == "True"
        for one in found
        for condition in one.get("status", {}).get("conditions", ())
    )
