"""For any traffic, nothing is lost or leaked, memory is never exceeded, and caches never change a response."""

from hypothesis import given, settings
from hypothesis import strategies as st

from epp.lab.engine.job import Job
from epp.lab.engine.preset import Preset
from tests.epp.lab.engine.bench import Bench, tiny

PRESET = st.builds(
    lambda gpu, cpu, seqs, budget, load: tiny(
        gpu_blocks=gpu,
        cpu_blocks=cpu,
        max_model_len=24,
        max_num_seqs=seqs,
        max_batched_tokens=budget,
        load_bytes_per_s=load,
        store_bytes_per_s=load,
    ),
    st.integers(6, 20),
    st.integers(0, 12),
    st.integers(1, 6),
    st.integers(6, 20),  # at least max_num_seqs: each decoding sequence needs a token
    st.sampled_from([0.5, 16.0, 1e9]),
)
ARRIVALS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.5, 1.25, 7.0]),  # after the one before
        st.sampled_from("pqr"),
        st.integers(1, 18),
        st.integers(1, 6),
        st.one_of(st.none(), st.sampled_from([0.0, 1.0, 2.5, 6.0])),  # aborted so long after
    ),
    max_size=25,
)


@settings(max_examples=200, deadline=None)
@given(PRESET, ARRIVALS)
def test_every_job_ends_or_was_aborted_and_all_blocks_come_back(
    preset: Preset, arrivals: list[tuple[float, str, int, int, float | None]]
) -> None:
    bench = Bench(preset)
    at = 0.0
    moves: list[tuple[float, int, Job | None]] = []
    for n, (gap, prefix, prompt, output, abort_after) in enumerate(arrivals):
        at += gap
        moves.append((at, n, Job(str(n), tuple((prefix, b) for b in range(prompt // 4)), prompt, output)))
        if abort_after is not None:
            moves.append((at + abort_after, n, None))
    aborted: set[str] = set()
    for when, n, job in sorted(moves, key=lambda move: move[0]):
        if job is not None:
            bench.submit(job, when)
        elif bench.abort(str(n), when):
            aborted.add(str(n))
    bench.run()
    assert set(bench.finished) | aborted == {str(n) for n in range(len(arrivals))}
    assert not set(bench.finished) & aborted
    assert (bench.engine.running, bench.engine.waiting, bench.engine.gpu.used) == (0, 0, 0)
    assert bench.engine.next_at() is None
    for name, finished in bench.finished.items():
        started = bench.started[name]
        assert started.submitted_at <= started.admitted_at <= started.at <= finished.at
        hits = started.hits
        assert hits.gpu + hits.cpu < started.job.prompt_tokens  # at least one token is always computed
        assert (hits.gpu + hits.cpu) % preset.block_tokens == 0


@given(st.lists(st.tuples(st.sampled_from("pqrs"), st.integers(1, 20)), max_size=12))
def test_alone_a_warm_request_never_starts_later_than_a_cold_one(prompts: list[tuple[str, int]]) -> None:
    """The link is so fast that loading is free."""
    bench = Bench(tiny(load_bytes_per_s=1e12, gpu_blocks=10, max_model_len=40))
    for n, (prefix, length) in enumerate(prompts):
        keys = tuple((prefix, block) for block in range(length // 4))
        bench.serve(Job(str(n), keys, length, 2), at=n * 100.0)
        cold = Bench(tiny())
        cold.serve(Job("cold", keys, length, 2))
        assert bench.ttft(str(n)) <= cold.ttft("cold") + 1e-9
