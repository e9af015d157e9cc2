"""The names of each kind of engine's metrics.

Source: the Go picker's ``core-metrics-extractor``. SGLang has gauges for the size of its cache since v0.5.11, and had
labels before; both are known here. Triton's ``nv_inference_exec_count`` counts all executions since the start, so it is
not used as the number of running requests.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

MAX_SPEC_CHARS = 1024
_NAME = re.compile(r"\s*([A-Za-z_:][A-Za-z0-9_:]*)\s*")
_LABEL = re.compile(r'\s*([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(?:"([^"\\{}]*)"|([^"\\{}=~,\s]+))\s*')


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """Selects samples of a page by their metric name and labels."""

    name: str
    labels: tuple[tuple[str, str], ...] = ()
    """The labels that a sample must have; it may have others."""

    def __str__(self) -> str:
        labels = ",".join(f'{name}="{value}"' for name, value in self.labels)
        return f"{self.name}{{{labels}}}" if labels else self.name


def parse_spec(text: str) -> MetricSpec:
    """Parse ``text``, written as ``name`` or ``name{label=value,...}``; values may be quoted.

    Raises: ValueError that explains what is allowed.
    """
    if len(text) > MAX_SPEC_CHARS:
        raise ValueError(f"has {len(text)} characters, and {MAX_SPEC_CHARS} are read")
    name = _NAME.match(text)
    if name is None:
        raise ValueError(f"{text!r} does not begin with the name of a metric; write name or name{{label=value,...}}")
    rest = text[name.end() :].rstrip()
    if not rest:
        return MetricSpec(name[1])
    if rest[0] != "{" or rest[-1] != "}" or len(rest) < 2:
        raise ValueError(f"{text!r} has {rest!r} behind the name; write name or name{{label=value,...}}")
    labels: dict[str, str] = {}
    for pair in rest[1:-1].split(",") if rest[1:-1].strip() else []:
        label = _LABEL.fullmatch(pair)
        if label is None:
            raise ValueError(f"{pair.strip()!r} in {text!r} is not label=value; only equality can be asked for")
        if label[1] in labels:
            raise ValueError(f"{text!r} asks for the label {label[1]!r} twice")
        labels[label[1]] = label[2] if label[2] is not None else label[3]
    return MetricSpec(name[1], tuple(labels.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """The metrics of one kind of engine; None for a metric that it does not have."""

    name: str
    waiting: MetricSpec | None = None
    running: MetricSpec | None = None
    kv_usage: tuple[MetricSpec, ...] = ()
    """The first one that is on the page counts."""
    lora: MetricSpec | None = None
    """The metric of LoRA adapters, with vLLM's labels."""
    cache_info: MetricSpec | None = None
    block_tokens_label: str = "block_size"
    gpu_blocks_label: str = "num_gpu_blocks"
    block_tokens: MetricSpec | None = None
    gpu_blocks: MetricSpec | None = None
    """The gauges of the two numbers, if they have any; a gauge on the page wins over the label of ``cache_info``."""
    attributes: tuple[tuple[str, MetricSpec], ...] = ()
    """Further metrics that are read for plugins, with the names that plugins use."""
    model_label: str | None = "model_name"
    """The label of ``running`` and ``waiting`` that has the first name of the served model."""
    refuses_other_models: bool = False
    """Whether it answers with 404 to a request for a model that it does not list."""


VLLM = EngineSpec(
    name="vllm",
    waiting=MetricSpec("vllm:num_requests_waiting"),
    running=MetricSpec("vllm:num_requests_running"),
    # The current name, and the one before vLLM 0.10.
    kv_usage=(MetricSpec("vllm:kv_cache_usage_perc"), MetricSpec("vllm:gpu_cache_usage_perc")),
    lora=MetricSpec("vllm:lora_requests_info"),
    cache_info=MetricSpec("vllm:cache_config_info"),
    refuses_other_models=True,
)


def _tensorrt(family: str, label: str, value: str) -> MetricSpec:
    return MetricSpec(f"nv_trt_llm_{family}_metrics", ((label, value),))


BUILT_IN: Mapping[str, EngineSpec] = MappingProxyType(
    {
        spec.name: spec
        for spec in (
            VLLM,
            EngineSpec(
                name="sglang",
                waiting=MetricSpec("sglang:num_queue_reqs"),
                running=MetricSpec("sglang:num_running_reqs"),
                kv_usage=(MetricSpec("sglang:token_usage"),),
                cache_info=MetricSpec("sglang:cache_config_info"),
                block_tokens_label="page_size",
                gpu_blocks_label="num_pages",
                block_tokens=MetricSpec("sglang:page_size"),
                gpu_blocks=MetricSpec("sglang:num_pages"),
            ),
            EngineSpec(
                name="trtllm-serve",
                waiting=MetricSpec("trtllm_num_requests_waiting"),
                running=MetricSpec("trtllm_num_requests_running"),
                kv_usage=(MetricSpec("trtllm_kv_cache_utilization"),),
                block_tokens=MetricSpec("trtllm_kv_cache_tokens_per_block"),
                gpu_blocks=MetricSpec("trtllm_kv_cache_max_blocks"),
            ),
            EngineSpec(
                name="triton-tensorrt-llm",
                waiting=_tensorrt("request", "request_type", "waiting"),
                running=_tensorrt("request", "request_type", "scheduled"),
                kv_usage=(_tensorrt("kv_cache_block", "kv_cache_block_type", "fraction"),),
                block_tokens=_tensorrt("kv_cache_block", "kv_cache_block_type", "tokens_per"),
                gpu_blocks=_tensorrt("kv_cache_block", "kv_cache_block_type", "max"),
                model_label=None,
            ),
            EngineSpec(
                name="triton",
                waiting=MetricSpec("nv_inference_pending_request_count"),
                model_label=None,
            ),
        )
    }
)

ENGINE_LABELS = ("llm-d.ai/engine-type", "inference.networking.k8s.io/engine-type")
"""The labels of an endpoint that name its engine, the current one first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpecs:
    """Decides which kind of engine an endpoint is."""

    default: EngineSpec = VLLM
    by_name: Mapping[str, EngineSpec] = field(default_factory=lambda: BUILT_IN)
    labels: tuple[str, ...] = ENGINE_LABELS
    """The first of these labels that an endpoint has names its engine."""

    def named_by(self, labels: Mapping[str, str]) -> str:
        """Return the engine name in an endpoint's ``labels``, known or not; the default's name without such a label."""
        return next((labels[key] for key in self.labels if labels.get(key)), self.default.name)

    def spec_of(self, labels: Mapping[str, str]) -> EngineSpec:
        """Return the spec of the engine that ``labels`` name; the default spec if they name no known one."""
        return self.by_name.get(self.named_by(labels), self.default)
