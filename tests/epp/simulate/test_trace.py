from __future__ import annotations

from pathlib import Path

import pytest

from epp.errors import ConfigError
from epp.simulate import trace, workload
from epp.simulate.prompts import Part
from epp.simulate.stages import stages_of
from tests.epp.simulate.small import fleet

LINES = [  # as in the published traces: a first block that all share, a last one that is not full
    '{"timestamp": 27482, "input_length": 1100, "output_length": 20, "hash_ids": [0, 1, 2]}',
    '{"timestamp": 30535, "input_length": 1400, "output_length": 5, "hash_ids": [0, 1, 3], "tools": []}',
    "",
    '{"timestamp": 27482, "input_length": 300, "output_length": 0}',
]


def written(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(lines))
    return path


def test_requests_come_at_their_times_from_the_first_on(tmp_path: Path) -> None:
    arrivals = list(trace.read(written(tmp_path, *LINES)).begin())
    assert [arriving.delay_s for arriving in arrivals] == [0.0, 0.0, pytest.approx(3.053)]
    assert [arriving.ask.prompt_tokens for arriving in arrivals] == [1100, 300, 1400]
    assert [arriving.ask.output_tokens for arriving in arrivals] == [20, 1, 5]  # an engine generates one token at least


def test_hash_ids_are_blocks_of_512_tokens_and_the_last_may_be_shorter(tmp_path: Path) -> None:
    asks = [arriving.ask for arriving in trace.read(written(tmp_path, *LINES)).begin()]
    assert asks[0].parts == (Part(0, 512), Part(1, 512), Part(2, 76))
    assert asks[2].parts == (Part(0, 512), Part(1, 512), Part(3, 376))
    assert asks[1].parts[0].content > 2**32  # nobody shares what no hash id names


def test_a_trace_runs_and_its_shared_blocks_are_hits(tmp_path: Path) -> None:
    [stage] = stages_of(workload.choose(str(written(tmp_path, *LINES))), 1)
    records = fleet("tiered", endpoints=2).run(stage.source).records
    assert [record.refused for record in records] == ["", "", ""]
    assert records[2].hits.gpu == 1024


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (["{"], "trace.jsonl: line 1: "),
        ([LINES[0], '{"timestamp": 1}'], "line 2: .*input_length"),
        (['{"timestamp": 1, "input_length": 0}'], "line 1: .*>= 1"),
        (['{"timestamp": -1, "input_length": 1}'], "line 1: .*>= 0"),
        (['{"timestamp": 1, "input_length": 1000000000000}'], "line 1: .*<= 16777216"),
        (['{"timestamp": 1, "input_length": 1, "output_length": 1000000000000}'], "line 1: .*<= 16777216"),
        (['{"timestamp": 1e300, "input_length": 1}'], "line 1: .*<= 1000000000000"),
        (['{"timestamp": 1, "input_length": 1, "hash_ids": ["a"]}'], "line 1: .*hash_ids"),
        (["[1, 2]"], "line 1: "),
        ([], "holds no request"),
        (["", "  "], "holds no request"),
    ],
)
def test_a_fault_is_named_with_its_line(tmp_path: Path, lines: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        stages_of(workload.choose(str(written(tmp_path, *lines))), 1)


def test_another_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="AzurePublicDataset' is none of MooncakeTrace"):
        trace.read(written(tmp_path, *LINES), "AzurePublicDataset")
