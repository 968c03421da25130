"""The prototypes of a run as pictures: the gallery, and each beside its nearest images."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from protopyramid.data.images import prepare_sample
from protopyramid.evaluation.results import read_evaluation
from protopyramid.explanations.evidence import find_evidence
from protopyramid.figures.drawing import COLOUR_MAP, save_figure
from protopyramid.figures.level_figure import level_figure
from protopyramid.figures.prototype_figures import (
    NeighbourRow,
    NeighbourTile,
    gallery_figure,
    neighbours_figure,
)
from protopyramid.figures.scale import GalleryItem
from protopyramid.inference.reference import reference_for
from protopyramid.model.activation import MaskedRegion
from protopyramid.model.receptive_field import receptive_field
from protopyramid.prototypes.cases import Case, layer_of, to_picture
from protopyramid.prototypes.neighbours import Neighbour
from protopyramid.prototypes.placeholder import NOT_SHARED
from protopyramid.prototypes.reach import prototype_reach
from protopyramid.runs.folder import RunFolder
from protopyramid.runs.records import PrototypeRecord
from protopyramid.runs.run import Run

GALLERY = "prototypes_gallery.png"
NEAREST = "prototypes_nearest"
LONGEST_SLUG = 80
LEVELS = "levels"


def gallery_items(run: Run) -> list[GalleryItem]:
    """All prototypes with their cases, to draw; UserError for a black box."""
    layer_of(run.model)
    cases = run.cases.look_up(record.index for record in run.prototypes)
    never = set(idle_prototypes(run)[0])
    return [_gallery_item(case, index in never) for index, case in cases.items()]


def idle_prototypes(run: Run) -> tuple[tuple[int, ...], str]:
    """The prototypes that never matter, and the images that were looked at; ((), "") if none were.

    On the training images whose scores the run keeps, or else on an evaluated split.
    """
    reference = reference_for(run)
    if reference is not None and reference.unused is not None:
        return reference.unused, reference.images_text
    for split in ("validation", "test"):
        found = read_evaluation(run.folder, split)
        if found is not None and found.health is not None:
            return found.health.unused, f"{found.n} {split} images"
    return (), ""


def _gallery_item(case: Case, idle: bool) -> GalleryItem:
    return GalleryItem(
        index=case.record.index,
        class_name=case.record.class_name,
        level=case.record.level,
        image=case.image,
        region=case.region,
        cell=case.cell,
        other_label=case.record.other_label,
        idle=idle,
        note="" if case.pictured else NOT_SHARED,
    )


def write_gallery(
    run: Run, out: str | Path, colour_map: str = COLOUR_MAP, regions: bool = False
) -> Path:
    """Write prototypes_gallery.png: all prototypes by class and level.

    `regions` shows the evidence region of each prototype on its source image instead of the patch that it
    is: one backward and about four forward passes per prototype.
    """
    title = f"Prototypes of {run.name} by class and level"
    classes = run.config.data.classes
    items = gallery_items(run)
    if regions:
        items = [_with_evidence(run, item) for item in items]
    looked_at = idle_prototypes(run)[1]
    figure = gallery_figure(items, classes, title, colour_map, regions, looked_at)
    return save_figure(figure, Path(out) / GALLERY)


def _with_evidence(run: Run, item: GalleryItem) -> GalleryItem:
    """A prototype with its evidence region in place of the strongest 5 % of its map."""
    found = find_evidence(run, run.cases.source(item.index), [item.index])[item.index]
    if found is None:
        return item
    return replace(item, region=MaskedRegion(item.region.activation, found.mask, found.box))


def write_levels(run: Run, out: str | Path) -> list[Path]:
    """Write levels-CLASS.png for each class: its prototypes at every level, at one scale."""
    items = [
        _with_scale(run, *pair) for pair in zip(run.prototypes, gallery_items(run), strict=True)
    ]
    written = []
    for number, name in enumerate(run.config.data.classes):
        own = [item for item in items if item.class_name == name]
        if own:
            where = " at different levels" if len({item.level for item in own}) > 1 else ""
            figure = level_figure(own, f"Prototypes of {name}{where}")
            path = Path(out) / f"{LEVELS}-{slug(name, number)}.png"
            written.append(save_figure(figure, path))
    return written


def _with_scale(run: Run, record: PrototypeRecord, item: GalleryItem) -> GalleryItem:
    """A prototype with what its patch mostly depends on, and what it can depend on at all."""
    size = run.config.data.image_size
    field = receptive_field(run.model, record.level, record.row, record.col, size, size)
    return replace(item, reach=prototype_reach(run, record), field=field)


def write_nearest(
    run: Run, nearest: Mapping[str, Sequence[Sequence[Neighbour]]], out: str | Path
) -> list[Path]:
    """Write prototypes_nearest.json and, for each class, a figure of its prototypes' nearest images.

    nearest: {split: for each prototype, its nearest images}.
    """
    folder = RunFolder(out)
    content = [
        {
            **record.to_json(),
            "nearest": {split: [n.to_json() for n in f[place]] for split, f in nearest.items()},
        }
        for place, record in enumerate(run.prototypes)
    ]
    written = [folder.write_json(f"{NEAREST}.json", content)]
    cosine = run.config.model.similarity.kind == "cosine"
    items = gallery_items(run)
    for number, name in enumerate(run.config.data.classes):
        rows = [
            NeighbourRow(item, {split: _tiles(run, name, f[p]) for split, f in nearest.items()})
            for p, item in enumerate(items)
            if item.class_name == name
        ]
        if rows:
            title = f"Images nearest to the {name} prototypes"
            path = folder / f"{NEAREST}_{slug(name, number)}.png"
            written.append(save_figure(neighbours_figure(rows, title, cosine), path, dpi=110))
    return written


def slug(name: str, number: int) -> str:
    """A class name as part of a file name.

    >>> slug("ill-defined / other", 2), slug("悪性", 3)
    ('ill-defined-other', 'class-3')
    """
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return plain if 0 < len(plain) <= LONGEST_SLUG else f"class-{number}"


def _tiles(run: Run, owner: str, found: Sequence[Neighbour]) -> list[NeighbourTile]:
    return [
        NeighbourTile(
            image=to_picture(prepare_sample(each.sample, run.config.data).image),
            region=each.region,
            label=each.sample.label,
            similarity=each.similarity,
            same_class=each.sample.label == owner,
        )
        for each in found
    ]
