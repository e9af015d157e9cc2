"""Does the simulator reproduce published tables: llm-d's CPU offloading guide (v0.4) and its ladder of June 2026?

Run: ``python -m benchmarks.simulator.simulator_fidelity [--seeds N] [--only PART]``. Time is virtual, so a busy machine
changes nothing.

``docs/simulator.md`` lists the data that each constant was calibrated on. In the tables here, *calibrated* rows were
fitted and prove nothing; *predicted* rows were not used.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec

from epp.lab.fleet import engines, policies, workload
from epp.lab.fleet.engines import CALIBRATION, EngineKind
from epp.lab.fleet.figures import Figures, Interval, changes, interval
from epp.lab.fleet.fleet import FleetSettings
from epp.lab.fleet.trial import Result, Trial, run

WITHOUT_REPORTS = FleetSettings(tells_tiers=False)
"""The engines of the tables did not report what their tiers hold."""


class Row(NamedTuple):
    """One row of a published table. Units: seconds, tokens per second."""

    mean_ttft_s: float
    p90_ttft_s: float
    mean_e2e_s: float
    p90_e2e_s: float
    tokens_per_s: float


COLUMNS: tuple[tuple[str, str, Callable[[Figures], float], str], ...] = (
    ("mean TTFT", "mean_ttft_s", lambda f: f.mean_ttft_s, ".2f"),
    ("P90 TTFT", "p90_ttft_s", lambda f: f.p90_ttft_s, ".2f"),
    ("mean E2E", "mean_e2e_s", lambda f: f.mean_e2e_s, ".1f"),
    ("P90 E2E", "p90_e2e_s", lambda f: f.p90_e2e_s, ".1f"),
    ("tok/s", "tokens_per_s", lambda f: f.tokens_per_s, ",.0f"),
)

# llm-d v0.4, "Offloading Prefix Cache to CPU Memory".
HIGH = (Row(9.0, 20.9, 37.8, 49.7, 38534.8), Row(6.7, 20.2, 30.9, 44.2, 46751.0), Row(6.5, 18.8, 30.8, 43.0, 46910.6))
LOW = (Row(0.12, 0.09, 18.4, 19.6, 23389.6), Row(0.13, 0.11, 18.6, 20.6, 23032.6), Row(0.15, 0.10, 18.9, 19.6, 22772.5))
# llm-d, "Offloading Prefix Cache to Shared Storage": its baselines, which offload to CPU memory only.
STORAGE = (
    ("storage-50k", "llama-3.3-70b-tp4-h100", None, None, Row(25.38, 37.74, 56.21, 69.69, 18962)),
    ("storage-70k", "llama-3.3-70b-tp4-h100", None, None, Row(58.02, 74.75, 87.99, 105.46, 16825)),
    ("storage-50k", "llama-3.3-70b-tp4-h100", None, 64 * 10**9 // (320 * 1024), Row(27.11, 41.71, 57.06, 72.28, 18682)),
    ("storage-30k", "qwen3-32b-tp2-h100", 8474 * 16, 64 * 10**9 // (256 * 1024), Row(2.24, 5.14, 22.21, 26.6, 27984)),
)
REQUESTS = (450, 900, 1800)
"""The guide does not have the number of requests; 450 is each prompt once."""
CHOSEN_REQUESTS = 900

# llm-d, tiered prefix cache, vLLM Qwen3-32B, 8 x TP2 H100, June 2026 (rows 15, 25, 30, 35 from its history).
HBM = (
    Row(1.62, 2.65, 11.98, 21.60, 74638), Row(8.08, 16.61, 26.28, 32.60, 122388),
    Row(23.19, 43.64, 41.79, 60.08, 121248), Row(43.67, 78.13, 62.29, 92.14, 114663),
    Row(61.01, 110.00, 79.91, 128.00, 113870), Row(78.79, 143.67, 97.77, 160.89, 118509),
    Row(97.24, 174.85, 116.54, 193.17, 116009), Row(115.57, 206.39, 134.78, 223.93, 115645),
)  # fmt: skip
HBM_AND_CPU = (
    Row(1.17, 1.79, 11.49, 20.25, 82880), Row(0.41, 1.31, 6.97, 9.23, 167028),
    Row(0.38, 0.48, 7.66, 9.16, 247733), Row(0.89, 2.66, 9.03, 11.22, 300749),
    Row(4.80, 10.87, 13.24, 19.42, 318590), Row(12.06, 23.01, 20.58, 31.07, 328334),
    Row(19.28, 36.31, 27.81, 44.59, 324512), Row(25.38, 48.14, 33.95, 56.29, 331213),
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10, help="runs of the guide's tables; the ladder has a third")
    parser.add_argument("--only", choices=("calibration", "ladder", "guide", "storage"), help="one part")
    args = parser.parse_args()
    ladder_seeds = max(1, args.seeds // 3)
    parts = {
        "calibration": lambda: calibrate(ladder_seeds),
        "ladder": lambda: ladder(ladder_seeds),
        "guide": lambda: guide(args.seeds),
        "storage": lambda: storage(ladder_seeds),
    }
    for part in [args.only] if args.only else parts:
        parts[part]()


def simulate(name: str, engine: EngineKind, policy: str, seeds: int, requests: int | None = None) -> list[Result]:
    """Run a workload for each seed, with ``requests`` requests in its only stage unless None."""
    config = workload.choose(name)
    if requests is not None:
        stage = msgspec.structs.replace(config.load.stages[0], num_requests=requests)
        config = msgspec.structs.replace(config, load=msgspec.structs.replace(config.load, stages=(stage,)))
    trial = Trial(
        policy=policies.choose(policy), workload=name, config=config, engine=engine, endpoints=engine.endpoints,
        seed=0, settings=WITHOUT_REPORTS,
    )  # fmt: skip
    return [run(msgspec.structs.replace(trial, seed=seed)) for seed in range(1, seeds + 1)]


def calibrate(seeds: int) -> None:
    """Print the errors of the ladder's HBM-only half for several factors of prefill time."""
    print(
        "calibration: prefill's linear layers, times the roofline's; the ladder's HBM-only half without its first rung"
    )
    print(f"{'factor':>8}{'mean E2E: root mean square':>30}{'bias':>8}{'tok/s: root mean square':>28}{'bias':>8}")
    for factor in (0.9, 1.0, 1.05, 1.09, 1.15, 1.2, 1.3):
        engine = engines.choose("qwen3-32b-tp2-h100-full", None, 0)
        engine = replace(engine, calibration=replace(CALIBRATION, prefill=factor))
        results = simulate("ladder-16k", engine, "guide", seeds)
        line = f"{factor:8.2f}"
        for attribute, width in (("mean_e2e_s", 30), ("tokens_per_s", 28)):
            off = [
                math.log(mean(results, n, attribute) / getattr(row, attribute)) for n, row in enumerate(HBM) if n > 0
            ]
            rms = math.sqrt(math.fsum(x * x for x in off) / len(off))
            line += f"{rms:{width}.1%}{math.fsum(off) / len(off):8.1%}"
        print(line, flush=True)
    print()


def mean(results: Sequence[Result], stage: int, attribute: str) -> float:
    return interval([getattr(result.stages[stage].figures, attribute) for result in results]).mean


def ladder(seeds: int) -> None:
    """Print both halves of the ladder; the second half was not fitted."""
    print(f"ladder-16k, 8 x Qwen3-32B TP2 on H100, the guide's router, {seeds} seeds: simulated (published)")
    full = engines.choose("qwen3-32b-tp2-h100-full")
    arms = [
        (title, simulate("ladder-16k", engine, "guide", seeds), rows)
        for title, engine, rows in (
            ("HBM only (calibrated)", replace(full, cpu_tokens=0), HBM),
            ("HBM and CPU (predicted)", full, HBM_AND_CPU),
        )
    ]
    for title, results, rows in arms:
        print(f"\n{title}")
        print(f"{'requests/s':>10}" + "".join(f"{name:>25}" for name, *_ in COLUMNS))
        for n, row in enumerate(rows):
            rate = results[0].stages[n].name.partition(" ")[0]
            print(f"{rate:>10}" + cells([result.stages[n].figures for result in results], row))
    print("\nthroughput that the CPU tier adds")
    print(f"{'requests/s':>10}{'simulated':>20}{'published':>12}{'off by':>12}")
    for n, (without, with_cpu) in enumerate(zip(HBM, HBM_AND_CPU, strict=True)):
        base, those = ([result.stages[n].figures for result in results] for _, results, _ in arms)
        gain = changes(those, base, lambda f: f.tokens_per_s)
        published = with_cpu.tokens_per_s / without.tokens_per_s - 1
        rate = arms[0][1][0].stages[n].name.partition(" ")[0]
        print(f"{rate:>10}{percent(gain):>20}{published:>+12.1%}{100 * (gain.mean - published):>+9.1f} pp")


def guide(seeds: int) -> None:
    """Print the tables of llm-d v0.4's guide, with its own router."""
    for name, rows in (("high-cache", HIGH), ("low-cache", LOW)):
        for requests in REQUESTS:
            chosen = " (taken)" if requests == CHOSEN_REQUESTS else ""
            print(f"\n{name}, llm-d v0.4's router, {requests} requests{chosen}, {seeds} seeds: simulated (published)")
            print(f"{'':24}" + "".join(f"{title:>25}" for title, *_ in COLUMNS))
            old, new = engines.choose("qwen3-32b-tp2-h100-v0.4"), engines.choose("qwen3-32b-tp2-h100")
            arms = (
                ("baseline", replace(old, cpu_tokens=0), rows[0]),
                ("native offloading", old, rows[1]),
                ("LMCache", replace(new, offload_step_s=old.offload_step_s), rows[2]),
            )
            base: list[Figures] = []
            for title, engine, row in arms:
                those = [result.whole for result in simulate(name, engine, "seeds", seeds, requests)]
                base = base or those
                print(f"{title:24}" + cells(those, row))
                if those is not base:
                    gains(those, base, row, rows[0])


def storage(seeds: int) -> None:
    """Print the storage guide's tables: another model, other GPUs, longer prompts; nothing was fitted."""
    print(f"\nstorage guide's baselines (predicted), llm-d v0.4's router, {seeds} seeds: simulated (published)")
    print(f"{'':48}" + "".join(f"{title:>25}" for title, *_ in COLUMNS))
    for name, kind, gpu_tokens, cpu_tokens, row in STORAGE:
        engine = engines.choose(kind, gpu_tokens, cpu_tokens)
        those = [result.whole for result in simulate(name, engine, "seeds", seeds)]
        title = f"{name}, {engine.model.partition('/')[2][:13]}, {engine.cpu_tokens:,} in CPU"
        print(f"{title:48}" + cells(those, row), flush=True)


def gains(those: Sequence[Figures], base: Sequence[Figures], row: Row, base_row: Row) -> None:
    line = f"{'':24}"
    for _, attribute, value, _ in COLUMNS:
        published = getattr(row, attribute) / getattr(base_row, attribute) - 1
        gain = changes(those, base, value)
        line += f"{f'{percent(gain)} ({published:+.1%})':>25}"
    off = 100 * (changes(those, base, lambda f: f.tokens_per_s).mean - (row.tokens_per_s / base_row.tokens_per_s - 1))
    print(f"{line}   throughput off by {off:+.1f} pp")


def cells(those: Sequence[Figures], row: Row) -> str:
    return "".join(
        f"{f'{interval([value(figures) for figures in those]).mean:{form}} ({getattr(row, attribute):{form}})':>25}"
        for _, attribute, value, form in COLUMNS
    )


def percent(share: Interval) -> str:
    margin = "" if math.isnan(share.margin) else f"±{100 * share.margin:.1f}"
    return f"{100 * share.mean:+.1f}{margin}%"


if __name__ == "__main__":
    main()
