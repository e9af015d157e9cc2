from __future__ import annotations

import re
from pathlib import Path

import pytest

from epp.errors import ConfigError
from epp.lab.fleet import trace, workload
from epp.lab.fleet.prompts import PromptPart
from epp.lab.fleet.stages import stages_of
from tests.epp.lab.fleet.small import fleet

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
    assert asks[0].parts == (PromptPart(0, 512), PromptPart(1, 512), PromptPart(2, 76))
    assert asks[2].parts == (PromptPart(0, 512), PromptPart(1, 512), PromptPart(3, 376))
    assert asks[1].parts[0].content > 2**32  # no other prompt has the tokens without a hash id


def test_a_trace_runs_and_its_shared_blocks_are_hits(tmp_path: Path) -> None:
    [stage] = stages_of(workload.choose(str(written(tmp_path, *LINES))), 1)
    records = fleet("tiered", endpoints=2).run(stage.source).records
    assert [record.refused for record in records] == ["", "", ""]
    assert records[2].hits.gpu == 1024


GOOD = '{"timestamp": 1, "input_length": 1000, "output_length": 5, "hash_ids": [1, 2]}'


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{", "trace.jsonl: line 2: "),
        ("[1, 2]", "line 2: [1, 2] is no JSON object"),
        ("{}", "line 2: timestamp is missing (a number of milliseconds from 0 to 1,000,000,000,000); input_length is "),
        (GOOD.replace(', "output_length": 5', ""), "line 2: output_length is missing (a whole number "),
        (GOOD.replace("output_length", "output_len"), "to 16,777,216; is output_len meant?)"),
        (GOOD.replace("1000", "0"), "line 2: input_length: 0 is not a whole number of tokens from 1 to 16,777,216"),
        (GOOD.replace("1000", '"1000"'), "line 2: input_length: '1000' is not a whole number of tokens"),
        (GOOD.replace("1000", "1e12"), "line 2: input_length: 1000000000000.0 is not"),
        (GOOD.replace(": 5", ": 1000000000000"), "line 2: output_length: 1000000000000 is not"),
        (GOOD.replace(": 5", ": -1").replace('p": 1', 'p": -1'), "1,000,000,000,000; output_length: -1 is not"),
        (GOOD.replace('p": 1', 'p": -1'), "line 2: timestamp: -1 is not a number of milliseconds from 0 to "),
        (GOOD.replace('p": 1', 'p": 1e300'), "line 2: timestamp: 1e+300 is not"),
        (GOOD.replace('p": 1', 'p": null'), "line 2: timestamp: None is not"),
        (GOOD.replace("[1, 2]", '["a"]'), "line 2: hash_ids: ['a'] is not a list of whole numbers from 0 to "),
        (GOOD.replace("[1, 2]", "[1]"), "line 2: hash_ids: 1 of them, and input_length 1,000 takes 2, one for"),
        (GOOD.replace("[1, 2]", "[1, 2, 3]"), "line 2: hash_ids: 3 of them"),
        (GOOD.replace("[1, 2]", "[]"), "line 2: hash_ids: 0 of them"),
        (GOOD.replace("hash_ids", "hash_id"), "line 2: hash_id is not known; is hash_ids meant?"),
        (GOOD.replace("hash_ids", "hashIds"), "line 2: hashIds is not known; is hash_ids meant?"),
    ],
)  # fmt: skip
def test_a_fault_is_named_with_its_line_and_key(tmp_path: Path, line: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        stages_of(workload.choose(str(written(tmp_path, GOOD, line))), 1)


@pytest.mark.parametrize("lines", [[], ["", "  "]])
def test_a_trace_without_requests_is_refused(tmp_path: Path, lines: list[str]) -> None:
    with pytest.raises(ConfigError, match="holds no request"):
        stages_of(workload.choose(str(written(tmp_path, *lines))), 1)


def test_another_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="AzurePublicDataset' is none of MooncakeTrace"):
        trace.read(written(tmp_path, *LINES), "AzurePublicDataset")
