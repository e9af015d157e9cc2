"""The output of the commands fits a terminal of 80 columns and a pipe, with every number complete."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from epp.commandline import cli
from epp.lab.demo import screen
from epp.lab.demo.counters import Counters
from epp.lab.demo.result import Result
from epp.printing.prose import show
from tests.epp.lab.tune.test_tune import WORKLOAD

COLUMNS = 80
REPOSITORY = Path(__file__).parents[3]
CONFIGURATIONS = sorted((REPOSITORY / "manifests" / "config").glob("*.yaml"))
SIZES = (
    "--model qwen3-32b --gpu h100 --tensor-parallel-size 2 --ram 256GiB",
    "--model qwen3-32b",
    "--model qwen3-32b --num-groups 45 --system-prompt-len 30000 --endpoints 8",
    "--model qwen3-8b --gpu l4 --endpoints 1000 --storage 100TiB --storage-bandwidth 90GB --workload high-cache",
)


@pytest.fixture(autouse=True)
def columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))


def fits(printed: str) -> None:
    assert "…" not in printed
    for line in printed.splitlines():
        assert len(line.rstrip()) <= COLUMNS or " " not in line.strip(), line


def numbers(value: object) -> Iterator[int]:
    """Yield the counts that are printed as they are: tokens, blocks, groups."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if isinstance(inner, int) and re.search("tokens|blocks|num_|_len$", key) and "per_token" not in key:
                yield inner
            yield from numbers(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from numbers(inner)


@pytest.mark.parametrize("words", SIZES)
def test_what_size_prints_fits_and_has_every_number(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["size", *words.split()]) == 0
    printed = capsys.readouterr().out
    fits(printed)
    assert not [line for line in printed.splitlines() if line.endswith(" ")], "a pipe gets no trailing blanks"
    assert cli.main(["size", *words.split(), "--output=json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    shown = [f"{n:,}" for part in ("tiers", "choices") for n in numbers(answer[part]) if n]
    squeezed = " ".join(printed.split())
    assert shown
    assert not [text for text in shown if text not in squeezed]


@pytest.mark.parametrize("words", SIZES)
def test_a_terminal_of_80_columns_shows_the_same_as_a_pipe(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    ours, theirs = pty.openpty()
    pid = os.fork()
    if not pid:
        for fd in (0, 1, 2):
            os.dup2(theirs, fd)
        command = "import sys; from epp.commandline.cli import main; sys.exit(main(sys.argv[1:]))"
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": str(COLUMNS), "PYTHONPATH": str(REPOSITORY)}
        os.execve(sys.executable, [sys.executable, "-c", command, "size", *words.split()], environment)
    os.close(theirs)
    seen = b""
    try:
        while piece := os.read(ours, 1 << 16):
            seen += piece
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert os.waitpid(pid, 0)[1] == 0
    shown = re.sub(r"\x1b\[[0-9;]*m", "", seen.decode())
    fits(shown)
    assert cli.main(["size", *words.split()]) == 0
    piped = capsys.readouterr().out
    assert [line.rstrip() for line in shown.splitlines()] == [line.rstrip() for line in piped.splitlines()]


def test_what_simulate_prints_fits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "small.yaml").write_text(WORKLOAD)
    words = ["--workload", str(tmp_path / "small.yaml"), "--policy", "round-robin,tiered-approximate,tiered,cost"]
    assert cli.main(["simulate", *words, "--seeds=2", "--plots=false", f"--output={tmp_path / 'out'}"]) == 0
    fits(capsys.readouterr().out)


def test_what_tune_prints_fits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "small.yaml").write_text(WORKLOAD)
    words = ["--workload", str(tmp_path / "small.yaml"), "--candidates=4", "--held-out=3"]
    assert cli.main(["tune", *words, f"--output={tmp_path / 'out'}"]) in (0, 1)
    printed = capsys.readouterr()
    fits(printed.out)
    fits(printed.err)


@pytest.mark.parametrize(
    "file", sorted((REPOSITORY / "manifests" / "config").glob("*.yaml")), ids=lambda path: path.stem
)
def test_what_check_prints_fits(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "--config-file", str(file)]) == 0
    printed = capsys.readouterr()
    fits(printed.out)
    fits(printed.err)


def test_what_the_demo_prints_fits() -> None:
    out = io.StringIO()
    console = Console(file=out, width=COLUMNS, highlight=False)
    result = Result(
        name="n", title="tier-aware 2:2:1:1", requests=480, errors={}, duration_s=31.0, mean_ttft_s=12.52,
        p90_ttft_s=123.41, mean_e2e_s=12.0, requests_per_s=155.5, tokens_per_s=1.0, gpu_share=1.0, cpu_share=1.0,
        miss_share=1.0,
    )  # fmt: skip
    show(console, [screen.comparison([result, result]), screen.endpoint_table({"192.168.100.100:18400": Counters()})])
    fits(out.getvalue())
    assert "123.41 s" in out.getvalue()
