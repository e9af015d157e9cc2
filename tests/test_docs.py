"""What the pages say is what the code does: links, flags, metrics, configurations and the example plugin."""

from __future__ import annotations

import ast
import asyncio
import gc
import re
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import msgspec
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from epp.commandline.cli import PROGRAMS
from epp.config.defaults import default_config
from epp.config.load import load_file, load_text
from epp.config.not_built import NOT_BUILT
from epp.config.schema import FlowControl, PluginSpec, ProfilePlugin
from epp.config.wiring.build import build
from epp.config.wiring.kinds import known_kinds
from epp.decision import Cause, Outcome, RequestHead, Usage
from epp.discovery.cluster import PodDiscovery
from epp.discovery.listing import read_listing
from epp.discovery.pool_keeper import PoolKeeper
from epp.errors import ConfigError
from epp.kube.client import Client
from epp.kube.election.elector import Elector
from epp.kube.election.term import Term
from epp.kube.own_rights import OwnRights
from epp.kube.readers import Readers
from epp.pool.pool import Pool
from epp.resources.custom_resources import CustomResources
from epp.resources.notifications import Notifications
from epp.resources.written import PoolName
from epp.runtime.followed_files import FollowedFiles
from epp.server.app import App
from epp.server.core import Core
from epp.server.flags import SERVE
from epp.server.reload import PlanSource
from epp.server.settings import Settings, SnapshotOptions
from epp.standalone.flags import STANDALONE
from epp.units import Quantity
from scorers.base import Candidate, Prompt, Request, Slot
from tests.epp.kube.access import TokenAccess

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", *DOCS.glob("*.md")])
EXAMPLE = DOCS / "examples" / "zone-affinity"

FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
INCLUDE = re.compile(r"<!-- include (\S+) -->\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FLAG = re.compile(r"(?<![\w-])--([a-z][a-z0-9-]*)")
METRIC_ROW = re.compile(r"^\| `((?:llm_d_epp|tierwise)_\w+)` \| (\w+) \|([^|]*)\|", re.MULTILINE)

TOKENS, LOAD, LATENCY = "token-producer", "inflight-load-producer", "latency-scorer"

NOT_OURS = frozenset({"flag", "help"})
"""Words that look like flags of ours and are none: a placeholder, and what every command has."""

OTHERS = frozenset(
    {"kv-transfer-config", "kv-events-config", "block-size", "no-enable-prefix-caching", "kv-offloading-size"}
    | {"enable-prompt-tokens-details", "enable-cache-report"}
    | {"chat-template", "default-chat-template-kwargs", "chat-template-content-format"}
    | {"base-url", "enable-kvengine", "fresh-prefix"}
    | {"retry", "retry-connrefused", "retry-delay"}
    | {"namespace", "set", "set-file", "set-string", "values", "wait", "for"}
    | {"build-arg", "platform", "provenance", "push", "sbom", "tag", "spec", "output-format"}
)
"""Flags of the engines' commands, of the benchmarks, and of docker, pipx, helm and kubectl."""


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(path: Path, language: str) -> list[str]:
    return [text for kind, text in FENCE.findall(path.read_text()) if kind == language]


def anchors(path: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    for link in LINK.findall(FENCE.sub("", page.read_text())):
        if "://" in link:
            continue
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{named(page)} links to {link}, which does not exist"
        if anchor:
            assert anchor in anchors(path), f"{named(page)} links to {link}, and there is no such heading"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_flag_on_a_page_exists(page: Path) -> None:
    known = {flag.name for program in PROGRAMS for flag in program.flags}
    assert set(FLAG.findall(page.read_text())) - NOT_OURS - OTHERS <= known


@pytest.mark.parametrize(("page", "flags"), [("configuration.md", SERVE), ("standalone.md", STANDALONE)])
def test_every_flag_of_a_command_is_on_its_page(page: str, flags: tuple[object, ...]) -> None:
    rows = [line for line in (DOCS / page).read_text().splitlines() if line.startswith("| `--")]
    written = [name for row in rows for name in FLAG.findall(row.split("|")[1])]
    assert sorted(written) == sorted(flag.name for flag in flags)  # type: ignore[attr-defined]


def configurations() -> Iterator[tuple[str, str]]:
    for page in (ROOT / "README.md", DOCS / "configuration.md", DOCS / "cost-model.md"):
        for i, text in enumerate(blocks(page, "yaml")):
            yield f"{named(page)}-{i}", text


@pytest.mark.parametrize("text", [t for _, t in configurations()], ids=[i for i, _ in configurations()])
def test_every_configuration_on_a_page_loads(text: str) -> None:
    for warning in build(load_text(text)).warnings:
        assert warning.startswith("apiVersion: "), warning


@pytest.mark.parametrize("path", sorted((ROOT / "manifests" / "config").glob("*.yaml")), ids=named)
def test_every_configuration_in_manifests_loads(path: Path) -> None:
    build(load_file(path))


def test_the_list_of_endpoints_on_the_page_is_one() -> None:
    (text,) = blocks(DOCS / "standalone.md", "yaml")
    listing = read_listing(text.encode())
    assert [endpoint.address for endpoint in listing.endpoints] == ["10.0.0.7:8000", "vllm-1.example.net:8000"]
    assert not listing.skipped


def test_the_default_configuration_on_the_page_is_the_default() -> None:
    text = (DOCS / "configuration.md").read_text().partition("<!-- default -->")[2]
    match = FENCE.search(text)
    assert match
    assert load_text(match[2]) == default_config()


def test_every_plugin_type_is_on_the_page() -> None:
    page = (DOCS / "configuration.md").read_text()
    assert [name for name in known_kinds() if f"`{name}`" not in page] == []


def not_here_yet() -> str:
    """What the sections of that name list as refused."""
    text = (DOCS / "gateway.md").read_text().partition("## Not here yet\n")[2].partition("\n## ")[0]
    sections = text.split("\n### ")[1:]
    both = [
        re.fullmatch(r".*\n\n- \*\*Refused:\*\* (.*)\n- \*\*Instead:\*\* .*", s.strip(), re.DOTALL) for s in sections
    ]
    assert sections
    assert all(both), "every section has what is refused, and what to do instead"
    return "\n".join(match[1] for match in both if match)


def test_what_is_not_here_yet_is_on_its_page_and_nothing_else() -> None:
    words = re.findall(r"`([^`]+)`", not_here_yet())
    accepted_in_part = {"--pool-name", TOKENS, LOAD, LATENCY, "prefix-cache-affinity-filter"}
    plugins = {word for word in words if "-" in word and not word.startswith("--")}
    assert plugins - accepted_in_part == NOT_BUILT
    assert {word for word in words if word.startswith("--")} <= accepted_in_part, "every flag is honored"
    assert len(words) == len(set(words)), "each is in one section"


def with_parameters(kind: str, parameters: str) -> str:
    return f"plugins: [{{type: {kind}, parameters: {{{parameters}}}}}]"


@pytest.mark.parametrize(
    ("asked", "word", "sentence"),
    [
        ("dataLayer: {peerDiscovery: {}}", "dataLayer.peerDiscovery", "replicas do not find each other"),
        ("dataLayer: {crossReplicaSyncerPluginRef: x}", "dataLayer.crossReplicaSyncerPluginRef", "replicas share"),
        ("dataLayer: {sources: [{pluginRef: a}, {pluginRef: b}]}", "dataLayer.sources", "lists 2 sources"),
        ("schedulingProfiles: [{name: a}, {name: b}]", "schedulingProfiles", "2 profiles"),
        (with_parameters(TOKENS, "udsTokenizerConfig: {}"), "udsTokenizerConfig", "not done here"),
        (with_parameters(TOKENS, "vllm: {endpointDiscovery: {}}"), "vllm.endpointDiscovery", "not done here"),
        (with_parameters(TOKENS, "vllm: {prefillOnly: true}"), "vllm.prefillOnly", "not done here"),
        (with_parameters(TOKENS, "vllm: {messagesRenderMode: legacy}"), "vllm.messagesRenderMode", "not done here"),
        (with_parameters(TOKENS, "estimate: {image: {}}"), TOKENS, "how many tokens media count"),
        (with_parameters(LOAD, "addEstimatedOutputTokens: true"), "addEstimatedOutputTokens", "not estimated here"),
        (with_parameters(LATENCY, "headroomSelectionStrategy: least"), LATENCY, "nothing predicts"),
        (
            with_parameters("prefix-cache-affinity-filter", "ttftSource: latencyPredictor"),
            "prefix-cache-affinity-filter",
            "nothing predicts",
        ),
    ],
)
def test_a_key_that_the_page_calls_refused_is(asked: str, word: str, sentence: str) -> None:
    assert f"`{word}`" in not_here_yet()
    with pytest.raises(ConfigError, match=sentence):
        build(load_text(f"apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n{asked}\n"))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_no_table_is_cut_by_an_empty_line(page: Path) -> None:
    lines = page.read_text().splitlines()
    for i, line in enumerate(lines[1:-2], start=1):
        if lines[i - 1].startswith("|") and not line and lines[i + 1].startswith("|"):
            assert re.fullmatch(r"[|\- :]+", lines[i + 2]), f"{named(page)}, line {i + 1}"


def test_the_page_says_which_lines_of_the_manifest_a_plaintext_picker_drops() -> None:
    manifest = (ROOT / "manifests" / "envoy" / "full-duplex.yaml").read_text()
    (dropped,) = (text for text in blocks(DOCS / "gateway.md", "yaml") if "transport_socket" in text)
    assert len(dropped.splitlines()) == 7
    assert "drop these seven lines" in " ".join((DOCS / "gateway.md").read_text().split())
    rest = yaml.safe_load(manifest.replace(dropped, ""))
    whole = yaml.safe_load(manifest)
    picker = next(c for c in whole["static_resources"]["clusters"] if c["name"] == "picker")
    del picker["transport_socket"]
    assert rest == whole


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_snippet_of_tls_in_envoy_lets_it_speak_1_3(page: Path) -> None:
    for text in blocks(page, "yaml"):
        assert text.count("UpstreamTlsContext") == text.count("tls_maximum_protocol_version: TLSv1_3")


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_excerpt_is_in_its_file(page: Path) -> None:
    for target, text in INCLUDE.findall(page.read_text()):
        assert text in (page.parent / target).read_text(), f"{named(page)}: the excerpt of {target} is out of date"


# The example plugin.


@pytest.fixture
def example_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example's module and entry point, as an installer leaves them."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())
    for module in project["tool"]["setuptools"]["py-modules"]:
        (tmp_path / f"{module}.py").write_bytes((EXAMPLE / f"{module}.py").read_bytes())
    info = tmp_path / "zone_affinity-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: zone-affinity\nVersion: 1.0\n")
    entries = project["project"]["entry-points"]["tierwise.plugins"].items()
    (info / "entry_points.txt").write_text("\n".join(["[tierwise.plugins]", *(f"{k} = {v}" for k, v in entries)]))
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("example_installed")
def test_the_example_plugin_decides_where_a_request_goes() -> None:
    (text,) = blocks(DOCS / "plugins.md", "yaml")
    plan = build(load_text(text))
    label = "topology.kubernetes.io/zone"
    zones = ("a", "b", "c")
    candidates = [
        Candidate(slot=Slot(i), address=f"10.0.0.{i}:8000", labels={label: zone}) for i, zone in enumerate(zones)
    ]
    for i, zone in enumerate(zones):
        request = Request(id="r", model="m", target_model="m", headers={"x-zone": zone}, cached={})
        request.prompts = (Prompt(identity=b"m", data=zone.encode() * 400),)
        assert plan.profile.schedule(request, candidates).chosen == (candidates[i],)
    assert plan.profile.failures == {}


@pytest.mark.usefixtures("example_installed")
def test_the_example_plugin_has_no_opinion_on_requests_without_a_zone() -> None:
    scorer = known_kinds()["zone-affinity-scorer"]()
    request = Request(id="r", model="m", target_model="m")
    assert scorer.score(request, [Candidate(slot=Slot(0), address="10.0.0.1:8000")]) == [0.0]  # type: ignore[attr-defined]


# Metrics.


@pytest.fixture
def collector_as_before() -> Iterator[None]:
    """A picker sets up the garbage collector of its process."""
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


async def metrics_page(folder: Path) -> str:
    """What a picker exposes that has seen a request, an answer and a refusal."""
    listing = folder / "endpoints.yaml"
    listing.write_text("endpoints: [{name: vllm-0, address: 127.0.0.1, port: '9'}]")
    settings = Settings(endpoints_file=listing, stream_metrics=True, snapshot=SnapshotOptions(file=folder / "index"))
    source = PlanSource(FollowedFiles(listing), lambda before: before)
    limits = FlowControl(max_requests=Quantity(9), max_bytes=Quantity(10**6), enable_eviction=True)
    precise, tokens = PluginSpec(type="precise-prefix-cache-producer"), PluginSpec(type=TOKENS, parameters={"vllm": {}})
    prices = PluginSpec(type="tier-cost-scorer")
    plugins = (*default_config().plugins, precise, tokens, prices)
    (profile,) = default_config().scheduling_profiles
    profile = msgspec.structs.replace(profile, plugins=(*profile.plugins, ProfilePlugin(plugin_ref=prices.type)))
    config = msgspec.structs.replace(
        default_config(), feature_gates=("flowControl",), flow_control=limits, plugins=plugins,
        scheduling_profiles=(profile,),
    )  # fmt: skip
    app = App(build(config), settings, source=source)
    await app.start()
    try:
        arrival = app.director.read(RequestHead({":path": "/v1/completions"}), b'{"model": "m", "prompt": [1, 2]}')
        assert app.director.admit(arrival, b"", lambda error: None) is not None, "no endpoint was read yet"
        decision = app.director.place(arrival)
        usage = Usage(prompt_tokens=2, completion_tokens=3)
        outcome = Outcome(Cause.COMPLETED, 200, duration_s=1.0, ttft_s=0.5, response_bytes=9, usage=usage)
        outcome.errors.append("ModelServerError")
        app.director.picks.ended(decision.pick_id, outcome)
        async with aiohttp.ClientSession() as session:
            url = f"http://127.0.0.1:{app.metrics_port}/metrics"
            async with session.get(url, headers={"Accept": "text/plain"}) as response:
                return await response.text()
    finally:
        await app.stop(0.0)


@pytest.mark.usefixtures("collector_as_before")
def test_every_metric_is_on_its_page_with_its_type_and_labels(tmp_path: Path) -> None:
    exposed = asyncio.run(metrics_page(tmp_path))
    types = dict(re.findall(r"^# TYPE ((?:llm_d_epp|tierwise)_\w+) (\w+)$", exposed, re.MULTILINE))
    documented = METRIC_ROW.findall((DOCS / "metrics.md").read_text())
    commands = dict.fromkeys(
        (
            "tierwise_envoy_restarts_total",
            "tierwise_endpoints_file_errors_total",
            "tierwise_log_lines_left_out_total",
        ),
        "counter",
    )
    client = Client(TokenAccess("http://127.0.0.1:9"))
    pods = PodDiscovery(client, PoolKeeper(Pool()), namespace="n", selected=None)
    elector = Elector(client, namespace="n", name="epp-n-p.llm-d.ai", term=Term(), able=lambda: True)
    plugins = Notifications(client, (), namespace="n")
    core = Core(build(), Settings())
    resources = CustomResources(client, core, namespace="n", pool=PoolName("p", ()))
    parts = (
        client.unreadable,
        pods,
        elector,
        OwnRights(client, ()),
        Readers(client, time.monotonic),
        plugins,
        resources,
    )
    followed = {
        f"{reading.name}_total" if reading.counter else reading.name: "counter" if reading.counter else "gauge"
        for part in parts
        for reading in part.readings()
        if reading.name.startswith("tierwise_")
    }
    assert {name: kind for name, kind, _ in documented} == types | followed | commands
    labels = {name: set(re.findall(r"`(\w+)`", cell)) for name, _, cell in documented}
    requests = {"model_name", "target_model_name", "fairness_id", "priority"}
    for name, _, cell in documented:
        if "*request*" in cell:
            labels[name] |= requests
    for family in text_string_to_metric_families(exposed):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        for sample in family.samples:
            if name in labels:
                assert set(sample.labels) - {"le"} == labels[name], name


# The offload engine.

SETTING_ROW = re.compile(r"^\| `(\w+)` \| `([^`]+)`|^\| `(\w+)` \| not set", re.MULTILINE)
OFFLOAD_METRIC = re.compile(r"^- `kvengine:(\w+)` \((\w+)(?:, `(\w+)`)?\): (.*(?:\n  .*)*)", re.MULTILINE)


def section(page: Path, heading: str) -> str:
    return page.read_text().partition(f"\n{heading}\n")[2].partition("\n## ")[0]


def test_every_setting_of_the_offload_engine_is_on_its_page_with_its_default() -> None:
    from kvengine.settings import Settings as OffloadSettings
    from kvengine.settings.values import DEFAULT_GIB, SIZES

    rows = {a or b: default for a, default, b in SETTING_ROW.findall(section(DOCS / "kvengine.md", "## Turning it on"))}
    defaults = {name: getattr(OffloadSettings(), name) for name in OffloadSettings.__struct_fields__}
    sizes = dict.fromkeys(SIZES, "") | {"max_local_cpu_size": str(DEFAULT_GIB)}
    assert rows == {name: sizes.get(name, str(value).lower()) for name, value in defaults.items()}


def test_every_metric_of_the_offload_engine_is_on_its_page_with_its_help() -> None:
    found = OFFLOAD_METRIC.findall((DOCS / "kvengine.md").read_text())
    listed = {name: (kind, {label} - {""}, " ".join(text.split())) for name, kind, label, text in found}
    assert listed == dict(offload_metrics())


def offload_metrics() -> Iterator[tuple[str, tuple[str, set[str], str]]]:
    """As ``kvengine/connector/statistics.py`` makes them, which cannot be imported without vLLM."""
    tree = ast.parse((ROOT / "kvengine" / "connector" / "statistics.py").read_text())
    tables = {
        target.id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and isinstance(node.value, ast.Dict)
    }
    for prefix, table, kind, labels in (
        ("tier_", "TIER_GAUGES", "gauge", {"tier"}),
        ("", "MOMENTS", "gauge", set[str]()),
        ("arena_", "ARENA_GAUGES", "gauge", set[str]()),
        ("", "COUNTERS", "counter", set[str]()),
        ("", "JOB_COUNTERS", "counter", {"direction"}),
    ):
        for name, text in tables[table].items():
            yield prefix + name, (kind, labels, text)
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in ("gauge", "histogram"):
            given = {keyword.arg: keyword.value for keyword in call.keywords}
            name, text = given["name"], given["documentation"]
            if isinstance(text, ast.Constant) and isinstance(name, ast.JoinedStr):
                literal = name.values[-1]
                assert isinstance(literal, ast.Constant)
                yield literal.value, (call.func.id, {"direction"}, text.value)


def test_the_changelog_has_one_section_of_each_kind_and_says_nothing_twice() -> None:
    """Branches that are merged by union leave headings and entries behind that others have moved."""
    for release in re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1:]:
        headings = re.findall(r"^### (.*)$", release, re.MULTILINE)
        assert len(headings) == len(set(headings)), headings
        assert not re.findall(r"^-[^ ]", release, re.MULTILINE)
        entries = [" ".join(entry.split()) for entry in re.split(r"^(?:- |### )", release, flags=re.MULTILINE)]
        twice = {entry for entry in entries if len(entry) > 20 and entries.count(entry) > 1}
        assert not twice
