"""Turns a workload's description into the requests of its stages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path
from random import Random

from epp.lab.fleet import trace
from epp.lab.fleet.arrivals import Arriving, Concurrent, RequestSource, Sessions, Timed
from epp.lab.fleet.lengths import tokens
from epp.lab.fleet.prompts import Ask, PromptPart
from epp.lab.fleet.workload import Config, ConversationReplay, LoadType, SharedPrefix, Stage


@dataclass(frozen=True, slots=True)
class StagePlan:
    """One stage, ready to run."""

    name: str
    """Its load, for tables."""
    source: RequestSource
    rate: float | None = None
    """The requested rate in requests per second; None in a closed loop."""
    concurrency: int | None = None


def stages_of(config: Config, seed: int) -> list[StagePlan]:
    """Return the stages in order; equal seeds give equal ones. Raises: ConfigError for an invalid trace."""
    random = Random(f"workload {seed}")
    load, data = config.load, config.data
    if data.trace is not None and load.type is LoadType.TRACE_REPLAY:
        return [StagePlan("trace", trace.read(Path(data.trace.file), data.trace.format))]
    if data.conversation_replay is not None:
        return [_conversing(stage, data.conversation_replay, n, random) for n, stage in enumerate(load.stages)]
    shared = data.shared_prefix or SharedPrefix()
    asks = cycle(shared_prompts(shared, random))
    return [_serving(stage, load.type, asks, random) for stage in load.stages]


def requests_of(config: Config, seed: int) -> int:
    """Return the number of requests of a run. Raises: ConfigError for an invalid trace."""
    return sum(stage.source.requests for stage in stages_of(config, seed))


def shared_prompts(shared: SharedPrefix, random: Random) -> list[Ask]:
    """Return every prompt once, in a shuffled order."""
    prompts = []
    for group in range(shared.groups):
        system = PromptPart(group, tokens(shared.system_prompt_len, random))
        for n in range(shared.prompts):
            own = PromptPart(shared.groups + group * shared.prompts + n, tokens(shared.question_len, random))
            prompts.append(Ask((system, own), tokens(shared.output_len, random)))
    random.shuffle(prompts)
    return prompts


def conversation(spoken: ConversationReplay, name: str, content: Iterator[int], random: Random) -> list[Ask]:
    """Return the turns of one conversation; ``content`` yields numbers that are used nowhere else."""
    context: tuple[PromptPart, ...] = ()
    if spoken.shared_system_prompt_len:
        context += (PromptPart(0, spoken.shared_system_prompt_len),)
    if spoken.dynamic_system_prompt_len is not None:
        context += (PromptPart(next(content), tokens(spoken.dynamic_system_prompt_len, random)),)
    turns: list[Ask] = []
    for _ in range(tokens(spoken.turns_per_conversation, random)):
        context += (PromptPart(next(content), tokens(spoken.input_tokens_per_turn, random)),)
        answer = PromptPart(next(content), tokens(spoken.output_tokens_per_turn, random))
        length = sum([part.tokens for part in context]) + answer.tokens
        if spoken.max_model_len is not None and length > spoken.max_model_len:
            break
        turns.append(Ask(context, answer.tokens, answer.content, name))
        context += (answer,)
    return turns


def _serving(stage: Stage, load: LoadType, asks: Iterator[Ask], random: Random) -> StagePlan:
    if stage.num_requests is not None and stage.concurrency_level is not None:
        source = Concurrent(list(islice(asks, stage.num_requests)), stage.concurrency_level)
        return StagePlan(f"{stage.concurrency_level} at a time", source, concurrency=stage.concurrency_level)
    rate, duration = stage.rate or 1.0, stage.duration or 1.0
    count = max(1, round(rate * duration))
    times, at = [], 0.0
    for n in range(count):
        times.append(at if load is LoadType.POISSON else n / rate)
        at += random.expovariate(rate)
    arrivals = [Arriving(time, ask) for time, ask in zip(times, asks, strict=False)]
    return StagePlan(f"{rate:g} requests/s", Timed(arrivals), rate=rate)


def _conversing(stage: Stage, spoken: ConversationReplay, number: int, random: Random) -> StagePlan:
    """Return a stage that repeats conversations until it has ``num_requests`` turns; the last one is cut short."""
    wanted, level = stage.num_requests or 1, stage.concurrency_level or 1
    content = iter(range(1 + (number << 28), 1 << 60))
    scripts: list[list[Ask]] = []
    sessions: list[list[Ask]] = []
    while wanted > 0:
        name = f"{number}-{len(sessions)}"
        if len(scripts) < spoken.num_conversations:
            scripts.append(conversation(spoken, name, content, random))
        script = scripts[len(sessions) % spoken.num_conversations]
        sessions.append([replace(ask, session=name) for ask in script[:wanted]])
        wanted -= max(1, len(script))
    delays = spoken.tool_call_latency_sec
    think = (lambda: 0.0) if delays is None else (lambda: delays.draw(random))
    return StagePlan(f"{level} conversations", Sessions(sessions, level, think), concurrency=level)
