"""The committed stubs are what ``proto/`` says."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_committed_stubs_are_what_proto_compiles_to(tmp_path: Path) -> None:
    generate = runpy.run_path(str(ROOT / "proto" / "generate.py"))["generate"]
    (tmp_path / "epp" / "pb").mkdir(parents=True)
    fresh = {path.relative_to(tmp_path): path.read_bytes() for path in generate(tmp_path)}
    committed = {path.relative_to(ROOT): path.read_bytes() for path in (ROOT / "epp" / "pb").glob("*_pb2.py*")}
    assert committed == fresh, "run: python proto/generate.py"


def test_our_messages_and_another_distributions_live_in_one_process() -> None:
    from grpc_health.v1 import health_pb2 as theirs

    from epp.pb import health_pb2 as ours

    answer = ours.HealthCheckResponse(status=ours.HealthCheckResponse.SERVING)
    assert (
        theirs.HealthCheckResponse.FromString(answer.SerializeToString()).status == theirs.HealthCheckResponse.SERVING
    )
