"""Equal tokens have different keys if anything makes their KV different."""

from __future__ import annotations

from dataclasses import replace

from vllm import SamplingParams
from vllm.lora.request import LoRARequest
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.request import Request

from kvengine.connector.chunking import Chunking
from kvengine.connector.geometry import Geometry
from kvengine.index import ChunkKey
from kvengine.request_state import RequestState

SHAPE = Geometry(
    block_tokens=16, block_bytes=1024, chunk_blocks=2, slots=8, workers=1, workers_here=1, prefix_caching=True,
    loads=True, stores=True, events=False, salt=b"model--a",
)  # fmt: skip


def keys(
    shape: Geometry = SHAPE, *, cache_salt: str | None = None, lora: int | None = None, image: str | None = None
) -> list[ChunkKey]:
    init_none_hash(sha256)
    place = PlaceholderRange(offset=3, length=20)
    images = (
        [MultiModalFeatureSpec(data=None, modality="image", identifier=image, mm_position=place)] if image else None
    )
    request = Request(
        "r", list(range(100)), SamplingParams(max_tokens=1), None, cache_salt=cache_salt,
        lora_request=LoRARequest(f"lora-{lora}", lora, f"/lora/{lora}") if lora else None,
        mm_features=images, block_hasher=get_request_block_hasher(16, sha256),
    )  # fmt: skip
    return Chunking(shape, decoded=True).keys(RequestState("r"), request, 3)


def test_equal_requests_have_equal_keys_and_every_chunk_its_own() -> None:
    assert keys() == keys()
    assert len(set(keys())) == 3
    assert keys(cache_salt="a") == keys(cache_salt="a")


def test_salts_adapters_images_and_models_share_no_chunk() -> None:
    different = [
        keys(),
        keys(cache_salt="a"),
        keys(cache_salt="b"),
        keys(lora=1),
        keys(lora=2),
        keys(cache_salt="a", lora=1),
        keys(image="cat"),
        keys(image="dog"),
        keys(replace(SHAPE, salt=b"model--b")),
    ]
    every = [key for several in different for key in several]
    assert len(set(every)) == len(every)


def test_a_session_whose_last_token_vllm_takes_back_has_the_keys_of_what_comes_instead() -> None:
    """vLLM's scheduler does this when a streaming request gets more input."""
    init_none_hash(sha256)
    request = Request(
        "r", list(range(64)), SamplingParams(max_tokens=9), None, block_hasher=get_request_block_hasher(16, sha256)
    )
    chunks, state = Chunking(SHAPE, decoded=True), RequestState("r")
    before = chunks.keys(state, request, 2)
    del request._all_token_ids[63:]
    del request.block_hashes[63 // 16 :]
    request._all_token_ids.extend([7] * 33)
    request.update_block_hashes()
    after = chunks.keys(state, request, 3)
    assert after == chunks.keys(RequestState("r"), request, 3)
    assert (after[0], after[1] == before[1]) == (before[0], False)
    assert chunks.keys(state, request, 3) == after
