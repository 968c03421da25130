"""Features come from the cache as from the images, and a cache is used only where it fits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from protopyramid.data.manifest import read_manifest
from protopyramid.data.store import ImageStore
from protopyramid.errors import UserError
from protopyramid.model import build_model
from protopyramid.training.distributed import start_fabric
from protopyramid.training.features import CachePlace, FeatureBatch, FeatureSource
from protopyramid.utils.faults import observed_by
from protopyramid.utils.progress import Reporter

from ..harness import tiny


def source_of(
    phantoms: Path, folder: Path, shared: bool = False, **options: Any
) -> tuple[FeatureSource, Any]:
    config = tiny(**options)
    place = CachePlace(folder, shared)
    torch.manual_seed(0)
    samples = read_manifest(phantoms).split("train")[:5]
    model = build_model(config).eval()
    return FeatureSource("train", model, ImageStore(samples, config.data), config, place), model


@pytest.mark.parametrize(("cut", "shared"), [(5, False), (3, False), (1, False), (3, True)])
def test_every_copy_of_every_image_comes_from_the_cache_as_from_the_images(
    phantoms: Path, tmp_path: Path, cut: int, shared: bool
) -> None:
    source, model = source_of(phantoms, tmp_path, shared)
    images, repeats = np.array([0, 4, 2, 2]), np.array([0, 0, 0, 1])

    def batches() -> list[FeatureBatch]:
        copies = [source.fixed(images, repeats, epoch, 3) for epoch in range(3)]
        return [source.plain(images), *copies]

    direct = batches()
    fabric = start_fabric(1, "32-true", "cpu")
    source.open_cache(cut, 3, fabric, Reporter(quiet=True))
    for mine, wanted in zip(batches(), direct, strict=True):
        assert torch.equal(mine.masks, wanted.masks)
        assert torch.equal(mine.annotated, wanted.annotated)
        with torch.no_grad():
            z, expected = (model.pyramid_from_maps(f.maps) for f in (mine, wanted))
        for level, value in expected.items():
            torch.testing.assert_close(z[level], value, rtol=1e-5, atol=1e-6)
    masks = [tuple(batch.masks.flatten().tolist()) for batch in direct]
    assert len(set(masks)) > 1  # the copies differ


def test_copies_are_cached_in_the_precision_of_training_and_plain_images_exactly(
    phantoms: Path, tmp_path: Path
) -> None:
    images = np.arange(5)
    found = {}
    for precision in ("32-true", "bf16-mixed"):
        source, _ = source_of(phantoms, tmp_path / precision, train__precision=precision)
        source.open_cache(3, 1, start_fabric(1, precision, "cpu"), Reporter(quiet=True))
        found[precision] = [source.plain(images), source.fixed(images, images * 0, 0, 1)]
    (plain, copy), (plain_bf16, copy_bf16) = found.values()
    assert torch.equal(plain_bf16.maps[3], plain.maps[3])
    assert torch.equal(copy_bf16.maps[3], copy_bf16.maps[3].bfloat16().float())
    assert not torch.equal(copy_bf16.maps[3], copy.maps[3])
    torch.testing.assert_close(copy_bf16.maps[3], copy.maps[3], rtol=0.05, atol=0.02)


def test_a_cache_holds_the_augmented_images_where_the_context_loss_changes_them(
    phantoms: Path, tmp_path: Path
) -> None:
    images = np.arange(5)
    for weight in (0.0, 1.0):
        source, _ = source_of(phantoms, tmp_path / str(weight), loss__context=weight)
        direct = source.fixed(images, images * 0, 1, 2)
        source.open_cache(3, 2, start_fabric(1, "32-true", "cpu"), Reporter(quiet=True))
        copies, plain = source.fixed(images, images * 0, 1, 2), source.plain(images)
        assert 0 not in plain.maps
        assert (0 in copies.maps) == bool(weight)
        if weight:
            assert torch.equal(copies.maps[0], direct.maps[0])


def test_a_complete_cache_is_used_again_and_another_is_built_again(
    phantoms: Path, tmp_path: Path
) -> None:
    built: list[str] = []
    fabric = start_fabric(1, "32-true", "cpu")

    def open_again(copies: int = 1, change: float = 0.0, **options: Any) -> int:
        source, model = source_of(phantoms, tmp_path, **options)
        with torch.no_grad():
            next(model.backbone.parameters()).add_(change)
        with observed_by(lambda point: built.append(point) if point == "cache-flush" else None):
            source.open_cache(5, copies, fabric, Reporter(quiet=True))
        return len(built) // 2  # images as they are, and their copies

    assert open_again() == 1
    assert open_again() == 1
    assert open_again(copies=2) == 2
    assert open_again(copies=2, change=1e-3) == 3
    assert open_again(copies=2, change=1e-3, augmentation__rotation=3.0) == 4
    options = {"augmentation__rotation": 3.0, "train__seed": 5}
    assert open_again(copies=2, change=1e-3, **options) == 5
    assert open_again(copies=2, change=1e-3, train__precision="bf16-mixed", **options) == 6


def test_a_cache_made_with_another_padding_is_not_taken(phantoms: Path, tmp_path: Path) -> None:
    """Frozen weights of one kind of padding have the same bytes as those of the other."""
    first, second = (
        source_of(phantoms, tmp_path, model__backbone__padding=padding)[0].key(3, 1)
        for padding in ("zeros", "replicate")
    )
    assert first != second


def test_a_cache_of_another_annotation_is_not_taken_and_masks_are_bands(
    phantoms: Path, tmp_path: Path
) -> None:
    """Caches hold masks too: those of the lesion must not serve for the margin."""
    sources = [
        source_of(phantoms, tmp_path, **options)[0]
        for options in (
            {},
            {"data__annotation": "margin"},
            {"data__annotation": "margin", "data__margin_band__outer": 0.2},
        )
    ]
    assert len({source.key(3, 1) for source in sources}) == 3
    lesion, margin, wider = (
        source.store.load(range(len(source.store))).masks.sum((1, 2)) for source in sources
    )
    assert (lesion > 0).any()
    assert (margin[lesion > 0] > 0).all() and (wider[lesion > 0] > margin[lesion > 0]).all()
    assert not torch.equal(lesion, margin)


def test_a_cache_of_another_part_of_the_film_is_not_taken(phantoms: Path, tmp_path: Path) -> None:
    crops: list[dict[str, Any]] = [
        {},
        {"data__crop": "lesion"},
        {"data__crop": "lesion", "data__region__margin": 0.2},
    ]
    keys = {source_of(phantoms, tmp_path, **options)[0].key(3, 1) for options in crops}
    assert len(keys) == 3


def test_transplanting_changes_lesions_outside_their_annotation_only(
    phantoms: Path, tmp_path: Path
) -> None:
    settings = {"augmentation.flip": False, "augmentation.quarter_turns": False}
    settings |= {"augmentation.brightness": 0.0, "augmentation.contrast": 0.0}
    settings |= {"augmentation.rotation": 0.0, "augmentation.zoom": [1.0, 1.0]}
    settings |= {"augmentation.transplant_margin": 0.0}
    plain, _ = source_of(phantoms, tmp_path, **settings)
    moved, _ = source_of(phantoms, tmp_path, **settings, **{"augmentation.transplant": 1.0})
    images = np.arange(len(plain.store))
    negative = [sample.label == "negative" for sample in plain.store.samples]
    assert any(negative)
    before, after, again = (
        source.fresh(images, np.zeros(len(images), np.int64), 0) for source in (plain, moved, moved)
    )
    for row, is_negative in enumerate(negative):
        ours, theirs = before.maps[0][row], after.maps[0][row]
        if is_negative:
            assert torch.equal(ours, theirs)
            continue
        inside = before.masks[row] > 0
        torch.testing.assert_close(ours[:, inside], theirs[:, inside], rtol=0, atol=1e-5)
        assert not torch.equal(ours[:, ~inside], theirs[:, ~inside])
    assert torch.equal(after.maps[0], again.maps[0])


def test_transplanting_without_negative_images_is_refused(phantoms: Path, tmp_path: Path) -> None:
    source, _ = source_of(phantoms, tmp_path, **{"augmentation.transplant": 1.0})
    source.store.samples = tuple(s for s in source.store.samples if s.label != "negative")
    with pytest.raises(UserError, match="needs training images of the negative class"):
        source.fresh(np.array([0]), np.array([0]), 0)
