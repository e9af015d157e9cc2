"""The command ``tierwise check``: reads a configuration as the picker would, without a picker."""

from __future__ import annotations

from pathlib import Path

import pytest

from epp.commandline import cli

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"
SCORER = "plugins: [{type: queue-scorer}]\n"
DOUBTFUL = "dataLayer: {crossReplicaSyncInterval: 1s}\n"


def test_a_good_configuration_is_told_in_the_lines_of_the_start_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    file = tmp_path / "picker.yaml"
    file.write_text(HEAD + SCORER)
    assert cli.main(["check", "--config-file", str(file)]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [
        "scorer queue-scorer: weight 1",
        "picker max-score-picker: 1 endpoint a decision",
        f"{file}: good, 0 warnings",
    ]
    assert printed.err == ""


@pytest.mark.parametrize(("words", "code"), [([], 0), (["--strict"], 1)])
def test_warnings_are_shown_and_are_a_failure_where_that_is_asked_for(
    words: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["check", "--config-text", HEAD + SCORER + DOUBTFUL, *words]) == code
    printed = capsys.readouterr()
    assert printed.err == "warning: dataLayer.crossReplicaSyncInterval: has no effect without a syncer\n"
    assert printed.out.splitlines()[-1] == "--config-text: good, 1 warning"
    assert cli.main(["check", "--config-text", HEAD + SCORER, *words]) == 0


def test_what_is_refused_is_the_sentence_of_serve(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "--config-text", HEAD + "plugins: [{type: queue-scorrer}]"]) == cli.USAGE_ERROR
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == (
        "tierwise check: --config-text: plugins[0].type: unknown plugin type 'queue-scorrer'; did you mean "
        "queue-scorer?\n"
    )


@pytest.mark.parametrize("words", [[], ["--config-file="], ["--config-file=a", "--config-text=b"]])
def test_exactly_one_configuration_is_checked(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", *words]) == cli.USAGE_ERROR
    assert "--config-file" in capsys.readouterr().err
