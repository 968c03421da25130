"""A stored evaluation is read back as it was written; a damaged one is refused in one line."""

import json
from pathlib import Path

import pytest

from protopyramid.errors import UserError
from protopyramid.evaluation.comparison import compare, stored_evaluation
from protopyramid.evaluation.evaluate import evaluate_run
from protopyramid.evaluation.results import Evaluation, read_evaluation

RECORDED = Path(__file__).parents[1] / "golden/expected/values.json"
QUICK = {"bootstrap": 5, "pictures": False}


def without_new(content, recorded):
    """The content with only the keys that the recorded one has."""
    if isinstance(recorded, dict):
        return {key: without_new(content[key], recorded[key]) for key in recorded}
    return content


def test_an_evaluation_of_an_earlier_version_is_read_and_dumps_the_same_json():
    recorded = json.loads(RECORDED.read_text())["runs/fpn-iaia-bl/evaluation/test.json"]
    evaluation = Evaluation.from_json(recorded, "test.json")
    assert without_new(evaluation.to_json(), recorded) == recorded
    assert evaluation.health.findings is None  # it had none: not the same as an empty list
    assert evaluation.pointing_game.fine.mean == recorded["peak_inside"]["fine"]["mean"]


def test_a_run_without_evaluation_has_none(new_run):
    assert read_evaluation(new_run().folder) is None


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda content: content.pop("auroc"), "auroc"),
        (lambda content: content.update(accuracy="high"), "accuracy"),
        (lambda content: content["calibration"].pop("ece"), "calibration.ece"),
    ],
)
def test_a_damaged_evaluation_is_refused_with_the_remedy(damage, words, new_run):
    run = new_run(preset="vgg16")
    content = evaluate_run(run, **QUICK).to_json()
    damage(content)
    run.folder.write_json("evaluation/test.json", content)
    for read in (lambda: read_evaluation(run.folder), lambda: compare([run], bootstrap=5)):
        with pytest.raises(UserError) as raised:
            read()
        message = str(raised.value)
        assert "evaluation/test.json: damaged" in message and words in message
        assert "protopyramid evaluate" in message and "\n" not in message


def test_a_damaged_table_of_rows_is_refused(new_run):
    run = new_run(preset="vgg16")
    evaluate_run(run, **QUICK)
    path = run.folder / "evaluation/test.csv"
    text = path.read_text()
    path.write_text(text.replace("probability_negative", "probability_nothing"))
    with pytest.raises(UserError, match=r"test\.csv: has no column 'probability_negative'"):
        stored_evaluation(run, "a", None, "test")
    lines = text.splitlines()
    path.write_text("\n".join([lines[0], lines[1].replace("0.", "x.")]) + "\n")
    with pytest.raises(UserError, match=r"test\.csv: damaged .* evaluate the run again"):
        stored_evaluation(run, "a", None, "test")
