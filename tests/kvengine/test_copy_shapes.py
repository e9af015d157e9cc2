"""The copy benchmark copies what it is documented to copy."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.kvengine.bench_copy import targets
from benchmarks.kvengine.copy_shapes import CHUNK_BLOCKS, FRAGMENT_SIZES, KIB, MODELS, equal, of_model
from kvengine.layout import Fragments

DEVICE, HOST, ROOM = 1 << 40, 1 << 30, 96 << 20


def placed(some: list[Fragments]) -> list[tuple[int, int]]:
    """Return source and target of every piece of 512 bytes."""
    pairs = []
    for each in some:
        for device, host, size in zip(*(array.tolist() for array in each), strict=True):
            pairs += [(device + at, host + at) for at in range(0, size, 512)]
    return sorted(pairs)


def test_pages_are_those_of_the_published_shapes() -> None:
    assert [model.page_bytes // KIB for model in MODELS] == [32, 16, 32, 64]
    # Bytes per token in one worker, as commonly published.
    assert [model.page_bytes * model.layers // 16 // KIB for model in MODELS] == [128, 80, 72, 112]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
@pytest.mark.parametrize("in_order", [False, True])
def test_a_model_s_case_moves_each_of_its_blocks_once_however_it_is_cut(model: object, in_order: bool) -> None:
    assert model in MODELS
    case = of_model(model, DEVICE, HOST, ROOM, in_order=in_order)  # type: ignore[arg-type]
    assert placed(case.jobs) == placed(case.single)
    assert (np.concatenate([each.sizes for each in case.single]) == case.fragment_bytes).all()
    assert case.copied_bytes % (case.fragment_bytes * CHUNK_BLOCKS) == 0
    devices, hosts = zip(*placed(case.jobs), strict=True)
    assert len(set(devices)) == len(devices)
    assert min(hosts) == HOST
    assert max(hosts) < HOST + ROOM
    merged = sum(len(each.sizes) for each in case.jobs)
    apart = sum(len(each.sizes) for each in case.single)
    assert merged * 8 < apart if in_order else merged > apart * 0.7


@pytest.mark.parametrize("size", FRAGMENT_SIZES)
def test_fragments_of_one_size_fill_the_room_and_have_no_neighbours(size: int) -> None:
    case = equal(size, DEVICE, HOST, ROOM, 8 << 20)
    assert case.copied_bytes == pytest.approx(ROOM, rel=0.01)
    for job in case.jobs:
        assert (np.diff(job.device) != size).all()


def result(share: float, slower: float) -> dict[str, object]:
    peak = {"load": 50.0, "store": 50.0, "both": 80.0}
    rows = [{"fragment_bytes": size} | {way: share * peak[way] for way in peak} for size in FRAGMENT_SIZES]
    slowdown = {"copy engines": slower, "kernel": slower}
    return {"raw": peak, "rows": rows, "slowdown": slowdown, "pinning_s_per_gib": 0.1, "first_load_s": 1.0}


def test_targets_are_met_or_missed_by_the_figures() -> None:
    assert [met for *_, met in targets(result(0.97, 0.005))] == [True] * 7
    assert [met for *_, met in targets(result(0.92, 0.02))] == [False, True, True, False, True, True, True]
    assert [met for *_, met in targets(result(0.5, 0.2))] == [False] * 5 + [True] * 2
