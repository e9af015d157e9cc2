"""The whole command, on a workload small enough for a test."""

import asyncio
import io

import pytest
from rich.console import Console

from epp.lab.demo.cli import compare, run_demo
from epp.lab.demo.options import DemoOptions
from epp.lab.demo.workload import Workload

SMALL = Workload(groups=4, prompts_per_group=3, system_tokens=200, output_tokens=2, concurrency=4)


@pytest.mark.e2e
def test_every_arm_runs_the_workload_and_all_are_shown_beside_each_other() -> None:
    out = io.StringIO()
    console = Console(file=out, width=120)
    results = asyncio.run(compare(DemoOptions(), console, SMALL))
    assert [result.name for result in results] == ["round-robin", "gpu-only", "tier-aware", "cost"]
    for result in results:
        assert (result.requests, result.errors) == (12, {})
        assert result.gpu_share + result.cpu_share + result.miss_share == pytest.approx(1.0)
        assert 0 < result.mean_ttft_s <= result.mean_e2e_s
    text = out.getvalue()
    assert "4 SIMULATED vLLM endpoints" in text
    assert "x1.00" in text
    assert "tierwise standalone --endpoint" in text


def test_endpoints_that_are_not_there_end_the_demo_with_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_demo(DemoOptions(endpoints=("127.0.0.1:1",))) == 1
    said = capsys.readouterr().err
    assert said.startswith("tierwise demo: http://127.0.0.1:1/v1/models does not name a model")
    assert "Traceback" not in said


def test_a_host_that_nobody_knows_ends_the_demo_with_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_demo(DemoOptions(endpoints=("nowhere.invalid:8000",))) == 1
    assert "nowhere.invalid:8000" in capsys.readouterr().err
