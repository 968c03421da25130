"""`protopyramid bench`: the table on the terminal, the figures in a file. No time is asserted."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from protopyramid.cli.main import main


@pytest.fixture
def small(monkeypatch) -> None:
    """The real command with a small model and one turn."""
    from protopyramid.benchmarks import growth, settings

    from ..benchmarks.tiny import TINY

    tiny = replace(TINY, fine_batch=2, loader=False)
    points = growth.Growth((10, 12), (4, 5), (32, 48), (16, 32, 64), 32, 2, 1, tiny)
    monkeypatch.setattr(settings, "QUICK", tiny)
    monkeypatch.setattr(settings, "FULL", replace(tiny, fine_batch=3))
    monkeypatch.setattr(growth, "FULL_GROWTH", points)
    monkeypatch.setattr(growth, "QUICK_GROWTH", replace(points, sides=(32, 64)))


def test_quick_prints_every_row_and_writes_json(small, tmp_path, capsys) -> None:
    assert main(["bench", "--quick", "--out", str(tmp_path / "b")]) == 0
    shown = capsys.readouterr().out
    content = json.loads((tmp_path / "b" / "bench.json").read_text())
    assert len(content["rows"]) >= 10
    assert content["settings"]["fine_batch"] == 2
    for word in ("target", "verdict", "forward", "--help", "targets met", "bench.json"):
        assert word in shown


@pytest.mark.parametrize(("more", "side"), [([], "48"), (["--quick"], "64")])
def test_growth_prints_orders_and_draws(more, side, small, tmp_path, capsys) -> None:
    assert main(["bench", "--growth", *more, "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "head fit" in shown and "growth-classes.png" in shown
    assert f"32 … {side}" in shown and "theoretical order" in shown and "fitted" in shown
    assert (tmp_path / "growth.json").is_file()
    assert len(list(tmp_path.glob("growth-*.png"))) == 4


def test_a_file_in_place_of_the_folder_is_refused_before_any_work(tmp_path, capsys) -> None:
    (tmp_path / "taken").write_text("")
    assert main(["bench", "--out", str(tmp_path / "taken")]) == 2
    assert "is a file" in capsys.readouterr().err
