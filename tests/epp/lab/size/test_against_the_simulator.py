"""The computed placement of a workload is compared with the hits of a simulated fleet."""

from __future__ import annotations

import pytest

from epp.lab.fleet import engines, workload
from epp.lab.fleet.fleet import FleetSettings
from epp.lab.fleet.policies import BY_NAME
from epp.lab.fleet.trial import Trial, run
from epp.lab.size.endpoint import ReportedFacts
from epp.lab.size.fleet import fleet_of
from epp.lab.size.options import SizeOptions, WorkloadOptions
from epp.lab.size.sizing import size
from epp.lab.size.workload import workload_of


@pytest.mark.parametrize("cpu_tokens", [0, 150_016, 656_000])
@pytest.mark.parametrize("name", ["high-cache", "low-cache"])
def test_requests_that_go_anywhere_are_found_as_often_as_in_the_simulator(name: str, cpu_tokens: int) -> None:
    engine = engines.choose("qwen3-32b-tp2-h100", None, cpu_tokens)
    trial = Trial(
        policy=BY_NAME["round-robin"], workload=name, config=workload.choose(name), engine=engine, endpoints=8, seed=1,
        settings=FleetSettings(),
    )  # fmt: skip
    seen = run(trial).whole
    options = SizeOptions(model="qwen3-32b", gpu="h100", ranks=2, endpoints=8, gpu_blocks=9271,
                          cpu_bytes=cpu_tokens * 256 * 1024)  # fmt: skip
    load = workload_of(WorkloadOptions(preset=name), 8)
    assert load is not None
    sized = size(fleet_of(options, ReportedFacts()), load).workload
    assert sized is not None
    later = load.requests - load.num_groups
    shared = later * load.system_prompt_len / (load.requests * load.prompt_tokens)  # what could be found, of all tokens
    gpu, both = sized.homes[0].scattered_hit_share, 1 - sized.scattered_recomputed_share
    assert seen.gpu_share / shared == pytest.approx(gpu, abs=0.04)
    assert (seen.gpu_share + seen.cpu_share) / shared == pytest.approx(both, abs=0.04)
