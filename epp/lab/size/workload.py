"""A workload, reduced to what matters for caches."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import ceil
from pathlib import Path

from epp.errors import ConfigError
from epp.lab.fleet.lengths import Distribution
from epp.lab.fleet.loads import load_for
from epp.lab.size.options import WorkloadOptions
from epp.lab.size.reuse import Reuse


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Requests in groups that share a system prompt; named as inference-perf names it. Units: tokens."""

    name: str = ""
    num_groups: int
    num_prompts_per_group: int = 10
    system_prompt_len: int
    question_len: int = 256
    output_len: int = 1024
    concurrency: int = 1

    @property
    def prompt_tokens(self) -> int:
        """Tokens of one prompt."""
        return self.system_prompt_len + self.question_len

    @property
    def requests(self) -> int:
        """The number of all requests."""
        return self.num_groups * self.num_prompts_per_group

    @property
    def shared_tokens(self) -> int:
        """Tokens of the system prompts of all groups."""
        return self.num_groups * self.system_prompt_len

    @property
    def own_tokens(self) -> int:
        """Tokens of the questions and answers of all requests."""
        return self.requests * (self.question_len + self.output_len)

    @property
    def working_set_tokens(self) -> int:
        """All distinct tokens, each counted once."""
        return self.shared_tokens + self.own_tokens

    def at_one_of(self, endpoints: int, *, answers_kept: bool = True) -> Reuse:
        """Return the load of the fullest of ``endpoints`` when each group stays at one of them.

        ``answers_kept``: whether generated tokens enter the cache, as they do on the GPU.
        """
        return self._reuse(ceil(self.num_groups / endpoints), answers_kept)

    def scattered_over(self, endpoints: int, *, answers_kept: bool = True) -> Reuse:
        """Return the load of one of ``endpoints`` when requests go to any of them."""
        return self._reuse(self.num_groups, answers_kept, 1 / endpoints)

    def revisits(self, endpoints: int) -> float:
        """Return the share of later requests that reach an endpoint where their group was before, if spread freely.

        Later requests are all but the first of each group.
        """
        later = self.requests - self.num_groups
        return min(1.0, endpoints * self.scattered_over(endpoints).most / later) if later else 1.0

    def _reuse(self, groups: int, answers_kept: bool, share: float = 1.0) -> Reuse:
        tail = self.question_len + (self.output_len if answers_kept else 0)
        return Reuse(
            groups=groups, prompts=self.num_prompts_per_group, shared_tokens=self.system_prompt_len, tail_tokens=tail,
            share=share,
        )  # fmt: skip

    def active_tokens(self, endpoints: int) -> int:
        """Return the tokens in use at a time on one of ``endpoints``, with a shared prompt counted once."""
        here = ceil(self.concurrency / endpoints)
        groups = min(here, ceil(self.num_groups / endpoints))
        return groups * self.system_prompt_len + here * (self.question_len + self.output_len)


def workload_of(options: WorkloadOptions, endpoints: int) -> Workload | None:
    """Return the requested workload; None if there is none. Raises: ConfigError that names what is missing."""
    if not options.given:
        return None
    values = _preset(options.preset, endpoints, options.written_for) if options.preset is not None else {}
    values |= {
        field.name: value for field in fields(Workload) if (value := getattr(options, field.name, None)) is not None
    }
    for name in ("num_groups", "system_prompt_len"):
        if name not in values:
            flag = name.replace("_", "-")
            raise ConfigError(f"the workload lacks --{flag}; give it, or --workload NAME, or none of its flags")
    name = Path(options.preset).stem if options.preset else ""
    return Workload(name=name, **({"concurrency": endpoints} | values))


def _preset(name: str, endpoints: int, written_for: int | None) -> dict[str, int]:
    """Return the load of a simulator workload on ``endpoints``, by inference-perf's key names.

    Lengths that are drawn are represented by their mean.
    """
    config = load_for(name, endpoints, written_for).config
    shared = config.data.shared_prefix
    if shared is None:
        raise ConfigError(f"--workload={name}: has no groups that share a prompt, so caches cannot be sized for it; "
                          f"tierwise simulate --workload {name} runs it")  # fmt: skip
    levels = [stage.concurrency_level for stage in config.load.stages if stage.concurrency_level]
    values = {
        "num_groups": shared.groups,
        "num_prompts_per_group": shared.prompts,
        "system_prompt_len": _tokens(shared.system_prompt_len),
        "question_len": _tokens(shared.question_len),
        "output_len": _tokens(shared.output_len),
    }
    return values | ({"concurrency": max(levels)} if levels else {})


def _tokens(length: int | Distribution) -> int:
    return length if isinstance(length, int) else round(length.mean)
