"""Decoding of image files to arrays in [0, 1], without ever losing bits silently.

A value is divided by the largest one that the file can hold: 255, 65535, or a PGM's own maximum.
A 16-bit file that uses only 12 bits is dark, and stays so. DICOM files define black and white themselves
(dicom.py). Readers are chosen by the suffix of the file, or else by its first bytes; a format is added by
an entry in READERS.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFile, TiffImagePlugin

from protopyramid.config.schema import DicomConfig
from protopyramid.data.geometry import Spacing
from protopyramid.data.io.memory import Source, as_source, content_of, openable, opened
from protopyramid.errors import UserError
from protopyramid.utils.opening import is_file
from protopyramid.utils.quiet import quiet

Array = NDArray[np.float32]

PILLOW_FORMATS = ("PNG", "JPEG", "TIFF")
# First bytes of the formats, for files with an unknown suffix.
MAGIC = (
    (0, b"\x89PNG", ".png"),
    (0, b"\xff\xd8\xff", ".jpg"),
    (0, b"II*\0", ".tif"),
    (0, b"MM\0*", ".tif"),
)
MAGIC_LENGTH = 132
DICOM_SUFFIXES = (".dcm", ".dicom")
LOSSY = (".jpg", ".jpeg")
DICOM_INDEX = "DICOMDIR"  # beside the images of an archive or disc: DICOM too, but a list of them
DICOM_MARK = b"DICM"  # after a preamble of 128 bytes
# Without one: the first element is of group 2 or 8, explicit (also big-endian) or implicit and short.
BARE_DICOM = re.compile(
    rb"\x02\x00[\x00-\x18]\x00[A-Z]{2}"
    rb"|\x08\x00[\x00-\x18]\x00([A-Z]{2}|.\x00\x00\x00)"
    rb"|\x00\x08\x00[\x00-\x18][A-Z]{2}",
    re.DOTALL,
)
TIFF_BITS, TIFF_PHOTOMETRIC, TIFF_PLANAR = 258, 262, 284
TIFF_WHITE_IS_ZERO = 0
FROM_PILLOW = re.compile(r"PIL\.")
SILENCE = ("ignore", None, Warning, FROM_PILLOW, 0)  # as `warnings` stores the filter
SWAPPED = {"L": "B", "N": "B", "B": "L"}


class DecodingError(Exception):
    """The file is of an unsupported kind; the message says why."""


class Decoded(NamedTuple):
    """An image (H, W) or (H, W, 3), and whether it is mirrored relative to its file."""

    image: Array
    mirrored: bool


Reader = Callable[[Source, DicomConfig], Decoded]


def read_image(path: str | Source, dicom: DicomConfig | None = None) -> Array:
    """The image of a file, float32 in [0, 1]: (H, W) grey or (H, W, 3) colour; alpha is dropped.

    The settings apply to DICOM files; by default, the default ones. A file may be in memory.
    """
    return decode(path, dicom).image


def decode(path: str | Source, dicom: DicomConfig | None = None) -> Decoded:
    """The image of a file as read_image gives it, and whether the settings mirrored it."""
    path = as_source(path)
    with _one_kind_of_error(path):
        decoded = _reader(path)(path, dicom or DicomConfig())
    if not decoded.image.size:
        raise UserError(f"{path}: the image has no pixels; give another file")
    return decoded


def read_marks(path: str | Path) -> NDArray[np.bool_]:
    """Which pixels (H, W) of a mask file are not black.

    A JPEG mask is cut at half of the range, since compression leaves faint traces outside.
    """
    path = Path(path)
    with _one_kind_of_error(path):
        if _kind(path) in DICOM_SUFFIXES:
            marked: NDArray[np.bool_] = _dicom().read_marks(path)
            return marked
    values = read_image(path)
    least = 0.5 if path.suffix.lower() in LOSSY else 0.0
    marked = (values.max(2) if values.ndim == 3 else values) > least
    return marked


def read_dicom_size(path: Source) -> tuple[int, int] | None:
    """Rows and columns from a DICOM file's header, or None if it lacks them; no pixels are read."""
    with _one_kind_of_error(path):
        size: tuple[int, int] | None = _dicom().read_size(path)
    return size


def read_size(path: Source) -> tuple[int, int] | None:
    """Height and width by an image's header; None where it is broken. No pixels are read."""
    if is_dicom(path):
        try:
            return read_dicom_size(path)
        except UserError:
            return None
    _quieten()
    try:
        with quiet(), Image.open(openable(path)) as image:
            return image.height, image.width
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None


def read_spacing(path: str | Source) -> Spacing | None:
    """Millimetres per pixel as a DICOM file tells them, else None; no pixels are read.

    Other formats are not asked: what they call resolution is that of a printer or screen.
    """
    path = as_source(path)
    with _one_kind_of_error(path):
        if _kind(path) not in DICOM_SUFFIXES:
            return None
        found: tuple[float, float] | None = _dicom().read_spacing(path)
    return None if found is None else Spacing(*found)


def read_view(path: Path) -> tuple[str, str]:
    """The breast ("L", "R") and view ("CC", "MLO") by a DICOM file's header; "" where it lacks them."""
    with _one_kind_of_error(path):
        found: tuple[str, str] = _dicom().read_view(path)
    return found


@contextmanager
def _one_kind_of_error(path: Source) -> Iterator[None]:
    """Within it, whatever a decoder raises becomes a UserError that names the file, and it is silent."""
    _quieten()
    try:
        with quiet():
            yield
    except UserError:
        raise
    except DecodingError as error:
        raise UserError(f"{path}: {error}") from None
    except Exception as error:  # decoders raise almost anything on a corrupt file
        reason = getattr(error, "strerror", None) or str(error).replace(str(path), "file")
        raise UserError(
            f"{path}: cannot read the image ({' '.join(str(reason).split())}); "
            "is it complete, and a PNG, JPEG, TIFF, PGM or DICOM file?"
        ) from None


def _quieten() -> None:
    """Silence Pillow's warnings for the whole process: what matters of them is an error.

    Again before each file, and not by a context of warnings, for the reasons that dicom.py gives.
    """
    if SILENCE not in warnings.filters:
        warnings.filterwarnings("ignore", module=FROM_PILLOW.pattern)


def is_image(path: Path) -> bool:
    """Whether a file is of a supported kind, by its suffix or its first bytes."""
    if path.name == DICOM_INDEX:
        return False
    try:
        return is_file(path) and _kind(path) in READERS
    except OSError:  # without a known suffix, and it cannot be opened
        return False


def is_dicom(path: Source) -> bool:
    """Whether a file is read as DICOM, by its suffix or its first bytes."""
    try:
        return _kind(path) in DICOM_SUFFIXES
    except OSError:
        return False


def image_stem(path: Path) -> str:
    """The name of an image file without its suffix; the last part of a UID is not a suffix.

    >>> image_stem(Path("mass.PNG")), image_stem(Path("1.2.840.7"))
    ('mass', '1.2.840.7')
    """
    return path.stem if path.suffix.lower() in READERS else path.name


def looks_like_dicom(start: bytes) -> bool:
    """Whether a file that starts with these 132 bytes is DICOM, with or without the preamble.

    >>> looks_like_dicom(bytes(128) + b"DICM"), looks_like_dicom(b"DICM")
    (True, False)
    """
    return start[128:132] == DICOM_MARK or BARE_DICOM.match(start) is not None


def _kind(path: Source) -> str:
    """The suffix of a file's reader: its own, or what its first bytes say."""
    suffix = path.suffix.lower()
    if suffix in READERS:
        return suffix
    with opened(path) as file:
        start = file.read(MAGIC_LENGTH)
    found = [name for offset, magic, name in MAGIC if start[offset:].startswith(magic)]
    if not found and looks_like_dicom(start):
        return ".dcm"
    return found[0] if found else suffix


def _reader(path: Source) -> Reader:
    kind = _kind(path)
    if kind not in READERS:
        known = ", ".join(sorted(READERS))
        raise DecodingError(f"unsupported kind of file; known suffixes are {known}")
    return READERS[kind]


def _plain_reader(read: Callable[[Source], Array]) -> Reader:
    """A reader of files without window or laterality."""

    def reader(path: Source, dicom: DicomConfig) -> Decoded:
        if dicom.flip != "none":
            warnings.warn(
                f"{path}: is not a DICOM file and does not say which breast it shows, so it is not "
                "mirrored",
                stacklevel=2,
            )
        return Decoded(read(path), mirrored=False)

    return reader


def _dicom() -> ModuleType:
    """The reader of DICOM files, which needs optional packages."""
    try:
        return import_module("protopyramid.data.io.dicom")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "pydicom":
            raise
        raise DecodingError(
            "is DICOM; install the reader with pip install 'protopyramid[dicom]'"
        ) from None


def _read_dicom(path: Source, dicom: DicomConfig) -> Decoded:
    decoded: Decoded = _dicom().read_dicom(path, dicom)
    return decoded


def read_with_pillow(path: Source) -> Array:
    """A PNG, JPEG or TIFF file of 8 or 16 bits."""
    with Image.open(openable(path), formats=PILLOW_FORMATS) as image:
        if getattr(image, "n_frames", 1) > 1:
            warnings.warn(f"{path}: has several pages; only the first is read", stacklevel=2)
        if image.mode in ("I", "F"):
            raise DecodingError("has 32 bits per value; save it as 8- or 16-bit PNG or TIFF")
        if image.mode.startswith("I;16"):
            return _grey16(image)
        if _has_wide_colour(image):
            return _colour16(path, image)
        return _scaled(np.asarray(_plain(image)), 255)


def _scaled(values: NDArray[np.generic], largest: int) -> Array:
    scaled: Array = values.astype(np.float32) / np.float32(largest)
    return scaled


def _plain(image: Image.Image) -> Image.Image:
    """The image in mode L or RGB; a palette of greys is grey."""
    if image.mode in ("1", "L", "LA", "La"):
        return image.convert("L")
    if image.mode in ("P", "PA"):
        colours = np.asarray(image.convert("RGB"))
        grey = bool((colours == colours[..., :1]).all())
        return Image.fromarray(np.ascontiguousarray(colours[..., 0]) if grey else colours)
    return image.convert("RGB")


def _grey16(image: Image.Image) -> Array:
    values = np.asarray(image)
    bits = 16
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        bits = int(image.tag_v2.get(TIFF_BITS, (16,))[0])
        if image.tag_v2.get(TIFF_PHOTOMETRIC) == TIFF_WHITE_IS_ZERO:
            values = (2**bits - 1) - values  # Pillow inverts 8 bits, but not 16
    return _scaled(values, 2**bits - 1)


def _has_wide_colour(image: ImageFile.ImageFile) -> bool:
    """Whether Pillow would cut 16-bit colour (or grey with alpha) down to 8 bits."""
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        bits = image.tag_v2.get(TIFF_BITS, (1,))
        return max(int(count) for count in bits) > 8
    return any(";16" in _raw_mode(tile) for tile in image.tile)


def _raw_mode(tile: tuple[object, ...]) -> str:
    arguments = tile[3]
    return str(arguments[0] if isinstance(arguments, tuple) else arguments)


def _colour16(path: Source, image: ImageFile.ImageFile) -> Array:
    """16-bit colour, decoded twice: Pillow keeps one byte of each value, and we choose which.

    Its raw mode "RGB;16B" keeps the first byte of each pair, "RGB;16L" the second.
    """
    modes = {_raw_mode(tile) for tile in image.tile}
    planar = (
        isinstance(image, TiffImagePlugin.TiffImageFile) and image.tag_v2.get(TIFF_PLANAR, 1) != 1
    )
    if modes == {"LA;16B"}:
        values = _decoded_as(path, "RGBA")
        return _scaled(values[..., 0].astype(np.uint16) * 256 + values[..., 1], 65535)
    match = re.fullmatch(r"(RGB|RGBA|RGBX);16([LBN])", modes.pop()) if len(modes) == 1 else None
    if match is None or planar:
        raise DecodingError("is an unsupported kind of 16-bit colour; save it as 16-bit PNG")
    high = np.asarray(image)[..., :3].astype(np.uint16)
    low = _decoded_as(path, f"{match[1]};16{SWAPPED[match[2]]}")[..., :3]
    return _scaled(high * 256 + low, 65535)


def _decoded_as(path: Source, raw_mode: str) -> NDArray[np.uint8]:
    """The pixels when the decoder takes the file's bytes for those of another raw mode."""
    with Image.open(openable(path), formats=PILLOW_FORMATS) as image:
        if raw_mode == "RGBA":
            image._mode = "RGBA"
        tiles = []
        for name, extents, offset, arguments in image.tile:
            rest = arguments[1:] if isinstance(arguments, tuple) else None
            tiles.append((name, extents, offset, raw_mode if rest is None else (raw_mode, *rest)))
        image.tile = [type(image.tile[0])(*tile) for tile in tiles]
        return np.asarray(image)


_PNM_TOKEN = re.compile(rb"(?:\s|#[^\r\n]*[\r\n])*([^\s#]+)")
_PNM_CHANNELS = {b"P2": 1, b"P5": 1, b"P3": 3, b"P6": 3}


def read_pnm(path: Source) -> Array:
    """A PGM or PPM file, plain or binary, divided by its own maximum.

    Our own, since Pillow rounds to 8 or 16 bits and reduces colour to 8.
    """
    content = content_of(path)
    header, position = [], 0
    for _ in range(4):
        match = _PNM_TOKEN.match(content, position)
        if match is None:
            raise DecodingError("is not a PGM or PPM image: its header is truncated")
        header.append(match[1])
        position = match.end()
    if header[0] not in _PNM_CHANNELS:
        raise DecodingError("is not a grey or colour PGM or PPM image (P2, P3, P5 or P6)")
    width, height, largest = (int(value) for value in header[1:])
    if width < 1 or height < 1 or not 1 <= largest <= 65535:
        raise DecodingError(f"has an invalid PGM header: {width} x {height}, maximum {largest}")
    count = width * height * _PNM_CHANNELS[header[0]]
    if header[0] in (b"P2", b"P3"):
        values = np.array(re.sub(rb"#[^\r\n]*", b"", content[position:]).split()[:count], np.int64)
    else:
        kind = np.dtype(">u2" if largest > 255 else "u1")
        body = content[position + 1 : position + 1 + count * kind.itemsize]
        values = np.frombuffer(body[: len(body) // kind.itemsize * kind.itemsize], kind)
    if values.size < count or (values < 0).any() or (values > largest).any():
        raise DecodingError("is truncated, or has values above its maximum; is the file complete?")
    image = _scaled(values.reshape(height, width, -1), largest)
    return image[..., 0] if image.shape[2] == 1 else image


READERS: dict[str, Reader] = {
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".tif", ".tiff"), _plain_reader(read_with_pillow)),
    **dict.fromkeys((".pgm", ".ppm", ".pnm"), _plain_reader(read_pnm)),
    **dict.fromkeys(DICOM_SUFFIXES, _read_dicom),
}
