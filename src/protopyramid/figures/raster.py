"""Strokes as pixels, drawn with Pillow: a tenth of the time that a plotting library takes.

Pictures are resampled once to the pixels that they fill. Lines are drawn at a multiple of their size and
reduced, which smooths them; only the box around a line is touched.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from protopyramid.figures.strokes import (
    BarStroke,
    LineStroke,
    PictureStroke,
    Rectangle,
    Stroke,
    TextStroke,
)

FONTS = {False: "DejaVuSans.ttf", True: "DejaVuSans-Bold.ttf"}  # Matplotlib brings them
POINTS = 72  # per inch
RISE, FALL = 0.86, 0.22  # above and below a line of letters, as a share of their size
FINER = 4  # how much larger lines are drawn before they are smoothed
STRIPE = 0.05  # inches between the stripes of a hatched bar
PLATE, PLATE_EDGE = 217, 0.2  # opacity of 255, and its margin as a share of the letters' size
PALE = 0.6  # share of white in a pale picture

Line = NDArray[np.float64]


class PixelBox(NamedTuple):
    """Whole pixels: left, top, right, bottom."""

    left: int
    top: int
    right: int
    bottom: int

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return self.right - self.left, self.bottom - self.top

    def within(self, other: PixelBox) -> PixelBox:
        """The part that lies in another box."""
        left, top = max(self.left, other.left), max(self.top, other.top)
        return PixelBox(left, top, min(self.right, other.right), min(self.bottom, other.bottom))

    def __bool__(self) -> bool:
        return self.right > self.left and self.bottom > self.top


def drawn_pixels(
    strokes: Iterable[Stroke], width: float, height: float, dpi: int
) -> NDArray[np.uint8]:
    """A sheet of that many inches as pixels (height, width, 3)."""
    canvas = Canvas(round(width * dpi), round(height * dpi), dpi)
    for stroke in strokes:
        if isinstance(stroke, TextStroke):
            canvas.write(stroke)
        elif isinstance(stroke, BarStroke):
            canvas.fill(stroke)
        elif isinstance(stroke, PictureStroke):
            canvas.show(stroke)
        else:
            canvas.trace(stroke)
    return np.asarray(canvas.image)


class Canvas:
    """A white image that strokes are drawn on."""

    def __init__(self, width: int, height: int, dpi: int) -> None:
        self.image = Image.new("RGB", (width, height), "white")
        self._draw = ImageDraw.Draw(self.image)
        self._dpi = dpi
        self._whole = PixelBox(0, 0, width, height)

    def write(self, text: TextStroke) -> None:
        """Words, line by line."""
        font = _font(text.bold, text.size * self._dpi / POINTS)
        rise, fall = RISE * font.size, FALL * font.size
        lines = text.text.split("\n")
        step = text.spacing * (rise + fall)
        below = {"top": 0.0, "center": 0.5, "bottom": 1.0}[text.down]
        x, y = text.x * self._dpi, text.y * self._dpi
        y -= below * (rise + fall + step * (len(lines) - 1))
        if text.plate:
            self._plate(font, text, x, y, rise + fall + step * (len(lines) - 1))
        anchor = {"left": "l", "center": "m", "right": "r"}[text.across] + "s"
        for number, line in enumerate(lines):
            place = (x, y + rise + number * step)
            self._draw.text(place, line, fill=text.colour, font=font, anchor=anchor)

    def _plate(
        self, font: ImageFont.FreeTypeFont, text: TextStroke, x: float, y: float, high: float
    ) -> None:
        wide = max(font.getlength(line) for line in text.text.split("\n"))
        edge = PLATE_EDGE * font.size
        left = x - {"left": 0.0, "center": 0.5, "right": 1.0}[text.across] * wide
        box = _whole_pixels(left - edge, y - edge, left + wide + edge, y + high + edge)
        box = box.within(self._whole)
        if box:
            mask = Image.new("L", box.size, 0)
            corner = (0, 0, box.size[0] - 1, box.size[1] - 1)
            ImageDraw.Draw(mask).rounded_rectangle(corner, edge, fill=PLATE)
            self.image.paste("white", box, mask)

    def fill(self, bar: BarStroke) -> None:
        """A filled rectangle, at least one pixel high; one without a width is not seen."""
        box = self._pixels(bar.place).within(self._whole)
        if bar.place[2] <= 0 or not box:
            return
        self.image.paste(bar.colour, box)
        if bar.hatched:
            stripes = Image.new("L", box.size, 0)
            draw, (wide, high) = ImageDraw.Draw(stripes), box.size
            for start in np.arange(-high, wide, max(STRIPE * self._dpi, 2.0)):
                draw.line(
                    [(start, high), (start + high, 0)], fill=255, width=max(1, self._dpi // 90)
                )
            self.image.paste("white", box, stripes)

    def show(self, stroke: PictureStroke) -> None:
        """A picture, resampled to the pixels of its window."""
        box = self._pixels(stroke.window)
        if not box:
            return
        picture = _eight_bits(stroke.picture)
        (x, y, width, height), (left, top, wide, high) = stroke.place, stroke.window
        across, down = picture.width / width, picture.height / height
        part = (
            max((left - x) * across, 0.0),
            max((top - y) * down, 0.0),
            min((left + wide - x) * across, picture.width),
            min((top + high - y) * down, picture.height),
        )
        shown = picture.resize(box.size, Image.Resampling.BICUBIC, box=part)
        if stroke.pale:
            shown = Image.blend(shown, Image.new(shown.mode, shown.size, "white"), PALE)
        self.image.paste(shown, box)

    def trace(self, stroke: LineStroke) -> None:
        """Lines, each with its halo below it."""
        window = self._whole
        if stroke.window is not None:
            window = self._pixels(stroke.window).within(window)
        pixel = self._dpi / POINTS
        lines = [line * self._dpi for line in stroke.lines if len(line) > 1]
        if stroke.halo:
            self._trace(lines, "#000000", (stroke.width + stroke.halo) * pixel, window, 1.0)
        if stroke.dashes is not None:
            on, off = stroke.dashes
            lines = [part for line in lines for part in _dashed(line, on * pixel, off * pixel)]
        self._trace(lines, stroke.colour, stroke.width * pixel, window, stroke.opacity)

    def _trace(
        self, lines: Sequence[Line], colour: str, width: float, window: PixelBox, opacity: float
    ) -> None:
        edge = width / 2 + 1
        for line in (piece for whole in lines for piece in _pieces(whole, width)):
            low, high = line.min(0) - edge, line.max(0) + edge
            box = _whole_pixels(*low, *high).within(window)
            if not box:
                continue
            mask = Image.new("L", (box.size[0] * FINER, box.size[1] * FINER), 0)
            # Pillow's whole numbers are the centres of pixels; ours are their edges.
            points = ((line - box[:2]) * FINER - 0.5).ravel().tolist()
            thick = max(1, round(width * FINER))
            ImageDraw.Draw(mask).line(points, fill=round(255 * opacity), width=thick)
            self.image.paste(colour, box, mask.reduce(FINER))

    def _pixels(self, place: Rectangle) -> PixelBox:
        """The pixels of a rectangle, at least one each way."""
        x, y, width, height = (edge * self._dpi for edge in place)
        left, top = round(x), round(y)
        return PixelBox(left, top, max(round(x + width), left + 1), max(round(y + height), top + 1))


@cache
def _font(bold: bool, pixels: float) -> ImageFont.FreeTypeFont:
    path = Path(matplotlib.get_data_path(), "fonts", "ttf", FONTS[bold])
    return ImageFont.truetype(path, pixels, layout_engine=ImageFont.Layout.BASIC)


def _eight_bits(picture: NDArray[np.float32]) -> Image.Image:
    values = np.nan_to_num(picture) * 255 + 0.5
    return Image.fromarray(np.clip(values, 0, 255).astype(np.uint8))


def _whole_pixels(left: float, top: float, right: float, bottom: float) -> PixelBox:
    return PixelBox(math.floor(left), math.floor(top), math.ceil(right), math.ceil(bottom))


def _pieces(line: Line, width: float) -> Iterator[Line]:
    """A line, or the sides of a box: their own boxes are small, while that of the whole is large."""
    steps = np.diff(line, axis=0)
    if len(line) != 5 or (np.abs(steps).min(1) > 1e-9).any():
        yield line
        return
    corner = np.sign(steps) * (width / 2)  # the sides meet at their outer edges
    for start, end, more in zip(line[:-1], line[1:], corner, strict=True):
        yield np.stack([start - more, end + more])


def _dashed(line: Line, on: float, off: float) -> Iterator[Line]:
    """The dashes of a line, whose lengths are in pixels."""
    steps = np.hypot(*np.diff(line, axis=0).T)
    along = np.concatenate([[0.0], np.cumsum(steps)])
    for start in np.arange(0.0, along[-1], on + off):
        end = min(start + on, along[-1])
        inside = (along > start) & (along < end)
        places = np.concatenate([[start], along[inside], [end]])
        yield np.stack([np.interp(places, along, line[:, axis]) for axis in (0, 1)], axis=1)
