"""The command line: from words to options, and the refusals of wrong ones."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from epp.commandline import cli
from epp.config.options import CheckOptions, ConfigOptions
from epp.discovery.options import PoolOptions
from epp.explain.options import DebugOptions, ExplainOptions
from epp.extproc.options import ErrorFormat
from epp.flags import arguments
from epp.lab.demo.options import DemoOptions
from epp.lab.engine.options import SimOptions
from epp.lab.engine.preset import DEMO, PRESETS
from epp.ports.options import MetricsTlsOptions, TlsOptions
from epp.runtime.options import LogFormat, LogOptions
from epp.scrape.parameters import EngineMetricNames, MetricsSourceOptions
from epp.server.flags import SERVE
from epp.server.options import ServeOptions
from epp.server.settings import ClusterOptions, Transport
from epp.standalone.options import StandaloneOptions
from epp.standalone.settings import ProxySettings, ResponseMode
from epp.tracing.settings import Exporter, TraceSettings

ROOT = Path(__file__).parents[3]
HOST_PORT = "must be host:port, such as 10.0.0.7:8000 or [fd00::7]:8000"
OFF = (
    (
        "on by default in the Go picker and off here: "
        "--metrics-endpoint-auth (but on in a pod that takes its endpoints from the cluster), "
        "--tracing (OTEL_TRACES_EXPORTER or OTEL_EXPORTER_OTLP_ENDPOINT turn it on, too), "
        "--enable-pprof (Go profiles do not exist here)"
    ),
)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return a function that runs the command line and returns the options that the program would get."""
    for name in ("NAMESPACE", *(name for name in os.environ if name.startswith("OTEL_"))):
        monkeypatch.delenv(name, raising=False)
    got: list[Any] = []
    for program in cli.PROGRAMS:
        module = ModuleType(program.module)
        setattr(module, program.function, lambda options: got.append(options) or 0)
        monkeypatch.setitem(sys.modules, program.module, module)

    def command(*words: str) -> Any:
        assert cli.main(words) == 0
        return got.pop()

    return command


@pytest.fixture
def refused(run: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Return a function that runs a command line that must be refused, and returns the line that it prints."""

    def command(*words: str) -> str:
        assert cli.main(words) == cli.USAGE_ERROR
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.count("\n") == 1, "one sentence, no traceback"
        return printed.err.strip()

    return command


def test_serve_without_flags_has_the_go_pickers_defaults(run: Callable[..., ServeOptions]) -> None:
    options = run("serve")
    assert options == ServeOptions(remarks=OFF)
    assert (options.picker.grpc_port, options.picker.health_port, options.picker.metrics_port) == (9002, 9003, 9090)
    assert options.picker.tls == TlsOptions()
    assert (options.picker.pace.busy_s, options.picker.pace.staleness_s) == (0.05, 2.0)


def test_the_arguments_of_the_no_kubernetes_guide_are_understood(run: Callable[..., ServeOptions]) -> None:
    options = run(
        "serve", "--config-file=/config/epp.yaml", "--pool-name=file-discovery", "--pool-namespace=default",
        "--grpc-port=9002", "--grpc-health-port=9003", "--metrics-port=9090", "--secure-serving=false", "--v=2",
    )  # fmt: skip
    pool = PoolOptions(name="file-discovery", groups=("inference.networking.k8s.io", "inference.networking.x-k8s.io"))
    cluster = ClusterOptions(namespace="default", pool=pool)  # which the file's discovery comes before
    assert options == ServeOptions(
        config=ConfigOptions(file=Path("/config/epp.yaml")),
        picker=replace(ServeOptions().picker, pool_name="file-discovery", tls=None, cluster=cluster),
        remarks=OFF,
    )


def test_the_arguments_of_the_v04_guide_are_understood(run: Callable[..., ServeOptions]) -> None:
    """Run the arguments of the chart, and the one flag of the values file."""
    options = run(
        "serve", "--pool-name", "llm-d-infpool", "--pool-namespace", "llm-d-pfc-cpu", "--zap-encoder", "json",
        "--config-file", "/config/tiered-prefix-cache-plugins.yaml",
        "--kv-cache-usage-percentage-metric", "vllm:kv_cache_usage_perc", "--tracing=false",
    )  # fmt: skip
    assert (options.picker.pool_name, options.picker.cluster.namespace) == ("llm-d-infpool", "llm-d-pfc-cpu")
    assert options.metrics_source == MetricsSourceOptions(), "it names what is read anyway"


def test_the_metrics_of_triton_are_named_as_charts_name_them_with_one_notice(run: Callable[..., ServeOptions]) -> None:
    options = run(
        "serve", "--total-queued-requests-metric", "nv_trt_llm_request_metrics{request_type=waiting}",
        "--kv-cache-usage-percentage-metric=nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=fraction}",
        "--lora-info-metric", "",
    )  # fmt: skip
    assert options.metrics_source.names == EngineMetricNames(
        waiting="nv_trt_llm_request_metrics{request_type=waiting}",
        kv_usage="nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=fraction}",
        lora="",
    )
    [notice] = [notice for notice in options.notices if "deprecated" in notice]
    assert notice.startswith(
        "--total-queued-requests-metric, --kv-cache-usage-percentage-metric, --lora-info-metric are deprecated; "
    )


def test_a_metric_name_that_is_none_is_refused_by_its_flag(refused: Callable[..., str]) -> None:
    message = refused("serve", "--cache-info-metric", "a b")
    assert "--cache-info-metric=a b: 'a b' has 'b' behind the name" in message


@pytest.mark.parametrize(
    "words",
    [
        ["--emit-endpoint-scores"],
        ["--emit-endpoint-scores=true"],
        ["-emit-endpoint-scores=1"],
        ["-emit-endpoint-scores=T"],
        ["--emit-endpoint-scores=false", "--emit-endpoint-scores"],
    ],
)
def test_booleans_are_written_as_in_go(run: Callable[..., ServeOptions], words: list[str]) -> None:
    assert run("serve", *words).picker.exchange.emit_endpoint_scores is True


@pytest.mark.parametrize("words", [["-v=4"], ["-v", "4"], ["--v=4"], ["--v", "4"], ["--zap-log-level=debug", "--v=1"]])
def test_verbosity_is_written_as_in_go(run: Callable[..., ServeOptions], words: list[str]) -> None:
    assert run("serve", *words).log == LogOptions(verbosity=4)


def test_a_boolean_does_not_swallow_the_next_word(refused: Callable[..., str]) -> None:
    assert refused("serve", "--secure-serving", "false") == (
        "tierwise serve: --secure-serving false: a boolean's value is written behind =; write --secure-serving=false"
    )
    assert refused("serve", "--secure-serving", "maybe").endswith(
        "'maybe' is no flag: it takes flags only; see tierwise serve --help"
    )


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        (["--refresh-metrics-interval=1m30s"], "picker.pace.busy_s", 90.0),
        (["--refresh-metrics-interval", "250ms"], "picker.pace.busy_s", 0.25),
        (["--metrics-staleness-threshold=1.5s"], "picker.pace.staleness_s", 1.5),
        (["--drain-timeout=0"], "drain_timeout_s", 0.0),
        (["--grpc-max-recv-msg-size=10MiB"], "picker.max_message_bytes", 10 << 20),
        (["--max-request-bytes=4096"], "picker.exchange.max_request_bytes", 4096),
        (["--max-held-bytes=2GiB"], "picker.max_held_bytes", 2 << 30),
        (["--max-request-bytes=1GiB"], "picker.max_held_bytes", 2 << 30),
        (["--max-request-bytes=2KiB", "--max-held-bytes=4KiB"], "picker.max_held_bytes", 4096),
        (["--transport=grpcio"], "picker.transport", Transport.GRPCIO),
        (["--endpoint=10.0.0.7:8000", "--endpoint", "[fd00::7]:80,vllm-0.vllm:81"], "picker.endpoints",
         ("10.0.0.7:8000", "[fd00::7]:80", "vllm-0.vllm:81")),
        (["--cert-path=/certs", "--tls-min-version=VersionTLS13", "--tls-cipher-suites=A,B"], "picker.tls",
         TlsOptions(cert_path=Path("/certs"), min_version="VersionTLS13", cipher_suites=("A", "B"))),
        (["--secure-serving=false", "--metrics-cert-dir=/m", "--metrics-client-ca-file=/ca", "--enable-cert-reload",
          "--tls-min-version=VersionTLS13"], "picker.metrics_tls",
         MetricsTlsOptions(cert_dir=Path("/m"), client_ca_file=Path("/ca"),
                           tls=TlsOptions(min_version="VersionTLS13", reload=True))),
        (["--metrics-cert-dir=/m", "--metrics-cert-dir="], "picker.metrics_tls", None),
        (["--zap-encoder=json"], "log", LogOptions(format=LogFormat.JSON)),
        (["--zap-devel=false"], "log", LogOptions(format=LogFormat.JSON)),
        (["--model-server-metrics-scheme=https", "--model-server-metrics-port=0"], "metrics_source",
         MetricsSourceOptions(scheme="https")),
        (["--config-text=a: b"], "config.inline", "a: b"),
        (["--config-file=", "--config-text="], "config.inline", None),
    ],
)  # fmt: skip
def test_a_value_arrives_as_a_typed_option(
    run: Callable[..., ServeOptions], words: list[str], field: str, value: object
) -> None:
    assert attrgetter(field)(run("serve", *words)) == value


def test_the_namespace_comes_from_the_environment_unless_a_flag_says_it(
    run: Callable[..., ServeOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAMESPACE", "llm-d-pfc-cpu")
    assert run("serve").picker.cluster.namespace == "llm-d-pfc-cpu"
    assert run("serve", "--pool-namespace=other").picker.cluster.namespace == "other"


def test_a_refresh_interval_below_50ms_is_raised_and_noticed(run: Callable[..., ServeOptions]) -> None:
    options = run("serve", "--refresh-metrics-interval=1ms")
    assert options.picker.pace.busy_s == 0.05
    assert "--refresh-metrics-interval=1ms is raised to the least, 50ms" in options.notices


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--grpc-port=70000"], "--grpc-port=70000: must be a port from 0 to 65535; 0 takes a free one"),
        (["--grpc-port=-1"], "--grpc-port=-1: must be a port from 0 to 65535; 0 takes a free one"),
        (["--grpc-port", "-1"], "--grpc-port=-1: must be a port from 0 to 65535; 0 takes a free one"),
        (["--secure-serving=maybe"], "--secure-serving=maybe: must be true or false"),
        (["--drain-timeout=5"], "--drain-timeout=5: '5' is not a duration; write it as 50ms, 2s or 1m30s"),
        (["--drain-timeout=48h"], "--drain-timeout=48h: must be from 0ms to 86400s"),
        (["--index-snapshot-interval=1ms"], "--index-snapshot-interval=1ms: must be 0, or from 1s to 86400s"),
        (["--max-request-bytes=lots"],
         "--max-request-bytes=lots: 'lots' is not a number of bytes; write it as 256GiB, 10MiB, 25MB or 4194304"),
        (["--max-held-bytes=32MiB"],
         "--max-held-bytes=33554432: must be at least 67,108,864, twice --max-request-bytes"),
        (["--transport=carrier-pigeon"], "--transport=carrier-pigeon: must be wire or grpcio"),
        (["--tls-min-version=1.2"], "--tls-min-version=1.2: must be VersionTLS12 or VersionTLS13"),
        (["--v=x"], "--v=x: must be a whole number from 0 to 99"),
        (["--endpoint=http://10.0.0.7:8000/v1"],
         f"--endpoint=http://10.0.0.7:8000/v1: {HOST_PORT}; leave out the scheme and the path"),
        (["--endpoint=a:1,a:1"], "--endpoint=a:1 is given twice; an endpoint is one server"),
        (["--grpc-prot=1"], "there is no flag --grpc-prot; did you mean --grpc-port?"),
        (["-pool-nam", "x"], "there is no flag --pool-nam; did you mean --pool-name?"),
        (["--zzz"], "there is no flag --zzz; see tierwise serve --help"),
        (["--config-file=a", "--config-text=b"],
         "--config-file and --config-text exclude each other; give one of them"),
        (["--secure-serving=false", "--cert-path=/c"],
         "--cert-path has no meaning with --secure-serving=false; leave out one of the two"),
        (["--secure-serving=false", "--tls-min-version=VersionTLS13"],
         "--tls-min-version has no meaning with --secure-serving=false; leave out one of the two"),
        (["--metrics-client-ca-file=/ca"],
         "--metrics-client-ca-file has no meaning without --metrics-cert-dir; give both, or neither"),
        (["--pool-name"], "--pool-name needs a value: --pool-name NAME"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_answered_with_the_flag_the_value_and_what_is_allowed(
    refused: Callable[..., str], words: list[str], sentence: str
) -> None:
    assert refused("serve", *words) == f"tierwise serve: {sentence}"


GO_DEFAULTS = {
    "allow-experimental-plugins": "false", "cache-info-metric": "vllm:cache_config_info", "cert-path": "",
    "config-file": "", "config-text": "", "disable-endpoint-subset-filter": "false", "drain-timeout": "30s",
    "emit-endpoint-scores": "false", "enable-cert-reload": "false", "enable-grpc-stream-metrics": "false",
    "enable-pprof": "true", "endpoint-selector": "", "endpoint-target-ports": "", "grpc-health-port": "9003",
    "grpc-max-recv-msg-size": "", "grpc-max-send-msg-size": "", "grpc-port": "9002",
    "ha-enable-leader-election": "false", "health-checking": "false",
    "kv-cache-usage-percentage-metric": "vllm:kv_cache_usage_perc", "lora-info-metric": "vllm:lora_requests_info",
    "metrics-cert-dir": "", "metrics-client-ca-file": "", "metrics-endpoint-auth": "true", "metrics-port": "9090",
    "metrics-staleness-threshold": "2s", "model-server-metrics-https-insecure-skip-verify": "true",
    "model-server-metrics-path": "/metrics", "model-server-metrics-port": "0", "model-server-metrics-scheme": "http",
    "pool-group": "inference.networking.k8s.io", "pool-name": "", "pool-namespace": "",
    "refresh-metrics-interval": "50ms", "refresh-prometheus-metrics-interval": "5s", "secure-serving": "true",
    "tls-cipher-suites": "", "tls-min-version": "", "total-queued-requests-metric": "vllm:num_requests_waiting",
    "total-running-requests-metric": "vllm:num_requests_running", "tracing": "true", "v": "2",
}  # fmt: skip
"""The defaults of v0.9 and later. Source: the Go picker's options."""
NO_DEFAULT = {"zap-devel", "zap-encoder", "zap-log-level", "zap-stacktrace-level", "zap-time-encoding"}
"""The flags of zap, whose defaults depend on one another."""
IN_A_CLUSTER = {"metrics-endpoint-auth"}
"""Defaults of the Go picker that hold in a cluster only; elsewhere the line in ``OFF`` names them."""


def test_every_flag_of_the_go_picker_is_known() -> None:
    assert GO_DEFAULTS.keys() | NO_DEFAULT <= {flag.name for flag in SERVE}


@pytest.mark.parametrize("name", sorted(GO_DEFAULTS.keys() - IN_A_CLUSTER - {"tracing", "enable-pprof"}))
def test_the_go_pickers_default_written_out_changes_nothing(run: Callable[..., ServeOptions], name: str) -> None:
    assert run("serve", f"--{name}={GO_DEFAULTS[name]}") == run("serve")


@pytest.mark.parametrize("name", sorted(IN_A_CLUSTER))
def test_a_default_that_depends_on_the_cluster_is_in_the_one_line_where_there_is_none(
    run: Callable[..., ServeOptions], name: str
) -> None:
    (line,) = run("serve").remarks
    assert f"--{name} (" in line
    assert run("serve", f"--{name}=true").picker.cluster.metrics_auth is True
    (line,) = run("serve", "--endpoint-selector=app=vllm", "--endpoint-target-ports=8000").remarks
    assert f"--{name} (" not in line
    assert not any(f"--{name}" in notice for notice in run("serve", f"--{name}=false").remarks)


@pytest.mark.parametrize(
    ("words", "warnings"),
    [
        (["--enable-pprof=false"], []),
        (["--enable-pprof=true"], ["--enable-pprof=true (Go profiles do not exist here; use py-spy on the process)"]),
        (["--zap-time-encoding=iso8601"], []),
        (["--zap-time-encoding=epoch", "--zap-stacktrace-level=panic"],
         ["--zap-stacktrace-level=panic (tracebacks are logged with every unexpected error)",
          "--zap-time-encoding=epoch (log times are ISO 8601)"]),
    ],
)  # fmt: skip
def test_what_affects_no_request_is_accepted_with_one_warning(
    run: Callable[..., ServeOptions], words: list[str], warnings: list[str]
) -> None:
    expected = (f"accepted, and without effect: {', '.join(warnings)}",) if warnings else ()
    assert run("serve", *words).notices == expected


@pytest.mark.parametrize("command", ["serve", "standalone"])
def test_traces_are_off_unless_a_flag_or_a_variable_asks_for_them(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    assert run(command).picker.tracing is None
    assert run(command, "--tracing").picker.tracing == TraceSettings(demanded=True)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317")
    assert run(command).picker.tracing == TraceSettings(Exporter.OTLP, "http://collector:4317")
    assert not any("tracing" in line for line in (*run(command).notices, *getattr(run(command), "remarks", ())))
    assert run(command, "--tracing=false").picker.tracing is None


@pytest.mark.parametrize("command", ["serve", "standalone"])
def test_how_often_an_index_snapshot_is_written_means_nothing_where_there_is_none(
    run: Callable[..., Any], command: str
) -> None:
    line = "--index-snapshot-interval changes nothing without --index-snapshot, which names the file"
    assert line in run(command, "--index-snapshot-interval=10s").notices
    assert line not in run(command, "--index-snapshot-interval=10s", "--index-snapshot=f").notices
    assert line not in run(command, "--index-snapshot-interval=0", "--index-snapshot=f").notices
    assert line not in run(command).notices


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["standalone", "--port=8781", "--metrics-port=8781"],
         "tierwise standalone: --port and --metrics-port are both 8781; give each a port of its own"),
        (["standalone", "--port=19000"],
         "tierwise standalone: --port and --admin-port are both 19000; give each a port of its own"),
        (["standalone", "--host=localhost", "--port=19000"],
         "tierwise standalone: --port and --admin-port are both 19000; give each a port of its own"),
        (["standalone", "--host=::", "--metrics-port=19000"],
         "tierwise standalone: --admin-port and --metrics-port are both 19000; give each a port of its own"),
        (["standalone", "--debug-port=8081"],
         "tierwise standalone: --port and --debug-port are both 8081; give each a port of its own"),
        (["serve", "--metrics-port=9002"],
         "tierwise serve: --grpc-port and --metrics-port are both 9002; give each a port of its own"),
        (["serve", "--debug-port=9003"],
         "tierwise serve: --grpc-health-port and --debug-port are both 9003; give each a port of its own"),
    ],
)  # fmt: skip
def test_two_of_our_own_ports_alike_are_refused_by_name(
    refused: Callable[..., str], words: list[str], sentence: str
) -> None:
    assert refused(*words) == sentence


@pytest.mark.parametrize(
    "words",
    [
        ["standalone", "--port=0", "--metrics-port=0", "--admin-port=0"],
        ["standalone", "--host=10.0.0.1", "--port=19000"],
        ["standalone", "--debug-port=8081", "--debug=false"],
        ["serve", "--grpc-health-port=0", "--metrics-port=0"],
    ],
)
def test_free_ports_other_addresses_and_ports_that_nobody_opens_do_not_meet(
    run: Callable[..., Any], words: list[str]
) -> None:
    assert run(*words) is not None


def test_the_debug_port_that_nobody_asked_for_leaves_its_number_to_the_proxy(
    run: Callable[..., StandaloneOptions],
) -> None:
    assert run("standalone", "--port=9091").picker.debug.port == 0
    assert run("standalone", "--admin-port=9091").picker.debug.port == 0
    assert run("standalone").picker.debug.port is None


@pytest.mark.parametrize("program", cli.PROGRAMS, ids=lambda program: program.name)
def test_flag_names_are_unique(program: cli.Program) -> None:
    names = [flag.name for flag in program.flags]
    assert len(set(names)) == len(names)


def test_standalone_takes_endpoints_and_the_proxys_settings(run: Callable[..., StandaloneOptions]) -> None:
    options = run(
        "standalone", "--endpoint", "localhost:8000", "--port=0", "--fail-closed", "--response-mode=full",
        "--sample-rate=.5", "--envoy=/usr/bin/envoy", "--v=0",
    )  # fmt: skip
    assert options.proxy == ProxySettings(
        port=0, fail_open=False, response_mode=ResponseMode.FULL, sample_rate=0.5, max_request_bytes=32 << 20
    )
    assert options.picker.endpoints == ("localhost:8000",)
    assert (options.envoy, options.log) == (Path("/usr/bin/envoy"), LogOptions(verbosity=0))


@pytest.mark.parametrize(
    ("words", "sees_all", "share"),
    [([], False, 0.01), (["--sample-rate=1"], False, 1.0), (["--response-mode=full"], True, 1.0)],
)
def test_the_picker_beside_a_lean_proxy_expects_a_sample_of_the_responses_and_an_access_log(
    run: Callable[..., StandaloneOptions], words: list[str], sees_all: bool, share: float
) -> None:
    picker = run("standalone", *words).picker
    assert picker.sample_ratio == share
    assert picker.exchange.access_log is picker.exchange.may_ask is not sees_all


def test_limits_and_the_form_of_errors_hold_for_the_proxy_and_the_picker(
    run: Callable[..., StandaloneOptions],
) -> None:
    options = run("standalone", "--max-request-bytes=1MiB", "--error-format=text", "--host=127.0.0.2")
    for side in (options.proxy, options.picker.exchange):
        assert (side.max_request_bytes, side.error_format) == (1 << 20, ErrorFormat.TEXT)
    assert options.picker.max_message_bytes > 1 << 20
    assert (options.proxy.host, options.picker.metrics_host, options.picker.host) == (
        "127.0.0.2", "127.0.0.2", "127.0.0.1",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "fail_open"),
    [
        ([], True),
        (["--fail-open"], True),
        (["--fail-open=false"], False),
        (["--fail-closed"], False),
        (["--fail-closed=false"], True),
        (["--fail-open=false", "--fail-closed"], False),
    ],
)
def test_fail_open_and_fail_closed_are_two_names_of_one_choice(
    run: Callable[..., StandaloneOptions], words: list[str], fail_open: bool
) -> None:
    assert run("standalone", *words).proxy.fail_open is fail_open


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["standalone", "--fail-open", "--fail-closed"],
         "tierwise standalone: --fail-open and --fail-closed cannot both be true; give one of them"),
        (["standalone", "--endpoint=a:1", "--endpoints-file=f"],
         "tierwise standalone: --endpoint and --endpoints-file both say what to route to; give one of them"),
        (["standalone", "--sample-rate=1.1"],
         "tierwise standalone: --sample-rate=1.1: must be a number from 0 to 1, such as 0.01"),
        (["standalone", "--sample-rate=nan"],
         "tierwise standalone: --sample-rate=nan: must be a number from 0 to 1, such as 0.01"),
        (["sim", "--port=65533"], "tierwise sim: --port=65533 with --endpoints=4 ends at port 65536, beyond 65535"),
        (["sim", "--endpoints=0"], "tierwise sim: --endpoints=0: must be a whole number from 1 to 1000"),
        (["sreve"], "tierwise: there is no command 'sreve'; did you mean serve?"),
        (["xyz"], f"tierwise: there is no command 'xyz'; there are {', '.join(p.name for p in cli.PROGRAMS)}"),
    ],
)  # fmt: skip
def test_contradictions_and_slips_are_one_sentence(
    refused: Callable[..., str], words: list[str], sentence: str
) -> None:
    assert refused(*words) == sentence


def test_check_sim_and_demo_take_their_flags(run: Callable[..., Any]) -> None:
    assert run("check", "--config-file=c.yaml", "--strict") == CheckOptions(
        config=ConfigOptions(file=Path("c.yaml")), strict=True
    )
    assert run("sim", "--endpoints", "8", "--port=9000", "--preset", "h100") == SimOptions(
        endpoints=8, port=9000, preset="h100"
    )
    assert run("demo", "--quick") == DemoOptions(quick=True)
    assert run("demo", "--endpoint=a:1,b:2").endpoints == ("a:1", "b:2")


def test_explain_takes_a_body_or_a_prompt(run: Callable[..., Any], refused: Callable[..., str]) -> None:
    assert run("explain") == ExplainOptions()
    assert run("explain", "--body=-", "--header", "X-Session-Id: 7", "--header=a:b").headers == (
        ("x-session-id", "7"), ("a", "b"),
    )  # fmt: skip
    assert refused("explain", "--body=a", "--prompt=b").endswith("exclude each other; give one of them")
    assert refused("explain", "--model=a").endswith(
        "--model has no meaning without --prompt: a body names its model itself"
    )
    assert refused("explain", "--header=a").endswith("must be NAME:VALUE, such as x-session-id:7")


@pytest.mark.parametrize("command", ["serve", "standalone"])
def test_the_debug_port_is_on_loopback_unless_told_otherwise(run: Callable[..., Any], command: str) -> None:
    assert run(command).picker.debug == DebugOptions(enabled=True, host="127.0.0.1", port=None)
    asked = run(command, "--debug-host=0.0.0.0", "--debug-port=7000").picker.debug
    assert asked == DebugOptions(host="0.0.0.0", port=7000)
    assert not run(command, "--debug=false").picker.debug.enabled


def test_what_follows_two_dashes_is_no_flag() -> None:
    assert arguments.normalise(["-v=1", "--", "-v=2"], SERVE) == ["--v=1", "--", "-v=2"]


def test_a_refusal_by_the_program_is_one_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    missing = tmp_path / "request.json"
    assert cli.main(["explain", f"--body={missing}"]) == cli.USAGE_ERROR
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("tierwise explain: ")
    assert str(missing) in printed.err
    assert printed.err.count("\n") == 1


def test_a_missing_extra_is_one_sentence(refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "epp.standalone.command", raising=False)

    class Missing:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> None:
            if name == "epp.standalone.command":
                raise ModuleNotFoundError("No module named 'envoy_data_plane'", name="envoy_data_plane")

    monkeypatch.setattr(sys, "meta_path", [Missing, *sys.meta_path])
    assert refused("standalone") == (
        "tierwise standalone: the package envoy_data_plane is missing; "
        "pip install '.[standalone]' in a clone of Tierwise"
    )


def test_the_exit_code_is_the_programs_own(tmp_path: Path) -> None:
    deprecated = tmp_path / "picker.yaml"
    deprecated.write_text(
        "apiVersion: inference.networking.x-k8s.io/v1alpha1\nkind: EndpointPickerConfig\nplugins: []\n"
    )
    assert cli.main(["check", f"--config-file={deprecated}"]) == 0
    assert cli.main(["check", f"--config-file={deprecated}", "--strict"]) == 1


@pytest.mark.parametrize("program", cli.PROGRAMS, ids=lambda program: program.name)
def test_help_shows_every_flag_and_an_example(program: cli.Program, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([program.name, "--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"-{flag.name}" in text for flag in program.flags)
    unwrapped = " ".join(text.replace("\\\n", " ").split())
    assert all(" ".join(line.split()) in unwrapped for _, line in program.examples)


def test_the_help_of_sim_names_every_preset_and_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sim", "--help"]) == 0
    words = capsys.readouterr().out.replace(",", " ").split()
    assert set(PRESETS) <= set(words)
    assert f"(default {DEMO.name})" in " ".join(words)


@pytest.mark.parametrize("command", ["serve", "standalone"])
def test_the_help_says_what_is_accepted_without_effect(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([command, "--help"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "accepted: the pool's averages are computed at each read of /metrics" in printed


def test_the_command_alone_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    text = capsys.readouterr().out
    assert all(program.name in text for program in cli.PROGRAMS)


def test_python_m_epp_is_tierwise_serve() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "epp", "--grpc-prot=1"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert (done.returncode, done.stderr.strip()) == (
        2, "tierwise serve: there is no flag --grpc-prot; did you mean --grpc-port?",
    )  # fmt: skip
