"""The daemon of Spark's Python workers: it is silent only about readers that have gone."""

from __future__ import annotations

import pytest

from penstock.spark.worker_daemon import QuietTraceback


@pytest.mark.parametrize("error", [BrokenPipeError(32, "Broken pipe"), ConnectionResetError(), ValueError("wrong")])
def test_what_is_printed(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise error
    except Exception:  # noqa: BLE001
        QuietTraceback.print_exc()

    printed = capsys.readouterr().err
    assert ("ValueError: wrong" in printed) == isinstance(error, ValueError)
    assert bool(printed) == isinstance(error, ValueError)
