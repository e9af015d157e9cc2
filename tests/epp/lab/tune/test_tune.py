"""Candidates, the written files, and the command on a small workload."""

from __future__ import annotations

import json
from math import nan
from pathlib import Path
from random import Random

import pytest
import yaml

from epp.commandline import cli
from epp.config.wiring.build import plan_from
from epp.config.wiring.kinds import known_kinds
from epp.lab.engine.preset import Preset
from epp.lab.fleet import engines
from epp.lab.fleet.figures import Figures
from epp.lab.fleet.policies import BY_NAME, plan_of
from epp.lab.tune.candidates import BASELINE, USUAL, Weights, candidates
from epp.lab.tune.gain import gain_of
from epp.lab.tune.options import Objective
from epp.lab.tune.tables import sentence
from epp.lab.tune.written import CONFIG, OLDER_VALUES, TRIED, VALUES, configuration, values, write

ENGINE = engines.choose(engines.DEFAULT)
WORKLOAD = """\
load: {type: concurrent, stages: [{num_requests: 48, concurrency_level: 16}]}
data:
  type: shared_prefix
  shared_prefix: {num_groups: 12, num_prompts_per_group: 4, system_prompt_len: 6000, question_len: 64, output_len: 32}
"""


@pytest.fixture(scope="module")
def preset() -> Preset:
    return ENGINE.preset()


# Candidates.


def test_the_baseline_comes_first_and_is_the_simulators_own(preset: Preset) -> None:
    first, *others = candidates(40, ENGINE, set(known_kinds()), seed=1)
    assert first.name == BASELINE == USUAL.name
    ours, theirs = (plan_of(policy, preset, 1).profile for policy in (first, BY_NAME["tiered"]))
    assert [(s.name, w) for s, w in ours.scorers] == [(s.name, w) for s, w in theirs.scorers]
    assert len(others) == 40


def test_every_candidate_is_a_configuration_without_warnings(preset: Preset) -> None:
    found = candidates(120, ENGINE, set(known_kinds()), seed=3)
    assert len({policy.name for policy in found}) == len({policy.config for policy in found}) == 121
    for policy in found:
        assert plan_of(policy, preset, 0).warnings == ()


def test_a_seed_decides_what_is_tried() -> None:
    drawn = [[p.name for p in candidates(60, ENGINE, set(known_kinds()), seed)] for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_weights_that_differ_by_a_factor_are_one() -> None:
    assert Weights(4, 4, 2, 2).reduced() == Weights(2, 2, 1, 1)
    found = [p.name for p in candidates(300, ENGINE, set(known_kinds()), seed=5)]
    assert "4:4:2:2" not in found


def test_without_a_cpu_tier_nothing_speaks_of_one(preset: Preset) -> None:
    engine = engines.choose(engines.DEFAULT, None, 0)
    found = candidates(80, engine, set(known_kinds()), seed=1)
    assert found[0].name == BASELINE
    assert len({policy.name for policy in found}) == len({policy.config for policy in found}) == 81
    for policy in found:
        text = configuration(policy, engine, "")
        assert "cpu" not in text
        assert "lruCapacityPerServer" not in text
        assert plan_of(policy, preset, 0).warnings == ()


def test_costs_are_tried_where_there_is_such_a_scorer() -> None:
    kinds = {"tier-cost-scorer", "tier-cost-producer", "tier-cost-picker"}
    with_them = [p.name for p in candidates(3, ENGINE, kinds, seed=1)]
    assert with_them[1] == "cost"
    assert "cost" not in [p.name for p in candidates(3, ENGINE, set(), seed=1)]


# What is written.


def test_the_values_hold_the_configuration_and_that_loads(tmp_path: Path) -> None:
    for policy in candidates(30, ENGINE, set(known_kinds()), seed=2):
        text = configuration(policy, ENGINE, "Made for a test:\nnothing to expect.")
        (tmp_path / "picker.yaml").write_text(text)
        plan_from(tmp_path / "picker.yaml", None)
        new, old = yaml.safe_load(values(text)), yaml.safe_load(values(text, older=True))
        for chart in (new["router"]["epp"], old["inferenceExtension"]):
            assert chart["pluginsConfigFile"] == "tuned.yaml"
            assert yaml.safe_load(chart["pluginsCustomConfig"]["tuned.yaml"]) == yaml.safe_load(text)
        assert "CPU_BLOCKS" not in text


def test_the_capacity_is_the_engines_in_the_pickers_blocks() -> None:
    text = configuration(USUAL.policy(), ENGINE, "")
    (producer,) = [p for p in yaml.safe_load(text)["plugins"] if p.get("name") == "cpu-prefix-cache-producer"]
    assert producer["parameters"]["lruCapacityPerServer"] == ENGINE.cpu_tokens // 16 == 41_000


# What to expect.


def figures(ttft_s: float, tokens_per_s: float = 1000.0) -> Figures:
    return Figures(
        requests=1, refused=0, duration_s=1, mean_ttft_s=ttft_s, p90_ttft_s=ttft_s, mean_e2e_s=1, p90_e2e_s=1, itl_s=0,
        tokens_per_s=tokens_per_s, input_tokens_per_s=1, output_tokens_per_s=1, gpu_share=0, cpu_share=0,
        prediction_error=nan,
    )  # fmt: skip


def test_a_gain_is_the_mean_of_changes_seed_by_seed() -> None:
    base, ours = [figures(1.0), figures(10.0), figures(4.0)], [figures(0.5), figures(5.5), figures(1.8)]
    gain = gain_of(Objective.MEAN_TTFT, (1, 2, 3), base, ours)
    change = gain.changes["mean-ttft"]
    assert change.change == pytest.approx((-0.5 - 0.45 - 0.55) / 3)
    assert change.margin == pytest.approx(4.30 * 0.05 / 3**0.5, rel=1e-3)
    assert gain.proven
    assert sentence(Objective.MEAN_TTFT, "w", 9, gain) == (
        "Expect mean TTFT to fall by 50.0% ± 12.4% with w instead of 2:2:1:1 (95% interval, over 3 simulated runs that "
        "the search has not seen)."
    )
    assert "over 3 simulated runs of this trace" in sentence(Objective.MEAN_TTFT, "w", 9, gain, trace=True)


def test_a_gain_within_its_interval_is_none() -> None:
    base, ours = [figures(1.0), figures(1.0), figures(1.0)], [figures(0.5), figures(1.4), figures(0.9)]
    gain = gain_of(Objective.MEAN_TTFT, (1, 2, 3), base, ours)
    assert not gain.proven
    assert "which may be chance: keep 2:2:1:1." in sentence(Objective.MEAN_TTFT, "w", 9, gain)


def test_more_throughput_is_the_better_one() -> None:
    base, ours = (
        [figures(1, 100.0), figures(1, 200.0), figures(1, 50.0)],
        [figures(1, 110.0), figures(1, 220.0), figures(1, 55.0)],
    )
    gain = gain_of(Objective.THROUGHPUT, (1, 2, 3), base, ours)
    assert gain.proven
    assert "Expect throughput to rise by 10.0%" in sentence(Objective.THROUGHPUT, "w", 9, gain)
    assert not gain_of(Objective.THROUGHPUT, (1, 2, 3), ours, base).proven


# The command.


def words_of(capsys: pytest.CaptureFixture[str]) -> str:
    """Return the printed text on one line."""
    return " ".join(capsys.readouterr().out.split())


def tune(tmp_path: Path, *words: str) -> tuple[int, Path]:
    (tmp_path / "small.yaml").write_text(WORKLOAD)
    output = tmp_path / "tuned"
    common = ("--workload", str(tmp_path / "small.yaml"), "--endpoints=4", "--gpu-tokens=65536", "--cpu-tokens=131072")
    return cli.main(["tune", *common, f"--output={output}", *words]), output


def test_a_search_repeats_itself_and_writes_what_it_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = []
    for _ in range(2):
        code, output = tune(tmp_path, "--candidates=6", "--held-out=4")
        shown = capsys.readouterr()
        printed = " ".join(shown.out.split())
        assert "repeat it with --candidates=6 --seed=1." in printed
        load = "Load of each run, on 4 x qwen3-32b-tp2-h100: 48 requests, 16 at a time; 12 groups of 4 prompts, 6,000"
        assert printed.startswith(load)
        rounds = [line for line in shown.err.splitlines() if line.startswith("round ")]
        assert [line.partition(":")[0] for line in rounds] == [
            "round 1, 6 candidates on 1 new seed",
            "round 2, 3 candidates on 2 new seeds",
        ]
        tried = json.loads((output / "tuning.json").read_text())
        plan_from(output / "picker.yaml", None)
        assert code == (0 if tried["gain"] and tried["gain"]["proven"] else 1)
        del tried["seconds"]
        outcomes.append((tried, (output / "picker.yaml").read_text(), (output / "values.yaml").read_text()))
    assert outcomes[0] == outcomes[1]
    tried = outcomes[0][0]
    assert set(tried["standings"]) >= {"2:2:1:1"}
    assert len(tried["standings"]) == 7
    if tried["gain"]:
        assert len(tried["gain"]["seeds"]) == 4
        assert min(tried["gain"]["seeds"]) >= 1_000_000, "seeds that the search has not seen"


def of_a_trace(tmp_path: Path) -> tuple[int, Path]:
    """Run a search on a trace where it finds a better candidate."""
    random, lines = Random(1), []
    for n in range(120):
        group = random.randrange(12)
        line = {
            "timestamp": 40 * n,
            "input_length": 6300,
            "output_length": 16,
            "hash_ids": [*(100 * group + i for i in range(12)), 10_000 + n],
        }
        lines.append(json.dumps(line))
    (tmp_path / "trace.jsonl").write_text("\n".join(lines))
    output = tmp_path / "tuned"
    code = cli.main(
        ["tune", f"--workload={tmp_path / 'trace.jsonl'}", "--endpoints=3", "--gpu-tokens=32768", "--cpu-tokens=65536",
         "--candidates=5", "--held-out=3", f"--output={output}"]
    )  # fmt: skip
    return code, output


def test_what_a_trace_finds_starts_the_picker_through_the_charts_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, output = of_a_trace(tmp_path)
    printed = words_of(capsys)
    tried = json.loads((output / "tuning.json").read_text())
    assert code == 0
    assert "simulated runs of this trace" in printed
    assert f"{abs(tried['gain']['changes']['mean-ttft']['change']):.1%} ±" in printed
    for file, where in (("values.yaml", ("router", "epp")), ("values-inferencepool.yaml", ("inferenceExtension",))):
        said = yaml.safe_load((output / file).read_text())
        for key in where:
            said = said[key]
        mounted = tmp_path / said["pluginsConfigFile"]  # as the chart's ConfigMap has it, and --config-file names it
        mounted.write_text(said["pluginsCustomConfig"][said["pluginsConfigFile"]])
        assert cli.main(["check", "--strict", "--config-file", str(mounted)]) == 0
        plan, found = plan_from(mounted, None), plan_from(output / "picker.yaml", None)
        weights = [(scorer.name, weight) for scorer, weight in plan.profile.scorers]
        assert weights == [(scorer.name, weight) for scorer, weight in found.profile.scorers]
        assert weights or plan.profile.picker.name == "tier-cost-picker"


NOTHING_TO_CHOOSE = """\
load: {type: concurrent, stages: [{num_requests: 6, concurrency_level: 1}]}
data:
  type: shared_prefix
  shared_prefix: {num_groups: 6, num_prompts_per_group: 1, system_prompt_len: 600, question_len: 64, output_len: 8}
"""


def in_vain(tmp_path: Path) -> int:
    (tmp_path / "alone.yaml").write_text(NOTHING_TO_CHOOSE)
    workload = f"--workload={tmp_path / 'alone.yaml'}"
    return cli.main(["tune", workload, "--candidates=3", "--held-out=3", f"--output={tmp_path / 'tuned'}"])


def test_a_search_that_finds_nothing_leaves_an_earlier_result_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert in_vain(tmp_path) == 1
    assert "Written, with weights 2:2:1:1: " in words_of(capsys)
    output = tmp_path / "tuned"
    (output / "picker.yaml").write_text("# Made by tierwise tune for another workload\n")
    before = {path.name: path.read_bytes() for path in output.iterdir()}
    assert in_vain(tmp_path) == 1
    printed = words_of(capsys)
    assert {path.name: path.read_bytes() for path in output.iterdir()} == before
    assert f"Nothing is written: {output / 'picker.yaml'} and the files beside it stay as an earlier search" in printed


def test_a_search_that_finds_something_says_that_it_replaces_an_earlier_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for word in ("Written, with ", "Replaced an earlier search's result, with "):
        code, output = of_a_trace(tmp_path)
        assert code == 0
        assert word in words_of(capsys)
        assert "Made by tierwise tune" in (output / "picker.yaml").read_text()


def test_who_reads_a_file_while_it_is_replaced_reads_all_of_the_one_before(tmp_path: Path) -> None:
    write(tmp_path, "# before\n", {})
    with (tmp_path / CONFIG).open() as reading:
        write(tmp_path, "# after\n", {})
        assert reading.read() == "# before\n"
    assert (tmp_path / CONFIG).read_text() == "# after\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([CONFIG, VALUES, OLDER_VALUES, TRIED])


@pytest.mark.parametrize("name", ["picker.yaml", "values.yaml", "values-inferencepool.yaml"])
def test_a_file_that_no_search_has_made_is_not_replaced(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tuned").mkdir()
    (tmp_path / "tuned" / name).write_text("of: mine\n")
    assert in_vain(tmp_path) == cli.USAGE_ERROR
    assert f"{name} there is none of tierwise tune's; name another folder" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "tuned").iterdir()] == [name]


def test_several_processes_find_the_same(tmp_path: Path) -> None:
    found = []
    for jobs in (1, 2):
        _, output = tune(tmp_path, "--candidates=3", "--held-out=3", f"--jobs={jobs}")
        found.append(json.loads((output / "tuning.json").read_text())["standings"])
    assert found[0] == found[1]


def test_a_budget_bounds_the_search(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, output = tune(tmp_path, "--budget=8s", "--held-out=3")
    assert code in (0, 1)
    tried = json.loads((output / "tuning.json").read_text())
    assert tried["candidates"] >= 3
    printed = words_of(capsys)
    assert "s of the 8 s that it may take" in printed
    assert "no time for another round, which would take about" in printed or "the time ended it early" in printed


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--workload=nonsense",), "unknown workload 'nonsense'"),
        (("--engine=nonsense",), "unknown engine 'nonsense'"),
        (("--workload=/nowhere/trace.jsonl",), "/nowhere/trace.jsonl"),
        (("--gpu-tokens=4096",), "96 of 96 requests are longer than the engine's context"),
        (("--gpu-tokens=4096", "--jobs=2"), "requests are longer than the engine's context"),
        (("--objective=joy",), "must be mean-ttft or"),
        (("--candidates=2",), "from 3 to 400"),
        (("--held-out=1",), "from 3 to 1000"),
        (("--budget=soon",), "write it as 50ms"),
        (("--endpoints=1",), "from 2 to 10000"),
        (("--budget=1s", "--held-out=1000"), "raise --budget, or lower --held-out"),
    ],
)
def test_what_cannot_be_tuned_is_one_sentence(
    words: tuple[str, ...], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = tune(tmp_path, *words)
    assert code == cli.USAGE_ERROR
    *progress, error = capsys.readouterr().err.splitlines()
    assert sentence in error
    assert all(line.startswith("the baseline first: ") for line in progress)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tuned").write_text("in the way")
    code, _ = tune(tmp_path, "--candidates=3", "--held-out=3")
    assert code == cli.USAGE_ERROR
    assert "--output=" in capsys.readouterr().err


def test_a_search_that_had_time_for_more_rounds_says_how_many_repeat_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        _, output = tune(tmp_path, "--candidates=4", "--rounds=4", "--held-out=3")
        tried = json.loads((output / "tuning.json").read_text())
        assert tried["rounds"] == 4
        assert max(standing["seeds"] for standing in tried["standings"].values()) == 1 + 2 + 2 + 2
        assert "repeat it with --candidates=4 --rounds=4 --seed=1." in words_of(capsys)
