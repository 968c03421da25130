"""Evidence regions: as small as plain loops find them, tested by what they keep, and written to JSON."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from protopyramid.data.images import prepare, read_image
from protopyramid.errors import UserError
from protopyramid.explanations.evidence import (
    KEPT,
    SHARES,
    Gradients,
    PerturbedImage,
    evidence_regions,
    find_evidence,
    near_cells,
    negative_image,
    occlusion,
    perturbed_image,
    upsampled,
)
from protopyramid.inference.batches import device_of, model_input
from protopyramid.metrics.faithfulness import kept, largest_share, removed
from protopyramid.prototypes.cases import prototype_map
from protopyramid.runs.run import Run

SIZE = 32


@pytest.fixture
def image(run: Run, lesion: Path) -> Tensor:
    data = run.config.data
    return prepare(read_image(lesion), None, None, data.image_size, data.fit).image


@pytest.fixture
def perturbed(run: Run, image: Tensor) -> PerturbedImage:
    return perturbed_image(run.model, run.config.data, image, negative_image(run))


def one_map(run: Run, index: int):
    def map_of(images: Tensor) -> Tensor:
        with torch.no_grad():
            found = run.model(model_input(images, run.config.data, device_of(run.model)))
        return prototype_map(run.model, found.maps, index)

    return map_of


def test_shares_left_are_those_of_the_definitions(
    run: Run, image: Tensor, perturbed: PerturbedImage
) -> None:
    """All prototypes in one pass, against one prototype at a time by metrics.faithfulness."""
    regions = torch.rand(3, *image.shape[1:], generator=torch.Generator().manual_seed(0)) > 0.7
    found = perturbed.removed_by_all(regions)
    by_filling = [perturbed.kept(regions[:1], number, [0]) for number in range(3)]
    assert found.shape == (3, len(run.prototypes))
    for index in range(len(run.prototypes)):
        level, _ = perturbed.level_and_row(index)
        arguments = (one_map(run, index), image, perturbed.fillings, regions, perturbed.k[level])
        assert found[:, index].tolist() == pytest.approx(removed(*arguments).tolist(), abs=1e-3)
        if index == 0:
            expected = kept(*arguments)[0].item()
            assert torch.cat(by_filling).median().item() == pytest.approx(expected, abs=1e-3)


def spot_image(high: tuple[slice, slice]) -> tuple[PerturbedImage, Tensor]:
    """A map that is the image's own coarse means: the evidence is the bright square, and known."""
    image = torch.zeros(1, SIZE, SIZE)
    image[0][high] = 1.0

    def maps_of(images: Tensor) -> dict[int, Tensor]:
        return {5: torch.nn.functional.avg_pool2d(images, 4)}

    other = torch.zeros(1, SIZE, SIZE)
    return PerturbedImage(maps_of, lambda level, maps: 4, image, other), image


def test_the_evidence_region_is_the_smallest_size_that_keeps_enough() -> None:
    perturbed, image = spot_image((slice(8, 16), slice(12, 20)))
    ranking = near_cells(perturbed, [0])
    (found,) = evidence_regions(perturbed, ranking, [0])
    assert found is not None
    tried = {
        share: kept(
            lambda images: perturbed.maps_of(images)[5][:, 0],
            image,
            perturbed.fillings,
            largest_share(ranking, share),
            4,
        ).item()
        for share in SHARES
    }
    smallest = min(share for share, value in tried.items() if value >= KEPT)
    assert found.share == pytest.approx(smallest, abs=1 / SIZE**2)
    assert KEPT <= found.kept <= tried[smallest] + 1e-6
    assert found.mask[9:15, 13:19].all()
    x0, y0, x1, y1 = found.box
    rows, columns = np.nonzero(found.mask)
    edges = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
    assert [x0, y0, x1, y1] == pytest.approx([edge / SIZE for edge in edges])


def test_a_ranking_that_misses_the_evidence_needs_more_of_the_image() -> None:
    perturbed, _ = spot_image((slice(8, 16), slice(12, 20)))
    good = near_cells(perturbed, [0])
    near, far = evidence_regions(perturbed, torch.cat([good, -good]), [0, 0])
    assert near is not None and far is not None
    assert near.share <= 0.15 and far.share == 1 and far.kept == 1 and far.mask.all()


def test_a_flat_map_has_no_evidence_region() -> None:
    image = torch.full((1, SIZE, SIZE), 0.5)
    flat = PerturbedImage(
        lambda images: {5: torch.full((len(images), 1, 8, 8), 0.2)}, lambda *_: 4, image, None
    )
    assert len(flat.fillings) == 2
    assert evidence_regions(flat, torch.rand(1, SIZE, SIZE), [0]) == [None]


def test_gradients_are_those_of_finite_differences(
    run: Run, image: Tensor, perturbed: PerturbedImage
) -> None:
    """Before smoothing: |d rise / d pixel| times |pixel - local mean|."""
    gradients = Gradients(run.model.double(), run.config.data)
    try:
        double, index = image.double(), 3
        products = gradients._products(perturbed, double, [index])[0]
        level, row = perturbed.level_and_row(index)

        def rise(images: Tensor) -> float:
            with torch.no_grad():
                ready = model_input(images, run.config.data, device_of(run.model))
                return run.model(ready).maps[level][0, row][perturbed.cells(index)].mean().item()

        from protopyramid.metrics.faithfulness import local_mean

        change = (image - local_mean(image)).abs().sum(0)
        for at in ((20, 30), (32, 32), (45, 18)):
            step = torch.zeros_like(double)
            step[0][at] = 1e-5
            slope = (rise((double + step)[None]) - rise((double - step)[None])) / 2e-5
            assert products[at].item() == pytest.approx(abs(slope) * change[at].item(), rel=0.02)
    finally:
        run.model.float()


def test_every_ranking_has_the_size_of_the_image(run: Run, perturbed: PerturbedImage) -> None:
    gradients = Gradients(run.model, run.config.data)
    methods = (upsampled, near_cells, occlusion, gradients.midpoint, gradients.smooth_grad)
    for method in methods:
        ranking = method(perturbed, [0, 3])
        assert ranking.shape == (2, perturbed.size, perturbed.size)
        assert torch.isfinite(ranking).all() and not ranking.requires_grad
        assert torch.equal(ranking, method(perturbed, [0, 3]))
    assert all(each.grad is None for each in run.model.parameters())


def test_occlusion_ranks_the_evidence_first() -> None:
    perturbed, _ = spot_image((slice(8, 16), slice(12, 20)))
    ranking = occlusion(perturbed, [0])[0]
    row, column = divmod(int(ranking.argmax()), SIZE)
    assert 7 <= row <= 17 and 11 <= column <= 21


def held(lines: list[list[list[float]]], shape: tuple[int, int], scale: int) -> NDArray[np.bool_]:
    """Which pixels' centres closed lines in file pixels hold by the even-odd rule, naively."""
    inside = np.zeros(shape, dtype=bool)
    for row, column in np.ndindex(*shape):
        x, y = (column + 0.5) * scale / shape[1], (row + 0.5) * scale / shape[0]
        for line in lines:
            for (ax, ay), (bx, by) in pairwise(line):
                if (ay > y) != (by > y) and x < ax + (y - ay) / (by - ay) * (bx - ax):
                    inside[row, column] ^= True
    return inside


def test_an_explanation_has_the_evidence_of_the_prototypes_shown(
    run: Run, lesion: Path, image: Tensor, tmp_path: Path
) -> None:
    plain, found = run.explain(lesion, evidence=False), run.explain(lesion)
    shown = [part.index for part in plain.shown(5)]
    assert list(found.evidence_regions) == shown and plain.evidence_regions == {}
    content = json.loads(found.save(tmp_path / "why.json").read_text())
    before = plain.to_json()
    for part in content["prototypes"]:
        evidence = part.pop("evidence", "none")
        if part["index"] not in shown:
            assert evidence == "none"
            continue
        region = found.evidence_regions[part["index"]]
        assert region is not None
        assert evidence["kept"] >= KEPT and evidence["share"] == region.mask.mean()
        scale = read_image(lesion).shape[0]
        assert evidence["box_pixels"] == pytest.approx([edge * scale for edge in region.box])
        assert np.array_equal(held(evidence["mask"], region.mask.shape, scale), region.mask)
        level, _ = plain_level(run, part["index"])
        again = kept(
            one_map(run, part["index"]),
            image,
            perturbed_image(run.model, run.config.data, image, negative_image(run)).fillings,
            torch.from_numpy(region.mask)[None],
            level,
        )
        # Where two of three fillings settle it, the smaller of them: the median is no less.
        assert KEPT <= evidence["kept"] <= (1.0 if region.mask.all() else again.item()) + 1e-3
    assert content == json.loads(json.dumps(before))


def plain_level(run: Run, index: int) -> tuple[int, int]:
    """The k of a prototype's level, and the level."""
    layer = run.model.prototypes
    level = int(layer.levels[index])
    side = {2: 4, 3: 8, 4: 16, 5: 16}[level]
    return layer.pooling.patches(level, (run.config.data.image_size // side) ** 2), level


def test_the_figure_outlines_the_evidence_region(run: Run, lesion: Path) -> None:
    found = run.explain(lesion, evidence=True)
    index = next(iter(found.evidence_regions))
    region = found.evidence_regions[index]
    assert region is not None
    shown = found.shown_region(index)
    assert np.array_equal(shown.mask, region.mask) and shown.box == region.box
    assert np.array_equal(shown.activation, found.region(index).activation)
    words = " ".join(text.get_text() for axes in found.figure().axes for text in axes.texts)
    words += " ".join(text.get_text() for text in found.figure().texts)
    assert "keeps 90% of the rise" in words


def test_a_black_box_has_no_evidence_regions(black_box: Run, lesion: Path) -> None:
    assert black_box.explain(lesion).evidence_regions == {}
    with pytest.raises(UserError, match="black box"):
        black_box.explain(lesion, evidence=True)
    assert negative_image(black_box) is None
    with pytest.raises(UserError, match="black box"):
        find_evidence(black_box, torch.zeros(1, 64, 64), [])


def test_evidence_of_no_prototype_is_none(run: Run, lesion: Path) -> None:
    assert run.explain(lesion).with_evidence(indices=[]).evidence_regions == {}
