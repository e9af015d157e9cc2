"""A workload as far as caches see it."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from epp.errors import ConfigError
from epp.size.options import WorkloadOptions
from epp.size.reuse import Reuse


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
        """Of one prompt."""
        return self.system_prompt_len + self.question_len

    @property
    def requests(self) -> int:
        """In all."""
        return self.num_groups * self.num_prompts_per_group

    @property
    def shared_tokens(self) -> int:
        """The system prompts of all groups."""
        return self.num_groups * self.system_prompt_len

    @property
    def own_tokens(self) -> int:
        """Questions and answers of all requests."""
        return self.requests * (self.question_len + self.output_len)

    @property
    def working_set_tokens(self) -> int:
        """Everything, each token once."""
        return self.shared_tokens + self.own_tokens

    def at_one_of(self, endpoints: int, *, answers_kept: bool = True) -> Reuse:
        """What one of ``endpoints`` sees when each group stays at one of them; at the fullest, where they are uneven.

        ``answers_kept``: whether generated tokens enter the cache, as they do on the GPU.
        """
        groups = ceil(self.num_groups / endpoints)
        tail = self.question_len + (self.output_len if answers_kept else 0)
        return Reuse(groups, self.system_prompt_len, tail, groups * self.num_prompts_per_group)

    def scattered_over(self, endpoints: int, *, answers_kept: bool = True) -> Reuse:
        """What one of ``endpoints`` sees when requests go anywhere."""
        tail = self.question_len + (self.output_len if answers_kept else 0)
        return Reuse(self.num_groups, self.system_prompt_len, tail, self.requests / endpoints)

    def revisits(self, endpoints: int) -> float:
        """Of all requests but each group's first, those that come where their group was before, if they go anywhere."""
        later = self.requests - self.num_groups
        if later == 0:
            return 1.0
        seen_at_one = self.num_groups * (1 - (1 - 1 / endpoints) ** self.num_prompts_per_group)
        return min(1.0, max(0.0, (self.requests - endpoints * seen_at_one) / later))

    def active_tokens(self, endpoints: int) -> int:
        """In use at a time on one of ``endpoints``; a shared prompt once."""
        here = ceil(self.concurrency / endpoints)
        groups = min(here, ceil(self.num_groups / endpoints))
        return groups * self.system_prompt_len + here * (self.question_len + self.output_len)


def workload_of(asked: WorkloadOptions, endpoints: int) -> Workload | None:
    """The workload that was asked for; None if nothing was. Raises: ConfigError naming what is missing."""
    if not asked.asked:
        return None
    if asked.preset is not None:
        raise ConfigError(f"--workload={asked.preset}: there are no presets")
    if asked.num_groups is None or asked.system_prompt_len is None:
        missing = "--num-groups" if asked.num_groups is None else "--system-prompt-len"
        raise ConfigError(f"the workload lacks {missing}; give it, or --workload NAME, or none of its flags")
    said = {
        name: value
        for name in ("num_prompts_per_group", "question_len", "output_len", "concurrency")
        if (value := getattr(asked, name)) is not None
    }
    return Workload(
        num_groups=asked.num_groups,
        system_prompt_len=asked.system_prompt_len,
        **({"concurrency": endpoints} | said),
    )
