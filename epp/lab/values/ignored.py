"""What upstream's charts take without a word and do nothing with, though the charts here do what was meant.

Source: the templates of upstream's charts, v1.2 and v1.5.0 of gateway-api-inference-extension.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from epp.lab.values.paths import get


def ignored(values: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield the path of each known key that upstream's charts ignore as it is set, and what happens here."""
    for path, is_idle, sentence in _RULES:
        if get(values, path) is not None and is_idle(values):
            yield path, sentence


def _always(values: Mapping[str, object]) -> bool:
    return bool(values)


def _closed(values: Mapping[str, object]) -> bool:
    return get(values, "inferenceExtension.failureMode") != "FailOpen"


def _provider(values: Mapping[str, object]) -> bool:
    return get(values, "provider.name") in ("agentgateway", "envoy-ai-gateway")


def _both_names(values: Mapping[str, object]) -> bool:
    image = get(values, "inferenceExtension.image")
    return isinstance(image, dict) and "hub" in image and "registry" in image


def _with_pool(values: Mapping[str, object]) -> bool:
    return get(values, "inferenceExtension.endpointsServer.createInferencePool") is not False


_Rule = tuple[str, Callable[[Mapping[str, object]], bool], str]
_RULES: tuple[_Rule, ...] = (
    (
        "inferenceExtension.monitoring.gke.enable",
        _always,
        "upstream reads monitoring.gke.enabled; here this key is taken for it",
    ),
    (
        "inferenceExtension.monitoring.prometheus.enable",
        _always,
        "upstream reads monitoring.prometheus.enabled; here this key is taken for it",
    ),
    (
        "inferenceExtension.failureMode",
        _closed,
        "upstream's v1.2 ignores it for v1 pools, and the CRD's value is FailClose; here both spellings fail closed",
    ),
    ("provider.name", _provider, "upstream has nothing for this provider; here its objects are rendered"),
    ("inferencePool.parser", _always, "upstream documents it and reads it nowhere; here it limits the parsers"),
    (
        "inferenceExtension.image",
        _both_names,
        "v1.2 reads hub and name, v1.5 registry and repository; here registry and repository win",
    ),
    ("istio", _always, "v1.5 reads provider.istio instead; here both are read"),
    (
        "inferenceExtension.endpointsServer.targetPorts",
        _with_pool,
        "it is used without a pool only; with one, inferencePool.targetPorts counts",
    ),
    (
        "inferenceExtension.endpointsServer.modelServerType",
        _with_pool,
        "it is used without a pool only; with one, inferencePool.modelServerType counts",
    ),
)
