"""Files and ``--set`` are put together as helm does it; where helm is, both are compared."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from epp.errors import ConfigError
from epp.lab.values.overrides import merged, with_set
from tests.charts import helm


def test_maps_are_merged_and_lists_replaced() -> None:
    below = {"a": {"b": 1, "c": [1, 2]}, "d": 1}
    assert merged(below, {"a": {"c": [3]}, "e": 2}) == {"a": {"b": 1, "c": [3]}, "d": 1, "e": 2}
    assert below == {"a": {"b": 1, "c": [1, 2]}, "d": 1}


SETTINGS = [
    "a.b=1",
    "a.b=x,a.c=true,d=false",
    "a=null",
    "a={x,y}",
    "a={1,true}",
    "a[0].b=1,a[1].b=2",
    "a[2]=x",
    r"a.b\.c/d=1",
    r"a=1\,2",
    "a=007",
    "a=1.5",
    "a=-3",
    "a==b",
    "a=",
    "a=b=c",
    "a={}",
    "l[1].x=2",
]


@pytest.mark.parametrize("typed", [True, False])
@pytest.mark.parametrize("text", SETTINGS)
def test_set_is_read_as_helm_reads_it(text: str, typed: bool, tmp_path: Path) -> None:
    (tmp_path / "templates").mkdir()
    (tmp_path / "Chart.yaml").write_text("{apiVersion: v2, name: x, version: 0.0.0}\n")
    (tmp_path / "templates" / "all.yaml").write_text("{{ .Values | toJson }}\n")
    done = helm.template(tmp_path, "--set" if typed else "--set-string", text)
    assert done.returncode == 0, done.stderr
    theirs = json.loads("".join(line for line in done.stdout.splitlines() if not line.startswith(("---", "#"))))
    ours = json.loads(msgspec.json.encode(with_set({}, text, typed=typed)))
    assert ours == theirs


@pytest.mark.parametrize("text", ["a", "a[x]=1", "[0]=1", "a..b=1", "a[0]b=1"])
def test_what_is_no_assignment_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--set"):
        with_set({}, text, typed=True)
