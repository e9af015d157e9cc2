"""The command ``tierwise values``: checks a chart's values, and writes them in the other tree."""

from __future__ import annotations

from collections.abc import Sequence

from epp.errors import ConfigError
from epp.lab.values.charts import CHARTS
from epp.lab.values.check import Fault, Finding, findings
from epp.lab.values.convert import Tree, converted, tree_in
from epp.lab.values.documents import read_values, written
from epp.lab.values.ignored import ignored
from epp.lab.values.needed import refused_later
from epp.lab.values.options import ValuesOptions
from epp.lab.values.overrides import merged, with_set
from epp.printing.prose import Prose, console_for, show
from epp.runtime.logs import counted


def run_values(options: ValuesOptions) -> int:
    """Run the command and return its exit status. Raises: ConfigError for values that the chart refuses."""
    values, repeated = read(options)
    chart = next(chart for chart in CHARTS if chart.name == options.chart)
    found = list(findings(chart, values)) or (list(refused_later(chart, values)) if options.check else [])
    notes = repeated + [f"{path}: {sentence}" for path, sentence in ignored(values)]
    if found:
        _tell([*notes, *(_told(each) for each in found[:-1])])
        raise ConfigError(
            f"{_told(found[-1])} ({counted(len(found), 'key')} of these values would make helm install fail)"
        )
    if options.check:
        _tell(notes)
        source = " and ".join(options.files) or "--set"
        show(console_for(), [Prose(f"{source}: good, {counted(len(notes), 'key')} that upstream ignores")])
        return 0
    tree = tree_in(values)
    if not chart.clashes:
        raise ConfigError(f"the values of the chart {chart.name} have one tree, so only --check is of use for them")
    to = Tree(options.to) if options.to else Tree.LEGACY if tree is Tree.ROUTER else Tree.ROUTER
    result = converted(values, to)
    _tell([*notes, *result.notes])
    print(written(result.values), end="")
    return 0


def read(options: ValuesOptions) -> tuple[dict[str, object], list[str]]:
    """Return what helm would make of the files and flags, and what it drops of them. Raises: ConfigError."""
    if not (options.files or options.typed or options.texts):
        raise ConfigError(
            "nothing says which values: pass FILE, -f FILE as often as to helm, or --set KEY=VALUE; - is standard input"
        )
    values: dict[str, object] = {}
    dropped: list[str] = []
    for name in options.files:
        more, repeated = read_values(name)
        values = merged(values, more)
        dropped += repeated
    for text in options.typed:
        values = with_set(values, text, typed=True)
    for text in options.texts:
        values = with_set(values, text, typed=False)
    return values, dropped


def _told(finding: Finding) -> str:
    ending = "; upstream's chart would have ignored it" if finding.fault is Fault.UNKNOWN else ""
    return f"{finding}{ending}"


def _tell(sentences: Sequence[str]) -> None:
    show(console_for(stderr=True), (Prose(sentence, hang=4) for sentence in sentences))
