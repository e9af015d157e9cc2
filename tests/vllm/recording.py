"""Records the KV events of a real vLLM with kvengine, and what it then finds in its caches.

    python -m tests.vllm.recording FILE

writes a recording for the tests that run without vLLM: ``tests/data/kv-events-vllm.msgpack``.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import zmq

from tests.vllm.engine import Engine, Tokens, engine, prompts
from tests.vllm.model import make_model

if TYPE_CHECKING:
    from vllm.config import KVEventsConfig

CHUNK = 64
GPU_BLOCKS = 64
CPU_BLOCKS = 96
ASKED = 40


class Found(msgspec.Struct):
    """One request: the batches published before it, and what the engine then had cached."""

    batches: int
    prompt: Tokens
    gpu: int
    """Tokens that were found in GPU memory."""
    cpu: int
    """Tokens that were loaded from the CPU tier, behind those."""


class Recording(msgspec.Struct):
    """All batches that were published, and everything that was found."""

    batches: list[bytes]
    found: list[Found]
    salted: list[Tokens]
    """Prompts that were sent with a salt: nothing of them is held without it."""


class Addresses(NamedTuple):
    events: str
    replay: str


def addresses(folder: Path) -> Addresses:
    """Return addresses within ``folder``, which no other process uses."""
    return Addresses(f"ipc://{folder}/events", f"ipc://{folder}/replay")


def published(where: Addresses) -> KVEventsConfig:
    """Return the engine's options that publish events at these addresses."""
    from vllm.config import KVEventsConfig

    return KVEventsConfig(
        enable_kv_cache_events=True, publisher="zmq", endpoint=where.events, replay_endpoint=where.replay
    )


def record(tested: Engine, replay: str) -> Recording:
    """Send random prompts, some of them again; both tiers should be too small for them."""
    from vllm import SamplingParams

    random = Random(3)
    pool = [prompts(1, tokens, seed=tokens)[0] for tokens in (130, 300, 420, 610, 700)]
    pool += [each[:cut] + prompts(1, 150, seed=cut)[0] for each, cut in zip(pool[1:], (96, 200, 448, 512), strict=True)]
    salted = prompts(1, 200, seed=999)
    sampling = SamplingParams(
        temperature=0, max_tokens=2, detokenize=False, extra_args={"kv_transfer_params": {"kvengine_report": True}}
    )
    found: list[Found] = []
    for number in range(ASKED):
        if number == ASKED // 2:
            tested.forget_gpu()
        if number == 5:
            tested.llm.generate([{"prompt_token_ids": salted[0], "cache_salt": "pepper"}], use_tqdm=False)
        tested.settle()
        prompt = random.choice(pool)
        before = len(replayed(replay))
        (answer,) = tested.llm.generate([{"prompt_token_ids": prompt}], sampling, use_tqdm=False)
        by_tier: dict[str, int] = answer.kv_transfer_params["cached_tokens_by_tier"]
        found.append(Found(before, prompt, by_tier["gpu"], by_tier["cpu"]))
    tested.settle()
    return Recording(replayed(replay), found, salted)


def replayed(replay: str) -> list[bytes]:
    """Return all batches so far, as the engine replays them."""
    batches: list[bytes] = []
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.connect(replay)
        dealer.send_multipart([b"", bytes(8)])
        while True:
            assert dealer.poll(20_000), "no answer from the replay endpoint"
            *_, number, payload = dealer.recv_multipart()
            if not payload:
                return batches
            assert int.from_bytes(number, "big") == len(batches)
            batches.append(payload)


def main() -> int:
    """Write a recording to a file."""
    with tempfile.TemporaryDirectory() as name:
        where = addresses(Path(name))
        with engine(
            make_model(Path(name)), {"num_cpu_blocks": CPU_BLOCKS, "chunk_size": CHUNK}, enable_prefix_caching=True,
            kv_events_config=published(where), num_gpu_blocks_override=GPU_BLOCKS, max_model_len=1024,
        ) as tested:  # fmt: skip
            recording = record(tested, where.replay)
        Path(sys.argv[1]).write_bytes(msgspec.msgpack.encode(recording))
    return 0


if __name__ == "__main__":
    sys.exit(main())
