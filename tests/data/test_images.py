"""Images, masks and boxes at the model's input size, and the one normalisation."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from protopyramid.config.schema import DataConfig, MarginBandConfig
from protopyramid.data.geometry import ellipse_mask
from protopyramid.data.images import (
    content_hash,
    denormalise,
    normalise,
    prepare,
    prepare_sample,
    read_image,
)
from protopyramid.data.manifest import Sample, read_manifest
from protopyramid.data.masks import margin_band
from protopyramid.errors import UserError

Array = NDArray[np.float32]


def random_image(*shape: int) -> Array:
    return np.random.default_rng(0).random(shape, np.float32)


def save(path: Path, values: NDArray[np.generic]) -> Path:
    Image.fromarray(values.astype(np.uint8)).save(path)
    return path


def test_halving_an_image_averages_its_detail_instead_of_skipping_it() -> None:
    stripes = np.tile(np.array([0, 1], np.float32), (64, 32))
    prepared = prepare(stripes, None, None, 32, "stretch")
    assert prepared.image.shape == (1, 32, 32)
    inner = prepared.image[0, :, 2:-2]
    assert (inner - 0.5).abs().max() < 0.01


def test_an_image_of_the_right_size_is_not_changed() -> None:
    levels = np.random.default_rng(0).integers(0, 256, (16, 16, 3))
    image = (levels / 255).astype(np.float32)
    prepared = prepare(image, None, None, 16, "pad")
    assert torch.equal(prepared.image, torch.from_numpy(image.transpose(2, 0, 1)))


def test_values_lie_on_sixteen_bit_steps() -> None:
    image = prepare(random_image(30, 50), None, None, 16, "stretch").image
    levels = image.double() * 65535
    assert (levels - levels.round()).abs().max() < 0.01


def test_padding_keeps_the_aspect_and_adds_black_on_both_sides() -> None:
    prepared = prepare(np.ones((20, 40), np.float32), np.ones((20, 40), bool), None, 32, "pad")
    assert (prepared.image[0, 8:24] == 1).all()
    assert prepared.image.sum() == 16 * 32
    assert prepared.mask is not None
    assert torch.equal(prepared.mask.float(), prepared.image[0])


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 60),
    st.integers(1, 60),
    st.sampled_from([16, 32, 48]),
    st.sampled_from(["stretch", "pad"]),
    st.randoms(use_true_random=False),
)
def test_masks_stay_binary_and_never_vanish(height, width, size, fit, random) -> None:  # type: ignore[no-untyped-def]
    mask = np.zeros((height, width), bool)
    mask[random.randrange(height), random.randrange(width)] = True
    prepared = prepare(mask.astype(np.float32), mask, (0, 0, width, height), size, fit)
    assert prepared.mask is not None
    assert prepared.mask.dtype == torch.uint8
    assert set(prepared.mask.unique().tolist()) <= {0, 1}
    assert prepared.mask.any()
    assert prepared.image.shape == (1, size, size)
    assert 0 <= prepared.image.min() <= prepared.image.max() <= 1
    assert prepared.box is not None
    assert -1e-3 <= min(prepared.box) <= max(prepared.box) <= size + 1e-3


@pytest.mark.parametrize("fit", ["stretch", "pad"])
@pytest.mark.parametrize("shape", [(100, 160), (160, 100), (40, 30), (64, 64)])
def test_image_mask_and_box_move_together(fit: str, shape: tuple[int, int]) -> None:
    height, width = shape
    box = (width * 0.25, height * 0.5, width * 0.5, height * 0.75)
    mask = np.zeros(shape, bool)
    mask[round(box[1]) : round(box[3]), round(box[0]) : round(box[2])] = True
    prepared = prepare(mask.astype(np.float32), mask, box, 64, fit)
    assert prepared.mask is not None and prepared.box is not None
    for plane in (prepared.mask, prepared.image[0] >= 0.5):
        rows, columns = torch.nonzero(plane, as_tuple=True)
        edges = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
        np.testing.assert_allclose(np.array(edges, float), prepared.box, atol=1.01)


DATA = DataConfig(image_size=32)


def sample_of(folder: Path, **fields: object) -> Sample:
    image = save(folder / "image.png", random_image(40, 60) * 255)
    known = {"row": 2, "name": "image.png", "image": image, "label": "spiculated", "split": "train"}
    return Sample(**{**known, **fields})  # type: ignore[arg-type]


def test_the_annotation_is_the_mask_file_first(tmp_path: Path) -> None:
    mask = save(tmp_path / "mask.png", np.pad(np.full((20, 60), 255), ((0, 20), (0, 0))))
    prepared = prepare_sample(sample_of(tmp_path, mask=mask, box=(0, 30, 10, 40)), DATA)
    assert prepared.mask is not None
    assert prepared.mask[:16].all() and not prepared.mask[16:].any()
    assert prepared.box == pytest.approx((0, 24, 32 / 6, 32))


def test_the_annotation_is_else_the_ellipse_in_the_box(tmp_path: Path) -> None:
    prepared = prepare_sample(sample_of(tmp_path, box=(15, 10, 45, 30)), DATA)
    assert prepared.mask is not None
    np.testing.assert_array_equal(prepared.mask, ellipse_mask((8, 8, 24, 24), 32, 32))


def test_without_mask_or_box_and_for_negatives_there_is_no_annotation(tmp_path: Path) -> None:
    assert prepare_sample(sample_of(tmp_path), DATA).mask is None
    negative = sample_of(tmp_path, label="negative", box=(15, 10, 45, 30))
    assert prepare_sample(negative, DATA).mask is None


MARGIN = DATA.model_copy(
    update={
        "annotation": "margin",
        "margin_band": MarginBandConfig(inner=0.1, outer=0.2, box_inner=0.3, box_outer=0.15),
    }
)


def test_the_annotation_can_be_the_band_of_the_margin(tmp_path: Path) -> None:
    lesion = np.zeros((40, 60), np.bool_)
    lesion[10:30, 15:45] = True
    mask = save(tmp_path / "mask.png", lesion * 255)
    prepared = prepare_sample(sample_of(tmp_path, mask=mask, box=(15, 10, 45, 30)), MARGIN)
    # In pixels of the file, where the image is not stretched yet: 27.6 is the lesion's size.
    expected = prepare(
        random_image(40, 60), margin_band(lesion, 0.1, 0.2), None, 32, "stretch"
    ).mask
    assert prepared.mask is not None and expected is not None
    assert torch.equal(prepared.mask, expected)
    assert not prepared.mask[16, 16] and prepared.mask[8, 16] and prepared.mask[16, 8]
    assert prepared.box == pytest.approx((8, 8, 24, 24))


def test_without_a_mask_the_band_is_the_wider_one_of_the_ellipse_in_the_box(tmp_path: Path) -> None:
    prepared = prepare_sample(sample_of(tmp_path, box=(15, 10, 45, 30)), MARGIN)
    ellipse = ellipse_mask((15, 10, 45, 30), 40, 60)
    expected = prepare(
        random_image(40, 60), margin_band(ellipse, 0.3, 0.15), None, 32, "stretch"
    ).mask
    assert prepared.mask is not None and expected is not None
    assert torch.equal(prepared.mask, expected)


def test_where_no_margin_is_seen_there_is_no_annotation(tmp_path: Path) -> None:
    assert prepare_sample(sample_of(tmp_path), MARGIN).mask is None
    negative = sample_of(tmp_path, label="negative", box=(15, 10, 45, 30))
    assert prepare_sample(negative, MARGIN).mask is None
    everywhere = save(tmp_path / "all.png", np.full((40, 60), 255))
    whole = prepare_sample(sample_of(tmp_path, mask=everywhere, box=(1, 1, 50, 30)), MARGIN)
    assert whole.mask is None
    nowhere = save(tmp_path / "none.png", np.zeros((40, 60)))
    empty = prepare_sample(sample_of(tmp_path, mask=nowhere), MARGIN)
    assert empty.mask is not None and not empty.mask.any()


def test_a_box_outside_its_image_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"row 2, lesion box: outside its image 'image\.png'"):
        prepare_sample(sample_of(tmp_path, box=(70, 1, 80, 9)), DATA)


def test_normalisation_subtracts_the_mean_and_divides_by_the_deviation() -> None:
    colour = torch.rand(2, 3, 4, 4)
    out = normalise(colour, DATA)
    for channel, (mean, std) in enumerate(zip(DATA.mean, DATA.std, strict=True)):
        torch.testing.assert_close(out[:, channel], (colour[:, channel] - mean) / std)
    torch.testing.assert_close(denormalise(out, DATA), colour)


def test_grey_is_repeated_before_it_is_normalised() -> None:
    grey = torch.rand(2, 1, 4, 4)
    assert torch.equal(normalise(grey, DATA), normalise(grey.repeat(1, 3, 1, 1), DATA))
    with pytest.raises(ValueError, match=r"\(2, 2, 4, 4\)"):
        normalise(torch.rand(2, 2, 4, 4), DATA)


def test_the_same_picture_has_the_same_hash_in_every_format(tmp_path: Path) -> None:
    grey = (random_image(9, 7) * 255).astype(np.uint8)
    save(tmp_path / "a.png", grey)
    save(tmp_path / "b.pgm", grey)
    save(tmp_path / "c.png", np.repeat(grey[..., None], 3, 2))
    Image.fromarray(grey.astype(np.uint16) * 257).save(tmp_path / "d.tif")
    hashes = {content_hash(read_image(tmp_path / n)) for n in ("a.png", "b.pgm", "c.png", "d.tif")}
    assert len(hashes) == 1
    grey[0, 0] ^= 1
    assert content_hash(grey.astype(np.float32) / 255) not in hashes
    assert content_hash(random_image(4, 6)) != content_hash(random_image(6, 4))


def test_real_crops_become_inputs_whose_ellipse_lies_in_their_box(real_manifest_path: Path) -> None:
    samples = [s for s in read_manifest(real_manifest_path).samples if s.box][::60]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for sample in samples:
            prepared = prepare_sample(sample, DataConfig(image_size=112))
            assert prepared.mask is not None and prepared.box is not None
            x0, y0, x1, y1 = prepared.box
            share = float(prepared.mask.sum()) / ((x1 - x0) * (y1 - y0))
            assert share == pytest.approx(np.pi / 4, rel=0.03)
            assert prepared.image.std() > 0.02
