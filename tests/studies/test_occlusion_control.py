"""The annotated part is replaced by what the surroundings alone tell."""

import numpy as np
import pytest
import torch
from PIL import Image

from protopyramid.data.images import read_image, read_mask
from protopyramid.data.manifest import read_manifest
from protopyramid.errors import UserError
from protopyramid.studies.occlusion_control import occluded, occluded_auroc, write_occluded


def band(size: int = 32) -> torch.Tensor:
    y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    distance = ((y - 15.0) ** 2 + (x - 16.0) ** 2).sqrt()
    return (distance > 7) & (distance < 11)


def test_what_is_under_the_mask_has_no_say():
    torch.manual_seed(0)
    masks = band()[None]
    images = torch.rand(1, 32, 32)
    others = torch.where(masks, torch.rand(1, 32, 32), images)
    torch.testing.assert_close(occluded(images, masks), occluded(others, masks), rtol=0, atol=0)


def test_what_is_not_under_the_mask_stays():
    masks, images = band()[None], torch.rand(1, 32, 32)
    assert torch.equal(occluded(images, masks)[~masks], images[~masks])


def test_the_fill_solves_laplaces_equation():
    torch.manual_seed(1)
    masks, images = band()[None], torch.rand(1, 32, 32, dtype=torch.float64)
    found = occluded(images, masks)[0].numpy()
    inside = [tuple(place) for place in np.argwhere(masks[0].numpy())]
    number = {place: index for index, place in enumerate(inside)}
    matrix, right = np.zeros((len(inside), len(inside))), np.zeros(len(inside))
    for (y, x), row in number.items():
        matrix[row, row] = 4
        for near in ((y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)):
            if near in number:
                matrix[row, number[near]] = -1
            else:
                right[row] += float(images[0][near])
    expected = np.linalg.solve(matrix, right)
    np.testing.assert_allclose([found[place] for place in inside], expected, atol=1e-4)


def test_a_mask_over_everything_gives_finite_values():
    found = occluded(torch.rand(1, 16, 16), torch.ones(1, 16, 16, dtype=torch.bool))
    assert torch.isfinite(found).all()


def test_the_control_images_are_those_of_the_split_outside_the_mask(phantom_manifest, tmp_path):
    path = write_occluded(phantom_manifest, tmp_path / "control")
    before, after = read_manifest(phantom_manifest).split("test"), read_manifest(path).samples
    assert [sample.label for sample in after] == [sample.label for sample in before]
    for old, new in zip(before, after, strict=True):
        image, changed = read_image(old.image), read_image(new.image)
        mask = read_mask(old.mask, image.shape)
        np.testing.assert_array_equal(image[~mask], changed[~mask])
        assert not mask.any() or (image[mask] != changed[mask]).any()


def test_without_masks_the_whole_box_is_occluded(tmp_path):
    random = np.random.default_rng(0)
    grey = random.integers(0, 255, (40, 40), dtype=np.uint8)
    Image.fromarray(grey).save(tmp_path / "a.png")
    Image.fromarray(grey).save(tmp_path / "b.png")
    header = "image,label,split,patient_id,lesion_x0,lesion_y0,lesion_x1,lesion_y1\n"
    data = tmp_path / "data.csv"
    data.write_text(header + "a.png,spiculated,test,1,10,5,30,20\nb.png,negative,test,2,,,,\n")
    samples = read_manifest(write_occluded(data, tmp_path / "control")).split("test")
    assert [sample.label for sample in samples] == ["spiculated"]
    found = read_image(samples[0].image) * 255
    outside = np.ones((40, 40), dtype=bool)
    outside[5:20, 10:30] = False
    np.testing.assert_allclose(found[outside], grey[outside], atol=0.01)
    assert found[~outside].std() < grey[~outside].std() / 3  # smooth, where noise was


def test_a_split_without_annotations_has_no_control(tmp_path):
    Image.fromarray(np.zeros((40, 40), np.uint8)).save(tmp_path / "a.png")
    data = tmp_path / "data.csv"
    data.write_text("image,label,split,patient_id\na.png,spiculated,test,1\n")
    with pytest.raises(UserError, match="has a mask or a box"):
        write_occluded(data, tmp_path / "control")


def test_the_control_of_a_run_is_its_auroc_on_those_images(new_run, phantom_manifest, tmp_path):
    run = new_run()
    path = write_occluded(phantom_manifest, tmp_path / "control")
    found = occluded_auroc(run, path)
    assert found is not None and 0 <= found <= 1
