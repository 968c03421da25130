"""The explanation of one image: it adds up, and the run folder alone is enough."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from protopyramid.data.images import prepare, read_image
from protopyramid.errors import UserError
from protopyramid.explanations import result
from protopyramid.explanations.explanation import explain_array
from protopyramid.inference.batches import device_of, model_input
from protopyramid.inference.ood import write_threshold
from protopyramid.runs.run import Run, load_run

KEYS = {"index", "class", "level", "similarity", "weights", "contributions", "box", "box_pixels"}
KEYS |= {"reference", "difference", "difference_beyond_reference"}


def test_contributions_of_all_prototypes_sum_to_the_logits(run: Run, lesion: Path) -> None:
    content = json.loads(json.dumps(run.explain(lesion).to_json()))
    assert len(content["prototypes"]) == len(run.prototypes)
    for name, logit in content["logits"].items():
        total = sum(part["contributions"][name] for part in content["prototypes"])
        assert total == pytest.approx(logit, abs=1e-9)


def test_logits_are_those_of_the_model(run: Run, lesion: Path) -> None:
    data = run.config.data
    image = prepare(read_image(lesion), None, None, data.image_size, data.fit).image
    with torch.no_grad():
        evidence = run.model(model_input(image[None], data, device_of(run.model)))
    explanation = run.explain(lesion)
    np.testing.assert_allclose(list(explanation.logits.values()), evidence.logits[0], atol=1e-6)
    shares = evidence.logits[0].softmax(0)
    np.testing.assert_allclose(list(explanation.probabilities.values()), shares, atol=1e-6)
    assert explanation.predicted == data.classes[int(evidence.logits[0].argmax())]
    scores = [part.score for part in explanation.prototypes]
    np.testing.assert_allclose(scores, evidence.scores[0], atol=1e-6)


def test_each_contribution_is_score_times_weight(run: Run, lesion: Path) -> None:
    head = run.model.head.weight.detach().double()
    for part in run.explain(lesion).prototypes:
        for number, name in enumerate(run.config.data.classes):
            assert part.weights[name] == float(head[number, part.index])
            assert part.contributions[name] == part.score * part.weights[name]


def test_json_has_the_keys_of_the_contract(run: Run, lesion: Path, tmp_path: Path) -> None:
    content = json.loads(run.explain(lesion).save(tmp_path / "why.json").read_text())
    keys = {"image", "predicted", "logits", "probabilities", "prototypes", "region"}
    assert set(content) == keys | {"against", "reference"}
    assert content["image"] == lesion.name
    assert math.fsum(content["probabilities"].values()) == pytest.approx(1)
    for part, record in zip(content["prototypes"], run.prototypes, strict=True):
        assert set(part) - {"evidence"} == KEYS  # of the prototypes shown
        assert (part["index"], part["class"], part["level"]) == (
            record.index,
            record.class_name,
            record.level,
        )
        x0, y0, x1, y1 = part["box"]
        assert 0 <= x0 < x1 <= 1 and 0 <= y0 < y1 <= 1


def test_box_encloses_the_highest_five_percent_of_the_activation(run: Run, lesion: Path) -> None:
    explanation = run.explain(lesion)
    for part in explanation.prototypes:
        region = explanation.region(part.index)
        assert region.box == part.box
        activation = region.activation
        rows, columns = np.nonzero(activation >= np.quantile(activation, 0.95))
        size = len(activation)
        expected = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
        np.testing.assert_allclose(np.array(part.box) * size, expected, atol=1.01)


def test_strongest_prototypes_are_chosen_by_size_and_ordered_for_before_against(
    run: Run, lesion: Path
) -> None:
    explanation = run.explain(lesion)
    values = [part.contributions[explanation.predicted] for part in explanation.prototypes]
    chosen = [part.contributions[explanation.predicted] for part in explanation.strongest(4)]
    assert sorted(map(abs, chosen)) == sorted(map(abs, values))[-4:]
    assert chosen == sorted(chosen, reverse=True)


def test_a_run_folder_alone_is_enough(run: Run, lesion: Path, tmp_path: Path) -> None:
    for name in ("config.toml", "format", "model.safetensors", "prototypes.json"):
        shutil.copy(run.folder / name, tmp_path / name)
    shutil.copytree(run.folder / "prototypes", tmp_path / "prototypes")
    explanation = load_run(tmp_path).explain(lesion)
    assert explanation.save(tmp_path / "why.png").read_bytes()[:4] == b"\x89PNG"
    assert explanation.to_json() == run.explain(lesion).to_json()


def test_with_tta_contributions_sum_to_mean_logits_and_cases_use_none(
    new_run: Callable[..., Run], lesion: Path
) -> None:
    run, single = new_run("eight", **{"model.tta": 8}), new_run("one")
    found, other = run.explain(lesion), single.explain(lesion)
    for name in run.config.data.classes:
        total = sum(part.contributions[name] for part in found.prototypes)
        assert total == pytest.approx(found.logits[name], abs=1e-6)
        assert found.logits[name] != pytest.approx(other.logits[name], abs=1e-6)
    own, same = (each.cases.look_up([0])[0].region for each in (run, single))
    np.testing.assert_array_equal(own.activation, same.activation)


@pytest.mark.parametrize(
    ("suffix", "magic"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")]
)
def test_figures_are_written_by_suffix(
    run: Run, lesion: Path, tmp_path: Path, suffix: str, magic: bytes
) -> None:
    path = run.explain(lesion).save(tmp_path / f"new folder/why.{suffix}")
    assert path.read_bytes().startswith(magic)


def test_other_suffixes_are_refused_before_anything_is_written(
    run: Run, lesion: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"\.json"):
        run.explain(lesion).save_all([tmp_path / "why.json", tmp_path / "why.docx"])
    assert not list(tmp_path.iterdir())


def test_the_same_explanation_gives_the_same_bytes(run: Run, lesion: Path, tmp_path: Path) -> None:
    first, second = (run.explain(lesion).save(tmp_path / name) for name in ("a.pdf", "b.pdf"))
    assert first.read_bytes() == second.read_bytes()


def test_jupyter_shows_self_contained_pictures(run: Run, black_box: Run, lesion: Path) -> None:
    for each, pictures in ((run, 15), (black_box, 1)):
        explanation = each.explain(lesion)
        assert explanation._repr_png_().startswith(b"\x89PNG")
        page = explanation._repr_html_()
        assert page.count('src="data:image/') == pictures and explanation.predicted in page
    assert run._repr_html_().count("<img") == len(run.prototypes)
    assert "0 prototypes" in black_box._repr_html_()


def test_a_black_box_is_explained_by_its_scores_alone(
    black_box: Run, lesion: Path, tmp_path: Path
) -> None:
    explanation = black_box.explain(lesion)
    assert explanation.to_json()["prototypes"] == []
    assert explanation.save(tmp_path / "why.png").stat().st_size > 10_000


def test_colour_images_and_odd_shapes_are_explained(run: Run, tmp_path: Path) -> None:
    image = np.random.default_rng(0).random((40, 90, 3)).astype(np.float32)
    explanation = explain_array(run, image, "colour")
    assert explanation.picture.shape == (64, 64, 3)
    explanation.save(tmp_path / "colour.png")


def test_a_constant_image_is_explained(run: Run, tmp_path: Path) -> None:
    explain_array(run, np.zeros((64, 64), np.float32), "black").save(tmp_path / "black.png")


def test_a_missing_image_is_the_users_mistake(run: Run, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such image"):
        run.explain(tmp_path / "nothing.png")


def test_a_case_without_its_picture_is_told_in_words(
    run: Run, lesion: Path, tmp_path: Path
) -> None:
    shutil.copytree(run.folder.path, tmp_path / "run")
    for picture in (tmp_path / "run/prototypes").glob("*.png"):
        picture.unlink()
    shared = load_run(tmp_path / "run")
    rows = result._case_figure_data(shared.explain(lesion), 5, None).rows
    assert len(rows) == 5 and all("picture not shared" in row.case_note for row in rows)
    assert shared.explain(lesion).save(tmp_path / "why.png").stat().st_size > 10_000
    assert shared._repr_html_().count("<img") == len(run.prototypes)


def test_an_image_unlike_the_training_data_is_called_so(new_run, tmp_path: Path) -> None:
    run = new_run()
    noise = np.random.default_rng(0).random((64, 64), dtype=np.float32)
    assert explain_array(run, noise).unlike_training is None  # no limits in this run
    write_threshold(run)
    assert explain_array(run, noise).unlike_training is True
    known = read_image(run.folder / "prototypes/000.png")
    assert explain_array(run, known).unlike_training is False


def test_the_rows_show_the_cell_and_the_label_of_their_cases(run: Run, lesion: Path) -> None:
    rows = result._case_figure_data(run.explain(lesion), 5, None).rows
    assert len(rows) == 5
    for row in rows:
        record = run.prototypes[row.index]
        stride = run.model.backbone.strides[record.level] / run.config.data.image_size
        assert row.case_cell[:2] == pytest.approx((record.col * stride, record.row * stride))
        assert row.case_label == record.label is not None
