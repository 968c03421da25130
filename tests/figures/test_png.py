"""PNG files of figures, read back by Pillow."""

import io

import numpy as np
import pytest
from PIL import Image

from protopyramid.figures.png import png_bytes


@pytest.mark.parametrize("size", [(1, 1), (1, 7), (2, 3), (61, 40), (300, 517)])
def test_pillow_reads_the_same_pixels(size):
    pixels = np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8)
    pixels[: size[0] // 2] //= 16  # something to compress
    image = Image.open(io.BytesIO(png_bytes(pixels, 150)))
    image.verify()
    image = Image.open(io.BytesIO(png_bytes(pixels, 150)))
    assert image.mode == "RGB"
    np.testing.assert_array_equal(np.asarray(image), pixels)
    assert image.info["dpi"] == pytest.approx((150, 150), abs=0.02)


def test_the_same_pixels_give_the_same_bytes_and_not_more_than_pillow_would_write():
    across, down = np.meshgrid(np.arange(400), np.arange(300))
    wave = 127 + 127 * np.sin(across / 30) * np.cos(down / 20)
    pixels = np.repeat(wave.astype(np.uint8)[:, :, None], 3, axis=2)
    content = png_bytes(pixels, 100)
    assert content == png_bytes(pixels.copy(), 100)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG", compress_level=2)
    assert len(content) < 1.5 * len(stream.getvalue())
