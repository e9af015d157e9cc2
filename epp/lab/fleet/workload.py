"""Workloads in inference-perf's format: the same file runs in either tool.

Only ``load`` and ``data`` are read; the blocks about a server, a client or a report are left to inference-perf.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import msgspec

from epp.config.document import MAX_BYTES, parse
from epp.config.strict import convert, nearest
from epp.errors import ConfigError
from epp.lab.fleet.lengths import MOST_TOKENS, Distribution

FOLDER = Path(__file__).parent / "workloads"
PRESETS = {path.stem: path for path in sorted(FOLDER.glob("*.yaml"))}

MOST_REQUESTS = 10_000_000
"""Per stage, and of distinct prompts: more would not fit into memory."""

Count = Annotated[int, msgspec.Meta(ge=1, le=MOST_REQUESTS)]
Tokens = Annotated[int, msgspec.Meta(ge=1, le=MOST_TOKENS)] | Distribution
Above0 = Annotated[float, msgspec.Meta(gt=0, le=1e9)]


class LoadType(Enum):
    """The arrival process of the requests."""

    CONCURRENT = "concurrent"
    """A fixed number in flight at any time."""
    CONSTANT = "constant"
    POISSON = "poisson"
    TRACE_REPLAY = "trace_replay"
    """At the times of a trace."""


class DataType(Enum):
    """The content of the requests."""

    SHARED_PREFIX = "shared_prefix"
    CONVERSATION_REPLAY = "conversation_replay"
    RANDOM = "random"
    """From a trace."""


class Stage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A stage of load, given by ``rate`` and ``duration`` or by the other two. Units: requests per second, seconds.

    inference-perf fills in a rate and a duration for concurrent stages when it runs; they are ignored there.
    """

    rate: Above0 | None = None
    duration: Above0 | None = None
    num_requests: Count | None = None
    concurrency_level: Count | None = None


class Trace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of requests."""

    file: str
    format: str = "MooncakeTrace"


class Load(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When the requests of all stages arrive."""

    type: LoadType
    interval: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 1.0
    """Seconds of rest between a stage's last answer and the next stage."""
    stages: tuple[Stage, ...] = ()
    trace: Trace | None = None
    """The times of a trace; must equal ``data.trace`` here."""
    base_seed: int | None = None
    num_workers: Any = None
    worker_max_concurrency: Any = None
    worker_max_tcp_connections: Any = None
    circuit_breakers: Any = None
    request_timeout: Any = None
    request_retries: Any = None
    request_retry_backoff_sec: Any = None
    stage_teardown_grace_seconds: Any = None


class SharedPrefix(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Groups of prompts with a shared prefix. All prompts come in one shuffled order, repeatedly. Units: tokens."""

    num_groups: Count | None = None
    num_unique_system_prompts: Count | None = None
    """The newer name of ``num_groups``."""
    num_prompts_per_group: Count | None = None
    num_users_per_system_prompt: Count | None = None
    """The newer name of ``num_prompts_per_group``."""
    system_prompt_len: Tokens = 100
    question_len: Tokens = 50
    output_len: Tokens = 50
    seed: int | None = None
    enable_multi_turn_chat: bool = False

    def __post_init__(self) -> None:
        for old, new in (
            ("num_groups", "num_unique_system_prompts"),
            ("num_prompts_per_group", "num_users_per_system_prompt"),
        ):
            if getattr(self, old) is not None and getattr(self, new) is not None:
                raise ValueError(f"{old}: is the older name of {new}; keep one of the two")
        if self.enable_multi_turn_chat:
            raise ValueError("enable_multi_turn_chat: is not simulated; data.type conversation_replay is")

    @property
    def groups(self) -> int:
        """The number of different prefixes."""
        return self.num_unique_system_prompts or self.num_groups or 10

    @property
    def prompts(self) -> int:
        """The number of prompts with the same prefix."""
        return self.num_users_per_system_prompt or self.num_prompts_per_group or 10


class ConversationReplay(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Multi-turn conversations: each prompt has everything before it, and something new. Units: tokens."""

    num_conversations: Count = 200
    seed: int = 42
    shared_system_prompt_len: Annotated[int, msgspec.Meta(ge=0)] = 8359
    dynamic_system_prompt_len: Distribution | None = None
    turns_per_conversation: Distribution = Distribution(min=1, max=10, mean=5.0, std_dev=2.0)
    input_tokens_per_turn: Distribution = Distribution(min=10, max=1024, mean=512.0, std_dev=200.0)
    output_tokens_per_turn: Distribution = Distribution(min=10, max=1024, mean=256.0, std_dev=100.0)
    tool_call_latency_sec: Distribution | None = None
    """Between an answer and the next turn. Units: seconds."""
    max_model_len: Count | None = None
    """A conversation ends before it gets longer than this."""


class Data(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of all requests."""

    type: DataType
    shared_prefix: SharedPrefix | None = None
    conversation_replay: ConversationReplay | None = None
    trace: Trace | None = None


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of an inference-perf file."""

    load: Load
    data: Data
    api: Any = None
    server: Any = None
    tokenizer: Any = None
    metrics: Any = None
    report: Any = None
    storage: Any = None
    circuit_breakers: Any = None


def choose(name: str) -> Config:
    """Return the preset called ``name``, or the file of that name; a ``.jsonl`` file is a trace.

    A key whose value is null counts as absent, whatever its name: the file that inference-perf writes beside its
    results has every key of its format.
    Raises: ConfigError that names the file and the key.
    """
    path = PRESETS.get(name) or Path(name)
    if name not in PRESETS and path.suffix not in (".yaml", ".yml", ".json", ".jsonl"):
        raise ConfigError(f"unknown workload {name!r}{nearest(name, PRESETS)}; or a file: my.yaml, trace.jsonl")
    if path.suffix == ".jsonl":
        trace = Data(DataType.RANDOM, trace=Trace(str(path)))
        return Config(Load(LoadType.TRACE_REPLAY), trace)
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        config = convert(without_nulls(parse(raw, "load and data")), Config)
        check(config)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    return config


def without_nulls(data: object) -> object:
    """Return ``data`` without the keys whose value is null."""
    if isinstance(data, dict):
        return {key: without_nulls(value) for key, value in data.items() if value is not None}
    return [without_nulls(value) for value in data] if isinstance(data, list) else data


def check(config: Config) -> None:
    """Check that the parts of ``config`` fit together. Raises: ConfigError that starts with the key path."""
    data, load = config.data, config.load
    wanted = "trace" if data.type is DataType.RANDOM else data.type.value
    if getattr(data, wanted) is None:
        raise ConfigError(f"data.{wanted}: missing; data.type is {data.type.value}")
    if (load.type is LoadType.TRACE_REPLAY) != (data.type is DataType.RANDOM):
        raise ConfigError(f"load.type: {load.type.value} does not go with data.type {data.type.value}")
    if data.type is DataType.CONVERSATION_REPLAY and load.type is not LoadType.CONCURRENT:
        raise ConfigError(f"load.type: conversations are concurrent, not {load.type.value}")
    if load.trace is not None and load.trace != data.trace:
        raise ConfigError(
            f"load.trace: is {load.trace.file}, and requests come at the times of data.trace; leave load.trace out"
        )
    if load.type is LoadType.TRACE_REPLAY:
        return
    if not load.stages:
        raise ConfigError("load.stages: none; write at least one")
    if (shared := data.shared_prefix) is not None and shared.groups * shared.prompts > MOST_REQUESTS:
        raise ConfigError(
            f"data.shared_prefix: {shared.groups:,} groups of {shared.prompts:,} prompts; "
            f"at most {MOST_REQUESTS:,} in all"
        )
    closed = load.type is LoadType.CONCURRENT
    for n, stage in enumerate(load.stages):
        timed, counted = (stage.rate, stage.duration), (stage.num_requests, stage.concurrency_level)
        if closed and None in counted:
            raise ConfigError(f"load.stages[{n}]: a stage of type concurrent has num_requests and concurrency_level")
        if not closed and (None in timed or any(value is not None for value in counted)):
            raise ConfigError(
                f"load.stages[{n}]: a stage of type {load.type.value} has rate and duration, and nothing else"
            )
        if not closed and (stage.rate or 0.0) * (stage.duration or 0.0) > MOST_REQUESTS:
            raise ConfigError(
                f"load.stages[{n}]: {stage.rate:g} requests/s for {stage.duration:g} s are more than the "
                f"{MOST_REQUESTS:,} that can be simulated; make it shorter"
            )


def scaled(config: Config, factor: float) -> Config:
    """Return the load for a fleet ``factor`` times as large: as many times the groups, the requests, the clients.

    The load of each endpoint stays the same. A trace is not changed.
    """
    if factor == 1.0 or config.data.type is DataType.RANDOM:
        return config

    def more(count: int | None) -> int | None:
        return None if count is None else max(1, round(count * factor))

    replace = msgspec.structs.replace
    stages = tuple(
        replace(
            stage,
            rate=None if stage.rate is None else stage.rate * factor,
            num_requests=more(stage.num_requests),
            concurrency_level=more(stage.concurrency_level),
        )
        for stage in config.load.stages
    )
    data = config.data
    if data.shared_prefix is not None:
        shared = replace(data.shared_prefix, num_groups=more(data.shared_prefix.groups), num_unique_system_prompts=None)
        data = replace(data, shared_prefix=shared)
    if data.conversation_replay is not None:
        spoken = data.conversation_replay
        data = replace(data, conversation_replay=replace(spoken, num_conversations=more(spoken.num_conversations)))
    return replace(config, load=replace(config.load, stages=stages), data=data)
