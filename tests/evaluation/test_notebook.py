"""An evaluation in a notebook: its figures, and where the prototypes look."""

import json
import re
from dataclasses import replace
from pathlib import Path

from protopyramid.evaluation.results import Evaluation

RECORDED = Path(__file__).parents[1] / "golden/expected/values.json"


def recorded() -> Evaluation:
    content = json.loads(RECORDED.read_text())["runs/fpn-iaia-bl/evaluation/test.json"]
    return Evaluation.from_json(content, "test.json")


def test_counts_and_shares_of_a_confusion_matrix_are_told_apart() -> None:
    found = recorded()
    page = found._repr_html_()
    count, total = found.confusion_matrix[0][0], sum(found.confusion_matrix[0])
    assert f"{count} <small>{count / total:.0%}</small>" in page


def test_precision_stands_beside_its_chance_level_by_level() -> None:
    found = recorded()
    page = re.sub(r"<[^>]+>", "|", found._repr_html_())
    fine = found.activation_precision.fine
    assert fine.mean is not None and fine.chance is not None
    assert f"{fine.mean:.2f}" in page and f"{fine.chance:.2f}" in page
    assert all(f"level {level}" in page for level in fine.per_level)


def test_without_annotations_nothing_is_said_of_where_prototypes_look() -> None:
    found = recorded()
    unknown = replace(found.activation_precision.fine, mean=None)
    both = replace(found.activation_precision, fine=unknown, lesion=unknown)
    assert (
        "Where the prototypes look" not in replace(found, activation_precision=both)._repr_html_()
    )
