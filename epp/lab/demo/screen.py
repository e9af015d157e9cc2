"""The demo's output: a live table on a terminal, plain lines elsewhere, and the comparison at the end."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from epp.lab.demo.counters import Counters
from epp.lab.demo.load import Sample
from epp.lab.demo.result import Result
from epp.lab.stats import mean
from epp.printing.sheet import Sheet

LINE_EVERY_S = 5.0


class Progress:
    """The progress of one run. A context manager; ``show`` is called now and then, ``sample`` as each request ends."""

    def __init__(self, console: Console, title: str, requests: int) -> None:
        self._console, self._title, self._requests = console, title, requests
        self.began = self._printed_at = time.monotonic()
        self._done = self._failed = 0
        self._ttfts: list[float] = []
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None

    def __enter__(self) -> Progress:
        self.began = self._printed_at = time.monotonic()
        if self._live is not None:
            self._live.start()
        else:
            self._console.print(f"{self._title}: {self._requests} requests ...")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def sample(self, sample: Sample) -> None:
        """Count a request that ended."""
        self._done += 1
        self._failed += bool(sample.error)
        if sample.ttft_s is not None:
            self._ttfts.append(sample.ttft_s)

    def show(self, endpoints: Mapping[str, Counters], now: float) -> None:
        """Draw the table, or print a line if the last one was long ago. ``now`` is a time of ``time.monotonic()``."""
        done = f"{self._done}/{self._requests} requests in {now - self.began:.0f} s"
        text = f"{done}, mean TTFT {seconds(mean(self._ttfts))}"
        if self._live is not None:
            self._live.update(Group(self._bar(text), endpoint_table(endpoints)), refresh=True)
        elif now - self._printed_at >= LINE_EVERY_S:
            self._printed_at = now
            total = sum(endpoints.values(), Counters())
            hits = f", hits: GPU {total.gpu_share:.0%}, CPU {total.cpu_share:.0%}"
            self._console.print("  " + text + hits + self._errors())

    def _errors(self) -> str:
        return f", {self._failed} FAILED" if self._failed else ""

    def _bar(self, text: str) -> Table:
        row = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=self._requests, completed=self._done, width=30)
        row.add_row(Text(self._title, style="bold"), bar, Text(self._errors(), style="bold red"))
        row.add_row(Text(text))
        return row


def endpoint_table(endpoints: Mapping[str, Counters]) -> Sheet:
    """Return a table of the requests and hits of each endpoint."""
    sheet = Sheet("", "endpoint", "done", "running", "waiting", "GPU hits", "CPU hits", "misses", "mean TTFT")
    for endpoint, c in endpoints.items():
        ttft = "-" if c.mean_ttft_s is None else seconds(c.mean_ttft_s)
        counts = [f"{count:.0f}" for count in (c.requests, c.running, c.waiting)]
        shares = [f"{share:.0%}" for share in (c.gpu_share, c.cpu_share, c.miss_share)]
        sheet.add(endpoint, *counts, *shares, ttft)
    return sheet


def comparison(results: Sequence[Result]) -> Table:
    """Return a table that compares every run to the first one."""
    table = Table(title="the same requests, each way to choose an endpoint", title_justify="left", padding=(0, 1))
    table.add_column("")
    for name in ("mean\nTTFT", "P90\nTTFT", "through-\nput", "hits\nGPU", "hits\nCPU", "misses", "errors"):
        table.add_column(name, justify="right")  # two lines per cell, so that the table fits into 80 columns
    base = results[0]
    for result in results:
        table.add_row(
            result.title,
            f"{seconds(result.mean_ttft_s)}\n{ratio(result.mean_ttft_s, base.mean_ttft_s)}",
            f"{seconds(result.p90_ttft_s)}\n{ratio(result.p90_ttft_s, base.p90_ttft_s)}",
            f"{result.requests_per_s:.1f}/s\n{ratio(result.requests_per_s, base.requests_per_s)}",
            f"{result.gpu_share:.0%}",
            f"{result.cpu_share:.0%}",
            f"{result.miss_share:.0%}",
            str(sum(result.errors.values())),
        )
    return table


def seconds(value: float) -> str:
    """Format a duration for people; ``-`` for NaN."""
    return "-" if value != value else f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"


def ratio(value: float, base: float) -> str:
    """Format ``value`` as a multiple of ``base``."""
    return f"x{value / base:.2f}" if base > 0 else ""
