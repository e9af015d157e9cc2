"""``tierwise serve --check``: what the command would refuse at its start is refused, and nothing is served."""

from __future__ import annotations

from pathlib import Path

import pytest

from epp.commandline import cli
from epp.ports.tls import write_self_signed
from epp.server import check

CONFIG = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins: [{type: queue-scorer}]\n"
GOOD = ("serve", "--check", "--endpoint=127.0.0.1:8000", "--config-text", CONFIG)


def test_good_flags_are_told_as_the_configuration_that_they_lead_to(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    assert cli.main(GOOD) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [
        "scorer queue-scorer: weight 1",
        "picker max-score-picker: 1 endpoint a decision",
        "the flags and the configuration: good, 0 warnings",
    ]
    assert printed.err == ""


def test_a_flag_without_effect_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*GOOD, "--enable-cert-reload"]) == 0
    printed = capsys.readouterr()
    assert printed.err.startswith("warning: --enable-cert-reload has nothing to follow")
    assert printed.out.splitlines()[-1].endswith("good, 1 warning")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--refresh-metric-interval=50ms",), "did you mean --refresh-metrics-interval?"),
        (("--drain-timeout=5x",), "--drain-timeout"),
        (("--grpc-port=9003",), "--grpc-health-port"),
        (("--cert-path=/no/such/folder",), "/no/such/folder"),
        (("--metrics-cert-dir=/no/such/folder",), "/no/such/folder"),
        (("--config-text", CONFIG.replace("queue-scorer", "queue-scorrer")), "did you mean queue-scorer?"),
    ],
)
def test_what_serve_would_refuse_is_refused(
    words: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*GOOD, *words]) == cli.USAGE_ERROR
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("tierwise serve: ")
    assert sentence in printed.err


def test_certificates_are_read_and_no_port_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_self_signed(tmp_path)
    read = []
    monkeypatch.setattr(check, "server_context", lambda options, certificate: read.append(certificate))
    assert cli.main([*GOOD, f"--cert-path={tmp_path}", "--grpc-port=1", "--metrics-port=2"]) == 0
    assert len(read) == 1


def test_endpoints_that_nothing_names_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["serve", "--check", "--config-text", CONFIG]) == cli.USAGE_ERROR
    assert "nothing says where the endpoints are" in capsys.readouterr().err
