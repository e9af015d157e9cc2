"""A real vLLM engine on its CPU backend, which lives as long as a ``with`` block."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import psutil

from tests.vllm.model import VOCABULARY

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",  # the model is tiny: threads would wait for each other
    "VLLM_CPU_CI_ENV": "1",  # no compilation, no warm-up
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_SERVER_DEV_MODE": "1",
}
BLOCK_TOKENS = 32
PATIENCE_S = 30

Tokens = list[int]


@dataclass
class Engine:
    """vLLM's ``LLM``, with token ids in and out."""

    llm: Any

    def generate(self, prompts: Sequence[Tokens], max_tokens: int = 16) -> list[Tokens]:
        """Return greedy tokens, one list for each prompt; all prompts are sent at once."""
        from vllm import SamplingParams

        sampling = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True, detokenize=False)
        inputs = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        answers = self.llm.generate(inputs, sampling, use_tqdm=False)
        return [list(answer.outputs[0].token_ids) for answer in answers]

    def forget_gpu(self) -> None:
        """Empty vLLM's own prefix cache, and nothing else. It refuses while a block is being stored."""
        until = time.monotonic() + PATIENCE_S
        while not self.llm.reset_prefix_cache():
            assert time.monotonic() < until, "the device's blocks are not given back"

    def ask(self, method: str, *arguments: Any, **options: Any) -> list[Any]:
        """Call a method of every worker, and return the results; see ``probe.py``."""
        return list(self.llm.collective_rpc(method, args=arguments, kwargs=options))

    def settle(self) -> None:
        """Wait until the scheduler has processed all copies, and has published their metrics and events."""
        self.generate([[1] * 5], max_tokens=2)

    def begin(self, name: str, prompt: Tokens, max_tokens: int = 8) -> None:
        """Add a request; ``step`` runs it."""
        from vllm import SamplingParams

        sampling = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True, detokenize=False)
        self.llm.llm_engine.add_request(name, {"prompt_token_ids": list(prompt)}, sampling)

    def step(self, until: Callable[[dict[str, Tokens]], bool], answers: dict[str, Tokens]) -> None:
        """Step until ``until`` is true of ``answers``, to which complete answers are added."""
        limit = time.monotonic() + PATIENCE_S
        while not until(answers):
            assert time.monotonic() < limit, answers
            for answer in self.llm.llm_engine.step():
                if answer.finished:
                    answers[answer.request_id] = list(answer.outputs[0].token_ids)

    def metric(self, name: str, **labels: str) -> float:
        """Return a counter's or gauge's value, summed over the labels that are not given."""
        found = [m for m in self.llm.get_metrics() if m.name == name]
        assert found, f"no metric {name}"
        return float(sum(m.value for m in found if all(m.labels.get(k) == v for k, v in labels.items())))


@contextmanager
def engine(
    model: Path,
    offload: dict[str, Any] | None = None,
    *,
    probed: bool = False,
    transfer: dict[str, Any] | None = None,
    log: Path | None = None,
    **options: Any,
) -> Iterator[Engine]:
    """Run an engine with the connector, configured by ``offload``, or without the connector.

    ``probed``: use the connector of ``probe.py``. ``transfer``: overrides for ``KVTransferConfig``. ``log``: the file
    that the engine's processes log to. Afterwards, none of these processes is left.
    """
    os.environ.update(ENVIRONMENT)
    from vllm import LLM
    from vllm.config import KVTransferConfig

    if offload is not None:
        options["kv_transfer_config"] = KVTransferConfig(
            **{
                "kv_connector": "ProbedConnector" if probed else "KVEngineConnector",
                "kv_connector_module_path": "tests.vllm.probe" if probed else "kvengine.connector",
                "kv_role": "kv_both",
                "kv_load_failure_policy": "recompute",
                "kv_connector_extra_config": offload,
                **(transfer or {}),
            }
        )
    if probed:
        options["worker_extension_cls"] = "tests.vllm.probe.Probing"
    with logged(log):
        llm = LLM(
            model=str(model),
            **{
                "skip_tokenizer_init": True,
                "dtype": "float32",
                "enforce_eager": True,
                "block_size": BLOCK_TOKENS,
                "max_model_len": 4096,
                "gpu_memory_utilization": 0.3,
                "disable_log_stats": False,
                **options,
            },
        )
    core = llm.llm_engine.engine_core
    managed = core.resources.engine_manager.processes if hasattr(core, "resources") else ()
    started = [psutil.Process(process.pid) for process in managed]
    started += [child for process in started for child in process.children(recursive=True)]
    try:
        yield Engine(llm)
    finally:
        core.shutdown(timeout=1)  # it never ends by itself on a CPU, with or without a connector, and is killed then
    own = [process for process in started if not of_python(process)]
    _, left = psutil.wait_procs(own, PATIENCE_S)
    assert not left, "processes outlive their engine"


def of_python(process: psutil.Process) -> bool:
    """Return whether it is multiprocessing's resource tracker, which lives as long as this process."""
    try:
        return any("resource_tracker" in argument for argument in process.cmdline())
    except psutil.NoSuchProcess:
        return False


@contextmanager
def logged(log: Path | None) -> Iterator[None]:
    """Redirect the output of processes that are started meanwhile to ``log``, from vLLM's INFO level on."""
    if log is None:
        yield
        return
    level = os.environ["VLLM_LOGGING_LEVEL"]
    kept = {stream: os.dup(stream) for stream in (1, 2)}
    os.environ["VLLM_LOGGING_LEVEL"] = "INFO"
    try:
        with log.open("ab") as file:
            for stream in kept:
                os.dup2(file.fileno(), stream)
        yield
    finally:
        os.environ["VLLM_LOGGING_LEVEL"] = level
        for stream, before in kept.items():
            os.dup2(before, stream)
            os.close(before)


def prompts(count: int, tokens: int, *, shared: int = 0, seed: int = 0) -> list[Tokens]:
    """Return ``count`` random prompts that begin with the same ``shared`` tokens."""
    random = Random(seed)

    def draw(number: int) -> Tokens:
        return [random.randrange(10, VOCABULARY) for _ in range(number)]

    prefix = draw(shared)
    return [prefix + draw(tokens - shared) for _ in range(count)]


def series(name: str, **labels: str) -> float:
    """Return one of our metrics from this process's registry, since the engine's front end is here."""
    from prometheus_client import REGISTRY

    found = [
        sample.value
        for family in REGISTRY.collect()
        for sample in family.samples
        if sample.name == name and all(sample.labels.get(key) == value for key, value in labels.items())
    ]
    assert len(found) == 1, f"{name} {labels}: {found}"
    return float(found[0])
