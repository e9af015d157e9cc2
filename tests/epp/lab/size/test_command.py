"""The command line, an endpoint's page, and what is printed."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp.catalog.hugging_face import read_model
from epp.commandline import cli
from epp.lab.size.endpoint import MAX_PAGE_BYTES, ReportedFacts, read_page
from epp.lab.size.flags import SIZE
from epp.lab.size.layout import layout_of
from epp.scrape.reading.error import ScrapeError

RECORDED = Path(__file__).parents[3] / "data" / "vllm-0.32-kvengine-capacity.txt"
FLEET = ("--model", "qwen3-32b", "--gpu", "h100", "--tensor-parallel-size", "2", "--endpoints", "8")
LOAD = ("--num-groups", "45", "--system-prompt-len", "30000", "--concurrency", "45")

PAGE = b"""\
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",cache_dtype="auto",enable_prefix_caching="True",engine="0",\
gpu_memory_utilization="0.65",kv_cache_size_tokens="148336",num_cpu_blocks="None",num_gpu_blocks="9271"} 1.0
vllm:num_requests_running{engine="0",model_name="Qwen/Qwen3-32B"} 0.0
kvengine:tier_capacity_tokens{tier="gpu"} 148320.0
kvengine:tier_capacity_tokens{tier="cpu"} 409600.0
kvengine:tier_capacity_bytes{tier="gpu"} 3.888119808e+10
kvengine:tier_capacity_bytes{tier="cpu"} 1.073741824e+11
"""


def run(*words: str) -> int:
    return cli.main(["size", *words])


def test_tables_say_what_each_tier_holds(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*FLEET, *LOAD, "--cpu-bytes-to-use", "100GiB", "--num-gpu-blocks-override=9271") == 0
    printed = capsys.readouterr().out
    for words in (
        "148,336",
        "409,600",
        "256 KiB over 2 GPUs",
        "It lives in the cpu tier",
        "lruCapacityPerServer",
        "25600",
    ):
        assert words in printed
    assert all(len(line) <= 200 for line in printed.splitlines())


def test_json_has_every_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*FLEET, *LOAD, "--ram=256GiB", "--gpu-memory-utilization=0.65", "--output=json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["model"]["kv_bytes_per_token"] == 262_144
    assert [tier["tier"] for tier in answer["tiers"]] == ["gpu", "cpu"]
    assert answer["workload"]["working_set_tokens"] == 1_926_000
    assert {advice["setting"] for advice in answer["advice"]} >= {"--gpu-memory-utilization", "cpu_bytes_to_use"}


def test_a_workload_is_taken_by_name_and_flags_change_it(capsys: pytest.CaptureFixture[str]) -> None:
    found = []
    for words in (("--workload", "high-cache"), LOAD, ("--workload=high-cache", "--system-prompt-len=8000")):
        assert run(*FLEET, *words, "--gpu-memory-utilization=0.65", "--output=json") == 0
        found.append(json.loads(capsys.readouterr().out)["workload"])
    by_name, typed, changed = found
    assert by_name == typed | {"name": "high-cache"}
    assert (changed["system_prompt_len"], changed["concurrency"], changed["lives_in"]) == (8000, 45, "gpu")


@pytest.mark.parametrize("name", ["storage-30k", "storage-50k", "storage-70k", "ladder-16k", "low-cache"])
def test_every_workload_of_groups_can_be_sized(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--model=llama-3.3-70b", "--gpu=h200", "--tensor-parallel-size=4", f"--workload={name}") == 0
    assert f"Where the workload {name} will live" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "nothing says what to size: give --model and --gpu"),
        (("--model=qwen3-32b", "--gpu=h100", "--ram=8GiB"), "--ram=8GiB leaves nothing for KV"),
        (("--model=qwen3-32b", "--gpu-memory=80GiB"), "of which GPU? Give --gpu, too"),
        ((*FLEET, "--num-gpu-blocks-override=99999999"), "195,312.5 GiB on each of 2 h100, which has 79.1 GiB"),
        ((*FLEET, "--num-gpu-blocks-override=99999999"), "at most 24,877 fit"),
        (("--max-local-cpu-size=5", "--cpu-bytes-to-use=5GiB"), "give one of them"),
        ((*FLEET, "--num-groups=5"), "the workload lacks --system-prompt-len"),
        ((*FLEET, "--output-len=5"), "the workload lacks --num-groups"),
        ((*FLEET, "--workload=nonsense"), "unknown workload 'nonsense'"),
        ((*FLEET, "--workload=agents"), "has no groups that share a prompt"),
        (("--gpu-memory-utilization=1.2",), "must be a number from 0.01 to 1"),
        (("--gpu-memory-utilization=nan",), "must be a number"),
        (("--tensor-parallel-size=0",), "from 1 to 1024"),
        (("--endpoints=-1",), "from 1 to"),
        (("--system-prompt-len=1e9",), "must be a whole number"),
        (("--ram=lots",), "write it as 256GiB, 10MiB, 25MB or 4194304"),
        (("--ram=256gb",), "write it as 256GiB, 10MiB"),
        (("--max-local-cpu-size=100GiB",), "must be a number of GiB without a unit, from 0 to 1,048,576"),
        (("--kv-cache-dtype=int2",), "must be auto or"),
        (("--modle=x",), "did you mean --model?"),
        (("--model=/nowhere/config.json",), "No such file"),
        (("--metrics-url=ftp://x",), "must be http://"),
        (("--metrics-url=http://[::1",), "--metrics-url"),
        (("--metrics-url=http://127.0.0.1:1/metrics",), "no endpoint answers there"),
        (("--metrics-url=http://127.0.0.1:99999/metrics",), "--metrics-url"),
    ],
)
def test_what_is_wrong_is_one_sentence(
    words: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words) == cli.USAGE_ERROR
    error = capsys.readouterr().err
    assert error.startswith("tierwise size: ")
    assert sentence in error
    assert error.count("\n") == 1


def test_a_model_of_ones_own_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {"hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 8, "vocab_size": 1000}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert run("--model", str(tmp_path), "--gpu=l4", "--output=json") == 0
    assert json.loads(capsys.readouterr().out)["model"]["kv_bytes_per_token"] == 2 * 8 * 1024 * 2


@pytest.mark.parametrize(
    "flag",
    ["gpu-memory", "engine-overhead", "ram", "cpu-bytes-to-use", "storage", "storage-bandwidth", "host-bandwidth"],
)
@pytest.mark.parametrize("bare", ["256", "1.5", "1000000"])
def test_a_small_number_without_a_unit_is_never_taken_for_bytes(
    flag: str, bare: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*FLEET, f"--{flag}={bare}") == cli.USAGE_ERROR
    assert f"--{flag}={bare}: without a unit it is bytes" in capsys.readouterr().err
    assert f"write it as {bare}GiB" in sentence_about(flag, bare)


def sentence_about(flag: str, text: str) -> str:
    (read,) = [each.read for each in SIZE if each.name == flag]
    with pytest.raises(ValueError, match="unit") as refusal:
        read(text)
    return str(refusal.value)


def test_a_large_one_is_bytes_and_a_unit_says_itself(capsys: pytest.CaptureFixture[str]) -> None:
    """``cpu_bytes_to_use`` is in bytes in vLLM's configuration."""
    held = []
    for written in ("107374182400", "100GiB", "0.09765625TiB"):
        assert run(*FLEET, f"--cpu-bytes-to-use={written}", "--output=json") == 0
        held.append(json.loads(capsys.readouterr().out)["tiers"][1]["bytes_per_endpoint"])
    assert held == [100 * 2**30] * 3


def test_a_petabyte_of_storage_is_understood(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*FLEET, "--storage=1PiB", "--output=json") == 0
    assert json.loads(capsys.readouterr().out)["tiers"][1]["fleet_bytes"] == 2**50


def test_without_a_gpu_there_is_a_row_for_each_that_has_room(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--model=qwen3-32b") == 0
    printed = capsys.readouterr().out
    assert "One endpoint, by the kind of GPU" in printed
    assert "Without --gpu only what follows from the model alone is certain" in printed
    assert run("--model=qwen3-32b", "--output=json") == 0
    choices = {choice["gpu"]: choice for choice in json.loads(capsys.readouterr().out)["choices"]}
    assert choices["h100"]["gpus_per_endpoint"] == 1
    assert choices["l40s"]["gpus_per_endpoint"] == 2
    for name in ("h100", "l40s"):
        assert run("--model=qwen3-32b", f"--gpu={name}", f"--tensor-parallel-size={choices[name]['gpus_per_endpoint']}",
                   "--output=json") == 0  # fmt: skip
        answer = json.loads(capsys.readouterr().out)
        assert answer["choices"] == []
        assert answer["tiers"][0]["tokens_per_endpoint"] == choices[name]["tokens_per_endpoint"]
        assert answer["prefill_tokens_per_s"] == pytest.approx(choices[name]["prefill_tokens_per_s"])


def test_where_a_workload_lives_is_not_said_without_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--model=qwen3-32b", "--endpoints=8", *LOAD, "--cpu-bytes-to-use=100GiB")
    assert run(*words, "--output=json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["workload"]["lives_in"] == "unknown"
    assert answer["workload"]["homes"] == []
    assert answer["workload"]["recomputed_share"] is None
    shares = {choice["gpu"]: choice["hit_share"] for choice in answer["choices"]}
    assert shares["a100-40gb"] == 0
    assert shares["h200"] == pytest.approx(1)
    assert run(*words) == 0
    printed = capsys.readouterr().out
    assert "It fits nowhere" not in printed
    assert "Where it lives depends on what GPU memory holds" in printed


# An endpoint's page.


@contextmanager
def served(page: bytes, status: int = 200) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *arguments: object) -> None:
            """Write no log line."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/metrics"
        finally:
            server.shutdown()
            thread.join()


def test_a_page_says_what_the_engine_and_its_tiers_have() -> None:
    assert read_page(PAGE) == ReportedFacts(
        model="Qwen/Qwen3-32B", block_tokens=16, gpu_blocks=9271, utilization=0.65, kv_dtype="auto", gpu_tokens=148_336,
        cpu_tokens=409_600, cpu_bytes=100 * 2**30, token_bytes=262_144.0,
    )  # fmt: skip


def test_a_page_of_the_real_vllm_is_read_and_agrees_with_the_models_shape(tmp_path: Path) -> None:
    """Recorded from vLLM 0.32 with kvengine on its CPU backend: a Llama of 3 layers in 32 bits, 1 GiB for KV."""
    reported = read_page(RECORDED.read_bytes())
    assert (reported.block_tokens, reported.gpu_blocks, reported.gpu_tokens, reported.utilization) == (
        32,
        21_845,
        699_040,
        0.3,
    )
    assert (reported.cpu_tokens, reported.cpu_bytes) == (2048, 3 * 2**20)
    config = {"hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
              "head_dim": 32, "vocab_size": 1024, "torch_dtype": "float32"}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    layout = layout_of(read_model(tmp_path), 32)
    assert reported.token_bytes == layout.block_bytes / 32 == 1536
    assert reported.gpu_blocks == 2**30 // layout.block_bytes
    assert layout.tokens(reported.gpu_blocks) == reported.gpu_tokens


def test_a_running_endpoint_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    with served(PAGE) as url:
        assert run("--metrics-url", url, "--tensor-parallel-size=2", "--gpu=h100", "--output=json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert [(tier["tokens_per_endpoint"], tier["source"]) for tier in answer["tiers"]] == [
        (148_336, "the endpoint"),
        (409_600, "the endpoint"),
    ]
    assert answer["model"]["name"] == "Qwen/Qwen3-32B"
    assert {a["setting"]: a["value"] for a in answer["advice"]}["lruCapacityPerServer"] == "25600"


@pytest.mark.parametrize(
    ("page", "status", "sentence"),
    [
        (b"", 200, "no vllm:cache_config_info"),
        (b"<html>", 200, "no vllm:cache_config_info"),
        (b"", 404, "answers 404"),
        (b'vllm:cache_config_info{block_size="16', 200, "malformed"),
        (b"x" * (MAX_PAGE_BYTES + 1), 200, "more than"),
        (b'vllm:cache_config_info{block_size="0",num_gpu_blocks="None"} 1\n', 200, "nothing says what to size"),
    ],
    ids=["empty", "html", "missing", "malformed", "large", "silent"],
)
def test_a_page_that_says_nothing_is_named(
    page: bytes, status: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with served(page, status) as url:
        assert run("--metrics-url", url) == cli.USAGE_ERROR
    assert sentence in capsys.readouterr().err


LINES = st.lists(
    st.one_of(
        st.sampled_from(PAGE.splitlines()),
        st.builds(bytes.__add__, st.sampled_from(PAGE.splitlines()), st.binary(max_size=8)),
        st.binary(max_size=40),
        st.sampled_from(
            [b'kvengine:tier_capacity_bytes{tier="cpu"} nan', b'kvengine:tier_capacity_tokens{tier="gpu"} -1e99']
        ),
    ),
    max_size=12,
).map(b"\n".join)


@given(page=LINES)
def test_any_page_is_read_or_refused(page: bytes) -> None:
    try:
        reported = read_page(page)
    except ScrapeError:
        return
    for value in (reported.block_tokens, reported.gpu_blocks, reported.utilization, reported.token_bytes):
        assert value is None or value > 0


ANY: tuple[Callable[[str], object], ...] = tuple(flag.read for flag in SIZE)


@given(text=st.text(max_size=20))
def test_any_value_of_a_flag_is_read_or_refused(text: str) -> None:
    for read in ANY:
        with suppress(ValueError):
            read(text)


def test_a_small_model_is_told_in_units_that_suit_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {"hidden_size": 256, "num_hidden_layers": 6, "num_attention_heads": 8, "vocab_size": 1000}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert run("--model", str(tmp_path), "--gpu=l4") == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "2.1 M parameters" in printed
    assert "blocks of 96 KiB" in printed
