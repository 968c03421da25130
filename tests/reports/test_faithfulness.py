"""The report's section on faithfulness: there only when this model was measured."""

from __future__ import annotations

import json

from protopyramid import api
from protopyramid.evaluation.split import evaluated_split
from protopyramid.reports.faithfulness import faithfulness_section
from protopyramid.runs import layout

SMALL = {
    "model.prototypes.counts": {"2": 1, "5": 1},
    "model.prototypes.negative_counts": {"5": 1},
}


def test_the_section_shows_what_was_measured_of_this_model(new_run) -> None:
    run = new_run(**SMALL)
    assert faithfulness_section(run) == ""
    found, path = api.faithfulness(run, evaluated_split(run, None, "test"), images=2)
    text = faithfulness_section(run)
    assert "Is what is shown what was used?" in text and "<img" in text
    share = found.per_level["2"].evidence.area.mean
    assert f"{share:.0%}"[:-1] in text and "of 7 prototypes ever matter" in text
    content = json.loads(path.read_text())
    run.folder.write_json(layout.faithfulness("test"), {**content, "model": "another"})
    assert faithfulness_section(run) == ""
