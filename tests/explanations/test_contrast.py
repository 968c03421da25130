"""Why one class and not another: differences, references and what the shown rows explain, naively."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from protopyramid.api import keep_scores
from protopyramid.data.images import prepare, read_image
from protopyramid.data.manifest import read_manifest
from protopyramid.errors import UserError
from protopyramid.explanations import result
from protopyramid.explanations.contrast import Contrast, ContrastPart
from protopyramid.explanations.result import check_formats
from protopyramid.inference.batches import device_of, model_input
from protopyramid.inference.ood import limits_for, write_threshold
from protopyramid.inference.reference import reference_for
from protopyramid.runs.provenance import training_manifest
from protopyramid.runs.run import Run, load_run


@pytest.fixture
def with_reference(new_run: Callable[..., Run]) -> Run:
    run = new_run()
    keep_scores(run)
    return load_run(run.folder.path)


def naive_scores(run: Run) -> tuple[np.ndarray, list[str]]:
    """The scores (N, m) of the training images one by one, and their labels."""
    manifest = training_manifest(run)
    assert manifest is not None
    names = run.provenance.splits["train"]
    samples = [each for each in read_manifest(manifest).samples if each.name in names]
    data, rows = run.config.data, []
    for sample in samples:
        image = prepare(read_image(sample.image), None, None, data.image_size, data.fit).image
        with torch.no_grad():
            found = run.model(model_input(image[None], data, device_of(run.model)))
        rows.append(found.scores[0].double().numpy())
    return np.stack(rows), [sample.label for sample in samples]


def test_the_reference_is_the_mean_over_classes_of_the_mean_training_image(
    with_reference: Run,
) -> None:
    reference = reference_for(with_reference)
    scores, labels = naive_scores(with_reference)
    means = [scores[[label == name for label in labels]].mean(0) for name in sorted(set(labels))]
    assert reference is not None and reference.images == len(labels)
    np.testing.assert_allclose(reference.scores, np.mean(means, 0), atol=1e-6)
    assert "every class counting alike" in reference.words
    # Neither among the five largest contributions to the predicted class of any image nor decisive.
    weights = with_reference.model.head.weight.detach().double().numpy()
    used = set()
    for row in scores:
        contributions = weights[(weights @ row).argmax()] * row
        used |= set(np.argsort(-abs(contributions))[:5].tolist())
        logits = weights @ row
        without = [(logits - weights[:, j] * row[j]).argmax() for j in range(len(row))]
        used |= {j for j, other in enumerate(without) if other != logits.argmax()}
    assert set(reference.unused or ()) == set(range(scores.shape[1])) - used


def test_differences_and_references_add_up_to_the_logits(with_reference: Run, lesion: Path) -> None:
    for against in (None, *with_reference.config.data.classes):
        explanation = with_reference.explain(lesion, against=against)
        content = json.loads(json.dumps(explanation.to_json()))
        one, other = content["predicted"], content["against"]
        if against not in (None, one):
            assert other == against
        else:  # the runner-up, also where the predicted class itself is asked for
            assert other == sorted(content["logits"], key=lambda name: content["logits"][name])[-2]
        lead = content["logits"][one] - content["logits"][other]
        parts, mean = content["prototypes"], content["reference"]["logits"]
        assert sum(part["difference"] for part in parts) == pytest.approx(lead, abs=1e-9)
        beyond = sum(part["difference_beyond_reference"] for part in parts)
        assert beyond + mean[one] - mean[other] == pytest.approx(lead, abs=1e-9)
        for part in parts:
            weight = part["weights"][one] - part["weights"][other]
            assert part["difference"] == pytest.approx(weight * part["similarity"], abs=1e-12)
            naive = weight * (part["similarity"] - part["reference"])
            assert part["difference_beyond_reference"] == pytest.approx(naive, abs=1e-12)


@pytest.mark.parametrize("top", [1, 3, 5, 40])
def test_the_figure_accounts_for_the_whole_lead(
    with_reference: Run, lesion: Path, top: int
) -> None:
    explanation = with_reference.explain(lesion)
    data = result._case_figure_data(explanation, top, None)
    one, other = explanation.predicted, explanation.against
    lead, mean = data.lead, explanation.to_json()["reference"]["logits"]
    assert other is not None and lead.average is not None
    assert lead.total == pytest.approx(
        explanation.logits[one] - explanation.logits[other], abs=1e-9
    )
    assert lead.average == pytest.approx(mean[one] - mean[other], abs=1e-9)
    assert lead.average + lead.ahead.points + lead.behind.points == pytest.approx(
        lead.total, abs=1e-9
    )
    assert lead.ahead.count + lead.behind.count == len(explanation.prototypes)
    assert len(data.rows) == min(top, len(explanation.prototypes))
    for side, rows in (
        (lead.ahead, [row for row in data.rows if row.points >= 0]),
        (lead.behind, [row for row in data.rows if row.points < 0]),
    ):
        assert side.shown == len(rows)
        assert side.shown_points == pytest.approx(sum(row.points for row in rows), abs=1e-9)
    for row in data.rows:
        assert row.points == pytest.approx(row.weight * (row.score - row.average), abs=1e-9)


def contrast_of(*points: float) -> Contrast:
    parts = tuple(ContrastPart(n, 1.0, value, value) for n, value in enumerate(points))
    return Contrast("a", "b", sum(points), None, parts)


def test_rows_are_the_largest_with_some_of_the_other_side() -> None:
    assert contrast_of(5, 4, 3, 2, 1, -0.1, -0.2, -0.3).strongest(5) == [0, 1, 2, 7, 6]
    assert contrast_of(-5, -4, -3, -2, 0.1).strongest(4) == [4, 0, 1, 2]
    assert contrast_of(1, 2, 3).strongest(2) == [2, 1]
    assert contrast_of(1, -9, 3).strongest(1) == [1]
    assert contrast_of(1, -9).strongest(9) == [0, 1]


def test_an_old_run_is_measured_by_its_validation_images_or_says_that_it_cannot(
    new_run: Callable[..., Run], lesion: Path
) -> None:
    run = new_run()
    assert reference_for(run) is None
    content = run.explain(lesion).to_json()
    assert content["reference"] is None and content["prototypes"][0]["reference"] is None
    data = result._case_figure_data(run.explain(lesion), 3, None)
    lead = data.lead
    assert lead.average is None and data.reference is None
    assert lead.ahead.points + lead.behind.points == pytest.approx(lead.total, abs=1e-9)
    write_threshold(run)
    limits, reference = limits_for(run), reference_for(run)
    assert limits is not None and reference is not None
    assert reference.scores == tuple(limits.model.mean[: len(run.prototypes)])
    assert reference.words == f"mean of {limits.images} validation images"


def test_a_reference_of_another_model_is_not_used(with_reference: Run) -> None:
    run = with_reference
    assert reference_for(run) is not None
    with torch.no_grad():
        run.model.head.weight.mul_(2)
    run.folder.write_tensors("model.safetensors", run.model.state_dict())
    changed = load_run(run.folder.path)
    assert reference_for(changed) is None


def test_a_black_box_has_no_reference_and_a_runner_up(black_box: Run, lesion: Path) -> None:
    assert reference_for(black_box) is None
    content = black_box.explain(lesion).to_json()
    assert content["against"] in black_box.config.data.classes
    assert content["against"] != content["predicted"] and content["reference"] is None


def test_unknown_classes_and_formats_are_refused(run: Run, lesion: Path) -> None:
    with pytest.raises(UserError, match=r'no class "benign"; choose one of circumscribed'):
        run.explain(lesion, against="benign")
    with pytest.raises(UserError, match=r'cannot write "docx"; choose among png, pdf, svg, json'):
        check_formats(["png", "docx"])
    with pytest.raises(UserError, match="--format"):
        check_formats([])
    assert check_formats(["PNG", " json", "png"]) == [".png", ".json"]


def test_one_line_says_the_flag_before_the_class(run: Run, lesion: Path) -> None:
    from dataclasses import replace

    explanation = run.explain(lesion)
    plain = replace(explanation, unlike_training=False).summary
    assert plain.startswith(explanation.predicted) and explanation.against in plain
    flagged = replace(explanation, unlike_training=True).summary
    assert flagged.startswith("Unlike the training images.") and explanation.predicted in flagged
