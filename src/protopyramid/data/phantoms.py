"""Synthetic mammogram patches ("phantoms") whose classes differ only in the margin of the mass.

Every patch is parenchyma-like tissue (1/f texture, ducts, soft densities) with one mass of random
size, shape, contrast and place. Its margin is sharp (`circumscribed`), fades over a random width
(`indistinct`) or sends out spicules (`spiculated`). A `negative` has no mass, but an overlap of
tissue as bright and as large as a mass would be.

The fine annotation is the margin band: the pixels within a half-width of the outline. **Outside the
band, the three margins of one (seed, patient, patch) are the same image, bit for bit**: only the
band can tell them apart. Inside it every margin keeps the total attenuation of the mass, so that
brightness and area tell nothing either. Lesion box, band, contrast, blur and noise are drawn
before, and without knowledge of, the class. The ranges of the classes touch: the narrowest fade is
nearly a sharp edge, the faintest spicules are nearly none.

Examples:
    >>> phantom = make_phantom("spiculated", seed=0, patient=3, patch=1)
    >>> phantom.image.shape, str(phantom.image.dtype), phantom.mask.shape
    ((224, 224), 'uint16', (224, 224))
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from protopyramid.data.io.encoding import png_bytes
from protopyramid.data.manifest import KNOWN, SPLITS
from protopyramid.errors import UserError
from protopyramid.utils.files import make_part, remove_partial, write_bytes, write_text
from protopyramid.utils.locks import claimed
from protopyramid.utils.processes import in_processes
from protopyramid.utils.tables import csv_text

MARGINS = ("circumscribed", "indistinct", "spiculated")
NEGATIVE = "negative"

# Lengths below are in pixels of a patch of this size; other sizes scale them.
REFERENCE_SIZE = 224
# Below this size the band is under two pixels wide and margins cannot be told apart.
MIN_SIZE = 32
# Grey values are fractions of the full range until the very end.
FULL_SCALE = 65535
# Share of the patch that the lesion box covers. The limits promised are 8 and 35 %; these leave
# room for rounding to whole pixels, and for a band of at least 7 % of the patch.
BOX_SHARE = (0.10, 0.34)
# The band takes this share of the patch (12 % is the promised limit), but is never wider than
# MAX_HALF_BAND, else it would fill small masses.
BAND_SHARE = 0.11
MAX_HALF_BAND = 13.0
# Margin properties as fractions of the band's half-width. The ranges touch on purpose.
SHARP_FADE = (0.0, 0.18)
INDISTINCT_FADE = (0.22, 1.0)
SPICULE_REACH = (0.25, 1.1)
# Between this fraction of the half-width and 1, all that a class changes is faded out, which makes
# the outside of the band exact.
TAPER_START = 0.85
# Angles at which outlines are tabulated: under half a pixel of arc for the largest mass.
OUTLINE_STEPS = 720

# Streams of random numbers. What all classes share is drawn from streams that do not know the
# class, so that changing the label changes nothing else.
_TISSUE, _BODY, _MARGIN, _OVERLAP, _LABELS, _SPLITS = range(6)

Float = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Phantom:
    """One synthetic patch.

    image: (H, W) uint16. mask: (H, W) bool, True inside the margin band; all False for a negative.
    box: lesion box x0, y0, x1, y1 in pixels, None for a negative. label: name of the class.
    """

    image: npt.NDArray[np.uint16]
    mask: npt.NDArray[np.bool_]
    box: tuple[float, float, float, float] | None
    label: str


@dataclass(frozen=True)
class Tissue:
    """What the patches of a patient share: grey fractions, radians, pixels."""

    level: float
    texture: float
    slope: float
    stretch: float
    skew: float
    strands: float
    direction: float
    noise: float


@dataclass(frozen=True)
class Body:
    """A mass without its margin: geometry on the pixel grid, and what is common to all classes.

    distance: (H, W) signed distance to the outline, negative inside. angle: (H, W) radians.
    depth: (H, W) thickness of the mass, 1 at the centre. radius: (H, W) of the outline at each
    pixel's angle. half_band, perimeter, blur: pixels. contrast: grey fraction.
    """

    distance: Float
    angle: Float
    radius: Float
    depth: Float
    centre: tuple[float, float]
    half_band: float
    perimeter: float
    contrast: float
    blur: float


def make_phantom(label: str, seed: int, patient: int, patch: int, size: int = 224) -> Phantom:
    """Draw one patch; the same arguments always give the same bytes.

    Two labels with the same other arguments give the same tissue, mass, lesion box, mask, contrast,
    blur and noise: only the pixels of the band differ.
    """
    if label not in (*MARGINS, NEGATIVE):
        raise UserError(f"label: expected one of {(*MARGINS, NEGATIVE)}, got {label!r}")
    key = (seed, patient, patch)
    tissue = _draw_tissue(np.random.default_rng([_TISSUE, seed, patient]))
    rng = np.random.default_rng([_BODY, *key])
    image = _background(rng, tissue, size)
    body = _draw_body(rng, size)
    noise = tissue.noise * _blur(rng.standard_normal((size, size)), 0.5 * size / REFERENCE_SIZE)
    mask = np.zeros((size, size), dtype=bool)
    box = None
    if label == NEGATIVE:
        image += _overlap(np.random.default_rng([_OVERLAP, *key]), body)
    else:
        image += _mass(np.random.default_rng([_MARGIN, *key]), label, body)
        mask = np.abs(body.distance) <= body.half_band
        box = _bounds(mask)
    grey = np.clip((image + noise) * FULL_SCALE, 0, FULL_SCALE)
    return Phantom(np.rint(grey).astype(np.uint16), mask, box, label)


# --- tissue ---------------------------------------------------------------------------------------


def _draw_tissue(rng: np.random.Generator) -> Tissue:
    """Draw the character of a patient's breast: dense or fatty, smooth or coarse, noisy or not."""
    return Tissue(
        level=rng.uniform(0.28, 0.46),
        texture=rng.uniform(0.04, 0.075),
        # Power spectra of mammograms fall as 1/f^3 or nearly so (Burgess 2001).
        slope=rng.uniform(2.9, 3.5),
        # Fibres run towards the nipple: structures are this much longer along than across.
        stretch=rng.uniform(1.0, 1.7),
        skew=rng.uniform(0.0, 0.12),
        strands=rng.uniform(5, 12),
        direction=rng.uniform(0, np.pi),
        noise=rng.uniform(0.01, 0.022),
    )


def _background(rng: np.random.Generator, tissue: Tissue, size: int) -> Float:
    """Parenchyma: 1/f texture, soft densities and duct-like strands. Shape (size, size)."""
    texture = _power_noise(rng, size, tissue.slope, tissue.direction, tissue.stretch)
    # Glandular tissue is brighter than fat is dark: skew the histogram, keep its mean.
    texture += tissue.skew * (texture**2 - 1)
    image = tissue.level + tissue.texture * texture
    for _ in range(rng.integers(1, 4)):
        image += _density(rng, size)
    for _ in range(rng.poisson(tissue.strands)):
        _add_strand(rng, image, tissue.direction)
    return image


def _power_noise(
    rng: np.random.Generator, size: int, slope: float, direction: float, stretch: float
) -> Float:
    """Gaussian noise with power spectrum 1/f^slope, mean 0 and SD 1. Shape (size, size).

    Its structures are `stretch` times as long along `direction` as across it.
    """
    spectrum = np.fft.rfft2(rng.standard_normal((size, size)))
    rows, columns = np.fft.fftfreq(size)[:, None], np.fft.rfftfreq(size)[None, :]
    # Below two cycles a patch the power is held, else one gradient would swamp all texture.
    along = columns * np.cos(direction) + rows * np.sin(direction)
    across = rows * np.cos(direction) - columns * np.sin(direction)
    squared = along**2 * stretch + across**2 / stretch
    spectrum *= np.maximum(squared, (2.0 / size) ** 2) ** (-slope / 4)
    spectrum[0, 0] = 0
    noise = np.fft.irfft2(spectrum, s=(size, size))
    return np.asarray(noise / noise.std())


def _density(rng: np.random.Generator, size: int) -> Float:
    """A soft elliptic brightening anywhere, as distraction. Shape (size, size)."""
    centre = rng.uniform(0, size, 2)
    spread = rng.uniform(0.08, 0.2, 2) * size
    turn = rng.uniform(0, np.pi)
    x, y = _turned(size, centre, turn)
    height = rng.uniform(0.02, 0.10)
    return np.asarray(height * np.exp(-0.5 * ((x / spread[0]) ** 2 + (y / spread[1]) ** 2)))


def _add_strand(rng: np.random.Generator, image: Float, direction: float) -> None:
    """Add a faint winding line (duct, ligament, vessel), mostly along `direction`, to (H, W)."""
    size = image.shape[0]
    unit = size / REFERENCE_SIZE
    x, y = _turned(size, rng.uniform(0, size, 2), direction + rng.normal(0, 0.5))
    length = rng.uniform(0.15, 0.6) * size
    bend = rng.normal(0, 0.15) / length
    swing, stride, phase = rng.uniform((0, 8, 0), (4, 25, 2 * np.pi)) * (unit, unit, 1)
    width = rng.uniform(0.8, 2.5) * unit
    height = rng.uniform(0.02, 0.07)
    across = y - bend * x * x
    # Only pixels that the line can touch: the exponential of all would be most of the work.
    near = (np.abs(across) < swing + 4 * width) & (np.abs(x) < 1.5 * length)
    x, across = x[near], across[near]
    across -= swing * np.sin(x / stride + phase)
    ends = (x / length) ** 2
    image[near] += height * np.exp(-0.5 * (across / width) ** 2 - ends * ends)


def _turned(size: int, centre: Float, turn: float) -> tuple[Float, Float]:
    """Pixel coordinates about `centre`, along and across the direction `turn`; (size, size) each."""
    x = np.arange(size)[None, :] - centre[0]
    y = np.arange(size)[:, None] - centre[1]
    return x * np.cos(turn) + y * np.sin(turn), y * np.cos(turn) - x * np.sin(turn)


# --- the mass -------------------------------------------------------------------------------------


def _draw_body(rng: np.random.Generator, size: int) -> Body:
    """Draw size, shape, place, contrast and blur of a mass, whatever its class will be."""
    unit = size / REFERENCE_SIZE
    theta = np.linspace(0, 2 * np.pi, OUTLINE_STEPS, endpoint=False)
    outline = _draw_outline(rng, theta)
    scale, half_band = _fit(outline, theta, rng.uniform(*BOX_SHARE) * size**2, size)
    outline = outline * scale
    left, right, top, bottom = _reach(outline, theta, half_band)
    # One pixel of room: the rounded box must fit too.
    centre = (rng.uniform(left + 1, size - right - 2), rng.uniform(top + 1, size - bottom - 2))

    x = np.arange(size)[None, :] - centre[0]
    y = np.arange(size)[:, None] - centre[1]
    angle = np.arctan2(y, x) % (2 * np.pi)
    steepness = np.gradient(outline, theta[1]) / outline
    radius = np.interp(angle, theta, outline, period=2 * np.pi)
    slant = np.interp(angle, theta, np.sqrt(1 + steepness**2), period=2 * np.pi)
    rho = np.hypot(x, y)
    return Body(
        distance=(rho - radius) / slant,
        angle=angle,
        radius=radius,
        depth=np.sqrt(np.clip(1 - (rho / radius) ** 2, 0, 1)),
        centre=centre,
        half_band=half_band,
        perimeter=_perimeter(outline, theta),
        contrast=rng.uniform(0.15, 0.30),
        blur=rng.uniform(0.6, 1.3) * unit,
    )


def _draw_outline(rng: np.random.Generator, theta: Float) -> Float:
    """Radius of a smooth round, oval or lobulated outline, mean 1, at each angle. (steps,)."""
    outline = np.ones_like(theta)
    for order, spread in ((2, 0.10), (3, 0.05), (4, 0.03), (5, 0.02)):
        height = np.clip(rng.normal(0, spread), -2 * spread, 2 * spread)
        outline += height * np.cos(order * (theta - rng.uniform(0, 2 * np.pi)))
    return np.asarray(outline / outline.mean())


def _fit(outline: Float, theta: Float, box_area: float, size: int) -> tuple[float, float]:
    """Scale of the unit outline, and half-width of its band, that give a box of `box_area`."""
    unit = size / REFERENCE_SIZE
    band = BAND_SHARE * size**2 / (2 * _perimeter(outline, theta))
    low, high = 1.0, float(size)
    for _ in range(40):
        scale = (low + high) / 2
        half_band = min(MAX_HALF_BAND * unit, band / scale)
        left, right, top, bottom = _reach(outline * scale, theta, half_band)
        if (left + right) * (top + bottom) < box_area:
            low = scale
        else:
            high = scale
    return scale, half_band


def _perimeter(outline: Float, theta: Float) -> float:
    """Length of a closed outline given by its radius at each angle."""
    slope = np.gradient(outline, theta[1])
    return float(np.hypot(outline, slope).sum() * theta[1])


def _reach(outline: Float, theta: Float, half_band: float) -> tuple[float, float, float, float]:
    """How far the outline and its band extend left, right, up and down of the centre."""
    x, y = outline * np.cos(theta), outline * np.sin(theta)
    reach = (-x.min(), x.max(), -y.min(), y.max())
    left, right, top, bottom = (float(value) + half_band for value in reach)
    return left, right, top, bottom


def _bounds(mask: npt.NDArray[np.bool_]) -> tuple[float, float, float, float]:
    """Smallest box x0, y0, x1, y1 that holds all pixels of the mask, edges included."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1)


def _mass(rng: np.random.Generator, label: str, body: Body) -> Float:
    """Brightness of the mass with the margin of its class. Shape (H, W)."""
    plain = _blur(_edge(body.distance, np.asarray(0.0)), body.blur)
    own = _edge(body.distance, np.asarray(0.0))
    band = np.abs(body.distance) < body.half_band
    own[band] = _margin(rng, label, body, band)
    own = _blur(own, body.blur)
    start = TAPER_START * body.half_band
    taper = np.clip((body.half_band - np.abs(body.distance)) / (body.half_band - start), 0, 1)
    occupied = plain + (own - plain) * taper
    # A mass is thickest in its middle, yet its edge must keep most of the contrast.
    return body.contrast * occupied * (0.8 + 0.2 * body.depth)


def _margin(rng: np.random.Generator, label: str, body: Body, band: npt.NDArray[np.bool_]) -> Float:
    """How far each pixel of the band is occupied by the mass, 0 to 1. Shape (pixels of band,)."""
    distance, angle = body.distance[band], body.angle[band]
    fade_range = INDISTINCT_FADE if label == "indistinct" else SHARP_FADE
    fade = _skewed(rng, fade_range) * body.half_band * _uneven(rng, angle)
    fade = np.minimum(fade, body.half_band)
    spicules = np.zeros_like(distance)
    if label == "spiculated":
        spicules = _spicules(rng, body, band)
    # The core retreats until the margin holds as much as the plain mass does.
    target = _edge(distance, np.asarray(0.0)).sum()
    low, high = -body.half_band, body.half_band
    for _ in range(16):
        retreat = (low + high) / 2
        occupied = np.maximum(_edge(distance + retreat, fade), spicules)
        if occupied.sum() > target:
            low = retreat
        else:
            high = retreat
    return occupied


def _skewed(rng: np.random.Generator, limits: tuple[float, float]) -> float:
    """A number between the limits, the higher the likelier: borderline margins occur, but rarely."""
    low, high = limits
    return float(low + (high - low) * np.sqrt(rng.uniform()))


def _edge(distance: Float, fade: Float) -> Float:
    """Smooth step from 1 inside to 0 outside over +-`fade` pixels, never under one pixel in all."""
    step = np.clip(0.5 - 0.5 * distance / np.maximum(fade, 0.5), 0, 1)
    return np.asarray(step * step * (3 - 2 * step))


def _uneven(rng: np.random.Generator, angle: Float) -> Float:
    """A factor about 1 that varies slowly along the outline. Shape of `angle`."""
    factor = np.ones_like(angle)
    for order in (1, 2, 3):
        factor += rng.uniform(0, 0.15) * np.cos(order * angle - rng.uniform(0, 2 * np.pi))
    return factor


def _spicules(rng: np.random.Generator, body: Body, band: npt.NDArray[np.bool_]) -> Float:
    """Thorns that radiate from the core: wide at the root, thin at the tip. (pixels of band,)."""
    distance, angle, radius = body.distance[band], body.angle[band], body.radius[band]
    unit = band.shape[0] / REFERENCE_SIZE
    reach = _skewed(rng, SPICULE_REACH) * body.half_band
    spacing = rng.uniform(12, 21) * unit
    count = max(7, round(body.perimeter / spacing))
    strength = rng.uniform(0.8, 1.0)
    spicules = np.zeros_like(distance)
    for index in range(count):
        at = 2 * np.pi * (index + rng.uniform(-0.45, 0.45)) / count
        tip = reach * rng.uniform(0.5, 1.0)
        root = 0.5 * spacing * rng.uniform(0.65, 1.2)
        lean = rng.normal(0, 0.4)
        # Along: 0 at the root (as deep inside as the tip is outside), 1 at the tip.
        along = np.clip((distance + tip) / (2 * tip), 0, 1)
        arc = ((angle - at + np.pi) % (2 * np.pi) - np.pi) * radius - lean * (distance + tip)
        half_width = root * (1 - along) ** 1.3 + 1.0 * unit
        inside = np.clip(half_width - np.abs(arc) + 0.5, 0, 1) * (distance < tip)
        np.maximum(spicules, strength * inside * (1 - 0.3 * along), out=spicules)
    return spicules


def _overlap(rng: np.random.Generator, body: Body) -> Float:
    """Overlapping tissue where a mass would be, as bright and as large, without a margin. (H, W)."""
    size = body.distance.shape[0]
    extent = body.radius * (1 + 0.35 * _power_noise(rng, size, 3.0, 0.0, 1.0))
    rho = np.maximum(body.distance + body.radius, 0)
    soft = np.exp(-((rho / np.maximum(extent, 0.4 * body.radius)) ** 2))
    return np.asarray(body.contrast * soft)


def _blur(image: Float, sigma: float) -> Float:
    """Gaussian blur by the Fourier transform (wraps at the patch's border). Shape kept."""
    height, width = image.shape
    rows, columns = np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None, :]
    damping = np.exp(-2 * (np.pi * sigma) ** 2 * rows**2) * np.exp(
        -2 * (np.pi * sigma) ** 2 * columns**2
    )
    return np.asarray(np.fft.irfft2(np.fft.rfft2(image) * damping, s=image.shape))


# --- the folder -----------------------------------------------------------------------------------


def write_phantoms(
    folder: Path,
    seed: int = 0,
    patients: int = 300,
    patches: int = 4,
    size: int = 224,
    splits: tuple[float, float, float] = (0.7, 0.1, 0.2),
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Write a dataset of phantoms and return the path of its manifest.

    `folder` gets `images/NAME.png` (16-bit grey), `masks/NAME.png` (255 in the band, else 0) and,
    last of all, `manifest.csv`. With `patches` = 4 each patient has one patch of every class.
    `splits` are the shares of patients in train, validation and test. `workers` processes share
    the work; their number does not change a byte. `progress(done, total)` is called for every patch.
    """
    if min(patients, patches) < 1 or size < MIN_SIZE:
        raise UserError(
            f"phantoms: expected patients >= 1, patches >= 1 and size >= {MIN_SIZE}, "
            f"got {patients}, {patches} and {size}"
        )
    jobs = [
        _Job(Path(folder), seed, patient, patch, size, label, split)
        for patient, split in enumerate(_draw_splits(seed, patients, splits))
        for patch, label in enumerate(_draw_labels(seed, patient, patches))
    ]
    with claimed(Path(folder)):
        return _write(Path(folder), jobs, workers, progress)


@dataclass(frozen=True)
class _Job:
    """One patch to draw and write."""

    folder: Path
    seed: int
    patient: int
    patch: int
    size: int
    label: str
    split: str


def _write(
    folder: Path,
    jobs: Sequence[_Job],
    workers: int,
    progress: Callable[[int, int], None] | None,
) -> Path:
    for part in ("images", "masks"):
        make_part(folder, part)
    rows: dict[tuple[int, int], list[str]] = {}
    for job, row in in_processes(_write_patch, jobs, workers):
        rows[job.patient, job.patch] = row
        if progress is not None:
            progress(len(rows), len(jobs))
    remove_partial(folder)  # of an earlier call that was killed
    in_order = [rows[job.patient, job.patch] for job in jobs]
    return write_text(folder / "manifest.csv", csv_text(KNOWN, in_order))


def _write_patch(job: _Job) -> tuple[_Job, list[str]]:
    """Draw a patch, write its image and mask, and give its row of the manifest."""
    phantom = make_phantom(job.label, job.seed, job.patient, job.patch, job.size)
    name = f"patient{job.patient:04d}-{job.patch}.png"
    write_bytes(job.folder / "images" / name, png_bytes(phantom.image))
    mask = phantom.mask.astype(np.uint8) * 255
    write_bytes(job.folder / "masks" / name, png_bytes(mask))
    box = [""] * 4 if phantom.box is None else [f"{edge:g}" for edge in phantom.box]
    patient = f"patient{job.patient:04d}"
    return job, [f"images/{name}", job.label, job.split, f"masks/{name}", patient, *box]


def _draw_labels(seed: int, patient: int, patches: int) -> list[str]:
    """Labels of a patient's patches: all classes in turn, in random order, so that none leads."""
    rng = np.random.default_rng([_LABELS, seed, patient])
    classes = (*MARGINS, NEGATIVE)
    # Patients start at different classes: the dataset is balanced whatever `patches` is.
    turn = [classes[(patient * patches + index) % len(classes)] for index in range(patches)]
    return [turn[index] for index in rng.permutation(patches)]


def _draw_splits(seed: int, patients: int, shares: tuple[float, float, float]) -> list[str]:
    """The split of each patient, in proportion to the shares."""
    if min(shares) < 0 or sum(shares) <= 0:
        raise UserError(f"splits: expected three shares >= 0, not all zero, got {shares}")
    ends = np.rint(np.cumsum(shares) / sum(shares) * patients).astype(int)
    order = np.random.default_rng([_SPLITS, seed]).permutation(patients)
    ranks = np.empty(patients, dtype=int)
    ranks[order] = np.arange(patients)
    return [SPLITS[int(np.searchsorted(ends, rank, side="right"))] for rank in ranks]
