"""The other APIs of vLLM that a simulated endpoint serves, and several names for its model."""

import asyncio
import json
from typing import Any

import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

from epp.extproc.usage import DocumentUsage, EventUsage
from epp.lab.engine.served import Adapter, ServedModels
from tests.epp.lab.engine.serving import TEN_BLOCKS, Served, play, until

ASK: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": TEN_BLOCKS}]}
TEXT = "The model behind this endpoint is si"
"""A text of nine tokens."""
MODELS = ServedModels("org/m", ["m", "also-m"], [Adapter("sql", "/adapters/sql")])


async def events_of(server: Served, path: str, body: Any) -> tuple[list[tuple[str, Any]], bytes]:
    async with server.http.post(path, json={**body, "stream": True}) as response:
        assert response.status == 200
        raw = await response.read()
    blocks = [block.split("\n") for block in raw.decode().strip().split("\n\n")]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in blocks], raw


def test_a_message_has_anthropics_form_and_counts_cached_tokens_apart() -> None:
    async def scenario(server: Served) -> None:
        status, cold = await server.post("/v1/messages", {**ASK, "system": "be brief"})
        assert status == 200
        assert (cold["type"], cold["role"], cold["stop_reason"]) == ("message", "assistant", "max_tokens")
        assert cold["content"] == [{"type": "text", "text": TEXT}]
        _, warm = await server.post("/v1/messages", {**ASK, "system": "be brief"})
        _, counted = await server.post("/v1/messages/count_tokens", {**ASK, "system": "be brief"})
        usage = warm["usage"]
        assert usage["cache_read_input_tokens"] > 40
        assert usage["cache_read_input_tokens"] + usage["input_tokens"] == counted["input_tokens"]
        assert usage["output_tokens"] == 9

    play(scenario)


def test_a_streamed_message_has_the_events_of_anthropics_and_the_picker_reads_its_usage() -> None:
    async def scenario(server: Served) -> None:
        await server.post("/v1/messages", ASK)
        events, raw = await events_of(server, "/v1/messages", ASK)
        assert all(name == body["type"] for name, body in events)
        names = [name for name, _ in events]
        assert names[:2] == ["message_start", "content_block_start"]
        assert names[-3:] == ["content_block_stop", "message_delta", "message_stop"]
        deltas = [body["delta"]["text"] for name, body in events if name == "content_block_delta"]
        assert "".join(deltas) == TEXT
        reader = EventUsage()
        reader.feed(raw)
        assert reader.usage is not None
        assert reader.usage.completion_tokens == 9
        assert reader.usage.cached_tokens is not None
        assert reader.usage.prompt_tokens > reader.usage.cached_tokens >= 40

    play(scenario)


def test_a_refused_message_has_the_form_of_anthropics_errors() -> None:
    async def scenario(server: Served) -> None:
        for body, status, kind in (
            ({**ASK, "max_tokens": 0}, 400, "invalid_request_error"),
            ({**ASK, "model": "other"}, 404, "not_found_error"),
        ):
            code, answer = await server.post("/v1/messages", body)
            assert code == status
            assert (answer["type"], answer["error"]["type"]) == ("error", kind)

    play(scenario)


def test_the_openai_client_reads_a_response() -> None:
    async def scenario(server: Served) -> None:
        async with server.client as client:
            await client.responses.create(model="m", input=TEN_BLOCKS, instructions="be brief")
            answer = await client.responses.create(model="m", input=TEN_BLOCKS, instructions="be brief")
            cut = await client.responses.create(
                model="m", input=[{"role": "user", "content": "hello"}], max_output_tokens=9
            )
        assert answer.status == "completed"
        assert answer.usage is not None
        assert answer.usage.output_tokens == 64
        assert answer.usage.input_tokens_details.cached_tokens > 40
        assert (cut.status, cut.output_text) == ("incomplete", TEXT)
        assert cut.incomplete_details is not None
        assert cut.incomplete_details.reason == "max_output_tokens"

    play(scenario)


def test_the_openai_client_reads_a_streamed_response() -> None:
    async def scenario(server: Served) -> None:
        async with server.client as client:
            stream = await client.responses.create(model="m", input="hello", max_output_tokens=9, stream=True)
            events = [event async for event in stream]
            async with client.responses.stream(model="m", input="hello") as managed:
                last = await managed.get_final_response()
        assert [event.sequence_number for event in events] == list(range(len(events)))
        assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == TEXT
        assert events[-1].type == "response.incomplete"
        assert len(last.output_text) == 64 * 4

    play(scenario)


def test_the_picker_reads_the_usage_of_responses() -> None:
    async def scenario(server: Served) -> None:
        body = {"model": "m", "input": TEN_BLOCKS, "max_output_tokens": 9}
        _, whole = await server.post("/v1/responses", body)
        document, events = DocumentUsage(), EventUsage()
        document.feed(json.dumps(whole).encode())
        document.end()
        _, raw = await events_of(server, "/v1/responses", body)
        events.feed(raw)
        for reader in (document, events):
            assert reader.usage is not None
            assert (reader.usage.prompt_tokens, reader.usage.completion_tokens) == (46, 9)

    play(scenario)


def test_the_openai_client_reads_embeddings() -> None:
    async def scenario(server: Served) -> None:
        async with server.client as client:
            packed = await client.embeddings.create(model="m", input=["one", "two", "one"], dimensions=8)
            plain = await client.embeddings.create(model="m", input="one", encoding_format="float", dimensions=8)
        one, two, again = (item.embedding for item in packed.data)
        assert one == again != two
        assert plain.data[0].embedding == pytest.approx(one)
        assert sum(number * number for number in one) == pytest.approx(1.0)
        assert packed.usage.prompt_tokens == packed.usage.total_tokens == 3

    play(scenario)


def test_tokens_are_those_that_the_engine_counts_and_make_the_text_again() -> None:
    async def scenario(server: Served) -> None:
        text = "Überall: " + TEN_BLOCKS
        _, said = await server.post("/tokenize", {"model": "m", "prompt": text, "return_token_strs": True})
        answer = await server.complete(prompt=text)
        assert said["count"] == len(said["tokens"]) == answer["usage"]["prompt_tokens"]
        assert said["max_model_len"] == 2048
        assert said["token_strs"][1] == "rall"
        assert await server.post("/detokenize", {"tokens": said["tokens"]}) == (200, {"prompt": text})
        _, chat = await server.post("/tokenize", {"model": "m", "messages": ASK["messages"]})
        _, whole = await server.post("/v1/chat/completions", ASK)
        assert chat["count"] == whole["usage"]["prompt_tokens"]

    play(scenario)


def test_every_name_and_every_adapter_is_listed_and_served() -> None:
    async def scenario(server: Served) -> None:
        async with server.client as client:
            cards = {card.id: card.model_dump() async for card in client.models.list()}
            assert list(cards) == ["m", "also-m", "sql"]
            assert [card["root"] for card in cards.values()] == ["org/m", "org/m", "/adapters/sql"]
            assert [card["parent"] for card in cards.values()] == [None, None, "m"]
            assert [card["max_model_len"] for card in cards.values()] == [2048, 2048, None]
            assert (await client.models.retrieve("sql")).model_dump() == cards["sql"]
            with pytest.raises(openai.NotFoundError, match=r"`org/m` does not exist; there are `m`, `also-m`, `sql`"):
                await client.models.retrieve("org/m")
            answers = [await client.completions.create(model=name, prompt="four", max_tokens=1) for name in cards]
        assert [answer.model for answer in answers] == ["m", "m", "sql"]

    play(scenario, models=MODELS)


def test_names_of_a_model_share_its_cache_and_an_adapter_has_its_own() -> None:
    async def scenario(server: Served) -> None:
        cached = []
        for name in ("m", "also-m", "sql", "sql"):
            answer = await server.complete(model=name, prompt=TEN_BLOCKS + "tail")
            cached.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"])
        assert cached == [0, 40, 0, 40]

    play(scenario, models=MODELS)


def test_the_metrics_name_the_first_name_and_the_adapters_in_use() -> None:
    async def scenario(server: Served) -> None:
        post = asyncio.create_task(server.complete(model="sql", prompt=TEN_BLOCKS, max_tokens=2000))
        await until(lambda: server.engine.running == 1)
        async with server.http.get("/metrics") as response:
            families = list(text_string_to_metric_families(await response.text()))
        samples = {sample.name: sample.labels for family in families for sample in family.samples}
        assert samples["vllm:lora_requests_info"] == {
            "max_lora": "1", "running_lora_adapters": "sql", "waiting_lora_adapters": "",
        }  # fmt: skip
        assert samples["vllm:num_requests_running"]["model_name"] == "m"
        post.cancel()

    play(scenario, models=MODELS, speed=0.001)


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("/v1/messages", {"model": "m", "max_tokens": 1, "messages": []}, "messages must not be empty"),
        ("/v1/responses", {"model": "m", "input": []}, "messages must not be empty"),
        ("/v1/responses", {"model": "m", "input": "x", "previous_response_id": "r"}, "no response is stored here"),
        ("/v1/responses", {"model": "m", "input": "x", "max_output_tokens": 0}, "max_output_tokens must be at least 1"),
        ("/v1/embeddings", {"model": "m", "input": []}, "input must be"),
        ("/v1/embeddings", {"model": "m", "input": "x", "dimensions": 0}, "dimensions must be 1 to 65536, got 0"),
        ("/v1/embeddings", {"model": "m", "input": "x" * 9000}, "at most 2048, the maximum context length"),
        ("/tokenize", {"model": "m"}, "neither prompt nor messages"),
        ("/detokenize", {"tokens": [-1]}, "token ids must be"),
    ],
)
def test_a_refusal_says_what_is_wrong(path: str, body: Any, says: str) -> None:
    async def scenario(server: Served) -> None:
        status, answer = await server.post(path, body)
        assert status == 400
        assert says in answer["error"]["message"]

    play(scenario)
