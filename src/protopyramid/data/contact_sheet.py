"""The contact sheet: some images of every class and split, masks and lesion boxes outlined."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from protopyramid.config.schema import MarginBandConfig
from protopyramid.data.geometry import Mapping, Region, clip_box, extent, square_around
from protopyramid.data.images import Prepared, margin_of, prepare_region, read_image, read_mask
from protopyramid.data.manifest import SPLITS, Manifest, Sample
from protopyramid.errors import UserError
from protopyramid.utils.files import write_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TILE = 224  # pixels of an image on the sheet
PER_GROUP = 6
LEAST_COLUMNS = 3  # so that a title has room
GROUPS_SHOWN = 40
MASK_COLOUR, BOX_COLOUR = "#ffd400", "#00c8ff"
LEGEND = (("mask", "#b38f00"), ("lesion box", "#007ea3"))  # the same, darker, on white
BAND_LEGEND = (("band of the margin", LEGEND[0][1]), LEGEND[1])

Group = tuple[str, list[Sample]]  # title, samples


@dataclass(frozen=True)
class View:
    """What is drawn of an image: all of it with its mask, unless something else is chosen.

    band: the band around its outline in place of the mask. margin: only the square around its lesion, with
    this much tissue on each side, as a model with `data.crop` = "lesion" sees it.
    """

    band: MarginBandConfig | None = None
    margin: float | None = None


def contact_sheet(
    manifest: Manifest, out: str | Path, per_group: int = PER_GROUP, view: View | None = None
) -> Path:
    """Write a PNG with up to `per_group` images of every class, source and split; returns its path."""
    view = view or View()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    groups = _groups(manifest)
    if not groups:
        raise UserError(f"{manifest.path}: no images for a contact sheet; add rows to the manifest")
    shown = groups[:GROUPS_SHOWN]
    columns = max(min(per_group, max(len(found) for _, found in shown)), LEAST_COLUMNS)
    figure = Figure(figsize=(1.7 * columns + 0.3, 2.05 * len(shown) + 0.5), dpi=110)
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(shown), columns, squeeze=False)
    for ax in axes.flat:
        ax.axis("off")
    for row, group in zip(axes, shown, strict=True):
        _draw_group(row, group, per_group, view)
    left_out = f", {len(groups) - len(shown)} more groups not shown" * (len(groups) > len(shown))
    title = f"{manifest.path.name}: {len(manifest.samples)} images{left_out}"
    _lay_out(figure, title, LEGEND if view.band is None else BAND_LEGEND)
    _save(figure, Path(out))
    return Path(out)


def _groups(manifest: Manifest) -> list[Group]:
    groups = []
    sources = list(dict.fromkeys(sample.source for sample in manifest.samples))
    for label, source, split in product(manifest.labels(), sources, SPLITS):
        found = [
            each for each in manifest.split(split) if (each.label, each.source) == (label, source)
        ]
        if found:
            name = [_shortened(label), *([_shortened(source)] if len(sources) > 1 else [])]
            groups.append((f"{', '.join(name)}, {split}: {len(found)}", found))
    return groups


def _lay_out(figure: Figure, title: str, legend: Sequence[tuple[str, str]]) -> None:
    """Legend and title above the images, in inches from the top left."""
    width, height = figure.get_size_inches()
    left = 0.1
    for text, colour in legend:
        figure.text(left / width, 1 - 0.22 / height, text, color=colour, fontsize=9)
        left += 0.09 * len(text) + 0.15
    figure.text(left / width, 1 - 0.22 / height, title, fontsize=9, parse_math=False)
    top, bottom = 1 - 0.5 / height, 0.15 / height
    figure.subplots_adjust(left=0.01, right=0.99, bottom=bottom, top=top, wspace=0.05, hspace=0.25)


def _save(figure: Figure, out: Path) -> None:
    png = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # letters of a label that the font lacks
        figure.savefig(png, format="png")
    write_bytes(out, png.getvalue())


def _draw_group(axes: Sequence[Axes], group: Group, per_group: int, view: View) -> None:
    title, found = group
    axes[0].set_title(title, fontsize=8, loc="left", fontweight="bold", parse_math=False)
    for ax, sample in zip(axes, _picked(found, per_group), strict=False):
        _draw(ax, sample, view)


def _shortened(text: str, length: int = 24) -> str:
    text = " ".join(text.split())
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _picked(samples: Sequence[Sample], count: int) -> list[Sample]:
    """Samples spaced evenly over a group, annotated ones first, and one without if there is any."""
    annotated = [sample for sample in samples if sample.mask or sample.box]
    others = [sample for sample in samples if not (sample.mask or sample.box)]
    first = _spaced(annotated, max(1, count - 1) if others else count)
    return first + _spaced(others, count - len(first))


def _spaced(samples: Sequence[Sample], count: int) -> list[Sample]:
    count = min(count, len(samples))
    return [samples[number * len(samples) // count] for number in range(count)]


def _draw(ax: Axes, sample: Sample, view: View) -> None:
    """One image with the outlines of its mask, or of its band, and of its lesion box."""
    try:
        shown = _for_show(sample, view)
    except UserError:
        ax.text(0.5, 0.5, f"row {sample.row}\ncannot be read", ha="center", va="center", fontsize=8)
        return
    image: Any = shown.image.permute(1, 2, 0).squeeze(2).numpy()
    extent = (0, TILE, TILE, 0)
    ax.imshow(image, cmap="gray", vmin=0, vmax=1, extent=extent, interpolation="bilinear")
    if shown.mask is not None and shown.mask.any():
        edged = np.pad(shown.mask.numpy(), 1)  # closes outlines at the border
        grid = np.arange(-0.5, TILE + 1)
        ax.contour(grid, grid, edged, levels=[0.5], colors=MASK_COLOUR, linewidths=0.9)
    if shown.box is not None:
        x0, y0, x1, y1 = shown.box
        outline = ([x0, x1, x1, x0, x0], [y0, y0, y1, y1, y0])
        ax.plot(*outline, color=BOX_COLOUR, linewidth=0.9, linestyle="--")
    ax.set_xlim(0, TILE)
    ax.set_ylim(TILE, 0)
    style: dict[str, Any] = {
        "ha": "center",
        "va": "top",
        "fontsize": 5.5,
        "color": "0.35",
        "parse_math": False,
    }
    ax.text(TILE / 2, TILE * 1.015, _shortened(sample.image.stem, 28), **style)


def _for_show(sample: Sample, view: View) -> Prepared:
    image = read_image(sample.image)
    height, width = image.shape[:2]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the check has reported it
        mask = None if sample.mask is None else read_mask(sample.mask, (height, width))
    box = None if sample.box is None else clip_box(sample.box, height, width)
    region = Region.whole(height, width)
    if view.margin is not None:
        lesion = box or (extent(mask) if mask is not None and mask.any() else None)
        region = region if lesion is None else square_around(lesion, view.margin, height, width)
    if view.band is not None:
        mask = margin_of(mask, box, height, width, view.band)
    return prepare_region(image, mask, box, Mapping(region, TILE, "pad"))
