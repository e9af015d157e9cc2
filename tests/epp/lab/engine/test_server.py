"""The simulated server over HTTP, with third-party clients. Engine time runs fast; nothing waits for the wall clock."""

import asyncio
import time
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.epp.lab.engine.serving import TEN_BLOCKS, Served, play, until


def test_the_openai_client_reads_a_completion() -> None:
    async def scenario(server: Served) -> None:
        async with server.client as client:
            answer = await client.completions.create(model="m", prompt="four", max_tokens=5)
        assert answer.choices[0].text == "The model behind thi"
        assert answer.choices[0].finish_reason == "length"
        assert answer.usage is not None
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (1, 5, 6)

    play(scenario)


def test_the_openai_client_reads_a_chat() -> None:
    async def scenario(server: Served) -> None:
        async with server.client as client:
            answer = await client.chat.completions.create(
                model="m",
                messages=[
                    {"role": "system", "content": "be brief"},
                    {"role": "user", "content": [{"type": "text", "text": "hello"}]},
                ],
            )
        assert answer.choices[0].message.role == "assistant"
        assert answer.choices[0].finish_reason == "stop"
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 64

    play(scenario)


def test_a_streamed_chat_has_the_text_of_a_plain_one_and_ends_with_the_usage() -> None:
    async def scenario(server: Served) -> None:
        async with server.client as client:
            messages: Any = [{"role": "user", "content": TEN_BLOCKS}]
            plain = await client.chat.completions.create(model="m", messages=messages, max_tokens=9)
            stream = await client.chat.completions.create(
                model="m",
                messages=messages,
                max_completion_tokens=9,
                stream=True,
                stream_options={"include_usage": True},
            )
            events = [event async for event in stream]
        choices = [event.choices[0] for event in events if event.choices]
        assert choices[0].delta.role == "assistant"
        assert "".join(choice.delta.content or "" for choice in choices) == plain.choices[0].message.content
        assert [choice.finish_reason for choice in choices if choice.finish_reason] == ["length"]
        assert not events[-1].choices
        usage = events[-1].usage
        assert usage is not None
        assert usage.prompt_tokens_details is not None
        assert usage.completion_tokens == 9
        assert usage.prompt_tokens_details.cached_tokens == 44

    play(scenario)


def test_a_streamed_completion_without_usage_ends_with_its_last_token() -> None:
    async def scenario(server: Served) -> None:
        async with server.client as client:
            stream = await client.completions.create(model="m", prompt="four", max_tokens=3, stream=True)
            events = [event async for event in stream]
        assert "".join(event.choices[0].text for event in events) == "The model be"
        assert all(event.usage is None for event in events)

    play(scenario)


def test_the_tokens_of_a_stream_come_one_by_one() -> None:
    async def scenario(server: Served) -> None:
        async with server.client as client:
            stream = await client.completions.create(model="m", prompt="four", max_tokens=10, stream=True)
            seen = [server.engine.tally.generated_tokens async for _ in stream]
        assert seen[0] < 10
        assert len(seen) > 1

    play(scenario, speed=20.0)  # a step takes 60 ms


def test_several_prompts_and_answers_each_get_a_choice() -> None:
    async def scenario(server: Served) -> None:
        answer = await server.complete(prompt=["one", "two", [1, 2, 3]], n=2)
        assert [choice["index"] for choice in answer["choices"]] == list(range(6))
        assert answer["usage"]["completion_tokens"] == 12
        ids = await server.complete(prompt=[1, 2, 3, 4, 5])
        assert ids["usage"]["prompt_tokens"] == 5

    play(scenario)


def test_a_gpu_hit_is_told_and_starts_sooner_by_the_arithmetic_of_the_model() -> None:
    async def scenario(server: Served) -> None:
        tally = server.engine.tally
        await server.complete(prompt=TEN_BLOCKS)
        cold = tally.ttft.sum
        body = {"model": "m", "prompt": TEN_BLOCKS + "tail", "max_tokens": 1}
        async with server.http.post("/v1/completions", json=body) as response:
            details = (await response.json())["usage"]["prompt_tokens_details"]
            assert response.headers["x-sim-cached-gpu"] == "40"
            assert response.headers["x-sim-cached-cpu"] == "0"
        assert details == {"cached_tokens": 40, "gpu_tokens": 40, "cpu_tokens": 0}
        assert cold == pytest.approx(0.25 + 40 * 0.125)
        assert tally.ttft.sum - cold == pytest.approx(0.25 + 1.0)

    play(scenario)


def test_a_cpu_hit_is_told_apart_from_a_gpu_hit() -> None:
    async def scenario(server: Served) -> None:
        await server.complete(prompt=TEN_BLOCKS)
        await server.http.post("/reset_prefix_cache")
        answer = await server.complete(prompt=TEN_BLOCKS + "tail")
        details = {"cached_tokens": 40, "gpu_tokens": 0, "cpu_tokens": 40}
        assert answer["usage"]["prompt_tokens_details"] == details

    play(scenario)


@pytest.mark.parametrize("field", [{"cache_salt": "mine"}, {"prompt": "0" + TEN_BLOCKS}])
def test_another_salt_or_another_beginning_is_another_prefix(field: dict[str, str]) -> None:
    async def scenario(server: Served) -> None:
        await server.complete(prompt=TEN_BLOCKS)
        answer = await server.complete(**{"prompt": TEN_BLOCKS, **field})
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0

    play(scenario)


def test_a_client_that_leaves_stops_its_request() -> None:
    async def scenario(server: Served) -> None:
        body = {"model": "m", "prompt": TEN_BLOCKS, "max_tokens": 2000, "stream": True}
        async with server.http.post("/v1/completions", json=body) as response:
            await response.content.readline()
            assert server.engine.running == 1
            response.close()
        await until(lambda: server.engine.running + server.engine.waiting == 0)
        assert server.engine.gpu.used == 0
        assert server.engine.tally.completed == 0

    play(scenario, speed=100.0)


def test_a_client_that_leaves_before_the_first_token_stops_its_request() -> None:
    async def scenario(server: Served) -> None:
        post = asyncio.create_task(server.complete(prompt=TEN_BLOCKS, max_tokens=2000))
        await until(lambda: server.engine.running == 1)
        post.cancel()
        await until(lambda: server.engine.running == 0)
        assert server.engine.gpu.used == 0

    play(scenario, speed=0.001)


def test_metrics_have_vllms_names_and_can_be_parsed() -> None:
    async def scenario(server: Served) -> None:
        await server.complete(prompt=TEN_BLOCKS)
        await server.complete(prompt=TEN_BLOCKS + "tail")
        async with server.http.get("/metrics") as response:
            families = list(text_string_to_metric_families(await response.text()))
        samples = {sample.name: sample for family in families for sample in family.samples}
        assert samples["vllm:num_requests_running"].value == 0
        assert samples["vllm:num_requests_waiting"].value == 0
        assert samples["vllm:kv_cache_usage_perc"].value == 0
        assert samples["vllm:kv_cache_usage_perc"].labels == {"model_name": "m", "engine": "0"}
        assert samples["vllm:prefix_cache_queries_total"].value == 81
        assert samples["vllm:prefix_cache_hits_total"].value == 40
        assert samples["vllm:external_prefix_cache_queries_total"].value == 41
        assert samples["vllm:external_prefix_cache_hits_total"].value == 0
        assert samples["vllm:generation_tokens_total"].value == 4
        assert samples["vllm:request_success_total"].value == 2
        assert samples["vllm:time_to_first_token_seconds_count"].value == 2
        tiers = {
            (sample.name, sample.labels["tier"]): sample.value
            for family in families
            for sample in family.samples
            if "tier" in sample.labels
        }
        assert tiers["kvengine:tier_capacity_tokens", "gpu"] == 4096
        assert tiers["kvengine:tier_resident_tokens", "gpu"] == 40
        assert tiers["kvengine:tier_eviction_horizon_timestamp_seconds", "gpu"] == 0, "nothing was evicted"
        now = time.time()
        assert now - 60 < samples["kvengine:start_timestamp_seconds"].value < now
        assert now - 60 < samples["kvengine:clock_timestamp_seconds"].value < now
        config = samples["vllm:cache_config_info"]
        assert config.value == 1
        expected = {"block_size": "4", "num_gpu_blocks": "1024", "num_cpu_blocks": "None"}
        assert config.labels.items() >= expected.items()

    play(scenario)


def test_a_busy_engine_says_so_in_its_metrics() -> None:
    async def scenario(server: Served) -> None:
        posts = [asyncio.create_task(server.complete(prompt=f"{n}" * 400, max_tokens=500)) for n in range(3)]
        await until(lambda: server.engine.running + server.engine.waiting == 3)
        async with server.http.get("/metrics") as response:
            text = await response.text()
        values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        labels = '{engine="0",model_name="m"}'
        busy = [float(values[f"vllm:num_requests_{state}{labels}"]) for state in ("running", "waiting")]
        assert sum(busy) == 3
        assert float(values[f"vllm:kv_cache_usage_perc{labels}"]) >= 25 / 1024
        for post in posts:
            post.cancel()

    play(scenario, speed=0.01)


def test_a_rendered_text_has_as_many_tokens_as_its_usage_says_and_is_found_again_by_its_ids() -> None:
    async def scenario(server: Served) -> None:
        text = "Once upon a time, " * 40 + "!"
        status, rendered = await server.post("/v1/completions/render", {"model": "m", "prompt": text})
        assert status == 200
        ids = rendered[0]["token_ids"]
        assert (await server.complete(prompt=text))["usage"]["prompt_tokens"] == len(ids) == 181
        assert (await server.complete(prompt=ids))["usage"]["prompt_tokens_details"]["cached_tokens"] == 180
        chat = {"model": "m", "messages": [{"role": "user", "content": text}], "max_tokens": 1}
        _, rendered = await server.post("/v1/chat/completions/render", chat)
        _, answer = await server.post("/v1/chat/completions", chat)
        assert answer["usage"]["prompt_tokens"] == len(rendered["token_ids"])

    play(scenario)


def test_models_and_health() -> None:
    async def scenario(server: Served) -> None:
        async with server.client as client:
            models = [model async for model in client.models.list()]
        assert [model.id for model in models] == ["m"]
        async with server.http.get("/health") as response:
            assert response.status == 200

    play(scenario)


CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
HELLO = [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        (TEXT, {"model": "other", "prompt": "hi"}, 404, "`other` does not exist"),
        (TEXT, {"model": "m"}, 400, "prompt"),
        (TEXT, b"{", 400, "not valid"),
        (TEXT, b"\xff", 400, "not valid"),
        (TEXT, {"model": "m", "prompt": []}, 400, "prompt must be"),
        (TEXT, {"model": "m", "prompt": [1, "mixed"]}, 400, "prompt must be"),
        (TEXT, {"model": "m", "prompt": [-1]}, 400, "token ids"),
        (TEXT, {"model": "m", "prompt": [[1 << 40]]}, 400, "token ids"),
        (TEXT, {"model": "m", "prompt": "hi", "max_tokens": 0}, 400, "max_tokens must be at least 1, got 0"),
        (TEXT, {"model": "m", "prompt": "hi", "n": 0}, 400, "n must be at least 1"),
        (TEXT, {"model": "m", "prompt": "hi", "max_tokens": 2048}, 400, "at most 2048, the maximum context length"),
        (TEXT, {"model": "m", "prompt": "x" * 9000, "stream": True}, 400, "the prompt has 2250 tokens"),
        (CHAT, {"model": "m", "messages": []}, 400, "messages must not be empty"),
        (CHAT, {"model": "m", "messages": HELLO, "max_tokens": "many"}, 400, "max_tokens"),
        ("/v1/nothing", {}, 404, "Not Found"),
    ],
)
def test_a_refusal_has_vllms_shape_and_says_what_is_wrong(path: str, body: Any, status: int, says: str) -> None:
    async def scenario(server: Served) -> None:
        code, answer = await server.post(path, body)
        assert code == status
        assert answer["error"]["code"] == status
        assert answer["error"]["type"] == {400: "BadRequestError", 404: "NotFoundError"}[status]
        assert says in answer["error"]["message"]
        assert server.engine.running + server.engine.waiting == 0

    play(scenario)


def test_one_refused_prompt_refuses_them_all() -> None:
    async def scenario(server: Served) -> None:
        status, _ = await server.post(TEXT, {"model": "m", "prompt": ["fits", "x" * 9000]})
        assert status == 400
        assert server.engine.running + server.engine.waiting == 0
        assert server.engine.gpu.used == 0

    play(scenario)


def test_many_streams_at_once_all_end() -> None:
    async def scenario(server: Served) -> None:
        async def one(n: int) -> int:
            body = {"model": "m", "prompt": f"{n:04}" * 100, "max_tokens": 20, "stream": True}
            async with server.http.post("/v1/completions", json=body) as response:
                return (await response.read()).count(b'"finish_reason":"length"')

        assert await asyncio.gather(*(one(n) for n in range(50))) == [1] * 50
        assert server.engine.tally.completed == 50

    play(scenario)


def test_who_asks_as_kvengines_clients_do_is_told_the_tiers_of_a_whole_answer() -> None:
    async def scenario(server: Served) -> None:
        asked: Any = {"prompt": TEN_BLOCKS, "kv_transfer_params": {"kvengine_report": True}}
        first, second = await server.complete(**asked), await server.complete(**asked)
        assert first["kv_transfer_params"] == {"prompt_tokens": 40, "cached_tokens_by_tier": {"gpu": 0, "cpu": 0}}
        by_tier = second["kv_transfer_params"]["cached_tokens_by_tier"]
        assert sum(by_tier.values()) == second["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
        assert "kv_transfer_params" not in await server.complete(prompt=TEN_BLOCKS)

    play(scenario)


@pytest.mark.parametrize("speed", [1.0, 20.0])
def test_the_horizon_is_the_unix_time_at_which_the_evicted_was_last_used(speed: float) -> None:
    async def scenario(server: Served) -> None:
        before = time.time()
        await server.complete(prompt=TEN_BLOCKS)
        await server.http.post("/reset_prefix_cache")
        async with server.http.get("/metrics") as response:
            page = await response.text()
        horizon = next(
            sample.value
            for family in text_string_to_metric_families(page)
            for sample in family.samples
            if sample.name == "kvengine:tier_eviction_horizon_timestamp_seconds" and sample.labels["tier"] == "gpu"
        )
        assert before - 0.01 < horizon < time.time()

    play(scenario, speed=speed)
