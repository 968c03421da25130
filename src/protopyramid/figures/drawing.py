"""Drawing: the few strokes that all figures are made of. matplotlib's objects, no global state.

Colours are told apart in greyscale print and by the colour-blind: heat grows brighter as it grows
hotter, the strongest region is also outlined, and every bar carries its number.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import Stroke, withStroke
from numpy.typing import NDArray

from protopyramid.errors import UserError
from protopyramid.model.activation import PERCENTILE
from protopyramid.utils.files import write_bytes

Picture = NDArray[np.float32]
Box = Sequence[float]

COLOUR_MAP = "inferno"
JET = "jet"
INK, MUTED, RULE, PAPER = "#14181d", "#58616b", "#c9ced4", "#edf0f3"
FOR, AGAINST = "#0072b2", "#d55e00"  # Okabe and Ito's blue and vermilion
BOX, HALO, OUTLINE = "#ffd400", "#000000", "#ffffff"
FADE_FROM, HEAT_STRENGTH, IMAGE_UNDER_HEAT = 0.35, 0.8, 0.8
JET_SHARE, JET_IMAGE_SHARE = 0.3, 0.5  # ProtoPNet's and IAIA-BL's overlay
LEAST_PART = 0.18  # side of the part that is shown of an image
DPI = 150
SUFFIXES = (".png", ".pdf", ".svg")
SAVE_OPTIONS: dict[str, dict[str, Any]] = {
    "png": {"pil_kwargs": {"compress_level": 4}},
    "jpg": {"pil_kwargs": {"quality": 88}},
    "pdf": {"metadata": {"CreationDate": None}},
    "svg": {"metadata": {"Date": None}},
}


def new_figure(width: float, height: float) -> Figure:
    """A white figure of that size in inches."""
    figure = Figure(figsize=(width, height), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def figure_bytes(figure: Figure, kind: str = "png", dpi: int = DPI) -> bytes:
    """The figure as the bytes of a PNG, JPG, PDF or SVG file; the same figure gives the same bytes."""
    stream = io.BytesIO()
    extra = SAVE_OPTIONS[kind]
    with warnings.catch_warnings(), matplotlib.rc_context({"svg.hashsalt": "protopyramid"}):
        warnings.simplefilter("ignore")  # letters of a class name that the font lacks
        figure.savefig(stream, format=kind, dpi=dpi, **extra)
    return stream.getvalue()


def save_figure(figure: Figure, path: str | Path, dpi: int = DPI) -> Path:
    """Write the figure as its suffix says (.png, .pdf or .svg), whole or not at all."""
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(f"{path}: cannot write this kind of figure; name it .png, .pdf or .svg")
    content = figure_bytes(figure, path.suffix.lower()[1:], dpi)
    return write_bytes(path, content)


def check_colour_map(name: str) -> str:
    """The name of a colour map that matplotlib has, or a UserError."""
    if name not in matplotlib.colormaps:
        raise UserError(
            f'no colour map "{name}"; try inferno, magma, viridis, cividis, or jet as in the paper'
        )
    return name


def add_axes(figure: Figure, x: float, y: float, width: float, height: float) -> Axes:
    """Axes without frame or ticks, placed in inches from the top left corner of the figure."""
    whole_width, whole_height = figure.get_size_inches()
    left, bottom = x / whole_width, 1 - (y + height) / whole_height
    ax = figure.add_axes((left, bottom, width / whole_width, height / whole_height))
    ax.set_axis_off()
    return ax


def write(figure: Figure, x: float, y: float, text: str, **style: Any) -> None:
    """Text at inches from the top left corner of the figure; its top is at y unless `va` says else."""
    width, height = figure.get_size_inches()
    usual = {"color": INK, "fontsize": 11, "va": "top", "ha": "left", "parse_math": False}
    figure.text(x / width, 1 - y / height, text, **{**usual, **style})


def bar(
    figure: Figure,
    x: float,
    y: float,
    width: float,
    height: float,
    colour: str,
    hatch: str | None = None,
) -> None:
    """A filled rectangle, in inches from the top left corner of the figure."""
    whole_width, whole_height = figure.get_size_inches()
    corner = (x / whole_width, 1 - (y + height) / whole_height)
    size = (width / whole_width, height / whole_height)
    style: dict[str, Any] = {
        "facecolor": colour,
        "edgecolor": "white",
        "linewidth": 0,
        "hatch": hatch,
        "zorder": -1,
    }
    figure.add_artist(Rectangle(corner, *size, transform=figure.transFigure, **style))


def rule(figure: Figure, x0: float, x1: float, y: float, colour: str = RULE) -> None:
    """A thin horizontal line, in inches from the top left corner of the figure."""
    bar(figure, x0, y, x1 - x0, 0.012, colour)


def show(ax: Axes, picture: Picture) -> None:
    """An image (S, S) or (S, S, 3) in [0, 1]; the axes count in fractions of it."""
    ax.imshow(
        picture,
        cmap="gray",
        vmin=0,
        vmax=1,
        extent=(0, 1, 1, 0),
        interpolation="bicubic",
        aspect="auto",
    )
    ax.set_xlim(0, 1)  # fixed, so that outlines drawn over the border do not shrink the image
    ax.set_ylim(1, 0)


def add_crop(figure: Figure, x: float, y: float, side: float, picture: Picture, box: Box) -> None:
    """The part of an image in a box, enlarged into a square of that side with its own proportions."""
    x0, y0, x1, y1 = box
    longest = max(x1 - x0, y1 - y0)
    width, height = side * (x1 - x0) / longest, side * (y1 - y0) / longest
    bar(figure, x, y, side, side, PAPER)
    ax = add_axes(figure, x + (side - width) / 2, y + (side - height) / 2, width, height)
    show(ax, picture)
    ax.set_xlim(x0, x1)
    ax.set_ylim(y1, y0)


def show_heat(
    ax: Axes, picture: Picture, activation: Picture, colour_map: str = COLOUR_MAP
) -> None:
    """An image with an activation map (H, W) over it and the strongest 5 % of it outlined."""
    show(ax, overlay(picture, activation, colour_map))
    outline(ax, activation)


def overlay(picture: Picture, activation: Picture, colour_map: str = COLOUR_MAP) -> Picture:
    """Image and heat as one picture (S, S, 3); each map is scaled to its own range.

    Weak activation is transparent, so that the image stays readable. A constant map has no heat.
    """
    colour = picture if picture.ndim == 3 else np.repeat(picture[..., None], 3, axis=2)
    scaled = unit_range(activation)
    if scaled is None:
        return colour.astype(np.float32)
    heat = np.asarray(matplotlib.colormaps[colour_map](scaled))[..., :3]
    if colour_map == JET:
        mixed = JET_IMAGE_SHARE * colour + JET_SHARE * heat
        return np.asarray(np.clip(mixed / (JET_SHARE + JET_IMAGE_SHARE), 0, 1), dtype=np.float32)
    opacity = HEAT_STRENGTH * np.clip((scaled - FADE_FROM) / (1 - FADE_FROM), 0, 1)[..., None]
    mixed = (1 - opacity) * IMAGE_UNDER_HEAT * colour + opacity * heat
    return np.asarray(np.clip(mixed, 0, 1), dtype=np.float32)


def unit_range(activation: Picture) -> Picture | None:
    """A map brought to [0, 1]; None where it is constant or not all numbers."""
    low, high = float(np.min(activation)), float(np.max(activation))
    if not np.isfinite(high - low) or high - low < 1e-9:
        return None
    scaled: Picture = ((activation - low) / (high - low)).astype(np.float32)
    return scaled


def outline(ax: Axes, activation: Picture) -> None:
    """The line around the strongest 5 % of an activation map; none where the map is constant."""
    if unit_range(activation) is None:
        return
    threshold = float(np.quantile(activation, PERCENTILE))
    lowest = float(activation.min())
    if threshold <= lowest:
        return
    edged = np.pad(activation, 1, constant_values=lowest)  # closes outlines at the border
    height, width = activation.shape
    x, y = (np.arange(width + 2) - 0.5) / width, (np.arange(height + 2) - 0.5) / height
    drawn = ax.contour(x, y, edged, levels=[threshold], colors=OUTLINE, linewidths=1.1)
    drawn.set_path_effects([Stroke(linewidth=2.4, foreground=HALO), withStroke(linewidth=0)])


def draw_box(ax: Axes, box: Box, colour: str = BOX, width: float = 1.6) -> None:
    """A box of fractions x0, y0, x1, y1 on an image, kept a little inside its border."""
    inset = 0.006
    x0, y0 = max(box[0], inset), max(box[1], inset)
    x1, y1 = min(box[2], 1 - inset), min(box[3], 1 - inset)
    halo = withStroke(linewidth=width + 1.6, foreground=HALO)
    corners = ([x0, x1, x1, x0, x0], [y0, y0, y1, y1, y0])
    ax.plot(*corners, color=colour, linewidth=width, path_effects=[halo])


def draw_mask(ax: Axes, mask: NDArray[Any], colour: str = "#00c8ff") -> None:
    """The outline of an annotation (H, W), dashed."""
    if not mask.any():
        return
    edged = np.pad(mask.astype(np.float32), 1)
    height, width = mask.shape
    x, y = (np.arange(width + 2) - 0.5) / width, (np.arange(height + 2) - 0.5) / height
    # Dashes on a dark line are seen on light and dark tissue, also in grey.
    ax.contour(x, y, edged, levels=[0.5], colors=HALO, linewidths=1.9, alpha=0.75)
    ax.contour(x, y, edged, levels=[0.5], colors=colour, linewidths=1.2, linestyles="--")


def peak_box(activation: Picture) -> tuple[float, float, float, float]:
    """The box around the part of the strongest 5 % that holds the peak, as fractions x0, y0, x1, y1.

    Where the strongest 5 % are several places, a box around them all would show mostly what lies
    between. It is wide enough to recognise something; that of a constant map is the image.
    """
    height, width = activation.shape
    region = activation >= np.quantile(activation, PERCENTILE)
    part = np.zeros_like(region)
    part[np.unravel_index(int(np.argmax(activation)), activation.shape)] = True
    size = 0
    while size < (size := int(part.sum())):
        wide = np.pad(part, 1)
        near = (wide[y : y + height, x : x + width] for y in range(3) for x in range(3))
        part = region & np.logical_or.reduce(list(near))
    rows, columns = np.flatnonzero(part.any(1)), np.flatnonzero(part.any(0))
    edges = columns[0] / width, rows[0] / height, (columns[-1] + 1) / width, (rows[-1] + 1) / height
    return roomy([float(edge) for edge in edges], LEAST_PART)


def roomy(box: Box, least: float = 0.1) -> tuple[float, float, float, float]:
    """A box of which no side is shorter than `least`, inside the image: what to crop to.

    >>> roomy((0.4, 0.5, 0.6, 0.52))
    (0.4, 0.46, 0.6, 0.56)
    """
    sides = []
    for low, high in ((box[0], box[2]), (box[1], box[3])):
        side = min(1.0, max(high - low, least))
        start = min(max((low + high - side) / 2, 0.0), 1.0 - side)
        sides.append((round(start, 9), round(start + side, 9)))
    (x0, x1), (y0, y1) = sides
    return (x0, y0, x1, y1)


def shortened(text: str, length: int = 22) -> str:
    """A text of one line, cut with an ellipsis.

    >>> shortened("a  very long name", 8)
    'a very …'
    """
    text = " ".join(text.split())
    return text if len(text) <= length else f"{text[: length - 1]}…"


def shortened_path(text: str, length: int = 60) -> str:
    """A path cut at its beginning: its end tells which file it is.

    >>> shortened_path("a/long/way/to/x.png", 9)
    '…to/x.png'
    """
    return text if len(text) <= length else f"…{text[-(length - 1) :]}"


def signed(value: float) -> str:
    """A number with its sign, two decimals.

    >>> signed(0.5), signed(-0.5), signed(-0.001)
    ('+0.50', '−0.50', '+0.00')
    """
    rounded = round(value, 2) + 0.0
    return f"{'−' if rounded < 0 else '+'}{abs(rounded):.2f}"


def percent(share: float) -> str:
    """A share in whole percent; what is not quite nothing or all is not shown as such.

    >>> percent(0.413), percent(0.001), percent(0.999), percent(0.0)
    ('41%', '<1%', '>99%', '0%')
    """
    if 0 < share < 0.005:
        return "<1%"
    return ">99%" if 0.995 <= share < 1 else f"{share:.0%}"
