"""What a newcomer installs and types first: every command says in a sentence what it lacks, and files come along."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from epp.commandline.programs import PROGRAMS
from epp.commandline.shipped import shipped
from epp.config.defaults import default_config
from epp.config.load import load_text
from epp.config.wiring.build import build
from tests.installed import Installed, install, wheel

COMMANDS = [program.name for program in PROGRAMS]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel(tmp_path_factory.mktemp("build"))


@pytest.fixture(scope="module")
def bare(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return install(built, tmp_path_factory.mktemp("bare"))


@pytest.fixture(scope="module")
def with_epp(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return install(built, tmp_path_factory.mktemp("epp"), ["epp"])


@pytest.mark.parametrize(
    "words", [[name] for name in COMMANDS] + [["sim", "--help"], ["help", "sim"], ["help", "demo"], ["nonsense"]]
)
def test_without_extras_every_command_says_what_to_install(bare: Installed, words: list[str]) -> None:
    ran = bare.tierwise(*words)
    assert (ran.code, ran.out) == (2, "")
    extra = "standalone" if {"standalone", "demo"} & set(words) else "epp"  # one installation is to be enough
    assert ran.err == f"tierwise: the package click is missing; pip install '.[{extra}]' in a clone of Tierwise\n"


def test_without_extras_the_module_says_what_to_install(bare: Installed) -> None:
    ran = bare.run("python", "-m", "epp")
    assert (ran.code, ran.out) == (2, "")
    assert re.fullmatch(r"tierwise: the package click is missing; pip install '\.\[epp\]' .*\n", ran.err)


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["help"]])
def test_without_extras_the_commands_are_listed(bare: Installed, words: list[str]) -> None:
    ran = bare.tierwise(*words)
    assert (ran.code, ran.err) == (0, "")
    assert [line.split()[0] for line in ran.out.splitlines()[: len(COMMANDS)]] == COMMANDS
    assert ran.out.endswith("pip install '.[epp]' in a clone of Tierwise\n")


def test_without_extras_the_version_is_told_and_the_libraries_are_there(bare: Installed) -> None:
    ran = bare.tierwise("--version")
    assert (ran.code, ran.err) == (0, "")
    assert re.fullmatch(r"tierwise, version \d+\.\d+\.\d+\n", ran.out)
    ran = bare.run("python", "-c", "import scorers.prefix.scorer, scorers.index.index, kvengine.index, kvengine.plugin")
    assert (ran.code, ran.err) == (0, "")


def test_with_the_extra_of_the_offload_engine_alone_a_command_says_what_to_install(built: Path, tmp_path: Path) -> None:
    ran = install(built, tmp_path, ["kvengine"]).tierwise("size", "--model=qwen3-8b", "--gpu=l4")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "tierwise: the package click is missing; pip install '.[epp]' in a clone of Tierwise\n"


HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"
EVENTS = HEAD + "plugins: [{type: precise-prefix-cache-producer}]"
LOCAL = HEAD + "plugins: [{type: token-producer, parameters: {local: {models: [{path: /nowhere}]}}}]"
EXPRESSION = "attributes: [{key: {name: x-cost}, expression: usage.prompt_tokens}]"
CEL = HEAD + f"plugins: [{{type: request-attribute-reporter, parameters: {{{EXPRESSION}}}}}]"
PORTS = [f"--{port}=0" for port in ("grpc-port", "grpc-health-port", "metrics-port", "debug-port")]
SERVE = ["serve", "--endpoint=localhost:1", "--secure-serving=false", *PORTS]
CLUSTER = ["serve", "--endpoint-selector=app=vllm", "--endpoint-target-ports=1", "--secure-serving=false", *PORTS]


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["standalone", "--endpoint", "localhost:1"], "standalone"),
        (["demo"], "standalone"),
        (["sim", "--port=0", "--kv-events-port=0"], "precise"),
        ([*SERVE, "--tracing"], "otel"),
        ([*SERVE, "--config-text", EVENTS], "precise"),
        ([*SERVE, "--config-text", LOCAL], "precise"),
        ([*CLUSTER, "--kubeconfig=/dev/null"], "k8s"),
        (["check", "--config-text", CEL], "cel"),
    ],
)
def test_with_the_extra_epp_alone_a_command_names_the_one_that_it_lacks(
    with_epp: Installed, words: list[str], extra: str
) -> None:
    ran = with_epp.tierwise(*words)
    assert (ran.code, ran.out) == (2, "")
    last = ran.err.splitlines()[-1]
    assert re.match(rf"tierwise {words[0]}: .*pip install '\.\[{extra}\]' in a clone of Tierwise", last), ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    "words",
    [["help", name] for name in COMMANDS]
    + [["print"], ["size", "--model=qwen3-8b", "--gpu=l4"], ["check", "--config-text", HEAD]],
)
def test_with_the_extra_epp_alone_the_other_commands_run(with_epp: Installed, words: list[str]) -> None:
    ran = with_epp.tierwise(*words)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out


def test_every_shipped_file_is_printed_away_from_the_repository(with_epp: Installed) -> None:
    files = list(shipped())
    listed = with_epp.tierwise("print").out
    assert {file.folder for file in files} >= {"config", "dashboards", "envoy"}
    for file in files:
        assert re.search(rf"^{re.escape(file.name)} ", listed, re.MULTILINE)
        ran = with_epp.tierwise("print", file.name)
        assert (ran.code, ran.out, ran.err) == (0, file.file.read_text(encoding="utf-8"), "")
        assert json.loads(ran.out) if file.folder == "dashboards" else yaml.safe_load(ran.out)


def test_the_printed_default_is_the_profile_in_force(with_epp: Installed) -> None:
    printed = load_text(with_epp.tierwise("print", "default").out)
    assert printed == default_config()
    assert build(printed).describe() == build(default_config()).describe()


def test_with_the_extra_standalone_the_router_gets_as_far_as_its_endpoints(built: Path, tmp_path: Path) -> None:
    ran = install(built, tmp_path, ["standalone"]).tierwise("standalone")
    assert ran.code == 2
    assert re.fullmatch(r"tierwise standalone: .*--endpoint.*\n", ran.err)
