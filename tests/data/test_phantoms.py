"""Phantoms: what is promised about them, and that the class can be read from the margin alone."""

import csv
import hashlib
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GroupKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from protopyramid.data.phantoms import MARGINS, NEGATIVE, Phantom, make_phantom, write_phantoms
from protopyramid.errors import UserError

from .limits import error_with_file_limit

SIZE = 224
PATIENTS = 150


@cache
def cohort() -> tuple[Phantom, ...]:
    """A patch of each margin for each patient, margins at different patch numbers. Length 3 P."""
    return tuple(
        make_phantom(MARGINS[(patient + patch) % 3], 0, patient, patch)
        for patient in range(PATIENTS)
        for patch in range(3)
    )


def box_size(phantom: Phantom) -> tuple[float, float]:
    """Width and height of the lesion box."""
    assert phantom.box is not None
    x0, y0, x1, y1 = phantom.box
    return x1 - x0, y1 - y0


def cheating_features(phantom: Phantom) -> list[float]:
    """Image mean and SD, body area by a threshold inside the box, box area and aspect."""
    assert phantom.box is not None
    x0, y0, x1, y1 = (int(edge) for edge in phantom.box)
    image = phantom.image / 65535
    lesion = image[y0:y1, x0:x1]
    threshold = (np.percentile(lesion, 90) + np.percentile(image, 30)) / 2
    width, height = box_size(phantom)
    return [image.mean(), image.std(), (lesion > threshold).sum(), width * height, width / height]


def macro_auroc(features: np.ndarray, labels: np.ndarray, patients: np.ndarray) -> float:
    """Cross-validated by patient, logistic regression, one against the rest, mean of the classes."""
    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    chance = cross_val_predict(
        classifier, features, labels, groups=patients, cv=GroupKFold(5), method="predict_proba"
    )
    return float(np.mean([roc_auc_score(labels == c, chance[:, c]) for c in range(3)]))


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file below the folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def rows_of(manifest: Path) -> list[dict[str, str]]:
    with manifest.open(newline="") as file:
        return list(csv.DictReader(file))


def test_image_is_16_bit_and_mask_has_its_shape() -> None:
    for label in (*MARGINS, NEGATIVE):
        phantom = make_phantom(label, seed=1, patient=0, patch=0)
        assert phantom.image.dtype == np.uint16 and phantom.image.shape == (SIZE, SIZE)
        assert phantom.mask.dtype == np.bool_ and phantom.mask.shape == (SIZE, SIZE)
        assert phantom.label == label


def test_grey_values_are_hardly_ever_clipped() -> None:
    clipped = [np.mean((p.image == 0) | (p.image == 65535)) for p in cohort()]
    assert np.mean(clipped) < 1e-3


def test_lesion_box_covers_8_to_35_percent_of_the_patch() -> None:
    shares = [np.prod(box_size(phantom)) / SIZE**2 for phantom in cohort()]
    assert min(shares) >= 0.08 and max(shares) <= 0.35
    assert np.ptp(shares) > 0.2, "sizes should use the range"


def test_lesion_box_holds_the_band_and_no_more() -> None:
    for phantom in cohort()[:60]:
        rows, columns = np.nonzero(phantom.mask)
        assert phantom.box == (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)


def test_band_is_at_most_12_percent_of_the_pixels() -> None:
    shares = [phantom.mask.mean() for phantom in cohort()]
    assert max(shares) <= 0.12 and min(shares) >= 0.05


def test_centres_reach_every_part_where_the_box_fits() -> None:
    free = []
    for phantom in cohort():
        assert phantom.box is not None
        x0, y0, x1, y1 = phantom.box
        assert x0 >= 0 and y0 >= 0 and x1 <= SIZE and y1 <= SIZE
        free.append((x0 / (SIZE - (x1 - x0)), y0 / (SIZE - (y1 - y0))))
    # As a fraction of the room the box has, its place is uniform: all cells of a 4 x 4 grid fill.
    counts, _, _ = np.histogram2d(*np.array(free).T, bins=4, range=((0, 1), (0, 1)))
    assert counts.min() >= len(free) / 16 / 2


def test_negatives_have_no_mask_and_no_box() -> None:
    phantom = make_phantom(NEGATIVE, seed=0, patient=0, patch=0)
    assert phantom.box is None and not phantom.mask.any()


def test_negatives_are_as_bright_as_masses() -> None:
    with_mass = [make_phantom("indistinct", 0, p, 0).image.mean() for p in range(60)]
    without = [make_phantom(NEGATIVE, 0, p, 0).image.mean() for p in range(60)]
    assert abs(np.mean(with_mass) - np.mean(without)) < 0.25 * np.std(with_mass)


@pytest.mark.parametrize("patient", range(8))
def test_margins_of_one_draw_differ_only_inside_the_band(patient: int) -> None:
    """The strongest form of "contrast, size, blur, noise and background do not tell the class"."""
    first, *others = (make_phantom(label, 3, patient, 0) for label in MARGINS)
    for other in others:
        assert other.box == first.box
        np.testing.assert_array_equal(other.mask, first.mask)
        outside = ~first.mask
        np.testing.assert_array_equal(other.image[outside], first.image[outside])
        assert np.any(other.image[first.mask] != first.image[first.mask])


def test_every_margin_keeps_the_total_brightness_of_the_mass() -> None:
    for patient in range(20):
        totals = [make_phantom(m, 4, patient, 0).image.sum(dtype=float) for m in MARGINS]
        assert np.ptp(totals) < 2e-3 * np.mean(totals)


def test_a_faded_edge_is_less_steep_than_a_sharp_one_and_ranges_touch() -> None:
    steepness = {label: [] for label in ("circumscribed", "indistinct")}
    for patient in range(60):
        for label, values in steepness.items():
            phantom = make_phantom(label, 5, patient, 0)
            rows, columns = np.gradient(phantom.image.astype(float))
            values.append(np.hypot(rows, columns)[phantom.mask].mean())
    sharp, faded = (np.array(steepness[label]) for label in steepness)
    assert np.mean(sharp > faded) > 0.95
    assert np.min(1 - faded / sharp) < 0.1, "the narrowest fade should be near a sharp edge"


def test_cheating_features_do_not_tell_the_margin() -> None:
    features = np.array([cheating_features(phantom) for phantom in cohort()])
    labels = np.array([MARGINS.index(phantom.label) for phantom in cohort()])
    patients = np.repeat(np.arange(PATIENTS), 3)
    assert macro_auroc(features, labels, patients) <= 0.60


def test_cheating_features_would_find_a_leak() -> None:
    """Control of the test above: a size that depends on the class must be found."""
    features = np.array([cheating_features(phantom) for phantom in cohort()])
    labels = np.array([MARGINS.index(phantom.label) for phantom in cohort()])
    features[labels == 1, 3] *= 1.5
    assert macro_auroc(features, labels, np.repeat(np.arange(PATIENTS), 3)) > 0.65


def test_patches_of_a_patient_share_their_tissue() -> None:
    """Mean grey values vary less within patients than between them."""
    means = np.array(
        [[make_phantom(NEGATIVE, 0, p, k).image.mean() for k in range(3)] for p in range(25)]
    )
    assert means.std(axis=1).mean() < 0.6 * means.mean(axis=1).std()


def test_unknown_label_is_refused_by_name() -> None:
    with pytest.raises(UserError, match="lobulated"):
        make_phantom("lobulated", 0, 0, 0)


@pytest.mark.parametrize("wrong", [{"patients": 0}, {"patches": 0}, {"size": 8}])
def test_impossible_counts_are_refused_before_anything_is_written(
    tmp_path: Path, wrong: dict[str, int]
) -> None:
    with pytest.raises(UserError, match=str(*wrong.values())):
        write_phantoms(tmp_path / "new", **wrong)
    assert not (tmp_path / "new").exists()


def test_negative_split_shares_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="splits"):
        write_phantoms(tmp_path, patients=2, size=32, splits=(1.0, -0.5, 0.5))


def test_other_sizes_scale_the_picture() -> None:
    small = make_phantom("spiculated", 0, 0, 0, size=96)
    assert small.image.shape == (96, 96)
    assert 0.05 <= small.mask.mean() <= 0.12
    assert 0.08 <= np.prod(box_size(small)) / 96**2 <= 0.35


def test_same_seed_gives_identical_bytes(tmp_path: Path) -> None:
    for name in ("first", "second"):
        write_phantoms(tmp_path / name, seed=7, patients=4, size=64)
    first, second = digests(tmp_path / "first"), digests(tmp_path / "second")
    assert first == second and len(first) == 4 * 4 * 2 + 1
    write_phantoms(tmp_path / "third", seed=8, patients=4, size=64)
    assert not set(first.values()) & {
        digest for name, digest in digests(tmp_path / "third").items() if "images" in name
    }


def test_number_of_workers_does_not_change_a_byte(tmp_path: Path) -> None:
    write_phantoms(tmp_path / "one", patients=6, size=64, workers=1)
    write_phantoms(tmp_path / "two", patients=6, size=64, workers=2)
    assert digests(tmp_path / "one") == digests(tmp_path / "two")


def test_a_patch_does_not_depend_on_how_many_patients_there_are(tmp_path: Path) -> None:
    write_phantoms(tmp_path / "few", patients=2, size=64)
    write_phantoms(tmp_path / "many", patients=5, size=64)
    few, many = digests(tmp_path / "few"), digests(tmp_path / "many")
    assert all(many[name] == few[name] for name in few if name.endswith(".png"))


def test_written_files_are_what_make_phantom_draws(tmp_path: Path) -> None:
    manifest = write_phantoms(tmp_path, seed=2, patients=3, size=64)
    for index, row in enumerate(rows_of(manifest)):
        phantom = make_phantom(row["label"], 2, index // 4, index % 4, size=64)
        with (
            Image.open(tmp_path / row["image"]) as image,
            Image.open(tmp_path / row["mask"]) as mask,
        ):
            assert image.mode == "I;16" and mask.mode == "L"
            np.testing.assert_array_equal(np.asarray(image), phantom.image)
            np.testing.assert_array_equal(np.asarray(mask), phantom.mask * 255)
        box = [row[f"lesion_{edge}"] for edge in ("x0", "y0", "x1", "y1")]
        expected = ["" for _ in box] if phantom.box is None else list(phantom.box)
        assert [float(edge) if edge else "" for edge in box] == expected


def test_patients_do_not_cross_splits(tmp_path: Path) -> None:
    rows = rows_of(write_phantoms(tmp_path, patients=20, size=32))
    by_patient: dict[str, set[str]] = {}
    for row in rows:
        by_patient.setdefault(row["patient_id"], set()).add(row["split"])
    assert all(len(splits) == 1 for splits in by_patient.values())
    assert {row["split"] for row in rows} == {"train", "validation", "test"}


def test_split_sizes_follow_the_shares(tmp_path: Path) -> None:
    rows = rows_of(write_phantoms(tmp_path, patients=10, patches=1, size=32, splits=(5, 2, 3)))
    counts = {split: sum(row["split"] == split for row in rows) for split in ("train", "test")}
    assert counts == {"train": 5, "test": 3}


@pytest.mark.parametrize("patches", [3, 4, 5])
def test_classes_are_balanced_in_the_dataset(tmp_path: Path, patches: int) -> None:
    rows = rows_of(write_phantoms(tmp_path, patients=8, patches=patches, size=32))
    counts = [sum(row["label"] == label for row in rows) for label in (*MARGINS, NEGATIVE)]
    assert set(counts) == {8 * patches // 4}


def test_every_patient_has_every_class_in_no_fixed_order(tmp_path: Path) -> None:
    rows = rows_of(write_phantoms(tmp_path, patients=12, size=32))
    orders = [tuple(row["label"] for row in rows[start : start + 4]) for start in range(0, 48, 4)]
    assert all(set(order) == {*MARGINS, NEGATIVE} for order in orders)
    assert len(set(orders)) > 4


def test_file_names_do_not_reveal_the_class(tmp_path: Path) -> None:
    for row in rows_of(write_phantoms(tmp_path, patients=2, size=32)):
        for label in (*MARGINS, NEGATIVE):
            assert label[:3] not in Path(row["image"]).name


def test_progress_counts_every_patch(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    write_phantoms(tmp_path, patients=2, size=32, progress=lambda *call: calls.append(call))
    assert calls == [(done, 8) for done in range(1, 9)]


def test_interrupted_writing_leaves_no_manifest(tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_phantoms(tmp_path, patients=2, size=32, progress=stop)
    assert not (tmp_path / "manifest.csv").exists()


def test_brightness_of_the_faintest_spicules_is_near_that_of_a_sharp_edge() -> None:
    """The classes touch: some spiculated mass is nearly the circumscribed one of the same draw."""
    change = []
    for patient in range(60):
        sharp, spiky = (
            make_phantom(label, 6, patient, 0) for label in ("circumscribed", "spiculated")
        )
        difference = spiky.image.astype(float) - sharp.image
        change.append(np.sqrt(np.mean(difference[sharp.mask] ** 2)))
    assert min(change) < 0.5 * np.median(change)


def test_where_a_file_cannot_grow_it_is_named_and_nothing_torn_is_left(tmp_path: Path) -> None:
    message = error_with_file_limit(4096, lambda: write_phantoms(tmp_path / "out", patients=1))
    assert "images/patient0000-0.png: is larger than the limit" in message
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == []
