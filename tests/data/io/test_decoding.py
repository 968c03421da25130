"""Image files of every kind are decoded to the values that were written, or refused.

Files that Pillow cannot write are made by hand from the definitions of the formats.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from protopyramid.data.io import decoding
from protopyramid.data.io.decoding import read_image
from protopyramid.errors import UserError

from .damage import refusal_of

PNG_COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}


def png16(values: NDArray[np.int64]) -> bytes:
    """A 16-bit PNG of values (H, W, C), all rows with the Paeth filter."""
    height, width, channels = values.shape
    step = 2 * channels
    rows = np.frombuffer(values.astype(">u2").tobytes(), np.uint8).reshape(height, -1).astype(int)
    padded = np.pad(rows, ((1, 0), (step, 0)))
    left, above, corner = padded[1:, :-step], padded[:-1, step:], padded[:-1, :-step]
    guess = left + above - corner
    distances = [abs(guess - near) for near in (left, above, corner)]
    nearest = np.argmin(distances, 0)  # the first of equals: left, above, corner
    filtered = (rows - np.choose(nearest, [left, above, corner])) % 256
    body = b"".join(b"\x04" + row.astype(np.uint8).tobytes() for row in filtered)
    header = struct.pack(">IIBBBBB", width, height, 16, PNG_COLOUR_TYPES[channels], 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(body)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )


def tiff16(
    values: NDArray[np.int64],
    order: str = "<",
    deflate: bool = False,
    planar: bool = False,
    white_is_zero: bool = False,
) -> bytes:
    """A 16-bit TIFF of values (H, W, C), C 1 or 3, in one strip (or one a plane)."""
    height, width, channels = values.shape
    planes = [values[..., c] for c in range(channels)] if planar else [values]
    strips = [plane.astype(f"{order}u2").tobytes() for plane in planes]
    strips = [zlib.compress(strip) if deflate else strip for strip in strips]
    offsets = [8 + sum(map(len, strips[:number])) for number in range(len(strips))]
    body = b"".join(strips)
    body += b"\0" * (len(body) % 2)
    photometric = 2 if channels == 3 else int(not white_is_zero)
    tags: list[tuple[int, list[int]]] = [
        (256, [width]),
        (257, [height]),
        (258, [16] * channels),
        (259, [8 if deflate else 1]),
        (262, [photometric]),
        (273, offsets),
        (277, [channels]),
        (278, [height]),
        (279, [len(strip) for strip in strips]),
        (284, [2 if planar else 1]),
    ]
    start = 8 + len(body)
    extra_start = start + 2 + 12 * len(tags) + 4
    entries, extra = b"", b""
    for tag, numbers in tags:
        data = struct.pack(f"{order}{len(numbers)}I", *numbers)
        if len(data) > 4:
            place = struct.pack(f"{order}I", extra_start + len(extra))
            extra += data
            data = place
        entries += struct.pack(f"{order}HHI", tag, 4, len(numbers)) + data
    head = (b"II" if order == "<" else b"MM") + struct.pack(f"{order}HI", 42, start)
    return head + body + struct.pack(f"{order}H", len(tags)) + entries + b"\0" * 4 + extra


def random_values(channels: int, bits: int = 16) -> NDArray[np.int64]:
    return np.random.default_rng(channels).integers(0, 2**bits, (9, 7, channels))


def expected(values: NDArray[np.int64], largest: int) -> NDArray[np.float64]:
    colour = values[..., 0] if values.shape[2] < 3 else values[..., :3]
    return colour / largest


def check(path: Path, values: NDArray[np.int64], largest: int) -> None:
    image = read_image(path)
    assert image.dtype == np.float32
    np.testing.assert_allclose(image, expected(values, largest), rtol=1e-7)


@pytest.mark.parametrize("suffix", [".png", ".tif", ".tiff", ".pgm"])
def test_eight_bit_grey_is_divided_by_255(tmp_path: Path, suffix: str) -> None:
    values = random_values(1, 8)
    path = tmp_path / f"image{suffix}"
    Image.fromarray(values[..., 0].astype(np.uint8)).save(path)
    check(path, values, 255)


@pytest.mark.parametrize("suffix", [".png", ".tif", ".ppm"])
def test_eight_bit_colour_is_divided_by_255(tmp_path: Path, suffix: str) -> None:
    values = random_values(3, 8)
    path = tmp_path / f"image{suffix}"
    Image.fromarray(values.astype(np.uint8)).save(path)
    check(path, values, 255)


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_jpeg_is_read_nearly(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "image.jpg"
    Image.new("RGB", (32, 24), (180, 180, 180)).convert(mode).save(path, quality=95)
    image = read_image(path)
    assert image.shape == ((24, 32) if mode == "L" else (24, 32, 3))
    assert abs(image - 180 / 255).max() < 0.02


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_sixteen_bit_png_keeps_every_bit_and_drops_alpha(tmp_path: Path, channels: int) -> None:
    values = random_values(channels)
    path = tmp_path / "image.png"
    path.write_bytes(png16(values))
    check(path, values, 65535)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("deflate", [False, True])
def test_sixteen_bit_tiff_keeps_every_bit(
    tmp_path: Path, channels: int, order: str, deflate: bool
) -> None:
    values = random_values(channels)
    path = tmp_path / "image.tif"
    path.write_bytes(tiff16(values, order, deflate))
    check(path, values, 65535)


def test_sixteen_bit_tiff_where_white_is_zero_is_inverted(tmp_path: Path) -> None:
    values = random_values(1)
    path = tmp_path / "image.tif"
    path.write_bytes(tiff16(values, white_is_zero=True))
    check(path, 65535 - values, 65535)


@pytest.mark.parametrize("deflate", [False, True])
def test_sixteen_bit_colour_in_planes_is_refused_not_misread(tmp_path: Path, deflate: bool) -> None:
    path = tmp_path / "image.tif"
    path.write_bytes(tiff16(random_values(3), planar=True, deflate=deflate))
    with pytest.raises(UserError, match="16-bit PNG"):
        read_image(path)


@pytest.mark.parametrize("largest", [1, 100, 255, 256, 1023, 4095, 65535])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("plain", [False, True])
def test_pgm_and_ppm_are_divided_by_their_own_maximum(
    tmp_path: Path, largest: int, channels: int, plain: bool
) -> None:
    values = random_values(channels) % (largest + 1)
    magic = {(1, True): "P2", (1, False): "P5", (3, True): "P3", (3, False): "P6"}[channels, plain]
    body = values.astype(">u2" if largest > 255 else "u1").tobytes()
    if plain:
        body = b"# a comment\n" + " ".join(map(str, values.flatten())).encode()
    path = tmp_path / "image.pgm"
    path.write_bytes(f"{magic}\n# made by hand\n7 9\n{largest}\n".encode() + body)
    check(path, values, largest)


def test_palettes_and_black_and_white_are_read(tmp_path: Path) -> None:
    grey = Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8) * 4)
    grey.convert("P").save(tmp_path / "palette.png")
    np.testing.assert_allclose(read_image(tmp_path / "palette.png"), np.asarray(grey) / 255, 1e-6)
    grey.point(lambda value: 255 * (value > 99)).convert("1").save(tmp_path / "two.png")
    assert set(np.unique(read_image(tmp_path / "two.png"))) == {0, 1}


def test_a_file_without_suffix_is_known_by_its_first_bytes(tmp_path: Path) -> None:
    values = random_values(3)
    (tmp_path / "image").write_bytes(png16(values))
    check(tmp_path / "image", values, 65535)


def test_a_new_format_is_one_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "image.new").write_bytes(b"anything")
    with pytest.raises(UserError, match="unsupported kind of file"):
        read_image(tmp_path / "image.new")
    ones = np.ones((2, 2), np.float32)
    monkeypatch.setitem(decoding.READERS, ".new", lambda path, dicom: decoding.Decoded(ones, False))
    assert read_image(tmp_path / "image.new").shape == (2, 2)


def test_several_pages_are_warned_about(tmp_path: Path) -> None:
    page = Image.new("L", (4, 4))
    page.save(tmp_path / "image.tif", save_all=True, append_images=[page])
    with pytest.warns(UserWarning, match="only the first"):
        read_image(tmp_path / "image.tif")


def test_thirty_two_bits_are_refused(tmp_path: Path) -> None:
    Image.new("F", (4, 4)).save(tmp_path / "image.tif")
    with pytest.raises(UserError, match="32 bits"):
        read_image(tmp_path / "image.tif")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty.png", b""),
        ("text.png", b"not an image"),
        ("notes.txt", b"not an image"),
        ("short.pgm", b"P5\n4 4\n255\n123"),
        ("header.pgm", b"P5\n4"),
        ("negative.pgm", b"P5\n-4 -4\n255\n" + b"0" * 16),
        ("none.pgm", b"P5\n0 4\n255\n"),
        ("beyond.pgm", b"P2\n1 1\n3\n4"),
        ("words.pgm", b"P2\n1 1\n3\nx"),
        ("huge.pgm", b"P5\n999999999 999999999\n255\n0"),
        ("bitmap.pgm", b"P4\n8 1\n1\n0"),
    ],
)
def test_what_is_no_image_is_refused_by_name(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=name):
        read_image(tmp_path / name)


def test_missing_files_and_folders_are_refused(tmp_path: Path) -> None:
    for name in ("missing.png", "missing", "."):
        with pytest.raises(UserError):
            read_image(tmp_path / name)


WHOLE = [png16(random_values(3)), tiff16(random_values(3), deflate=True)]
WHOLE += [png16(random_values(1)), tiff16(random_values(1))]


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=150, deadline=None)
@given(st.sampled_from(WHOLE), st.data())
def test_a_damaged_file_gives_an_image_or_a_user_error(whole: bytes, data: st.DataObject) -> None:
    content = bytearray(whole[: data.draw(st.integers(0, len(whole)))])
    if content:
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(0, 255))
    refusal_of(bytes(content), "image.png")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("whole", WHOLE)
def test_a_file_cut_in_half_is_refused(tmp_path: Path, whole: bytes) -> None:
    (tmp_path / "half.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"half\.png"):
        read_image(tmp_path / "half.png")
