"""What helm prints about values that the charts refuse: the path, and the nearest key, before anything is installed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.charts import helm
from tests.charts.guides import GUIDES, Guide


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    """A chart with nothing but the schema, so that only the schema refuses or accepts."""
    folder = tmp_path / "inferencepool"
    (folder / "templates").mkdir(parents=True)
    (folder / "Chart.yaml").write_text("{apiVersion: v2, name: inferencepool, version: 0.0.0}\n")
    (folder / "values.yaml").write_text("{}\n")
    shutil.copy(helm.CHARTS / "inferencepool" / "values.schema.json", folder)
    return folder


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.name)
def test_the_values_of_the_guides_pass(guide: Guide, chart: Path) -> None:
    done = helm.template(chart, *guide.arguments)
    assert done.returncode == 0, done.stderr


REFUSED = [
    # misspelt
    ("inferenceExtension.imge.tag=v1", "'/inferenceExtension/imge'", "did you mean image?"),
    ("router.epp.pluginConfigFile=x", "'/router/epp/pluginConfigFile'", "did you mean pluginsConfigFile?"),
    ("inferenceExtensions.replicas=1", "'/inferenceExtensions'", "did you mean inferenceExtension?"),
    ("router.monitoring.prometheus.enable=true", "'/router/monitoring/prometheus/enable'", "did you mean enabled?"),
    ("provider.nam=gke", "'/provider/nam'", "did you mean name?"),
    ("provider.zone=a", "'/provider'", "additional properties 'zone' not allowed"),
    # misplaced
    ("inferenceExtension.matchLabels.a=b", "'/inferenceExtension/matchLabels'", "under inferencePool.modelServers"),
    ("router.replicas=2", "'/router/replicas'", "under router.epp"),
    ("matchLabels.a=b", "'/matchLabels'", "under inferencePool.modelServers or router.modelServers"),
    ("replicas=2", "'/replicas'", "under inferenceExtension or router.epp"),
    ("image.tag=v1", "'/image'", "under inferenceExtension or router.epp"),
    ("resources.limits.memory=1Gi", "'/resources'", "under inferenceExtension or router.epp"),
    ("router.image.tag=v1", "'/router/image'", "under router.epp"),
    ("router.epp.proxyType=envoy", "'/router/epp/proxyType'", "under router.proxy"),
    # wrong type
    ("inferenceExtension.image.tag=5", "'/inferenceExtension/image/tag'", "got number, want null or string"),
    ("router.epp.env.A=b", "'/router/epp/env'", "want null or array"),
    ("provider.name=agentgatway", "'/provider/name'", "'agentgateway'"),
    ("router.epp.replicas=0", "'/router/epp/replicas'", "got 0, want 1"),
    ("httpRoute.requestTimeout=5", "'/httpRoute/requestTimeout'", "got number, want null or string"),
    (
        "router.modelServers.targetPorts[0].number=8000,router.modelServers.targetPorts[1].number=8000",
        "'/router/modelServers/targetPorts'",
        "items at 0 and 1 are equal",
    ),
    # the other number, or the beginning
    ("tierwise.image.tags=1", "'/tierwise/image/tags'", "did you mean tag?"),
    ("router.epp.image.repo=x", "'/router/epp/image/repo'", "did you mean repository?"),
    ("router.epp.replicaCount=2", "'/router/epp/replicaCount'", "did you mean replicas?"),
    ("tierwise.networkPolicies.enabled=true", "'/tierwise/networkPolicies'", "did you mean networkPolicy?"),
    # refused by name
    (
        "inferenceExtension.latencyPredictor.enabled=true",
        "'/inferenceExtension/latencyPredictor/enabled'",
        "is refused",
    ),
    ("router.latencyPredictor.enabled=true", "'/router/latencyPredictor/enabled'", "latencyPredictor is refused"),
    # both trees
    ("router.epp.replicas=1,inferenceExtension.replicas=1", "'/inferenceExtension'", "router is set as well"),
    ("router.epp.replicas=1,inferencePool.targetPortNumber=1", "'/inferencePool'", "router is set as well"),
    (
        "httpRoute.create=true,experimentalHttpRoute.enabled=true",
        "'/experimentalHttpRoute'",
        "httpRoute is set as well",
    ),
]


@pytest.mark.parametrize(("setting", "path", "hint"), REFUSED, ids=[setting for setting, _, _ in REFUSED])
def test_helm_names_the_path_and_the_nearest_key(setting: str, path: str, hint: str, chart: Path) -> None:
    done = helm.template(chart, "--set", setting)
    assert done.returncode != 0
    [line] = [line for line in done.stderr.splitlines() if path in line and hint in line][:1]
    assert line.strip().startswith("- at ")


@pytest.mark.parametrize(
    ("setting", "path"),
    [
        (
            "inferenceExtension.monitoring.prometheus.enabled=false",
            "'/inferenceExtension/monitoring/prometheus/enabled'",
        ),
        ("router.proxy.failOpen=false", "'/router/proxy/failOpen'"),
        ("router.epp.replicas=2", "'/router/epp/replicas'"),
        ("inferencePool.targetPorts[0].number=8000", "'/inferencePool/targetPorts/0/number'"),
    ],
)
def test_text_is_refused_where_a_boolean_or_a_number_is_wanted(setting: str, path: str, chart: Path) -> None:
    done = helm.template(chart, "--set-string", setting)
    assert done.returncode != 0
    assert f"{path}: got string, want" in done.stderr


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ("cache.connectr=none", "'/cache/connectr': value must be 'left out: did you mean connector?'"),
        ("cpu=100Gi", "'/cpu': value must be 'left out: it belongs under cache or resources'"),
        ("parallelism.tensor=two", "'/parallelism/tensor': got string, want"),
        ("cache.connector=kvengin", "'/cache/connector': value must be one of 'kvengine'"),
        ("monitoring.interval=30", "'/monitoring/interval': got number, want"),
    ],
)
def test_the_chart_of_model_servers_names_path_and_key_as_well(setting: str, line: str) -> None:
    done = helm.template(helm.CHARTS / "modelserver", "--set", setting)
    assert done.returncode != 0
    assert line in done.stderr


@pytest.mark.parametrize(
    "setting",
    [
        "inferenceExtension.latencyPredictor.enabled=false",
        "router.tracing.sampling.samplerArg=0.05",
        "httpRoute.requestTimeout=0s",
        "inferenceExtension.sidecar.command={envoy}",
        "inferenceExtension.sidecar.command=envoy",
        "inferenceExtension.endpointsServer.targetPorts=8000",
        "router.epp.image=null",
        "router.epp.flags.v=2,router.epp.flags.secure-serving=false",
    ],
)
def test_what_people_write_passes(setting: str, chart: Path) -> None:
    done = helm.template(chart, "--set", setting)
    assert done.returncode == 0, done.stderr
