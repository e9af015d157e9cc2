"""The whole command, on a workload of a second."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml

from epp.commandline import cli
from epp.errors import ConfigError
from epp.lab.fleet.command import trials_of
from epp.lab.fleet.engines import KINDS
from epp.lab.fleet.flags import SIMULATE
from epp.lab.fleet.loads import FleetLoad, in_words
from epp.lab.fleet.options import SimulateOptions, simulate_options
from epp.lab.fleet.policies import POLICIES
from epp.lab.fleet.stages import requests_of
from epp.lab.fleet.workload import PRESETS

WORKLOAD = {
    "load": {"type": "poisson", "interval": 1, "stages": [{"rate": 20, "duration": 1}, {"rate": 40, "duration": 1}]},
    "data": {
        "type": "shared_prefix",
        "shared_prefix": {"num_groups": 3, "num_prompts_per_group": 4, "system_prompt_len": 2000, "output_len": 20},
    },
}


@pytest.fixture
def workload(tmp_path: Path) -> str:
    path = tmp_path / "short.yaml"
    path.write_text(yaml.safe_dump(WORKLOAD))
    return str(path)


def simulate(*words: str) -> int:
    return cli.main(["simulate", *words])


def test_it_writes_tables_figures_and_inference_perfs_json(
    tmp_path: Path, workload: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = [
        "--workload",
        workload,
        "--policy",
        "random,tiered",
        "--seeds",
        "2",
        "--endpoints",
        "2,8",
        "--output",
        str(out),
    ]
    assert simulate(*words) == 0
    report = (out / "report.md").read_text()
    printed = capsys.readouterr().out
    assert "|" not in printed, "Markdown is for the file"
    assert max(map(len, printed.splitlines())) <= 80
    assert (
        f"Made by `tierwise simulate --policy=random,tiered --workload={workload} --endpoints=2,8 --seeds=2`." in report
    )
    assert "480 requests" in printed  # 20 and 40, whatever the fleet; 2 policies, 2 seeds, 2 fleets
    load = "Load of each run: 60 requests in 2 stages, 20 to 40 requests/s; 3 groups of 4 prompts, 2,000 tokens shared"
    assert report.count(load) == 2
    assert "Load of each run: 60 requests in 2 stages, 20 to 40 requests/s;" in " ".join(printed.split())
    assert [line for line in report.splitlines() if line.startswith("## ")] == [
        "## short, 2 endpoints",
        "## short, 8 endpoints",
    ]
    assert report.count("### ") == 4  # each stage of each fleet size
    assert report.count("| tiered | ") == 6
    assert " ± " in report
    results = json.loads((out / "results.json").read_text())
    assert len(results) == 8
    assert {len(result["stages"]) for result in results} == {2}
    assert not any(result["failures"] for result in results)
    folder = out / "runs" / "short-8-tiered-2"
    assert sorted(path.name for path in folder.iterdir()) == [
        "stage_0_lifecycle_metrics.json",
        "stage_1_lifecycle_metrics.json",
        "summary_lifecycle_metrics.json",
    ]
    assert json.loads((folder / "summary_lifecycle_metrics.json").read_text())["successes"]["count"] == 60
    assert (out / "short-8.png").read_bytes().startswith(b"\x89PNG")


def test_processes_and_one_process_give_the_same_figures(tmp_path: Path, workload: str) -> None:
    told = []
    for jobs in ("1", "2"):
        out = tmp_path / jobs
        words = ["--workload", workload, "--policy", "tiered", "--seeds", "2", "--output", str(out), "--plots=false"]
        assert simulate(*words, "--jobs", jobs) == 0
        results = json.loads((out / "results.json").read_text())
        told.append([result["whole"] for result in results])
        assert not list(out.glob("*.png"))
    assert told[0] == told[1]


def test_without_flags_it_compares_all_policies_on_high_cache() -> None:
    trials = trials_of(SimulateOptions(seeds=1))
    assert [trial.policy for trial in trials] == list(POLICIES)
    assert {(trial.workload, trial.endpoints, trial.engine.name) for trial in trials} == {
        ("high-cache", 8, "qwen3-32b-tp2-h100")
    }


def test_a_workload_brings_the_engine_of_its_tables_unless_one_is_named() -> None:
    def engine(**options: object) -> str:
        [trial, *_] = trials_of(SimulateOptions(workloads=("storage-70k",), seeds=1, **options))  # type: ignore[arg-type]
        return trial.engine.name

    assert engine() == "llama-3.3-70b-tp4-h100"
    assert engine(engine="gpt-oss-120b-h100") == "gpt-oss-120b-h100"


def test_a_configuration_of_ones_own_is_a_policy(tmp_path: Path, workload: str) -> None:
    config = tmp_path / "mine.yaml"
    config.write_text(POLICIES[2].config)
    out = tmp_path / "out"
    words = ["--workload", workload, "--policy", str(config), "--seeds", "1", "--output", str(out), "--plots=false"]
    assert simulate(*words) == 0
    assert "| mine | " in (out / "report.md").read_text()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--policy", "tierd"], "unknown policy 'tierd'; did you mean tiered?"),
        (["--policy", ""], "--policy: names nothing"),
        (["--workload", "high-cash"], "unknown workload 'high-cash'; did you mean high-cache?"),
        (["--workload", "gone.jsonl"], "gone.jsonl: cannot be read"),
        (["--engine", "qwen"], "unknown engine 'qwen'"),
        (["--endpoints", "0"], "must be a whole number from 1 to 10000"),
        (["--endpoints", ","], "must be whole numbers from 1 to 10000, with commas"),
        (["--seeds", "none"], "must be a whole number from 1 to 1000"),
        (["--cpu-tokens=-1"], "must be a whole number"),
        (["--output", "/proc/nowhere"], "cannot be made"),
        (["--pickers", "0"], "must be a whole number from 1 to 64"),
        (["--past-pickers", "30"], "must be a number from 0 to 1"),
        (["--polices", "random"], "did you mean --policy?"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    words: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code = simulate("--seeds=1", *words)
    said = capsys.readouterr().err
    assert sentence in said
    assert code == 2
    assert len(said.splitlines()) == 1


def test_two_files_of_one_name_are_refused_since_the_report_goes_by_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "tiered.yaml"
    config.write_text(POLICIES[2].config)
    assert simulate("--policy", f"tiered,{config}") == 2
    assert "--policy: 2 of them are called 'tiered' in the report; rename a file" in capsys.readouterr().err
    (tmp_path / "high-cache.yaml").write_text(yaml.safe_dump(WORKLOAD))
    assert simulate("--workload", f"high-cache,{tmp_path}/high-cache.yaml") == 2
    assert "--workload: 2 of them are called 'high-cache'" in capsys.readouterr().err


def test_a_folder_that_takes_no_report_is_refused_before_anything_runs(
    tmp_path: Path, workload: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    out.write_text("a file")
    assert simulate("--workload", workload, "--output", str(out)) == 2
    assert f"--output={out}: is a file; name a folder" in capsys.readouterr().err
    assert out.read_text() == "a file"


def test_a_report_replaces_an_earlier_one_in_its_folder_and_nothing_else(tmp_path: Path, workload: str) -> None:
    out = tmp_path / "out"
    words = ["--workload", workload, "--seeds", "1", "--output", str(out)]
    assert simulate(*words, "--policy", "random,tiered", "--endpoints", "2,4") == 0
    mine = [out / "runs" / "short-2-random-1" / "notes.txt", out / "runs" / "other" / "summary_lifecycle_metrics.json"]
    for path in mine:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    assert simulate(*words, "--policy", "tiered", "--endpoints", "2") == 0
    names = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    assert names == {
        "report.md",
        "results.json",
        "short-2.png",
        "runs/short-2-tiered-1/summary_lifecycle_metrics.json",
        "runs/short-2-tiered-1/stage_0_lifecycle_metrics.json",
        "runs/short-2-tiered-1/stage_1_lifecycle_metrics.json",
        "runs/short-2-random-1/notes.txt",
        "runs/other/summary_lifecycle_metrics.json",
    }


def test_a_results_file_of_somebody_elses_is_no_reason_to_remove_anything(tmp_path: Path, workload: str) -> None:
    out = tmp_path / "out"
    precious = tmp_path / "precious-1.png"
    precious.write_text("mine")
    out.mkdir()
    run = {"workload": "../precious", "endpoints": 1, "policy": "x", "seed": 1}
    for text in (json.dumps([run]), "{", "[1]"):
        (out / "results.json").write_text(text)
        words = ["--workload", workload, "--policy", "random", "--seeds", "1", "--plots=false"]
        assert simulate(*words, "--output", str(out)) == 0
    assert precious.read_text() == "mine"


def test_the_report_says_how_many_pickers_there_were_and_who_went_past_them(tmp_path: Path, workload: str) -> None:
    out = tmp_path / "out"
    words = ["--workload", workload, "--policy", "tiered", "--seeds", "1", "--plots=false", "--output", str(out)]
    assert simulate(*words, "--pickers", "2", "--past-pickers", "0.25") == 0
    report = (out / "report.md").read_text()
    assert "2 pickers, each of which has its own picks only. 25 % of the requests go past the pickers, to" in report


def test_a_run_in_which_nobody_is_served_has_a_report(tmp_path: Path) -> None:
    config = tmp_path / "nobody.yaml"
    config.write_text(
        "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"
        "plugins:\n- {type: label-selector-filter, parameters: {matchLabels: {gpu: none}}}\n"
    )
    trace = tmp_path / "one.jsonl"
    trace.write_text('{"timestamp": 0, "input_length": 10, "output_length": 1}')
    out = tmp_path / "out"
    words = ["--workload", str(trace), "--policy", f"{config},random", "--seeds", "1", "--plots=false"]
    assert simulate(*words, "--output", str(out)) == 0
    report = (out / "report.md").read_text()
    assert "**1 of 2 requests were refused, and count in nothing; the first by the picker: " in report
    assert "| nobody | – | – |" in report
    assert "nan" not in report


def test_an_empty_trace_is_refused_before_a_folder_is_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "none.jsonl"
    trace.write_text("")
    assert simulate("--workload", str(trace), "--output", str(tmp_path / "out")) == 2
    assert f"{trace}: holds no request" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_policy_file_with_a_fault_is_named_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "mine.yaml"
    config.write_text(POLICIES[2].config.replace("active-request-scorer", "active-request-scorr"))
    assert simulate("--policy", f"random,{config}", "--output", str(tmp_path / "out")) == 2
    assert "policy mine.yaml: plugins[0].type: unknown plugin type 'active-request-scorr'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_requests_that_no_engine_can_serve_are_said(
    tmp_path: Path, workload: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ["--workload", workload, "--policy", "random", "--gpu-tokens", "2048", "--seeds", "1", "--plots=false"]
    assert simulate(*words, "--output", str(out)) == 0
    assert (
        "**60 of 60 requests were refused, and count in nothing; the first by the engine: the prompt has 2050 tokens"
        in (out / "report.md").read_text()
    )


def test_a_policy_whose_requests_would_wait_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "waiting.yaml"
    config.write_text(POLICIES[2].config + "featureGates: [flowControl]\n")
    assert simulate("--policy", str(config), "--output", str(tmp_path / "out")) == 2
    assert "waiting for room is not simulated" in capsys.readouterr().err


def test_the_help_names_every_policy_workload_and_engine() -> None:
    texts = {flag.name: flag.help for flag in SIMULATE}
    for name, known in (("policy", [p.name for p in POLICIES]), ("workload", list(PRESETS)), ("engine", list(KINDS))):
        missing = [each for each in known if each not in re.split(r"[ ,:()]+", texts[name])]
        assert not missing, f"--{name} does not name {missing}"


INTERRUPTIBLE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background may have set it to be ignored
from epp.commandline.cli import main
if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
"""


def command_for(*words: str) -> list[str]:
    return [sys.executable, "-u", "-c", INTERRUPTIBLE, *words]


@pytest.mark.parametrize(("jobs", "ended_by"), [("1", signal.SIGINT), ("2", signal.SIGINT), ("2", signal.SIGTERM)])
def test_after_an_interrupt_the_report_has_what_can_be_compared(
    tmp_path: Path, workload: str, jobs: str, ended_by: signal.Signals
) -> None:
    out = tmp_path / "out"
    words = ["--workload", workload, "--policy", "random,tiered", "--seeds", "900", "--plots=false", "--jobs", jobs]
    command = command_for("simulate", *words, "--output", str(out))
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stderr:
            if int(line.split()[1].replace(",", "")) > 4 * 60:
                os.killpg(process.pid, ended_by)
                break
        said = " ".join(process.stdout.read().split())
    assert process.returncode == 130
    assert "of 1800 runs, and no other, are in the report" in said
    results = json.loads((out / "results.json").read_text())
    assert 4 <= len(results) < 1800
    policies = Counter(result["policy"] for result in results)
    assert policies["random"] == policies["tiered"]
    assert "| tiered | " in (out / "report.md").read_text()


@pytest.mark.parametrize("ended_by", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("program", ["simulate", "tune"])
def test_what_is_ended_before_there_is_a_result_leaves_no_folder(
    program: str, ended_by: signal.Signals, tmp_path: Path
) -> None:
    """The default workload takes longer than the first line of progress."""
    out = tmp_path / "made" / "for" / "it"
    command = command_for(program, "--endpoints", "64", "--output", str(out))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline()
        assert out.is_dir()
        process.send_signal(ended_by)
        assert "Traceback" not in process.stderr.read()
    assert process.returncode == 130
    assert list(tmp_path.iterdir()) == []


def test_a_preset_grows_with_the_fleet_and_a_file_is_what_it_says(tmp_path: Path, workload: str) -> None:
    def load(*words: str, endpoints: str = "16") -> str:
        options = simulate_options({"policy": [["tiered"]], "workload": [[words[0]]], "endpoints": [int(endpoints)],
                                    "seeds": 1, **({"written-for": int(words[1])} if words[1:] else {})})  # fmt: skip
        (trial,) = trials_of(options)
        return in_words(FleetLoad(trial.config, trial.written_for), requests_of(trial.config, 1), trial.endpoints)

    assert load("high-cache", endpoints="8").startswith("450 requests, 45 at a time; 45 groups of 10 prompts, 30,000")
    assert load("high-cache").startswith("900 requests, 90 at a time; 90 groups")
    assert load("high-cache").endswith("(written for 8 endpoints, and scaled to 16)")
    assert load("storage-50k", endpoints="4").startswith("2,700 requests, 20 at a time")
    assert load(workload, endpoints="2") == load(workload, endpoints="16")
    assert load(workload).startswith("60 requests in 2 stages, 20 to 40 requests/s; 3 groups of 4 prompts")
    assert load(workload, "8").startswith("120 requests in 2 stages, 40 to 80 requests/s; 6 groups of 4 prompts")
    assert load(workload, "8").endswith("(written for 8 endpoints, and scaled to 16)")
    assert load(workload, "16") == load(workload)
    trace = tmp_path / "one.jsonl"
    trace.write_text('{"timestamp": 0, "input_length": 10, "output_length": 1}')
    assert load(str(trace)) == "1 request of one.jsonl, at its times"
    with pytest.raises(ConfigError, match=r"--written-for=8: .*one.jsonl is a trace, and a trace is not scaled"):
        load(str(trace), "8")


def test_the_report_says_that_prices_do_better_than_the_default_weights(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["--policy", "tiered,cost", "--endpoints", "8", "--seeds", "2", "--plots=false", "--output", str(out)]
    assert simulate(*words) == 0
    report = (out / "report.md").read_text()
    assert "Shortest mean TTFT: cost (its configuration is manifests/config/cost.yaml), " in report
    assert "where tiered, the weights of the default profile, has " in report
