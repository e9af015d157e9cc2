"""Write ``manifests/charts/*/values.schema.json``: run ``make schemas`` after a change of the keys."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from epp.lab.values.charts import CHARTS
from epp.lab.values.schema import schema_of

FOLDER = Path(__file__).parents[3] / "manifests" / "charts"


def schemas() -> Iterator[tuple[Path, str]]:
    """Yield the path and the text of the schema of each chart."""
    for chart in CHARTS:
        yield FOLDER / chart.name / "values.schema.json", json.dumps(schema_of(chart), indent=1) + "\n"


def main() -> None:
    """Write the schemas of all charts."""
    for path, text in schemas():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
