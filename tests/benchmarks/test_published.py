"""What guides have published: each figure's verdict, and that ours are right by hand."""

from __future__ import annotations

import json

import pytest

from benchmarks.simulator.published import figures, main
from benchmarks.simulator.published_figure import Figure, Verdict


@pytest.fixture(scope="module")
def found() -> list[Figure]:
    return figures()


def of(found: list[Figure], guide: str, what: str) -> Figure:
    (figure,) = [figure for figure in found if figure.guide == guide and what in figure.what]
    return figure


@pytest.mark.parametrize(
    ("guide", "what", "published", "ours", "verdict"),
    [
        ("CPU", "KV of a token", "0.0002 GB", "0.000262 GB", Verdict.WRONG),
        ("CPU", "a block of 16 tokens", "2.62 MB", "4.19 MB", Verdict.WRONG),
        ("CPU", "KV memory of an engine", "24.3 GB", "38.9 GB", Verdict.WRONG),  # 9,271 × 4 MiB
        ("CPU", "KV memory of 8 engines", "193.4 GB", "311.1 GB", Verdict.WRONG),
        ("CPU", "num_cpu_blocks", "100 GB", "172.0 GB", Verdict.WRONG),  # 41,000 × 4 MiB
        ("CPU", "lruCapacityPerServer", "41,000", "23,841", Verdict.WRONG),  # 100e9 / 4 MiB
        ("storage", "KV of a token, Llama", "320 KB", "320 KiB", Verdict.RIGHT),
        ("storage", "10,768 blocks", "55 GB", "56.5 GB", Verdict.ROUNDED),
        ("storage", "KV memory of 4 engines", "220 GB", "225.8 GB", Verdict.ROUNDED),
        ("storage", "KV of a token, Qwen3", "256 KB", "256 KiB", Verdict.RIGHT),
        ("storage", "8,474 blocks", "34.7 GB", "35.5 GB", Verdict.ROUNDED),
        ("storage", "KV memory of 8 engines", "277 GB", "284.3 GB", Verdict.ROUNDED),
        ("storage", "20 GB × 16", "320 GB", "320 GB", Verdict.RIGHT),
        ("storage", "64.42 GB × 4", "356 GB", "257.7 GB", Verdict.WRONG),
        ("storage", "30,000 tokens", "653 GiB", "522 GiB", Verdict.WRONG),
        ("storage", "system_prompt_len", "50,000", "30,000", Verdict.WRONG),
        ("storage", "50 groups of 50,000", "994 GiB", "958 GiB", Verdict.OFF),
        ("storage", "50 groups of 70,000", "1.3 TiB", "1.23 TiB", Verdict.OFF),
        ("reports", "lruCapacityPerServer", "82,000", "6,400", Verdict.WRONG),  # 12.8 times too many
        ("reports", "working set", "708 GiB", "1,133 GiB", Verdict.WRONG),
        ("reports", "200 GiB", "819,200", "819,200", Verdict.RIGHT),
        ("LMCache", "10,000 tokens", "1.5 GB", "1.47 GB", Verdict.ROUNDED),
    ],
)
def test_a_published_figure_stands_beside_ours_and_is_judged(
    found: list[Figure], guide: str, what: str, published: str, ours: str, verdict: Verdict
) -> None:
    figure = of(found, guide, what)
    assert (figure.published, figure.ours, figure.verdict) == (published, ours, verdict)


def test_what_is_wrong_says_why(found: list[Figure]) -> None:
    assert all(figure.why for figure in found if figure.verdict in (Verdict.WRONG, Verdict.OFF))


@pytest.mark.parametrize(
    ("sum_of_ours", "said", "within"),
    [
        (16 * 160 * 1024, 2.62e6, 2e3),
        (2 * 40 * 8 * 128 * 2, 160 * 1024, 0),  # Qwen3-14B's 40 layers
        (50 * (30_000 + 50 * 256) * 320 * 1024 / 2**30, 653, 0.5),
        (50 * (50_000 + 50 * (256 + 1024)) * 320 * 1024 / 2**30, 1739, 1),
        (4_640_000 * 160 * 1024 / 2**30, 708, 0.5),
        (8 * 24.3, 194.4, 0.01),
        (8 * 34, 272, 0),
    ],
)
def test_the_explanations_are_sums_that_add_up(sum_of_ours: float, said: float, within: float) -> None:
    assert sum_of_ours == pytest.approx(said, abs=within)


def test_blocks_that_engines_were_seen_to_have_are_within_the_estimate(found: list[Figure]) -> None:
    blocks = [figure for figure in found if figure.what.startswith("GPU blocks")]
    assert [figure.published for figure in blocks] == ["9,271", "10,768", "8,474", "18,625"]
    assert {figure.verdict for figure in blocks} == {Verdict.RIGHT}


def test_published_figures_are_printed_in_both_forms(capsys: pytest.CaptureFixture[str]) -> None:
    main([])
    assert "653 is what they take at 320 KiB a token" in " ".join(capsys.readouterr().out.split())
    main(["--json"])
    assert {figure["verdict"] for figure in json.loads(capsys.readouterr().out)} == {"right", "rounded", "off", "wrong"}
