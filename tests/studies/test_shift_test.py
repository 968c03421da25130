"""Lesions away from the middle: images and boxes move together, and precision tells who follows."""

import numpy as np
import pytest
import torch
from PIL import Image

from protopyramid.data.images import read_image
from protopyramid.data.manifest import read_manifest
from protopyramid.errors import UserError
from protopyramid.studies.shift_test import (
    shifted_box,
    shifted_image,
    shifted_precision,
    write_shifted,
)


@pytest.mark.parametrize(("right", "down"), [(2, 1), (-2, 1), (2, -1), (-2, -1), (0, 0)])
def test_every_pixel_moves_and_what_comes_free_is_a_mirror_image(right, down):
    image = np.random.default_rng(0).random((6, 8), dtype=np.float32)
    found = shifted_image(image, right, down)
    for y in range(6):
        for x in range(8):
            assert found[y, x] == image[mirrored(y - down, 6), mirrored(x - right, 8)]


def mirrored(place: int, size: int) -> int:
    """A place beyond an edge, seen in a mirror that stands on the edge."""
    if place < 0:
        return -place - 1
    return place if place < size else 2 * size - 1 - place


def test_a_box_moves_along_and_ends_at_the_edge():
    assert shifted_box((2, 3, 6, 7), 1, -2, (20, 10)) == (3, 1, 7, 5)
    assert shifted_box((2, 3, 6, 7), -4, 15, (20, 10)) == (0, 18, 2, 20)


def boxed_data(folder, boxes):
    """Black images with a white lesion in each box; one row has none."""
    lines = ["image,label,split,patient_id,lesion_x0,lesion_y0,lesion_x1,lesion_y1"]
    for number, (x0, y0, x1, y1) in enumerate(boxes):
        grey = np.zeros((40, 40), np.uint8)
        grey[y0:y1, x0:x1] = 255
        Image.fromarray(grey).save(folder / f"{number}.png")
        lines.append(f"{number}.png,spiculated,test,{number},{x0},{y0},{x1},{y1}")
    Image.fromarray(np.zeros((40, 40), np.uint8)).save(folder / "none.png")
    lines.append("none.png,negative,test,n,,,,")
    data = folder / "data.csv"
    data.write_text("\n".join(lines) + "\n")
    return data


def test_the_lesion_is_where_the_shifted_box_is_and_images_take_turns(tmp_path):
    data = boxed_data(tmp_path, [(16, 14, 26, 28)] * 4)
    moved, stayed = (read_manifest(path) for path in write_shifted(data, tmp_path / "moved"))
    assert [sample.box for sample in moved.samples] == [
        (6, 4, 16, 18),
        (26, 4, 36, 18),
        (26, 24, 36, 38),
        (6, 24, 16, 38),
    ]
    for sample in moved.samples:
        x0, y0, x1, y1 = (int(value) for value in sample.box)
        expected = np.zeros((40, 40), np.float32)
        expected[y0:y1, x0:x1] = 1
        np.testing.assert_array_equal(read_image(sample.image), expected)
    assert [sample.box for sample in stayed.samples] == [sample.box for sample in moved.samples]
    originals = [(tmp_path / f"{number}.png").resolve() for number in range(4)]
    assert [sample.image.resolve() for sample in stayed.samples] == originals


def test_a_lesion_that_would_leave_its_image_is_left_out(tmp_path):
    data = boxed_data(
        tmp_path, [(2, 2, 8, 8), (16, 14, 26, 28)]
    )  # the first goes to the upper left
    for path in write_shifted(data, tmp_path / "moved"):
        assert [sample.box for sample in read_manifest(path).samples] == [(26, 4, 36, 18)]


def test_a_split_without_boxes_is_refused(tmp_path):
    with pytest.raises(UserError, match="has a box"):
        write_shifted(boxed_data(tmp_path, []), tmp_path / "moved")


def looks_at(run, see) -> None:
    """Let every prototype's map be what `see` makes of the images (B, 3, H, W)."""

    def replace_maps(model, inputs, evidence):
        seen = {
            level: torch.nn.functional.interpolate(see(inputs[0]), maps.shape[-2:], mode="area")
            for level, maps in evidence.maps.items()
        }
        sizes = {level: maps.shape[1] for level, maps in evidence.maps.items()}
        return evidence._replace(
            maps={level: each.expand(-1, sizes[level], -1, -1) for level, each in seen.items()}
        )

    run.model.register_forward_hook(replace_maps)


def brightness(images):
    return images.mean(1, keepdim=True)


def the_middle(images):
    middle = torch.zeros_like(images[:, :1])
    side = images.shape[-1]
    middle[..., 3 * side // 8 : 5 * side // 8, 3 * side // 8 : 5 * side // 8] = 1
    return middle


def test_a_look_at_the_lesion_follows_it_and_a_look_at_the_middle_does_not(new_run, tmp_path):
    data = boxed_data(tmp_path, [(15, 15, 25, 25)] * 4)
    moved, stayed = write_shifted(data, tmp_path / "moved")
    levels = {"model.prototypes.counts": {2: 1}, "model.prototypes.negative_counts": {2: 1}}
    lesion, middle = new_run("lesion", **levels), new_run("middle", **levels)
    looks_at(lesion, brightness)
    looks_at(middle, the_middle)
    assert shifted_precision(lesion, moved) > 0.9
    assert shifted_precision(lesion, stayed) < 0.1
    assert shifted_precision(middle, moved) == pytest.approx(shifted_precision(middle, stayed))
    assert shifted_precision(middle, moved) < 0.1


def test_without_prototypes_there_is_nothing_to_follow(new_run, phantom_manifest, tmp_path):
    moved, _ = write_shifted(phantom_manifest, tmp_path / "moved")
    assert shifted_precision(new_run(preset="vgg16"), moved) is None
