"""The subcommands of ``tierwise``: names, help texts, and where each one's flags and program are.

Neither is imported here. Help on one command imports the flags of that command only, so that it comes at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from epp.flags.flag import Flag


@dataclass(frozen=True, slots=True)
class Arguments:
    """The flags of a subcommand, and the function that makes its options of their values."""

    flags: tuple[Flag, ...]
    options: Callable[[Mapping[str, Any]], object]


@dataclass(frozen=True, slots=True)
class Program:
    """A subcommand: its name and help, its arguments, and the function that runs it."""

    name: str
    summary: str
    about: str
    examples: tuple[tuple[str, str], ...]
    """Pairs of a description and the line to type."""
    arguments: Callable[[], Arguments]
    """Imports the flags."""
    module: str
    function: str
    extra: str
    argument: str = ""
    """The name of the word that the command takes without a flag; empty if it takes none."""
    first_flag: str = ""
    """The flag for which a user may type its value alone; the error then names it. Empty if there is none."""

    @property
    def flags(self) -> tuple[Flag, ...]:
        """Return the flags of the command, which are imported now."""
        return self.arguments().flags


def _serve() -> Arguments:
    from epp.server.flags import SERVE, serve_options

    return Arguments(SERVE, lambda given: serve_options(given, os.environ))


def _standalone() -> Arguments:
    from epp.standalone.flags import STANDALONE, standalone_options

    return Arguments(STANDALONE, lambda given: standalone_options(given, os.environ))


def _explain() -> Arguments:
    from epp.explain.flags import EXPLAIN, explain_options

    return Arguments(EXPLAIN, explain_options)


def _check() -> Arguments:
    from epp.config.flags import CHECK, check_options

    return Arguments(CHECK, check_options)


def _print() -> Arguments:
    from epp.commandline.options import print_options

    return Arguments((), print_options)


def _sim() -> Arguments:
    from epp.lab.engine.flags import SIM, sim_options

    return Arguments(SIM, sim_options)


def _size() -> Arguments:
    from epp.lab.size.flags import SIZE, size_options

    return Arguments(SIZE, size_options)


def _simulate() -> Arguments:
    from epp.lab.fleet.flags import SIMULATE
    from epp.lab.fleet.options import simulate_options

    return Arguments(SIMULATE, simulate_options)


def _tune() -> Arguments:
    from epp.lab.tune.flags import TUNE, tune_options

    return Arguments(TUNE, tune_options)


def _doctor() -> Arguments:
    from epp.doctor.flags import DOCTOR, doctor_options

    return Arguments(DOCTOR, doctor_options)


def _values() -> Arguments:
    from epp.lab.values.flags import VALUES, values_options

    return Arguments(VALUES, values_options)


def _demo() -> Arguments:
    from epp.lab.demo.flags import DEMO, demo_options

    return Arguments(DEMO, demo_options)


PROGRAMS = (
    Program(
        "serve",
        "The endpoint picker, beside a proxy or gateway of yours.",
        "Serves the endpoint-picker protocol (ext-proc) to Envoy or a Gateway, with the flags, ports and configuration "
        "of the Go picker. The same as: python -m epp",
        (
            ("four fixed endpoints, the default profile, no TLS",
             "tierwise serve --endpoint 10.0.0.7:8000,10.0.0.8:8000 --secure-serving=false"),
            (
                "in a pod: the ready pods of its namespace that have a label",
                "tierwise serve --endpoint-selector app=vllm --endpoint-target-ports 8000",
            ),
            ("a configuration that says where the endpoints are", "tierwise serve --config-file picker.yaml --v=4"),
            ("whether flags and a configuration are good", "tierwise serve --config-file picker.yaml --v=4 --check"),
        ),
        _serve,
        "epp.server.command", "run_serve", "epp",
    ),
    Program(
        "standalone",
        "Envoy and the picker in one command, without Kubernetes.",
        "Starts a real Envoy and the picker, watches over both, and routes OpenAI requests to your vLLM servers.",
        (
            ("two vLLM servers behind http://localhost:8081/v1",
             "tierwise standalone --endpoint localhost:8000 --endpoint localhost:8001"),
            ("endpoints from a file that is watched", "tierwise standalone --endpoints-file endpoints.yaml"),
        ),
        _standalone,
        "epp.standalone.command", "run_standalone", "standalone",
    ),
    Program(
        "explain",
        "Where a request would go, and why; or the endpoints.",
        "Asks the debug port of a running picker. Nothing is sent to an endpoint, and nothing is counted or learned.",
        (
            ("every endpoint, as the picker sees it now", "tierwise explain"),
            ("one request", "tierwise explain --body request.json"),
            ("a prompt", "tierwise explain --model Qwen/Qwen3-32B --prompt 'Once upon a time'"),
        ),
        _explain,
        "epp.explain.command", "run_explain", "epp",
        first_flag="prompt",
    ),
    Program(
        "check",
        "What the picker would make of a configuration, without serving.",
        "Prints what a configuration does, and what in it is probably not meant. Exit code 0, 1 for warnings with "
        "--strict, 2 with one sentence where it is refused.",
        (
            ("a file, in CI", "tierwise check --config-file picker.yaml --strict"),
            ("what Kubernetes holds, from standard input",
             "kubectl get configmap epp -o jsonpath='{.data.picker\\.yaml}' | tierwise check --config-file /dev/stdin"),
        ),
        _check,
        "epp.commandline.check", "run_check", "epp",
        first_flag="config-file",
    ),
    Program(
        "print",
        "A configuration, dashboard or Envoy manifest to begin with.",
        "Prints a file that comes with Tierwise; without a name, the names that there are.",
        (
            ("what there is", "tierwise print"),
            ("the profile that is in force where no configuration is given", "tierwise print default > picker.yaml"),
            ("Grafana's dashboard", "tierwise print dashboards > tierwise.json"),
        ),
        _print,
        "epp.commandline.shipped", "run_print", "epp",
        argument="NAME",
    ),
    Program(
        "sim",
        "Simulated vLLM servers, to try things without a GPU.",
        "Starts servers that answer OpenAI and Anthropic requests with invented text, at the speed and with the caches "
        "of a modelled engine.",
        (
            ("four servers on ports 8000 to 8003", "tierwise sim --endpoints 4 --port 8000"),
            ("a model under a name of yours, and an adapter",
             "tierwise sim --served-model-name chat --lora-modules sql=/adapters/sql"),
        ),
        _sim,
        "epp.lab.engine.cli", "run_sim", "epp",
    ),
    Program(
        "size",
        "What a fleet's memory tiers hold, and whether a workload fits.",
        "From a model's shape, GPUs and memory: the tokens that each tier holds, what loading a prefix saves over "
        "computing it, where a workload will live, and the settings that follow. Arithmetic; nothing is run.",
        (
            ("one endpoint of 2 H100 with 100 GiB of CPU memory for KV",
             "tierwise size --model qwen3-32b --gpu h100 --tensor-parallel-size 2 --cpu-bytes-to-use 100GiB"),
            ("will a workload fit, and where will it live?",
             "tierwise size --model qwen3-8b --gpu l4 --ram 64GiB --num-groups 9 --system-prompt-len 9000"),
            ("a model of yours, by its config.json", "tierwise size --model ./my-model/ --gpu l40s --ram 64GiB"),
            ("what a running endpoint has", "tierwise size --metrics-url http://10.0.0.7:8000/metrics --gpu h100"),
        ),
        _size,
        "epp.lab.size.command", "run_size", "epp",
        first_flag="model",
    ),
    Program(
        "simulate",
        "Policies compared on simulated fleets, thousands of requests a second.",
        "Runs workloads through the real picker and simulated engines in virtual time, and writes a report: tables, "
        "plots, inference-perf's JSON. No GPU, no servers; a seed decides everything.",
        (
            ("all policies on the workload of llm-d's CPU offloading guide", "tierwise simulate"),
            ("two policies on three fleets, ten seeds, two processes",
             "tierwise simulate --policy gpu-only,tiered --endpoints 8,64,1000 --seeds 10 --jobs 2"),
            ("your configuration on your trace",
             "tierwise simulate --policy picker.yaml,tiered --workload trace.jsonl --engine llama-3.3-70b-tp4-h100"),
        ),
        _simulate,
        "epp.lab.fleet.command", "run_simulate", "epp",
    ),
    Program(
        "tune",
        "Weights for a workload, found in the simulator.",
        "Tries weights, the affinity filter and costs in seconds on simulated fleets, each on the same seeds; then "
        "the best "
        "one on seeds that the search has not seen, against 2:2:1:1. Writes picker.yaml and a chart's values. Exit "
        "code 1 "
        "where nothing is clearly better.",
        (
            ("for the workload of llm-d's CPU offloading guide, in five minutes", "tierwise tune"),
            ("for a trace of yours, on two cores for an hour",
             "tierwise tune --workload trace.jsonl --endpoints 16 --cpu-tokens 400000 --budget 1h --jobs 2"),
            ("for throughput", "tierwise tune --workload storage-30k --objective throughput"),
        ),
        _tune,
        "epp.lab.tune.command", "run_tune", "epp",
    ),
    Program(
        "values",
        "A chart's values, checked, and written in the other tree.",
        "Reads values as helm does, names the keys that upstream's charts would have ignored, and writes "
        "inferenceExtension and inferencePool as router, or the reverse. Exit code 2 where helm install would fail, "
        "with each key's path and the nearest key.",
        (
            ("the values of an older guide, for the newer tree", "tierwise values values.yaml >router.values.yaml"),
            ("all that a command gives to helm, checked",
             "tierwise values --check -f base.values.yaml -f guide.values.yaml --set provider.name=gke"),
            ("what a release has", "helm get values my-release -o yaml | tierwise values -"),
        ),
        _values,
        "epp.lab.values.command", "run_values", "epp",
        argument="FILE",
    ),
    Program(
        "doctor",
        "What is wrong with an installation in Kubernetes, and what mends it.",
        "Reads the pools of a namespace, their pods, Services, routes, gateways, rights and pages, and reports what is "
        "wrong: the object, the cause, and the command that mends it. Nothing is written. Exit code 0 if nothing is "
        "wrong, 1 for findings, 2 where it could not look. An administrator's kubeconfig sees everything; what another "
        "account may not read is reported with the right that is missing.",
        (
            ("the namespace of the kubeconfig's context", "tierwise doctor"),
            ("one pool of a namespace", "tierwise doctor -n llm qwen"),
            ("for a program", "tierwise doctor -n llm --json"),
        ),
        _doctor,
        "epp.doctor.command", "run_doctor", "epp",
        argument="POOL",
    ),
    Program(
        "demo",
        "What tier awareness is worth, shown in under two minutes.",
        "Runs one workload four times through Envoy: round robin, GPU-only prefix scoring, tier-aware scoring, cost in "
        "seconds.",
        (
            ("on four simulated endpoints", "tierwise demo"),
            ("on your own vLLM servers", "tierwise demo --endpoint 10.0.0.7:8000,10.0.0.8:8000"),
        ),
        _demo,
        "epp.lab.demo.cli", "run_demo", "standalone",
    ),
)  # fmt: skip
