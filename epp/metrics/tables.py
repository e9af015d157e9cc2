"""The names, labels and bucket bounds of every histogram and counter that requests write.

Source: the Go picker's names, labels and bounds, so that its dashboards and alerts work here, and ``tierwise_*`` for
what it does not have. The bound 32778 is upstream's.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One metric family. Comparison is by identity, which makes a cheap key of a dictionary."""

    name: str
    """Without the suffix ``_total`` of a counter."""
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    """The upper bounds of a histogram's buckets, without infinity."""


REQUEST_LABELS = ("model_name", "target_model_name", "fairness_id", "priority")

_UP_TO_A_MINUTE = (
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60, 120,
)  # fmt: skip
_UP_TO_AN_HOUR = (*_UP_TO_A_MINUTE, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600)
_OUTPUT_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
_RESPONSE_BYTES = (*_OUTPUT_TOKENS, 16384, 32778, 65536)
_INPUT_TOKENS = (*_RESPONSE_BYTES, 131072, 262144, 524288, 1048576)
_REQUEST_BYTES = tuple(float(64 << i) for i in range(25))
_OVERHEAD = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)

_SAMPLE = "from the responses that the picker sees in full (tierwise_response_sample_ratio of them)"

# Per request, all with REQUEST_LABELS.
REQUESTS = Metric("llm_d_epp_request", "Requests understood.", REQUEST_LABELS)
RUNNING = Metric("llm_d_epp_request_running", "Requests in flight.", REQUEST_LABELS)
ERRORS = Metric(
    "llm_d_epp_request_error",
    "Requests refused, or answered with an error by the engine.",
    (*REQUEST_LABELS, "error_code"),
)
SIZE = Metric("llm_d_epp_request_size_bytes", "Request bodies.", REQUEST_LABELS, _REQUEST_BYTES)
DURATION = Metric(
    "llm_d_epp_request_duration_seconds", "From receipt to the end of the response.", REQUEST_LABELS, _UP_TO_AN_HOUR
)
RESPONSE_SIZE = Metric("llm_d_epp_response_size_bytes", "Response bodies.", REQUEST_LABELS, _RESPONSE_BYTES)
INPUT_TOKENS = Metric(
    "llm_d_epp_request_input_tokens",
    f"Prompt tokens as the engine reports them, {_SAMPLE}.",
    REQUEST_LABELS,
    _INPUT_TOKENS,
)
CACHED_TOKENS = Metric(
    "llm_d_epp_request_cached_tokens",
    f"Prompt tokens that the engine had cached, {_SAMPLE}.",
    REQUEST_LABELS,
    _INPUT_TOKENS,
)
OUTPUT_TOKENS = Metric(
    "llm_d_epp_request_output_tokens", f"Generated tokens, {_SAMPLE}.", REQUEST_LABELS, _OUTPUT_TOKENS
)
NTPOT = Metric(
    "llm_d_epp_request_ntpot_seconds",
    f"Duration over generated tokens, {_SAMPLE}.",
    REQUEST_LABELS,
    (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10),
)
TTFT = Metric(
    "llm_d_epp_request_ttft_seconds",
    f"From receipt to the first byte of the response's body, {_SAMPLE}.",
    (*REQUEST_LABELS, "streaming"),
    _UP_TO_A_MINUTE,
)
TPOT = Metric(
    "llm_d_epp_request_streaming_tpot_seconds",
    f"Time per generated token after the first of a streamed response, {_SAMPLE}.",
    REQUEST_LABELS,
    (0.0005, 0.00205, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.125, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1, 2),
)
ITL = Metric(
    "llm_d_epp_request_streaming_itl_seconds",
    f"Between two pieces of a streamed response's body, {_SAMPLE}.",
    REQUEST_LABELS,
    (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 2),
)

# Scheduling.
ATTEMPTS = Metric(
    "llm_d_epp_scheduler_attempts",
    "Decisions, by result and endpoint.",
    ("status", "target_model_name", "endpoint_name", "namespace", "port"),
)
SCHEDULER = Metric(
    "llm_d_epp_scheduler_e2e_duration_seconds", "One decision: hash, score, pick, record.", (), _OVERHEAD
)
DECISION = Metric(
    "tierwise_decision_seconds",
    "The same as llm_d_epp_scheduler_e2e_duration_seconds, with finer buckets.",
    (),
    (5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1),
)
PLUGIN = Metric(
    "llm_d_epp_plugin_duration_seconds",
    "One run of a plugin at an extension point.",
    ("extension_point", "plugin_type", "plugin_name"),
    _OVERHEAD,
)
REQUEST_PROCESSING = Metric(
    "llm_d_epp_request_processing_duration_seconds",
    "Time in the picker on one request's request messages.",
    (),
    (0.0005, 0.001, 0.002, 0.005, 0.01, 0.015, 0.025, 0.04, 0.06, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
RESPONSE_PROCESSING = Metric(
    "llm_d_epp_response_processing_duration_seconds",
    "Time in the picker on one request's response messages.",
    (),
    (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5),
)

# Prefix cache, as the index knew it at the pick.
HIT_RATIO = Metric(
    "llm_d_epp_prefix_indexer_hit_ratio",
    "Share of the prompt that the chosen endpoint held.",
    ("plugin_type", "plugin_name"),
    (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1),
)
HIT_BYTES = Metric(
    "llm_d_epp_prefix_indexer_hit_bytes",
    "Prompt bytes that the chosen endpoint held, 4 to a token.",
    ("plugin_type", "plugin_name"),
    (0, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536),
)
HIT_TOKENS = Metric(
    "tierwise_prefix_hit_tokens", "Prompt tokens that the chosen endpoint held, by the tier that held them.", ("tier",)
)
SAMPLE_RATIO = Metric(
    "tierwise_response_sample_ratio",
    "Share of responses that the picker sees in full; metrics of tokens and of the first byte's time are of these.",
)

FOLDED = Metric(
    "tierwise_labels_folded",
    "Requests counted under the label value other, because a label, or all of them together, had too many values.",
    ("label",),
)
IN_FLIGHT_LABELS = ("endpoint_name", "namespace", "producer_name", "fairness_id", "priority")
IN_FLIGHT_REQUESTS = Metric(
    "llm_d_epp_inflight_requests", "Requests sent to an endpoint and not ended.", IN_FLIGHT_LABELS
)
IN_FLIGHT_TOKENS = Metric(
    "llm_d_epp_inflight_tokens",
    "Prompt tokens that an endpoint has still to compute, of requests whose answer has not begun.",
    IN_FLIGHT_LABELS,
)

# Streams of the ext-proc port, with --enable-grpc-stream-metrics.
STREAMS_OPEN = Metric("llm_d_epp_extproc_streams_inflight", "Open ext-proc streams.")
STREAM_DURATION = Metric(
    "llm_d_epp_extproc_stream_duration_seconds",
    "From the start of an ext-proc stream to its end.",
    (),
    (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 120, 300, 600),
)
STREAMS = Metric("llm_d_epp_extproc_streams", "Ended ext-proc streams, by gRPC status.", ("code",))

INFO = Metric("llm_d_epp_info", "Which build this is.", ("commit", "build_ref"))
ENDED = Metric(
    "tierwise_requests_ended",
    "Requests that have ended, by how we know; a lease or a reconciliation means that nobody reported the end.",
    ("cause",),
)
