"""DICOM files of grey images as arrays in [0, 1], by the transformations of the standard (PS3.3 C.11).

    stored bits -> modality rescale or table -> window or VOI table -> inverted where MONOCHROME1

Stored values have at most 16 bits, so all of this is worked out once for every value that a pixel could
have, and the image is looked up in the result.

Nothing that identifies a patient leaves this module. Only the elements in TAGS are taken from a file;
their bytes are interpreted here, so that pydicom converts, and quotes, no value; and no error repeats
what a file says. The *name* of a file is the user's own: it stands in messages and runs. A name that is
burned into the pixels stays in them: a file that declares it causes a warning.
"""

from __future__ import annotations

import logging
import re
import struct
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydicom import dcmread
from pydicom.dataelem import RawDataElement
from pydicom.dataset import Dataset, FileDataset
from pydicom.encaps import generate_fragments, get_frame, parse_basic_offsets
from pydicom.pixels.decoders.base import get_decoder
from pydicom.uid import (
    UID,
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    JPEG2000TransferSyntaxes,
    JPEGBaseline8Bit,
    JPEGExtended12Bit,
    JPEGLSTransferSyntaxes,
    JPEGTransferSyntaxes,
    RLELossless,
)

from protopyramid.config.schema import DicomConfig
from protopyramid.data.io.decoding import Decoded, DecodingError, looks_like_dicom
from protopyramid.data.io.memory import Source, openable, opened

Codes = NDArray[np.uint16]
Values = NDArray[np.float64]

FLOAT_PIXELS = ("FloatPixelData", "DoubleFloatPixelData")
# Where an enhanced image keeps what belongs to a frame, and the parts of it that matter here.
FRAME_GROUPS = ("SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence")
FRAME_PARTS = (
    "FrameAnatomySequence",
    "PixelValueTransformationSequence",
    "FrameVOILUTSequence",
    "PixelMeasuresSequence",
)
# Row and column spacing in mm: calibrated, at the detector, of a film scanner; the first one counts.
SPACINGS = ("PixelSpacing", "ImagerPixelSpacing", "NominalScannedPixelSpacing")
# Everything that is ever taken from a file.
TAGS = (
    *("SamplesPerPixel", "PhotometricInterpretation", "NumberOfFrames", "Rows", "Columns"),
    *("BitsAllocated", "BitsStored", "HighBit", "PixelRepresentation"),
    *("PixelPaddingValue", "PixelPaddingRangeLimit"),
    *("RescaleIntercept", "RescaleSlope", "ModalityLUTSequence"),
    *("WindowCenter", "WindowWidth", "VOILUTFunction", "VOILUTSequence"),
    *("ImageLaterality", "Laterality", "FrameLaterality", "PatientOrientation"),
    *("BurnedInAnnotation", *FRAME_GROUPS, *FLOAT_PIXELS, "PixelData"),
)
SIDES = ("ImageLaterality", "FrameLaterality", "Laterality")
# Views by their names, and by their codes in SNOMED RT and SNOMED CT.
VIEWS = {
    **dict.fromkeys(("CC", "R-10242", "399162004"), "CC"),
    **dict.fromkeys(("MLO", "R-10226", "399368009"), "MLO"),
}
GREYS = ("MONOCHROME1", "MONOCHROME2")
BITS = (8, 16)
# Markers of a JPEG or JPEG-LS frame header: SOF0 to SOF15 without DHT, JPG and DAC; SOF55.
JPEG_FRAMES = {*range(0xC0, 0xD0), 0xF7} - {0xC4, 0xC8, 0xCC}
JPEG_SCAN = 0xDA
# What a frame starts with: JPEG and JPEG-LS, JPEG 2000, RLE of one and of two bytes per value.
FRAME_STARTS = (b"\xff\xd8", b"\xff\x4f\xff\x51", b"\1\0\0\0\x40\0\0\0", b"\2\0\0\0\x40\0\0\0")
# Decoders for pydicom to use: others crashed, or wrote to stderr, on damaged files.
PLUGINS = {
    **dict.fromkeys(JPEG2000TransferSyntaxes, "pylibjpeg"),
    **dict.fromkeys((JPEGBaseline8Bit, JPEGExtended12Bit), "pillow"),
}
SIGMOID_SLOPE = 4  # PS3.3 C.11.2.1.3.1
FROM_PYDICOM = re.compile(r"pydicom\b")
SILENCE = ("ignore", None, Warning, FROM_PYDICOM, 0)  # a filter, as `warnings` keeps it
OTHER_WINDOW = 'correct it, or train with data.dicom.window = "percentile" or "full"'
SEVERAL_FRAMES = (
    "has several frames (tomosynthesis?); give single images, such as the synthetic 2D view"
)


def read_dicom(path: Source, settings: DicomConfig) -> Decoded:
    """The image (H, W) of a file in [0, 1], mirrored where that brings the chest wall to the left."""
    _quieten()
    dataset = _read(path)
    stored = _stored_values(dataset)
    image = _displayed(dataset, stored, settings)
    if _words(dataset, "BurnedInAnnotation")[:1] == ["YES"]:
        warnings.warn(
            f"{path}: declares text burned into its pixels; check that it names no patient, since "
            "a run keeps pictures of its prototypes' images",
            stacklevel=2,
        )
    mirrored = settings.flip == "left" and _chest_is_right(path, dataset)
    return Decoded(np.ascontiguousarray(image[:, ::-1]) if mirrored else image, mirrored)


def read_marks(path: Path) -> NDArray[np.bool_]:
    """Which pixels (H, W) of a mask are not black, by what is stored: of signed values, zero is."""
    _quieten()
    dataset = _read(path)
    stored = _stored_values(dataset)
    inverted = _words(dataset, "PhotometricInterpretation")[0] == "MONOCHROME1"
    marked: NDArray[np.bool_] = stored.codes != (2**stored.bits - 1 if inverted else 0)
    return marked


def read_size(path: Source) -> tuple[int, int] | None:
    """Rows and columns from a file's header, or None if it lacks them; no pixels are read."""
    _quieten()
    try:
        with opened(path) as file:
            if not looks_like_dicom(file.read(132)):
                return None
        wanted = ["Rows", "Columns"]
        header = dcmread(
            openable(path), force=True, stop_before_pixels=True, specific_tags=list(wanted)
        )
        rows, columns = (_integer(header, name) for name in wanted)
    except Exception:  # a damaged header raises almost anything
        return None
    return (rows, columns) if rows > 0 and columns > 0 else None


def read_spacing(path: Source) -> tuple[float, float] | None:
    """Millimetres from pixel to pixel along x and y, None where the header does not tell them well."""
    _quieten()
    wanted = [*SPACINGS, *FRAME_GROUPS]
    with opened(path) as file:
        if not looks_like_dicom(file.read(132)):
            return None
    try:
        header = dcmread(
            openable(path), force=True, stop_before_pixels=True, specific_tags=list(wanted)
        )
        found = [_words(header, name) for name in SPACINGS]
        between_rows, between_columns = (float(word) for word in next(filter(None, found)))
    except Exception:  # absent, damaged or no two numbers
        return None
    sane = all(np.isfinite(each) and each > 0 for each in (between_rows, between_columns))
    return (between_columns, between_rows) if sane else None


# -- the file ------------------------------------------------------------------------------------
def read_view(path: Path) -> tuple[str, str]:
    """The breast ("L", "R") and view ("CC", "MLO") by a file's header, "" where it does not tell them."""
    _quieten()
    with opened(path) as file:
        if not looks_like_dicom(file.read(132)):
            return "", ""
    wanted = [*SIDES, "ViewPosition", "ViewCodeSequence", *FRAME_GROUPS]
    try:
        header = dcmread(
            openable(path), force=True, stop_before_pixels=True, specific_tags=list(wanted)
        )
        words = [word for name in SIDES for word in _words(header, name)]
        views = [*_words(header, "ViewPosition")]
        for item in _items(header, "ViewCodeSequence")[:1]:
            views += _words(item, "CodeValue")
    except Exception:  # a damaged header raises almost anything
        return "", ""
    side = next((word for word in words if word in ("L", "R")), "")
    return side, next((VIEWS[word] for word in views if word in VIEWS), "")


def _quieten() -> None:
    """Silence pydicom, whose warnings and log lines may quote what a file says.

    For the whole process, and again before each file: a caller may have opened a context of warnings
    with filters of its own. Not by such a context here, since several threads read at once and would
    restore each other's filters.
    """
    logging.getLogger("pydicom").setLevel(logging.CRITICAL + 1)
    if not warnings.filters or warnings.filters[0] != SILENCE:
        warnings.filterwarnings("ignore", module=FROM_PYDICOM.pattern)


def _read(path: Source) -> FileDataset:
    with opened(path) as file:
        if not looks_like_dicom(file.read(132)):
            raise DecodingError("is not a DICOM file; is it complete, and is its suffix right?")
    try:
        return dcmread(openable(path), force=True, specific_tags=list(TAGS))
    except Exception as error:
        raise _damaged("elements", error) from None


def _damaged(what: str, error: Exception | None = None) -> DecodingError:
    """Only the kind of an error is said: its message may quote the file."""
    kind = f" ({type(error).__name__})" if error else ""
    return DecodingError(f"its {what} cannot be read{kind}; is the DICOM file complete and valid?")


# -- its elements, from their bytes ----------------------------------------------------------------
def _items(dataset: Dataset, name: str) -> list[Dataset]:
    """The items of a sequence; none where it is absent."""
    if name not in dataset:
        return []
    try:
        return list(dataset[name].value or [])
    except Exception as error:
        raise _damaged(name, error) from None


def _places(dataset: Dataset) -> list[Dataset]:
    """Where an element of a single image may stand: at the top, or in the groups of its frame."""
    groups = [group for name in FRAME_GROUPS for group in _items(dataset, name)[:1]]
    return [
        dataset,
        *(part for g in groups for name in FRAME_PARTS for part in _items(g, name)[:1]),
    ]


def _find(dataset: Dataset, name: str) -> RawDataElement | None:
    """An element as it stands in the file, or None where it is absent or empty."""
    for place in _places(dataset):
        element = place.get_item(name) if name in place else None
        if element is None or not element.value:
            continue
        if not isinstance(element, RawDataElement) or not isinstance(element.value, bytes):
            raise _damaged(name)
        return element
    return None


def _words(dataset: Dataset, name: str) -> list[str]:
    """The words of a text element (CS, DS or IS); none where it is absent."""
    element = _find(dataset, name)
    text = b"" if element is None else bytes(element.value or b"")
    return [word.strip(" \0") for word in text.decode("latin-1").split("\\")] if text else []


def _number(dataset: Dataset, name: str) -> float | None:
    """The first number of a text element, or None where it is absent or blank."""
    words = _words(dataset, name)
    if not words or not words[0]:
        return None
    try:
        value = float(words[0])
    except ValueError as error:
        raise _damaged(name, error) from None
    if not np.isfinite(value):
        raise _damaged(name)
    return value


def _integers(dataset: Dataset, name: str, signed: bool = False) -> list[int]:
    """The 16-bit numbers of a binary element; none where it is absent."""
    element = _find(dataset, name)
    if element is None:
        return []
    content = bytes(element.value or b"")
    if len(content) % 2:
        raise _damaged(name)
    order = "<" if element.is_little_endian else ">"
    signed = element.VR == "SS" or (element.VR != "US" and signed)
    numbers: list[int] = np.frombuffer(content, f"{order}{'i' if signed else 'u'}2").tolist()
    return numbers


def _integer(dataset: Dataset, name: str, default: int | None = None) -> int:
    found = _integers(dataset, name)
    if not found and default is None:
        raise _damaged(name)
    return found[0] if found else int(default or 0)


# -- from pixel data to stored values ----------------------------------------------------------------
@dataclass(frozen=True)
class Stored:
    """Pixels (H, W) as codes of `bits` bits; `values` (2 ** bits,) are the numbers they stand for."""

    codes: Codes
    bits: int
    signed: bool

    @property
    def values(self) -> Values:
        codes = np.arange(2**self.bits, dtype=np.float64)
        if self.signed:  # two's complement
            codes[2 ** (self.bits - 1) :] -= 2**self.bits
        return codes


def _stored_values(dataset: FileDataset) -> Stored:
    """The pixels without the bits above and below those that BitsStored and HighBit name."""
    _refuse_all_but_grey_images(dataset)
    allocated = _integer(dataset, "BitsAllocated")
    bits = _integer(dataset, "BitsStored", allocated)
    high = _integer(dataset, "HighBit", bits - 1)
    if allocated not in BITS or not 1 <= bits <= allocated or not bits - 1 <= high < allocated:
        raise DecodingError(
            f"has {bits} bits per value in {allocated} (highest {high}), which is not supported; "
            "convert it to 8 or 16 bits"
        )
    syntax = _transfer_syntax(dataset)
    # In these the words are as they were in memory; codecs leave nothing but the stored bits.
    plain = not syntax.is_encapsulated or syntax == RLELossless
    words = _decode(dataset, syntax, allocated, allocated if plain else bits)
    if words.ndim != 2 or words.dtype.kind not in "iu":
        raise _damaged("pixels")
    shift = high + 1 - bits if plain else 0
    codes = (words.astype(f"u{words.dtype.itemsize}") >> shift) & (2**bits - 1)
    signed = _integer(dataset, "PixelRepresentation", 0) == 1
    return Stored(codes.astype(np.uint16), bits, signed)


def _refuse_all_but_grey_images(dataset: FileDataset) -> None:
    if any(name in dataset for name in FLOAT_PIXELS):
        raise DecodingError("has floating-point pixels; convert them to 8 or 16 bits")
    if _find(dataset, "PixelData") is None:
        raise DecodingError("holds no pixel data: it is not an image, or truncated")
    if (_number(dataset, "NumberOfFrames") or 1) > 1:
        raise DecodingError(SEVERAL_FRAMES)
    kind = (_words(dataset, "PhotometricInterpretation") or [""])[0]
    if _integer(dataset, "SamplesPerPixel", 1) != 1 or kind not in GREYS:
        raise DecodingError(
            "is not a grey image (MONOCHROME1 or MONOCHROME2); convert it to PNG if its colour matters"
        )


def _transfer_syntax(dataset: FileDataset) -> UID:
    """How the file is encoded; one without a header of its own is uncompressed."""
    named = dataset.file_meta.get("TransferSyntaxUID") if hasattr(dataset, "file_meta") else None
    if named:
        return UID(str(named))
    return ExplicitVRLittleEndian if dataset.original_encoding[1] else ExplicitVRBigEndian


def _decode(dataset: FileDataset, syntax: UID, allocated: int, bits: int) -> NDArray[np.generic]:
    element = _find(dataset, "PixelData")
    assert element is not None
    try:
        decoder = get_decoder(syntax)
    except NotImplementedError:
        raise DecodingError(
            "is compressed in an unsupported way (unknown transfer syntax); decompress it"
        ) from None
    name = decoder.UID.name
    if not decoder.is_available:
        raise DecodingError(
            f"is compressed ({name}); install the decoder with pip install 'protopyramid[dicom]'"
        )
    content = element.value or b""
    options: dict[str, Any] = {
        "rows": _integer(dataset, "Rows"),
        "columns": _integer(dataset, "Columns"),
        "bits_allocated": allocated,
        "bits_stored": bits,
        "pixel_representation": _integer(dataset, "PixelRepresentation", 0),
        "samples_per_pixel": 1,
        "photometric_interpretation": "MONOCHROME2",
        "number_of_frames": 1,
        "pixel_keyword": "PixelData",
        "pixel_vr": element.VR or "OW",
    }
    try:
        if _holds_several_frames(content, syntax, options):
            raise DecodingError(SEVERAL_FRAMES)
        if syntax in (*JPEGTransferSyntaxes, *JPEGLSTransferSyntaxes):
            stream = get_frame(content, 0, number_of_frames=1)
            precision = _check_jpeg(stream, options)
            if syntax == JPEGExtended12Bit and precision > 8:
                return _decode_wide_jpeg(stream, precision, options)
        if syntax in JPEG2000TransferSyntaxes:
            _check_jpeg2000(get_frame(content, 0, number_of_frames=1), options)
        if syntax in PLUGINS:
            options["decoding_plugin"] = PLUGINS[syntax]
        pixels: NDArray[np.generic] = decoder.as_array(content, index=0, **options)[0]
    except DecodingError:
        raise
    except Exception as error:
        raise DecodingError(
            f"its pixels ({name}) cannot be decoded ({type(error).__name__}); if the file is complete, "
            "decompress it with another program"
        ) from None
    return pixels


def _holds_several_frames(content: bytes, syntax: UID, options: Mapping[str, Any]) -> bool:
    """Whether there are pixels of more than one frame, though the file does not give their number."""
    if not syntax.is_encapsulated:
        frame: int = options["rows"] * options["columns"] * options["bits_allocated"] // 8
        return 0 < 2 * frame <= len(content)
    buffer = BytesIO(content)
    parse_basic_offsets(buffer)
    return sum(part.startswith(FRAME_STARTS) for part in generate_fragments(buffer)) > 1


def _check_jpeg(stream: bytes, options: Mapping[str, Any]) -> int:
    """The bits of a value within a JPEG, after a comparison of its header with the file's.

    Where it is damaged, gdcm ends the process.
    """
    place, found = 2, b""
    while (marker := stream[place + 1]) != JPEG_SCAN:
        if stream[place] != 0xFF:
            raise ValueError("no marker where one should be")
        if marker == 0xFF:  # a marker may be preceded by any number of these
            place += 1
            continue
        if marker in JPEG_FRAMES:
            found = stream[place + 4 : place + 10]
        place += 2 + int.from_bytes(stream[place + 2 : place + 4], "big")
    bits, rows, columns, samples = struct.unpack(">BHHB", found)
    if (rows, columns, samples) != (options["rows"], options["columns"], 1):
        raise ValueError("other sizes within the JPEG")
    if bits > options["bits_allocated"]:
        raise ValueError("more bits within the JPEG")
    return int(bits)


def _check_jpeg2000(stream: bytes, options: Mapping[str, Any]) -> None:
    """Compare the size in a JPEG 2000 codestream with the file's: a decoder would take any memory for it.

    The marker SIZ comes first; then its length, capabilities, the reference grid and the offset in it.
    """
    start = stream.index(b"\xff\x4f\xff\x51") + 8  # also where the codestream is wrapped in JP2
    x1, y1, x0, y0 = struct.unpack(">IIII", stream[start : start + 16])
    if (y1 - y0, x1 - x0) != (options["rows"], options["columns"]):
        raise ValueError("other sizes within the JPEG 2000")


def _decode_wide_jpeg(stream: bytes, bits: int, options: Mapping[str, Any]) -> NDArray[np.generic]:
    """Lossy JPEG of 12 bits (process 4), by gdcm: pydicom does not let it, though it can.

    The JPEG's bits are named as those allocated: with 16, gdcm tries a decoder that does not fit
    first, and says so on stderr.
    """
    gdcm: Any = import_module("gdcm")
    fragment, fragments = gdcm.Fragment(), gdcm.SequenceOfFragments.New()
    fragment.SetByteStringValue(stream)
    fragments.AddFragment(fragment)
    element = gdcm.DataElement(gdcm.Tag(0x7FE0, 0x0010))
    element.SetValue(fragments.__ref__())
    image, shape = gdcm.Image(), (options["rows"], options["columns"])
    image.SetNumberOfDimensions(2)
    image.SetDimensions((shape[1], shape[0], 1))
    image.SetDataElement(element)
    image.SetPhotometricInterpretation(
        gdcm.PhotometricInterpretation(gdcm.PhotometricInterpretation.MONOCHROME2)
    )
    image.SetTransferSyntax(gdcm.TransferSyntax(gdcm.TransferSyntax.JPEGExtendedProcess2_4))
    image.SetPixelFormat(gdcm.PixelFormat(1, bits, bits, bits - 1, 0))
    content = image.GetBuffer().encode("utf-8", "surrogateescape")  # gdcm gives bytes as text
    return np.frombuffer(content, "<u2").reshape(shape)


# -- from stored values to grey ----------------------------------------------------------------------
def _displayed(dataset: Dataset, stored: Stored, settings: DicomConfig) -> NDArray[np.float32]:
    """The image in [0, 1], black to white. Padding is black, and no part of the percentiles."""
    values, ends = _modality(dataset, stored)
    padding = _padding(dataset, stored)
    if settings.window == "percentile":
        counts = np.bincount(stored.codes.ravel(), minlength=len(values))
        counts[padding] = 0
        grey = _ramp(values, *_percentiles(values, counts, settings.percentiles))
    elif settings.window == "full":
        grey = _ramp(values, *ends)
    else:
        grey = _of_interest(dataset, values, ends, stored.signed)
    grey = np.clip(grey, 0, 1)
    if _words(dataset, "PhotometricInterpretation")[0] == "MONOCHROME1":
        grey = 1 - grey
    grey[padding] = 0
    image: NDArray[np.float32] = grey.astype(np.float32)[stored.codes]
    return image


def _padding(dataset: Dataset, stored: Stored) -> NDArray[np.bool_]:
    """Which codes (2 ** bits,) stand for no pixel at all (PS3.3 C.7.5.1.1.2)."""
    values = stored.values
    found = _integers(dataset, "PixelPaddingValue", stored.signed)
    if not found:
        return np.zeros(len(values), bool)
    limit = _integers(dataset, "PixelPaddingRangeLimit", stored.signed) or found
    # A value that has bits above the stored ones loses them, as the pixels do.
    first, last = (values[number & (2**stored.bits - 1)] for number in (found[0], limit[0]))
    inside: NDArray[np.bool_] = (values >= min(first, last)) & (values <= max(first, last))
    return inside


def _modality(dataset: Dataset, stored: Stored) -> tuple[Values, tuple[float, float]]:
    """The modality's values of all codes, and the least and greatest that there could be."""
    tables = [table for place in _places(dataset) for table in _items(place, "ModalityLUTSequence")]
    if tables:
        lookup = _lookup(tables[0], stored.signed)
        return lookup.of(stored.values), (0, lookup.largest)
    slope = _number(dataset, "RescaleSlope")
    intercept = _number(dataset, "RescaleIntercept")
    if slope == 0:
        raise _damaged("RescaleSlope")
    values = stored.values * (1 if slope is None else slope) + (intercept or 0)
    return values, (float(values.min()), float(values.max()))


def _ramp(values: Values, low: float, high: float) -> Values:
    """0 at low, 1 at high; where they are equal, all is black up to that value."""
    return (values - low) / (high - low) if high > low else (values > low).astype(np.float64)


def _percentiles(
    values: Values, counts: NDArray[np.int64], percentiles: tuple[float, float]
) -> tuple[float, float]:
    """The least values (2 ** bits,) that reach two percentages of the pixels, by their counts.

    Where nearly all pixels have one value the two may meet: then it is the range of all pixels.
    """
    order = np.argsort(values, kind="stable")
    reached = counts[order].cumsum()
    total = int(reached[-1])
    if not total:
        return 0.0, 0.0

    def least(percentage: float) -> float:
        wanted = max(1, np.ceil(total * percentage / 100 - 1e-9))
        return float(values[order[np.searchsorted(reached, wanted)]])

    low, high = (least(percentage) for percentage in percentiles)
    return (low, high) if high > low else (least(0), least(100))


def _of_interest(
    dataset: Dataset, values: Values, ends: tuple[float, float], signed: bool
) -> Values:
    """By the file's own VOI table, else its first window; else its whole range (PS3.3 C.11.2)."""
    tables = [table for place in _places(dataset) for table in _items(place, "VOILUTSequence")]
    if tables:
        lookup = _lookup(tables[0], signed)
        return lookup.of(values) / lookup.largest
    centre, width = _number(dataset, "WindowCenter"), _number(dataset, "WindowWidth")
    if centre is None and width is None:
        return _ramp(values, *ends)
    function = (_words(dataset, "VOILUTFunction") or [""])[0] or "LINEAR"
    least = 1 if function == "LINEAR" else 0
    known = function in ("LINEAR", "LINEAR_EXACT", "SIGMOID")
    if centre is None or width is None or width < least or not width or not known:
        raise DecodingError(f"its window is not valid; {OTHER_WINDOW}")
    return windowed(values, centre, width, function)


def windowed(values: Values, centre: float, width: float, function: str = "LINEAR") -> Values:
    """Values through a window, 0 to 1 (PS3.3 C.11.2.1.2 and C.11.2.1.3).

    >>> windowed(np.array([0.0, 1024.0, 2048.0, 4095.0]), 2048, 4096).round(3).tolist()
    [0.0, 0.25, 0.5, 1.0]
    """
    if function == "SIGMOID":
        power = np.clip(-SIGMOID_SLOPE * (values - centre) / width, -700, 700)
        return np.asarray(1 / (1 + np.exp(power)))
    if function == "LINEAR_EXACT":
        return np.clip((values - centre) / width + 0.5, 0, 1)
    low, high = centre - 0.5 - (width - 1) / 2, centre - 0.5 + (width - 1) / 2
    return np.clip(_ramp(values, low, high), 0, 1)


@dataclass(frozen=True)
class _Lookup:
    """A lookup table of a file: `first` is the value that its first entry is for."""

    first: int
    entries: Values
    largest: float

    def of(self, values: Values) -> Values:
        place = np.clip(np.rint(values) - self.first, 0, len(self.entries) - 1)
        found: Values = self.entries[place.astype(np.int64)]
        return found


def _lookup(table: Dataset, signed: bool) -> _Lookup:
    """The table of an item of a sequence, by its LUTDescriptor and LUTData (PS3.3 C.11.1.1)."""
    plain, descriptor = _integers(table, "LUTDescriptor"), _integers(table, "LUTDescriptor", signed)
    data = _find(table, "LUTData")
    if len(plain) != 3 or data is None or not 1 <= plain[2] & 0xFFFF <= 16:
        raise _damaged("lookup table")
    count, bits = plain[0] & 0xFFFF or 2**16, plain[2] & 0xFFFF
    content = bytes(data.value or b"")
    order = "<" if data.is_little_endian else ">"
    # Entries of 8 bits come one per byte, or (more often) one per word.
    kind = "u1" if bits <= 8 and len(content) < 2 * count else f"{order}u2"
    if len(content) < count * np.dtype(kind).itemsize:
        raise _damaged("lookup table")
    entries = np.frombuffer(content, kind, count).astype(np.float64)
    return _Lookup(descriptor[1], entries, float(2**bits - 1))


# -- which breast --------------------------------------------------------------------------------------
def _chest_is_right(path: Source, dataset: Dataset) -> bool:
    """Whether the chest wall is at the right edge; where unknown, False and a warning.

    By the direction in which the rows run (to the front, or back to the chest) where the file gives
    it; else a right breast has it there, as mammograms are hung.
    """
    orientation = _words(dataset, "PatientOrientation")
    if len(orientation) == 2 and re.fullmatch("[AP][AFHLPR]*", orientation[0]):
        return orientation[0][0] == "P"
    for name in SIDES:
        side = (_words(dataset, name) or [""])[0]
        if side in ("L", "R"):
            return side == "R"
    warnings.warn(
        f"{path}: does not say which breast it shows, so it is not mirrored", stacklevel=3
    )
    return False
