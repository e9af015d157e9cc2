"""``tierwise values``: one tree as the other, what upstream ignores, and errors with the path and the nearest key."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from epp.commandline.cli import main
from tests.charts.guides import GUIDES, VALUES, Guide


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(["values", *words])
    printed = capsys.readouterr()
    return status, printed.out, " ".join(printed.err.split())


def file(tmp_path: Path, text: str) -> str:
    path = tmp_path / "values.yaml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.name)
def test_the_values_of_the_guides_are_good(guide: Guide, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "--check", "--chart", guide.chart, *guide.arguments)
    assert status == 0, err
    assert "good" in out


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.name)
def test_the_other_tree_is_good_as_well_and_comes_back(
    guide: Guide, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    status, there, _ = run(capsys, *guide.arguments)
    assert status == 0
    status, _, err = run(capsys, "--check", file(tmp_path, there))
    assert status == 0, err
    _, back, _ = run(capsys, file(tmp_path, there))
    _, again, _ = run(capsys, file(tmp_path, back))
    assert msgspec.yaml.decode(again) == msgspec.yaml.decode(there)


def test_a_guide_of_the_older_tree_is_what_the_newer_guide_would_be(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "-f", str(VALUES / "storage-base.values.yaml"), "-f", str(VALUES / "storage.values.yaml"))
    values = msgspec.yaml.decode(out)
    router = values["router"]
    assert set(values) == {"router"}
    assert router["epp"]["image"]["registry"] == "ghcr.io"
    assert router["extraServicePorts"][0]["targetPort"] == 8081
    assert router["proxy"]["args"][-1] == "/etc/envoy/envoy.yaml"
    assert router["modelServers"] == {
        "protocol": "http",
        "matchLabels": {"llm-d.ai/guide": "tiered-prefix-cache-storage"},
    }
    assert router["inferencePool"] == {"failureMode": "FailOpen"}


def test_what_upstream_ignores_is_listed_and_does_what_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(
        capsys,
        "--set",
        "inferenceExtension.monitoring.gke.enable=true,provider.name=gke,inferencePool.parser=openai-parser",
    )
    assert status == 0
    assert "inferenceExtension.monitoring.gke.enable: upstream reads monitoring.gke.enabled" in err
    assert "inferencePool.parser: upstream documents it and reads it nowhere" in err
    values = msgspec.yaml.decode(out)
    assert values["router"]["monitoring"] == {"provider": {"name": "gmp"}, "prometheus": {"enabled": True}}
    assert values["router"]["epp"] == {"parsers": ["openai-parser"]}
    assert values["provider"] == {"name": "gke"}


def test_a_key_without_a_counterpart_is_named_and_not_lost_silently(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "--set", "router.tokenizer.enabled=true,router.epp.replicas=2")
    assert status == 0
    assert msgspec.yaml.decode(out) == {"inferenceExtension": {"replicas": 2}}
    assert (
        "router.tokenizer.enabled was left out: the tree of inferenceExtension has no counterpart (it was True)" in err
    )


SERVER = "inferenceExtension.endpointsServer"
NO_POOL = f"{SERVER}.createInferencePool=false,{SERVER}.targetPorts=8000,inferencePool.targetPortNumber=9000"


def test_a_selector_becomes_labels_where_it_can(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    _, there, _ = run(capsys, "--set", rf"{NO_POOL},{SERVER}.endpointSelector=app=vllm\,role=decode")
    router = msgspec.yaml.decode(there)["router"]
    assert router["inferencePool"] == {"create": False}
    assert router["modelServers"] == {
        "matchLabels": {"app": "vllm", "role": "decode"},
        "targetPorts": [{"number": 8000}],
    }
    _, back, _ = run(capsys, file(tmp_path, there))
    assert msgspec.yaml.decode(back)["inferenceExtension"]["endpointsServer"] == {
        "createInferencePool": False,
        "endpointSelector": "app=vllm,role=decode",
        "targetPorts": "8000",
    }


def test_a_selector_of_sets_stays_a_selector(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "--set", rf"{NO_POOL},{SERVER}.endpointSelector=app in (a\,b)")
    assert msgspec.yaml.decode(out)["router"]["modelServers"]["selector"] == "app in (a,b)"


def test_with_a_pool_the_endpoints_of_the_picker_alone_do_not_count(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, err = run(capsys, "--set", f"{SERVER}.targetPorts=8000,inferencePool.targetPortNumber=9000")
    assert msgspec.yaml.decode(out)["router"]["modelServers"] == {"targetPortNumber": 9000}
    assert f"{SERVER}.targetPorts: it is used without a pool only" in err


REFUSED = [
    ("inferenceExtension: {imge: {tag: v1}}", "inferenceExtension.imge", "did you mean inferenceExtension.image?"),
    (
        "inferenceExtension: {matchLabels: {}}",
        "inferenceExtension.matchLabels",
        "its place is inferencePool.modelServers",
    ),
    ("inferenceExtension: {epp: {}}", "inferenceExtension.epp", "did you mean router.epp?"),
    ("router: {epp: {replica: 1}}", "router.epp.replica", "did you mean router.epp.replicas?"),
    ("router: {epp: {pluginConfig: {}}}", "router.epp.pluginConfig", "did you mean router.epp.pluginsConfig?"),
    ("routr: {}", "routr", "did you mean router?"),
    ("router: {epp: {replicas: '2'}}", "router.epp.replicas", "'2' is text, and has to be a whole number"),
    ("router: {proxy: {failOpen: 'false'}}", "router.proxy.failOpen", "'false' is text, and has to be true or false"),
    ("router: {epp: {image: {tag: 1.5}}}", "router.epp.image.tag", "it is a number, and has to be text"),
    ("router: {epp: {env: {A: b}}}", "router.epp.env", "it is a map, and has to be a list"),
    ("router: {epp: {image: true}}", "router.epp.image", "it is true or false, and has to be a map"),
    ("router: {epp: {extProcPort: 70000}}", "router.epp.extProcPort", "70000 is above 65535"),
    ("httpRoute: {requestTimeout: 5 minutes}", "httpRoute.requestTimeout", "is not written like 300s"),
    ("provider: {name: agentgatway}", "provider.name", "did you mean agentgateway?"),
    (
        "inferencePool: {targetPorts: [{number: '1'}]}",
        "inferencePool.targetPorts[0].number",
        "has to be a whole number",
    ),
    ("inferencePool: {targetPorts: [{}]}", "inferencePool.targetPorts[0].number", "it is missing"),
    (
        "inferenceExtension: {latencyPredictor: {enabled: true}}",
        "inferenceExtension.latencyPredictor.enabled",
        "refused",
    ),
    ("router: {latencyPredictor: {enabled: true}}", "router.latencyPredictor.enabled", "latencyPredictor is refused"),
    ("router: {epp: {replicas: 1}}\ninferencePool: {parser: a}", "inferencePool", "router is set as well"),
]


@pytest.mark.parametrize(("text", "path", "message"), REFUSED, ids=[text for text, _, _ in REFUSED])
def test_a_wrong_value_has_its_path_and_what_to_do(
    text: str, path: str, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    status, out, err = run(capsys, file(tmp_path, text))
    assert status == 2
    assert out == ""
    assert f"{path}: " in err
    assert message in err


def test_the_values_of_model_servers_are_checked_and_have_no_other_tree(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--chart", "modelserver", "--set", "cache.cpu=100Gi,replicas=2")
    status, out, _ = run(capsys, *words, "--check")
    assert status == 0
    assert "good" in out
    status, _, err = run(capsys, *words)
    assert status == 2
    assert "only --check is of use" in err
    status, _, err = run(capsys, "--chart", "modelserver", "--set", "cache.cpus=1")
    assert status == 2
    assert "cache.cpus: there is no such key; did you mean cache.cpu?" in err


LABELS = "modelServers.matchLabels: it is missing"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("router.epp.replicas=1",), f"router.{LABELS}"),
        (("provider.name=gke",), f"router.{LABELS}"),
        (("inferenceExtension.replicas=1",), f"inferencePool.{LABELS}"),
        ((f"{SERVER}.createInferencePool=false",), f"inferencePool.{LABELS}"),
        (("router.modelServers.selector=a=b",), f"router.{LABELS}"),
        (("cache.cpu=200", "modelserver"), "cache.cpu: 200 is below 1Gi; write it with its unit, such as 200Gi"),
        (("cache.cpu=0.5Gi", "modelserver"), "cache.cpu: 0.5Gi is below 1Gi"),
    ],
)
def test_what_the_templates_alone_would_refuse_is_found(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    setting, *chart = words
    given = ("--set", setting, *(word for name in chart for word in ("--chart", name)))
    status, _, err = run(capsys, "--check", *given)
    assert status == 2
    assert message in err
    assert "upstream's chart would have ignored it" not in err


@pytest.mark.parametrize(
    "words",
    [
        ("router.modelServers.matchLabels.app=a",),
        ("inferencePool.modelServers.matchLabels.app=a",),
        (f"{SERVER}.createInferencePool=false,{SERVER}.endpointSelector=app",),
        ("router.inferencePool.create=false,router.modelServers.selector=app",),
        ("cache.cpu=200Gi", "modelserver"),
        ("cache.cpu=2000000000", "modelserver"),
        ("cache.cpu=1,cache.connector=none", "modelserver"),
    ],
)
def test_what_the_templates_accept_is_good(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    setting, *chart = words
    given = ("--set", setting, *(word for name in chart for word in ("--chart", name)))
    assert run(capsys, "--check", *given)[0] == 0


def test_every_wrong_key_is_listed_and_not_only_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, "--set", "router.a=1,router.epp.b=2,httpRoute.enabled=true")
    assert status == 2
    assert "router.a: there is no such key" in err
    assert "router.epp.b: there is no such key" in err
    assert "httpRoute.enabled: there is no such key" in err
    assert "3 keys of these values would make helm install fail" in err
    assert "upstream's chart would have ignored it" in err


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("router.epp.image.repo=x", "did you mean router.epp.image.repository?"),
        ("tierwise.image.tags=1", "did you mean tierwise.image.tag?"),
        (
            "inferencePool.targetPorts[0].number=8000,inferencePool.targetPorts[1].number=8000",
            "inferencePool.targetPorts: {'number': 8000} is there twice",
        ),
    ],
)
def test_what_is_nearly_right_is_named(setting: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, "--check", "--set", setting)
    assert status == 2
    assert message in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "nothing says which values"),
        (["nowhere.yaml"], "nowhere.yaml: "),
        (["--set", "router"], "is no assignment"),
        (["--set", "=1"], "is no assignment"),
        (["--set", "a[99999999]=1"], "above 65535"),
        (["--set", "provider.name=gke,provider.name.x=1"], "is no map"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = run(capsys, *words)
    assert status == 2
    assert message in err


def test_a_key_that_is_there_twice_is_named_since_helm_drops_the_first(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = "router:\n  epp: {replicas: 1}\n  epp: {replicas: 2}\n"
    status, out, err = run(capsys, file(tmp_path, text))
    assert status == 0
    assert msgspec.yaml.decode(out)["inferenceExtension"] == {"replicas": 2}
    assert "values.yaml, line 3: epp is there a second time in the same map; only the last one counts" in err


@pytest.mark.parametrize("text", ["- a\n", "a: [\n", "just words\n", "{" * 5000])
def test_a_file_that_is_no_map_of_values_is_refused(
    text: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    status, _, err = run(capsys, file(tmp_path, text))
    assert status == 2
    assert "values.yaml: " in err
