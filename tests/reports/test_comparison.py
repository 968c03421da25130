"""The comparison figure and the teaser."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from protopyramid.data.manifest import Manifest
from protopyramid.errors import UserError
from protopyramid.figures.grid_figure import grid_figure
from protopyramid.reports import comparison
from protopyramid.reports.comparison import (
    check_levels,
    leading,
    pick,
    run_panels,
    teaser_runs,
    write_comparison,
    write_teaser,
)
from protopyramid.runs.run import Run


@pytest.mark.filterwarnings("ignore:.*no run of IAIA-BL")
def test_comparison_and_teaser_are_drawn(
    run: Run, black_box: Run, manifest: Manifest, tmp_path: Path
) -> None:
    samples = manifest.split("test")
    for path in (
        write_comparison([run, black_box], samples, tmp_path / "comparison.png"),
        write_teaser([black_box, run], samples, tmp_path / "teaser.png"),
    ):
        assert path.read_bytes().startswith(b"\x89PNG")


def test_images_are_picked_from_every_class_in_turn(manifest: Manifest) -> None:
    classes = ["circumscribed", "indistinct", "spiculated", "negative"]
    chosen = pick(manifest.samples, classes, 6)
    assert [sample.label for sample in chosen] == [
        *["circumscribed"] * 2,
        *["indistinct"] * 2,
        "spiculated",
        "negative",
    ]
    assert pick(manifest.samples[:1], classes, 6) == [manifest.samples[0]]
    assert pick([], classes, 6) == []


def test_leading_prototype_is_of_the_predicted_class(run: Run, lesion: Path) -> None:
    explanation = run.explain(lesion)
    found = leading(explanation)
    assert found is not None and found.class_name == explanation.predicted


def test_leading_prototype_of_a_level_adds_most_among_its_class_there(
    run: Run, lesion: Path
) -> None:
    explanation = run.explain(lesion)
    name = explanation.predicted
    for level in (2, 4, 5):
        found = leading(explanation, level)
        own = [
            part.contributions[name]
            for part in explanation.prototypes
            if part.class_name == name and part.level == level
        ]
        if not own:  # the negative class has prototypes on level 5 alone
            assert found is None
        else:
            assert found is not None and (found.class_name, found.level) == (name, level)
            assert found.contributions[name] == max(own)
    assert leading(explanation, 3) is None


@pytest.fixture(scope="module")
def others(make_run) -> dict[str, Run]:
    return {name: make_run(name) for name in ("iaia-bl", "protopnet")}


def test_the_teaser_takes_its_systems_whatever_the_order(
    run: Run, black_box: Run, others: dict[str, Run]
) -> None:
    runs = [black_box, others["protopnet"], others["iaia-bl"], run]
    for ordered in itertools.permutations(runs):
        assert teaser_runs(ordered) == (run, others["iaia-bl"])
    assert teaser_runs([others["protopnet"], black_box]) == (None, None)
    assert teaser_runs([others["protopnet"], run]) == (run, None)


def test_the_teaser_takes_the_papers_system_first_and_knows_others_by_their_structure(
    run: Run, others: dict[str, Run]
) -> None:
    def called(each: Run, system: str) -> Run:
        return replace(each, config=each.config.model_copy(update={"system": system}))

    ours, mine = called(run, "protopyramid"), called(run, "mine")
    assert teaser_runs([mine, ours, run])[0] is run
    assert teaser_runs([mine, ours])[0] is ours
    assert teaser_runs([mine])[0] is mine
    old = called(others["iaia-bl"], "mine")
    assert teaser_runs([others["protopnet"], old])[1] is old


@pytest.fixture
def drawn_grid(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The columns, rows and panels of the next grid that is drawn."""
    seen: dict[str, Any] = {}

    def grid(panels: Any, columns: Any, rows: Any, *args: Any, **options: Any) -> Any:
        seen.update(panels=panels, columns=columns, rows=rows)
        return grid_figure(panels, columns, rows, *args, **options)

    monkeypatch.setattr(comparison, "grid_figure", grid)
    return seen


def test_the_teaser_is_image_fine_prototype_and_iaia_bl(
    run: Run,
    others: dict[str, Run],
    manifest: Manifest,
    tmp_path: Path,
    drawn_grid: dict[str, Any],
) -> None:
    write_teaser([others["iaia-bl"], run], manifest.split("test"), tmp_path / "teaser.png")
    names = [run.system_title, others["iaia-bl"].system_title]
    assert drawn_grid["columns"] == ["Image", f"{names[0]}\nlevel 2", names[1]]
    assert drawn_grid["rows"] == ["circumscribed", "indistinct", "spiculated"]
    for line in drawn_grid["panels"]:
        assert len(line) == 3
        assert line[1] is None or line[1].caption.endswith("level 2")
        assert line[2].caption.endswith("level 5")


def test_levels_are_columns_of_runs_that_have_several(
    run: Run, others: dict[str, Run], manifest: Manifest, tmp_path: Path, drawn_grid: dict[str, Any]
) -> None:
    runs = [run, others["iaia-bl"]]
    write_teaser(runs, manifest.split("test"), tmp_path / "teaser.png", levels=[2, 5])
    multi, single = (each.system_title for each in runs)
    expected = ["Image", f"{multi}\nlevel 2", f"{multi}\nlevel 5", single]
    assert drawn_grid["columns"] == expected
    write_comparison(runs, manifest.split("test"), tmp_path / "comparison.png", levels=[2, 5])
    assert drawn_grid["columns"] == expected
    assert all(len(line) == 4 for line in drawn_grid["panels"])
    (plain,) = run_panels(run, manifest.split("test")[0], {})
    assert plain is not None


def test_a_level_that_no_run_has_is_refused(run: Run, others: dict[str, Run]) -> None:
    check_levels([others["iaia-bl"], run], [2, 5])
    with pytest.raises(UserError, match=r"--levels 3: none of these runs .* choose among 2, 4, 5"):
        check_levels([others["iaia-bl"], run], [2, 3])
    with pytest.raises(UserError, match="add a run with prototypes on several levels"):
        check_levels([others["iaia-bl"]], [5])


def test_a_missing_system_is_named_and_the_rest_drawn(
    run: Run, others: dict[str, Run], manifest: Manifest, tmp_path: Path
) -> None:
    path = tmp_path / "teaser.png"
    with pytest.warns(UserWarning, match="no run of IAIA-BL, so its column is left out"):
        write_teaser([run], manifest.split("test"), path)
    with pytest.warns(UserWarning, match="no run of FPN-IAIA-BL"):
        write_teaser([others["iaia-bl"]], manifest.split("test"), path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_teaser_needs_one_of_its_systems(
    black_box: Run, manifest: Manifest, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="none of these runs is of either"):
        write_teaser([black_box], manifest.split("test"), tmp_path / "teaser.png")
