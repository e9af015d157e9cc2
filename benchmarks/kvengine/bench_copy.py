"""How fast do KV blocks move between the device and host memory?

Fragments of 4 KiB to 4 MiB, and the KV caches of published models (their shapes are in ``copy_shapes.py``), to the
device, from it, and both at once; beside the raw copy of pinned memory, and beside batched copies with one descriptor
per fragment, all in one run. Then: how much slower a concurrent matrix product becomes, what pinning costs, and when
the first load is possible. Needs torch and the CUDA bindings; ``--host`` measures host memory alone, and needs neither.

Run: ``python -m benchmarks.kvengine.bench_copy [--host] [--json] [--mib N]``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from itertools import zip_longest
from typing import Any

import numpy as np

from benchmarks.kvengine.copy_rig import RAW_BYTES, CudaRig, HostRig, Rig, found, seconds
from benchmarks.kvengine.copy_shapes import FRAGMENT_SIZES, KIB, MODELS, Case, equal, of_model
from benchmarks.rig.machine import machine
from kvengine.copiers import Direction
from kvengine.copiers.base import JobId
from kvengine.copiers.cuda import ALWAYS, KernelBelow
from kvengine.cuda.driver import DeviceError
from kvengine.layout import Fragments

LOAD, STORE = Direction.LOAD, Direction.STORE
GB, GIB, MIB = 1e9, 1 << 30, 1 << 20
JOB_BYTES = 8 * MIB
HEADS = {
    "load": "load",
    "store": "store",
    "both": "both",
    "single_load": "load, 1:1 DMA",
    "single_store": "store, 1:1 DMA",
}
Row = dict[str, Any]


def best(measure: Callable[[], float], times: int = 5) -> float:
    """Return the median, after one repetition that does not count."""
    measure()
    return statistics.median(measure() for _ in range(times))


def moved(rig: Rig, load: list[Fragments], store: list[Fragments]) -> float:
    """Return the GB/s of these jobs, submitted in turn."""
    pairs = zip_longest(((LOAD, each) for each in load), ((STORE, each) for each in store))
    work = [each for pair in pairs for each in pair if each is not None]
    size = sum(int(fragments.sizes.sum()) for _, fragments in work)
    return size / best(lambda: seconds(rig.copier, work)) / GB


def raw(rig: Rig, room: int) -> dict[str, float]:
    return {
        "load": room / best(lambda: rig.raw_s([LOAD], room)) / GB,
        "store": room / best(lambda: rig.raw_s([STORE], room)) / GB,
        "both": 2 * room / best(lambda: rig.raw_s([LOAD, STORE], room)) / GB,
    }


def row(rig: Rig, case: Case, other: Case) -> Row:
    """Return one row. ``other`` has the same jobs in the other half of both memories, for the concurrent stores."""
    found: Row = {"case": case.name, "fragment_bytes": case.fragment_bytes}
    found["fragments"] = sum(len(each.sizes) for each in case.jobs)
    if isinstance(rig, CudaRig):
        rig.by(KernelBelow())
        found["single_load"] = moved(rig, case.single, [])
        found["single_store"] = moved(rig, [], other.single)
        rig.by(None)
    found["load"] = moved(rig, case.jobs, [])
    found["store"] = moved(rig, [], other.jobs)
    found["both"] = moved(rig, case.jobs, other.jobs)
    return found


def rows(rig: Rig, room: int) -> list[Row]:
    halves = ((rig.device, rig.host), (rig.device + room, rig.host + room))
    cases = [[equal(size, *at, room, JOB_BYTES) for at in halves] for size in FRAGMENT_SIZES]
    orders = [(model, in_order) for model in MODELS for in_order in (False, True)]
    cases += [[of_model(model, *at, room, in_order=in_order) for at in halves] for model, in_order in orders]
    return [row(rig, *each) for each in cases]


def overheads(rig: Rig) -> Row:
    """Return the µs per job and per fragment, apart from the bytes: of the copier, and of the caller's thread."""
    one = Fragments(*(np.array([each], dtype=np.int64) for each in (rig.device, rig.host, 64)))
    at = np.arange(4000, dtype=np.int64) * 64
    many = Fragments(rig.device + 2 * at, rig.host + at, np.full(4000, 64, dtype=np.int64))
    jobs = best(lambda: seconds(rig.copier, [(LOAD, one)] * 500)) / 500
    fragments = best(lambda: seconds(rig.copier, [(LOAD, many)])) / 4000

    def submitted() -> float:
        began = time.perf_counter()
        for number in range(200):
            rig.copier.submit(JobId(number), STORE, one)
        took = time.perf_counter() - began
        left = 200
        while left:
            left -= len(rig.copier.poll())
        return took / 200

    return {"job_us": jobs * 1e6, "fragment_us": fragments * 1e6, "submit_us": best(submitted) * 1e6}


def slowdowns(rig: CudaRig, room: int) -> Row:
    found = {}
    for name, size, below in (
        ("copy engines", 1 << 20, KernelBelow()),
        ("kernel", 8 * KIB, KernelBelow(ALWAYS, ALWAYS)),
    ):
        rig.by(below)
        cases = [equal(size, rig.device + at, rig.host + at, room, JOB_BYTES) for at in (0, room)]
        work = [each for a, b in zip(cases[0].jobs, cases[1].jobs, strict=True) for each in ((LOAD, a), (STORE, b))]
        found[name] = rig.slowdown(work)
    rig.by(None)
    return found


def targets(result: Row) -> list[tuple[str, str, str, bool]]:
    """Return each target, the measured value, and whether it is met. Source: the project's plan for GPUs."""
    peak, fragments = result["raw"], result["rows"][: len(FRAGMENT_SIZES)]
    found = []

    def share(name: str, want: float, sizes: Callable[[int], bool], *ways: str) -> None:
        least = min(each[w] / peak[w] for each in fragments if sizes(each["fragment_bytes"]) for w in ways)
        found.append((name, f"{want:.0%}", f"{least:.0%}", least >= want))

    share("of the one-way peak, fragments of 32 KiB and more", 0.95, lambda b: b >= 32 * KIB, "load", "store")
    share("of the one-way peak, fragments of 4 to 8 KiB", 0.85, lambda b: b <= 8 * KIB, "load", "store")
    share("of the raw both-ways peak, both at once", 0.90, lambda b: b >= 32 * KIB, "both")
    for name, most in (("copy engines", 0.01), ("kernel", 0.03)):
        lost = result["slowdown"][name]
        found.append((f"a matrix product beside the {name}: slower by", f"{most:.0%}", f"{lost:.1%}", lost <= most))
    per_gib = result["pinning_s_per_gib"]
    found.append(("pinning, s per GiB", "0.12", f"{per_gib:.3f}", per_gib <= 0.12))
    first = result["first_load_s"]
    found.append(("first load after, s", "2", f"{first:.2f}", first <= 2))
    return found


def measured(rig: Rig, room: int) -> Row:
    result: Row = {"device": rig.name, "chosen": rig.chosen, "raw": raw(rig, room), "rows": rows(rig, room)}
    result["overhead"] = overheads(rig)
    ready = rig.arena.statistics()
    result["first_load_s"] = rig.first_load_s
    result["ready_s_per_gib"] = (ready.all_ready_s or float("nan")) / (ready.ready_bytes / GIB)
    result["pinning_s_per_gib"] = ready.pin_total_s / (ready.ready_bytes / GIB)
    result["longest_pin_ms"] = ready.pin_max_s * 1e3
    if isinstance(rig, CudaRig):
        result["slowdown"] = slowdowns(rig, room)
        result["targets"] = [dict(zip(("what", "target", "measured", "met"), t, strict=True)) for t in targets(result)]
    result["machine"] = machine()
    return result


def say(result: Row, room: int) -> None:
    peak, over = result["raw"], result["overhead"]
    print(f"{result['device']}; {result['chosen']}")
    print(f"{result['machine']} at the end")
    print(
        f"{room // MIB} MiB in each direction, medians of 5; GB/s, and the share of the raw copy of the same direction"
    )
    print(
        f"raw, {RAW_BYTES // MIB} MiB at a time: "
        + ", ".join(f"{way} {rate:.1f}" for way, rate in peak.items())
        + "; both ways at once counts the bytes of both\n"
    )
    columns = [way for way in HEADS if way in result["rows"][0]]
    print(f"{'':37}{'fragments':>10}" + "".join(f"{HEADS[way]:>16}" for way in columns))
    for each in result["rows"]:
        cells = "".join(f"{each[c]:>10.2f} {each[c] / peak[c.removeprefix('single_')]:>5.0%}" for c in columns)
        print(f"{each['case']:37}{each['fragments']:>10}{cells}")
    print(f"\n64 bytes: {over['job_us']:.1f} µs a job, {over['fragment_us']:.2f} µs a fragment")
    print(f"submitting a store keeps the caller for {over['submit_us']:.1f} µs")
    print(f"memory ready: {result['ready_s_per_gib']:.2f} s per GiB, {result['pinning_s_per_gib']:.3f} of it pinning")
    print(f"the longest piece was pinned in {result['longest_pin_ms']:.1f} ms")
    print(f"first load done {result['first_load_s']:.2f} s after the start\n")
    print("pages of 16 tokens in one layer of one worker, 2 bytes an element:")
    for model in MODELS:
        shape = f"{model.layers} layers, {model.kv_heads} KV heads of {model.head_size}, {model.workers} workers"
        print(f"  {model.name}: {shape}: {model.page_bytes // KIB} KiB")
    print("  (gpt-oss-120b as if all its layers were full attention: half of them are not, and are not kept yet)")
    if "targets" not in result:
        print("\nThe targets are a GPU's: nothing here says whether they are met.")
        return
    print(f"\n{'target':60}{'':>8}{'measured':>10}")
    for each in result["targets"]:
        print(f"{each['what']:60}{each['target']:>8}{each['measured']:>10}  {'met' if each['met'] else 'MISSED'}")


def main() -> int:
    """Run from the command line; return 1 when there is no CUDA device."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", action="store_true", help="host memory alone")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--mib", type=int, help="in each direction; default 1024, with --host 256")
    arguments = parser.parse_args()
    room = (arguments.mib or (256 if arguments.host else 1024)) * MIB
    try:
        rig: Rig = HostRig(room) if arguments.host else CudaRig(room, *found())
    except (DeviceError, ImportError) as error:
        print(f"There is no CUDA device to measure ({error}); --host measures host memory alone.", file=sys.stderr)
        return 1
    try:
        result = measured(rig, room)
    finally:
        rig.close()
    if arguments.json:
        print(json.dumps(result, indent=2))
    else:
        say(result, room)
    return 0


if __name__ == "__main__":
    sys.exit(main())
