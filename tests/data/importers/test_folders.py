"""Class folders: whole images, with the masks of every documented layout; the rest is told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from protopyramid.cli.main import main
from protopyramid.data.annotations import MaskFile
from protopyramid.data.importers.base import Crop, Options
from protopyramid.data.importers.folders import find
from protopyramid.data.io.decoding import read_image
from protopyramid.data.manifest import read_manifest
from protopyramid.errors import UserError

from .conftest import SaveDicom, reasons


def touch(source: Path, *names: str) -> None:
    for name in names:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).touch()


def masks(source: Path) -> dict[str, str | None]:
    """The mask of each image, both as paths below the source."""
    return {
        crop.image.relative_to(source).as_posix(): crop.annotation.path.relative_to(
            source
        ).as_posix()
        if isinstance(crop.annotation, MaskFile)
        else None
        for crop in find(source, Options()).crops
    }


def test_an_image_is_taken_whole_with_its_folder_as_label(tmp_path: Path) -> None:
    touch(tmp_path, "Ill_Defined/a 1.png")
    found = find(tmp_path, Options(test_fraction=0))
    path = tmp_path / "Ill_Defined/a 1.png"
    assert list(found.crops) == [Crop("Ill_Defined_a_1", path, "indistinct", "train", whole=True)]
    assert "labels renamed: Ill_Defined -> indistinct" in found.notes
    assert any("one patient may be in several splits" in note for note in found.notes)


@pytest.mark.parametrize(
    ("image", "mask"),
    [
        ("round/a.png", "masks/round/a.png"),
        ("round/a.jpg", "masks/round/A_mask.png"),
        ("round/a.png", "round_masks/a.tif"),
        ("round/a.png", "round_mask/a.png"),
        ("round/a (1).png", "round/a (1)_mask.png"),
        ("train/round/a.png", "train/masks/round/a.png"),
        ("train/round/a.png", "train/round_masks/a.png"),
        ("train/round/a.png", "masks/train/round/a.png"),
        ("train/round/a.png", "masks/round/a.png"),
    ],
)
def test_masks_are_found_in_every_documented_place(tmp_path: Path, image: str, mask: str) -> None:
    touch(tmp_path, image, mask)
    assert masks(tmp_path) == {image: mask}
    assert not find(tmp_path, Options()).skipped


def test_dicom_without_a_suffix_is_an_image(tmp_path: Path, save_dicom: SaveDicom) -> None:
    pixels = np.arange(64, dtype=np.uint16).reshape(8, 8)
    for name in ("round/1.2.840.7", "round/1.2.840.8", "round/IM0001", "masks/round/1.2.840.7"):
        touch(tmp_path, name)
        save_dicom(tmp_path / name, pixels)
    touch(tmp_path, "round/DICOMDIR", "round/README")
    found = find(tmp_path, Options())
    assert [crop.name for crop in found.crops] == [
        "round_1.2.840.7",
        "round_1.2.840.8",
        "round_IM0001",
    ]
    assert masks(tmp_path)["round/1.2.840.7"] == "masks/round/1.2.840.7"
    assert masks(tmp_path)["round/1.2.840.8"] is None
    assert {each.item for each in found.skipped} == {"round/DICOMDIR", "round/README"}


def test_a_mask_belongs_to_the_image_of_its_class_and_split(tmp_path: Path) -> None:
    names = [f"{split}/{label}/a.png" for split in ("train", "test") for label in "xy"]
    touch(tmp_path, *names, *(f"masks/{name}" for name in names))
    assert masks(tmp_path) == {name: f"masks/{name}" for name in names}


def test_split_folders_are_the_splits(tmp_path: Path) -> None:
    touch(tmp_path, "train/x/a.png", "valid/x/a.png", "Test/x/a.png", "Test/y/a.png")
    found = find(tmp_path, Options())
    assert {crop.name: (crop.split, crop.label) for crop in found.crops} == {
        "train_x_a": ("train", "x"),
        "valid_x_a": ("validation", "x"),
        "Test_x_a": ("test", "x"),
        "Test_y_a": ("test", "y"),
    }


def test_without_split_folders_images_of_every_class_are_the_test_split(tmp_path: Path) -> None:
    touch(tmp_path, *(f"{label}/{number}.png" for label in "xy" for number in range(10)))
    crops = find(tmp_path, Options()).crops
    for label in "xy":
        splits = [crop.split for crop in crops if crop.label == label]
        assert (splits.count("train"), splits.count("test")) == (8, 2)


def test_what_is_no_image_of_a_class_is_told(tmp_path: Path) -> None:
    touch(
        tmp_path,
        "x/a.png",
        "x/a_mask.png",
        "x/a_mask_1.png",
        "x/notes.txt",
        "x/deep/b.png",
        "x/._a.png",
        "loose.png",
        "masks/x/gone.png",
    )
    assert masks(tmp_path) == {"x/a.png": "x/a_mask.png"}
    mask = "mask without an image, or a second mask of the same image"
    assert reasons(find(tmp_path, Options())) == {
        "x/a_mask_1.png": mask,
        "x/notes.txt": "not a readable image: .txt",
        "x/deep/b.png": "not directly in a class folder",
        "x/._a.png": "hidden file or folder",
        "loose.png": "not directly in a class folder",
        "masks/x/gone.png": mask,
    }


def test_beside_split_folders_there_are_no_classes(tmp_path: Path) -> None:
    touch(tmp_path, "train/x/a.png", "train/b.png", "y/c.png")
    found = find(tmp_path, Options())
    assert [crop.name for crop in found.crops] == ["train_x_a"]
    assert reasons(found) == {
        "train/b.png": "not directly in a class folder",
        "y/c.png": "folder beside the splits: y is not one of train",
    }


def test_images_without_a_mask_among_others_are_counted(tmp_path: Path) -> None:
    touch(tmp_path, "x/a.png", "x/b.png", "x_masks/a.png")
    assert "1 of 2 images have no mask" in find(tmp_path, Options()).notes


def test_a_source_without_class_folders_is_refused_with_what_was_expected(tmp_path: Path) -> None:
    touch(tmp_path, "loose.png", "train/b.png")
    with pytest.raises(UserError, match=r"SRC/CLASS/NAME\.png"):
        find(tmp_path, Options())


def save(path: Path, values: NDArray[np.generic]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values.astype(np.uint8)).save(path)


def test_the_command_takes_whole_images_with_their_masks(tmp_path: Path) -> None:
    source, out = tmp_path / "src", tmp_path / "out"
    rng = np.random.default_rng(0)
    images = {name: rng.integers(0, 256, (20, 30)) for name in ("round/a", "round/b", "none/a")}
    for name, values in images.items():
        save(source / f"train/{name}.png", values)
    mask = np.zeros((20, 30))
    mask[4:9, 12:20] = 255
    save(source / "train/masks/round/a.png", mask)
    save(source / "train/masks/none/a.png", np.zeros((20, 30)))  # drawn, and nothing found
    command = ["data", "import", "folders", str(source), str(out), "--workers", "1"]
    assert main(command) == 0
    samples = {sample.name: sample for sample in read_manifest(out / "manifest.csv").samples}
    assert len(samples) == 3
    for name, values in images.items():
        sample = samples[f"images/train_{name.replace('/', '_')}.png"]
        assert (sample.label, sample.split) == (name.split("/")[0], "train")
        np.testing.assert_allclose(read_image(sample.image), values / 255, atol=1e-5)
    annotated = samples["images/train_round_a.png"]
    assert annotated.mask is not None
    np.testing.assert_array_equal(read_image(annotated.mask), mask / 255)
    assert annotated.box == (12, 4, 20, 9)
    assert samples["images/train_round_b.png"].mask is None
    assert samples["images/train_none_a.png"].box is None
