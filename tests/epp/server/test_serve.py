"""The refusals of ``tierwise serve`` when it cannot start."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from epp.config.options import ConfigOptions
from epp.discovery.options import PodOptions, PoolOptions
from epp.errors import ConfigError
from epp.server.command import serve
from epp.server.options import ServeOptions
from epp.server.settings import ClusterOptions


def test_without_endpoints_it_says_where_they_may_come_from() -> None:
    with pytest.raises(ConfigError, match=r"^nothing says where the endpoints are: pass --endpoint HOST:PORT; "):
        asyncio.run(serve(ServeOptions()))


def test_a_selector_beside_discovery_in_the_configuration_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = tmp_path / "picker.yaml"
    config.write_text(
        "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"
        f"plugins: [{{type: file-discovery, parameters: {{path: {tmp_path}/endpoints.yaml}}}}]\n"
        "dataLayer: {discovery: {pluginRef: file-discovery}}\n"
    )
    cluster = ClusterOptions(pods=PodOptions(selector="app=vllm", ports=(8000,)))
    options = ServeOptions(config=ConfigOptions(file=config))
    options = replace(options, picker=replace(options.picker, cluster=cluster))
    with pytest.raises(ConfigError, match=r"endpoints\.yaml: No such file"):  # the configuration's list is read
        asyncio.run(serve(options))
    assert "so --endpoint-selector has no effect" in caplog.text


def test_a_pool_of_the_cluster_takes_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBERNETES_SERVICE_HOST", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    pool = ClusterOptions(pool=PoolOptions(name="mine", groups=("inference.networking.k8s.io",)))
    with pytest.raises(
        ConfigError, match=r"there is no API server: this is not a pod.*; without a cluster pass --endpoint"
    ):
        asyncio.run(serve(replace(ServeOptions(), picker=replace(ServeOptions().picker, cluster=pool))))
