"""Drawing: the few strokes that all figures are made of.

A sheet is measured in inches from its top left corner, a tile on it in fractions of the image it shows.
It keeps what is drawn as plain strokes: a PNG is made of them directly (`raster.py`), a PDF, an SVG or a
figure to work on with Matplotlib (`vector.py`).

Colours can be told apart in greyscale print and by colour-blind readers: heat grows brighter as it grows
hotter, the region is also outlined, and every bar carries its number.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from protopyramid.errors import UserError
from protopyramid.figures.png import png_bytes
from protopyramid.figures.raster import drawn_pixels
from protopyramid.figures.strokes import BarStroke, LineStroke, PictureStroke, Stroke, TextStroke
from protopyramid.figures.text import shortened
from protopyramid.model.activation import Region, mask_lines
from protopyramid.utils.files import write_bytes

if TYPE_CHECKING:
    # Imported only for vector files and for those who work on a figure: it takes longer than a PNG.
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

Picture = NDArray[np.float32]
Box = Sequence[float]

COLOUR_MAP = "inferno"
JET = "jet"
INK, MUTED, RULE, PAPER = "#14181d", "#58616b", "#c9ced4", "#edf0f3"
FOR, AGAINST = "#0072b2", "#d55e00"  # Okabe and Ito's blue and vermilion
OTHER_CLASS = "#a34700"
BOX, HALO, OUTLINE, ANNOTATION = "#ffd400", "#000000", "#ffffff", "#00c8ff"
FADE_FROM, HEAT_STRENGTH, IMAGE_UNDER_HEAT = 0.35, 0.8, 0.8
JET_SHARE, JET_IMAGE_SHARE = 0.3, 0.5  # ProtoPNet's and IAIA-BL's overlay
WHOLE = (0.0, 0.0, 1.0, 1.0)
INSET = 0.006  # how far inside the image a box at its border is drawn
DPI = 120  # of pictures: an image of 224 is shown about as large as it is
PLOT_DPI = 150  # of plots and drawings, whose lines are thin
SUFFIXES = (".png", ".pdf", ".svg")
SAVE_OPTIONS: dict[str, dict[str, Any]] = {
    "jpg": {"quality": 88},
    "pdf": {"metadata": {"CreationDate": None}},
    "svg": {"metadata": {"Date": None}},
}


# -- files ---------------------------------------------------------------------------------------
def figure_bytes(figure: Sheet | Figure, kind: str = "png", dpi: int | None = None) -> bytes:
    """The figure as the bytes of a PNG, JPG, PDF or SVG file; the same figure gives the same bytes."""
    stream, dpi = io.BytesIO(), dpi or _usual_dpi(figure)
    with warnings.catch_warnings(), matplotlib.rc_context({"svg.hashsalt": "protopyramid"}):
        warnings.simplefilter("ignore")  # letters of a class name that the font lacks
        if kind == "png":
            return png_bytes(figure_pixels(figure, dpi), dpi)
        if kind == "jpg":
            pixels = Image.fromarray(figure_pixels(figure, dpi))
            pixels.save(stream, "JPEG", dpi=(dpi, dpi), **SAVE_OPTIONS[kind])
        else:
            drawn = figure.figure if isinstance(figure, Sheet) else figure
            names_are_data(drawn)
            drawn.savefig(stream, format=kind, dpi=dpi, **SAVE_OPTIONS[kind])
    return stream.getvalue()


def names_are_data(figure: Figure) -> None:
    """Draw every text of a figure letter by letter: a name such as "$x" is not mathematics."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_parse_math(False)


def figure_pixels(figure: Sheet | Figure, dpi: int | None = None) -> NDArray[np.uint8]:
    """The figure as pixels (height, width, 3); without an alpha channel, a PNG is written faster."""
    dpi = dpi or _usual_dpi(figure)
    if isinstance(figure, Sheet):
        if not figure.patches:
            return drawn_pixels(figure.strokes, figure.width, figure.height, dpi)
        figure = figure.figure
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    names_are_data(figure)
    own = figure.dpi
    figure.set_dpi(dpi)
    canvas: Any = FigureCanvasAgg(figure)  # Any: its methods have no types
    canvas.draw()
    figure.set_dpi(own)
    return np.ascontiguousarray(np.asarray(canvas.buffer_rgba())[..., :3])


def _usual_dpi(figure: Sheet | Figure) -> int:
    return DPI if isinstance(figure, Sheet) and not figure.patches else PLOT_DPI


def save_figure(figure: Sheet | Figure, path: str | Path, dpi: int | None = None) -> Path:
    """Write the figure in the format of its suffix (.png, .pdf or .svg), whole or not at all."""
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(f"{path}: cannot write a figure in this format; use .png, .pdf or .svg")
    content = figure_bytes(figure, path.suffix.lower()[1:], dpi)
    return write_bytes(path, content)


def check_colour_map(name: str) -> str:
    """The name of a Matplotlib colormap, or a UserError."""
    if name not in matplotlib.colormaps:
        raise UserError(
            f'unknown colour map "{name}"; try inferno, magma, viridis, cividis, or jet as in the paper'
        )
    return name


# -- the sheet -----------------------------------------------------------------------------------
class Sheet:
    """A figure to draw on, measured in inches from its top left corner.

    strokes: what has been drawn, in order; patches: those of Matplotlib that no stroke can say.
    """

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self.strokes: list[Stroke] = []
        self.patches: list[Patch] = []

    @cached_property
    def figure(self) -> Figure:
        """All that has been drawn so far as a Matplotlib figure."""
        from protopyramid.figures.vector import drawn_figure

        return drawn_figure(self.strokes, self.width, self.height, self.patches)

    def write(self, x: float, y: float, text: str, **style: Any) -> None:
        """Text whose top left corner is at (x, y), unless `ha` and `va` say otherwise.

        Style: `color`, `fontsize`, `fontweight`, `ha`, `va` and `linespacing`, as Matplotlib calls them.
        """
        if not text:
            return
        self.strokes.append(
            TextStroke(
                x,
                y,
                text,
                size=style.get("fontsize", 11),
                colour=style.get("color", INK),
                bold=style.get("fontweight") == "bold",
                across=style.get("ha", "left"),
                down=style.get("va", "top"),
                spacing=style.get("linespacing", 1.2),
            )
        )

    def bar(
        self, x: float, y: float, width: float, height: float, colour: str, hatched: bool = False
    ) -> None:
        """A filled rectangle."""
        self.strokes.append(BarStroke((x, y, width, height), colour, hatched))

    def rule(self, x0: float, x1: float, y: float, colour: str = RULE) -> None:
        """A thin horizontal line."""
        self.bar(x0, y, x1 - x0, 0.012, colour)

    def tile(self, x: float, y: float, side: float) -> Tile:
        """A square for a whole image."""
        return Tile(self, x, y, side, side)

    def magnified(self, x: float, y: float, slot: float, enlarged: float, box: Box) -> Tile:
        """The part of an image in a box, in the middle of a square slot.

        enlarged: inches per image side.
        """
        width, height = (min((box[n + 2] - box[n]) * enlarged, slot) for n in (0, 1))
        self.bar(x, y, slot, slot, PAPER)
        return Tile(self, x + (slot - width) / 2, y + (slot - height) / 2, width, height, box)

    def crop(self, x: float, y: float, side: float, box: Box) -> Tile:
        """A square for the part of an image in a box, enlarged with its own proportions."""
        longest = max(box[2] - box[0], box[3] - box[1])
        width, height = side * (box[2] - box[0]) / longest, side * (box[3] - box[1]) / longest
        self.bar(x, y, side, side, PAPER)
        return Tile(self, x + (side - width) / 2, y + (side - height) / 2, width, height, box)


class Tile:
    """A rectangle of a sheet that shows an image, or the part of it in a box.

    What is drawn on it is measured in fractions of the image and cut off at its border.
    """

    def __init__(
        self, sheet: Sheet, x: float, y: float, width: float, height: float, box: Box = WHOLE
    ) -> None:
        self._sheet, self._place, self._box = sheet, (x, y, width, height), box

    def show(self, picture: Picture, pale: bool = False) -> None:
        """An image (S, S) or (S, S, 3) in [0, 1]."""
        (x0, y0), (x1, y1) = self._inches(np.array([[0.0, 0.0], [1.0, 1.0]]))
        place = (float(x0), float(y0), float(x1 - x0), float(y1 - y0))
        self._sheet.strokes.append(PictureStroke(picture, place, self._place, pale))

    def show_heat(self, picture: Picture, region: Region, colour_map: str = COLOUR_MAP) -> None:
        """An image with an activation map over it and its region outlined."""
        self.show(overlay(picture, region.activation, colour_map))
        self.outline(region, OUTLINE)

    def outline(self, region: Region, colour: str = BOX, width: float = 1.0) -> None:
        """The line around a region."""
        self._draw_lines(region.contour, colour, width, halo=1.1)

    def mark(self, region: Region, width: float = 1.0) -> None:
        """A region on a plain image: the line around it, and the box that encloses it."""
        self.outline(region, width=width)
        self.draw_box(region.box, width=0.8 * width)

    def draw_box(self, box: Box, colour: str = BOX, width: float = 0.8) -> None:
        """A box of fractions x0, y0, x1, y1, kept a little inside the image."""
        self._draw_lines([_corners(box, INSET)], colour, width, halo=0.8)

    def draw_field(self, box: Box) -> None:
        """The thin dotted line around what a cell can depend on."""
        corners = [_corners(box, 2 * INSET)]
        self._draw_lines(corners, HALO, 1.2, opacity=0.75)
        self._draw_lines(corners, ANNOTATION, 0.8, dashes=(0.8, 1.32))

    def draw_mask(self, mask: NDArray[Any], colour: str = ANNOTATION) -> None:
        """The outline of an annotation (H, W), dashed."""
        lines = mask_lines(np.asarray(mask, dtype=np.bool_))
        # Dashes on a dark line are seen on light and dark tissue, also in grey.
        self._draw_lines(lines, HALO, 1.9, opacity=0.75)
        self._draw_lines(lines, colour, 1.2, dashes=(4.4, 1.9))

    def frame(self, colour: str) -> None:
        """A dashed frame around the tile."""
        x, y, width, height = self._place
        corners = _corners(WHOLE, 0.0) * (width, height) + (x, y)
        self._sheet.strokes.append(LineStroke([corners], colour, 3.0, dashes=(6.0, 3.0)))

    def tag(self, text: str, colour: str = INK, corner: tuple[float, float] = (0.03, 0.03)) -> None:
        """A few letters on white in a corner, given in fractions of the tile from its top left."""
        x, y, width, height = self._place
        self._sheet.strokes.append(
            TextStroke(
                x + corner[0] * width,
                y + corner[1] * height,
                text,
                size=8.5,
                colour=colour,
                across="left" if corner[0] < 0.5 else "right",
                down="top" if corner[1] < 0.5 else "bottom",
                plate=True,
            )
        )

    def tag_other(self, label: str) -> None:
        """The label of an image that is of another class than what it stands for: ✕ and orange."""
        self.tag(f"✕ {shortened(label, 14)}", OTHER_CLASS, (0.03, 0.97))

    def _inches(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """Points (n, 2) from fractions of the image to inches on the sheet."""
        (x0, y0, x1, y1), (x, y, width, height) = self._box, self._place
        shares = (points - (x0, y0)) / (max(x1 - x0, 1e-9), max(y1 - y0, 1e-9))
        return np.asarray(shares * (width, height) + (x, y))

    def _draw_lines(
        self, lines: Sequence[NDArray[np.float64]], colour: str, width: float, **style: Any
    ) -> None:
        """Closed lines (n, 2), all with one stroke."""
        if lines:
            inches = [self._inches(line) for line in lines]
            self._sheet.strokes.append(LineStroke(inches, colour, width, self._place, **style))


def _corners(box: Box, inset: float) -> NDArray[np.float64]:
    """The closed line (5, 2) around a box, kept that far inside the image."""
    x0, y0 = max(box[0], inset), max(box[1], inset)
    x1, y1 = min(box[2], 1 - inset), min(box[3], 1 - inset)
    return np.array([[x0, y0], [x1, y0], [x1, y1], [x0, y1], [x0, y0]])


# -- pictures ------------------------------------------------------------------------------------
def overlay(picture: Picture, activation: Picture, colour_map: str = COLOUR_MAP) -> Picture:
    """Image and heat as one picture (S, S, 3); each map is scaled to its own range.

    Weak activation is transparent, so that the image stays readable. A constant map has no heat.
    """
    colour = picture if picture.ndim == 3 else np.repeat(picture[..., None], 3, axis=2)
    scaled = unit_range(activation)
    if scaled is None:
        return colour.astype(np.float32)
    heat = _colours(colour_map)[np.minimum(scaled * 256, 255).astype(np.uint8)]
    if colour_map == JET:
        mixed = JET_IMAGE_SHARE * colour + JET_SHARE * heat
        return np.asarray(np.clip(mixed / (JET_SHARE + JET_IMAGE_SHARE), 0, 1), dtype=np.float32)
    opacity = HEAT_STRENGTH * np.clip((scaled - FADE_FROM) / (1 - FADE_FROM), 0, 1)[..., None]
    mixed = (1 - opacity) * IMAGE_UNDER_HEAT * colour + opacity * heat
    return np.asarray(np.clip(mixed, 0, 1), dtype=np.float32)


@cache
def _colours(name: str) -> Picture:
    """The 256 colours (256, 3) of a map."""
    colours = matplotlib.colormaps[name](np.arange(256) / 256)
    return np.asarray(colours, dtype=np.float32)[:, :3]


def unit_range(activation: Picture) -> Picture | None:
    """A map scaled to [0, 1]; None where it is constant or not finite."""
    low, high = float(np.min(activation)), float(np.max(activation))
    if not np.isfinite(high - low) or high - low < 1e-9:
        return None
    scaled: Picture = ((activation - low) / (high - low)).astype(np.float32)
    return scaled


def roomy(box: Box, least: float = 0.18, margin: float = 0.02) -> tuple[float, float, float, float]:
    """What to crop to, to show a box: a margin around it, no side shorter than `least`, in the image.

    >>> roomy((0.4, 0.5, 0.6, 0.52), 0.1, 0)
    (0.4, 0.46, 0.6, 0.56)
    """
    sides = []
    for low, high in ((box[0], box[2]), (box[1], box[3])):
        side = min(1.0, max(high - low + 2 * margin, least))
        start = min(max((low + high - side) / 2, 0.0), 1.0 - side)
        sides.append((round(start, 9), round(start + side, 9)))
    (x0, x1), (y0, y1) = sides
    return (x0, y0, x1, y1)
