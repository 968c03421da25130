"""Training on full films with lesion boxes is training on the crops that an import makes of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from protopyramid import api
from protopyramid.data.geometry import Box
from protopyramid.data.importers.base import NEGATIVE, Crop, ImportPlan, Options
from protopyramid.data.importers.writer import write_dataset
from protopyramid.data.manifest import Sample, read_manifest
from protopyramid.errors import UserError
from protopyramid.runs.provenance import read_provenance
from protopyramid.runs.run import Run

from ..harness import tiny

MARGIN = 0.3


def write_films(phantoms: Path, folder: Path) -> list[Crop]:
    """Lesions of one patient side by side on a film; images without a lesion as they are."""
    films: dict[str, list[Sample]] = {}
    crops = []
    for sample in read_manifest(phantoms).samples:
        if sample.label != NEGATIVE and sample.box is not None:
            films.setdefault(sample.patient_id, []).append(sample)
        else:
            crops.append(
                Crop(sample.image.stem, sample.image, NEGATIVE, sample.split, sample.patient_id)
            )
    for patient, samples in films.items():
        canvas = np.full((120, 64 * len(samples) + 20), 3000, np.uint16)
        path = folder / f"{patient}.png"
        for number, sample in enumerate(samples):
            left = 10 + 64 * number
            canvas[30:94, left : left + 64] = np.asarray(Image.open(sample.image))
            x0, y0, x1, y1 = (float(round(edge)) for edge in sample.box or ())
            box: Box = (x0 + left, y0 + 30, x1 + left, y1 + 30)
            name = f"lesion-{patient}-{number}"
            crops.append(Crop(name, path, sample.label, sample.split, patient, box=box))
        Image.fromarray(canvas).save(path)
    return crops


def write_manifest(crops: list[Crop], path: Path) -> Path:
    lines = ["image,label,split,patient_id,lesion_x0,lesion_y0,lesion_x1,lesion_y1"]
    for crop in crops:
        box = ",".join(map(str, crop.box)) if crop.box else ",,,"
        lines.append(f"{crop.image},{crop.label},{crop.split},{crop.patient_id},{box}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def trained(
    phantoms: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Run, Run, Path, list[Crop]]:
    """A run on films and one on their crops, the manifest of films, and the lesions."""
    folder = tmp_path_factory.mktemp("films")
    films = folder / "films"
    films.mkdir()
    crops = write_films(phantoms, films)
    manifest = write_manifest(crops, folder / "manifest.csv")
    options = Options(margin=MARGIN)
    imported = write_dataset(ImportPlan(crops), films, folder / "crops", "folders", options)
    settings = {"data__crop": "lesion", "data__region": {"margin": MARGIN}}
    on_films = api.train(tiny(**settings), manifest, folder / "on-films")
    on_crops = api.train(tiny(), imported.manifest, folder / "on-crops")
    return on_films, on_crops, manifest, crops


def test_the_models_are_the_same_bytes(trained) -> None:
    on_films, on_crops, *_ = trained
    model = "model.safetensors"
    assert (on_films.folder / model).read_bytes() == (on_crops.folder / model).read_bytes()
    pictures = sorted(path.name for path in (on_films.folder / "prototypes").iterdir())
    assert pictures
    for name in pictures:
        found, expected = (
            (run.folder / f"prototypes/{name}").read_bytes() for run in (on_films, on_crops)
        )
        assert found == expected


def test_a_run_knows_its_margin_and_what_its_images_are_like(trained) -> None:
    on_films, on_crops, *_ = trained
    assert on_films.config.data.region.margin == MARGIN
    framing = read_provenance(on_films.folder).framing
    assert framing is not None and framing == read_provenance(on_crops.folder).framing
    assert framing.aspect[0] == framing.aspect[2] == 1


def test_films_are_evaluated_predicted_and_explained_as_crops(trained, tmp_path: Path) -> None:
    on_films, on_crops, manifest, crops = trained
    found, expected = (api.evaluate(run, bootstrap=5) for run in (on_films, on_crops))
    results = [each if isinstance(each, dict) else each.to_json() for each in (found, expected)]
    assert results[0]["auroc"] == results[1]["auroc"]
    assert results[0]["activation_precision"] == results[1]["activation_precision"]
    lesion = next(crop for crop in crops if crop.box and crop.split == "test")
    by_box = api.predict(on_films, lesion.image, lesions=[lesion.box])[0]
    of_crop = api.predict(on_crops, manifest.parent / f"crops/images/{lesion.name}.png")[0]
    assert by_box["logits"] == pytest.approx(of_crop["logits"], abs=1e-5)
    saved = next(
        api.explain_all(on_films, lesion.image, tmp_path, lesions=[lesion.box], top=1)
    ).explanation
    x0, y0, x1, y1 = saved.to_json()["region"].values()
    assert x0 <= lesion.box[0] < lesion.box[2] <= x1 and y0 <= lesion.box[1] < lesion.box[3] <= y1
    assert saved.logits == pytest.approx(of_crop["logits"], abs=1e-5)


def test_several_lesions_of_a_film_need_the_crop(trained, tmp_path: Path) -> None:
    _, _, manifest, _ = trained
    with pytest.raises(UserError, match=r"further lesions .* --set data\.crop=lesion"):
        api.train(tiny(), manifest, tmp_path / "run")
