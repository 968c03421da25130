"""The JSON file beside an export: how an image file becomes the input, and what the outputs mean.

Whoever runs an export has only this file. It says everything that `data/images.py` and `data/io` do to an
image: a resize with another filter can change the predicted class.
"""

from __future__ import annotations

from typing import Any

from protopyramid.config.schema import DataConfig, DicomConfig
from protopyramid.data.images import LEVELS
from protopyramid.exporting.formats import INPUT, Format, output_names
from protopyramid.runs.run import Run

PREPROCESSING_VERSION = 1  # of the keys of `preprocessing`, not of the software

WINDOWS = {
    "file": "the file's VOI LUT, else its first window (center and width, with its VOI LUT function), "
    "else the full range of its stored bits",
    "percentile": "linear between two percentiles of the pixels, without padding",
    "full": "linear over the full range of its stored bits",
}
FLIPS = {
    "none": "images are not mirrored",
    "left": "images of right breasts are mirrored left-right, so that the chest wall is on the left",
}


def describe(run: Run, kind: Format) -> dict[str, Any]:
    """What the file of an export takes and returns."""
    from protopyramid import __version__

    data = run.config.data
    return {
        "made_by": f"protopyramid {__version__}",
        "format": kind,
        "input": {
            "name": INPUT,
            "shape": ["batch", 3, data.image_size, data.image_size],
            "values": "0 to 1, grey repeated to three channels; normalised inside",
            "fit": data.fit,
        },
        "preprocessing": preprocessing(data),
        "outputs": output_names(run.model),
        "probabilities": "softmax of logits, in the order of classes",
        "classes": list(data.classes),
        "prototypes": [record.to_json() for record in run.prototypes],
        "head": _head(run),
    }


def _head(run: Run) -> list[list[float]] | None:
    """The weights (C, m) with which scores enter the logits; None where hidden layers lie between."""
    if run.model.hidden is not None:
        return None
    weights: list[list[float]] = run.model.head.weight.detach().tolist()
    return weights


def preprocessing(data: DataConfig) -> dict[str, Any]:
    """From an image file to the input of an export, step by step in `order`."""
    size = data.image_size
    return {
        "version": PREPROCESSING_VERSION,
        "order": ["decode", "crop", "resize", "pad", "clip", "round", "channels", "normalise"],
        "decode": {
            "dtype": "float32",
            "range": [0, 1],
            "scale": "the stored value divided by the largest that the file can hold: 255 for 8 bits, "
            "65535 for 16 bits, the maximum in the header of a PGM or PPM",
            "colour": "grey (one channel) or RGB (three), never converted from one to the other; alpha is "
            "dropped, a palette of greys is grey, EXIF orientation and colour profiles are ignored",
            "dicom": _dicom(data.dicom),
        },
        "crop": _crop(data),
        "resize": {
            "fit": data.fit,
            "size": [size, size],
            "filter": "bilinear",
            "antialias": True,
            "align_corners": False,
            "arithmetic": "float32, each channel on its own; an image that already has the size is "
            "not resampled",
            "pillow": "Image.resize(size, Image.Resampling.BILINEAR) of an image of mode F",
            "torch": 'interpolate(mode="bilinear", antialias=True, align_corners=False)',
        },
        "pad": _padding(size) if data.fit == "pad" else None,
        "clip": [0, 1],
        "round": {"levels": LEVELS, "rule": f"round(x * {LEVELS}) / {LEVELS}, halves to even"},
        "channels": {"count": 3, "order": "RGB", "layout": "NCHW", "grey": "repeated"},
        "normalise": {
            "where": "inside the exported file: do not do it again",
            "rule": "(x - mean) / std",
            "mean": list(data.mean),
            "std": list(data.std),
        },
    }


def _crop(data: DataConfig) -> dict[str, Any]:
    """What of the file's image the model sees, before it is resized."""
    return {
        "crop": data.crop,
        "margin": data.region.margin,
        "seen": "the square around the lesion box (without one, around the mask); an image with neither "
        "is seen whole"
        if data.crop == "lesion"
        else "all of the image, unless a region of it is asked for",
        "box": "the whole pixels that hold the lesion box x0, y0, x1, y1: floor of x0 and y0, ceiling of "
        "x1 and y1",
        "side": "ceiling of (longer side of the box * (1 + 2 * margin))",
        "place": "left = floor((x0 + x1 - side) / 2), top likewise; shifted to stay inside the image",
        "beyond": "a square that is larger than the image holds all of it; what lies beyond its edge is 0",
        "round": f"a crop is rounded to {LEVELS} levels, as under `round`, before it is resized",
    }


def _padding(size: int) -> dict[str, Any]:
    return {
        "value": 0,
        "resized_to": f"height and width times {size} / max(height, width), rounded (halves to even), "
        "at least 1",
        "top": f"({size} - resized height) // 2",
        "left": f"({size} - resized width) // 2",
    }


def _dicom(dicom: DicomConfig) -> dict[str, Any]:
    return {
        "window": dicom.window,
        "percentiles": list(dicom.percentiles),
        "flip": dicom.flip,
        "rules": [
            "stored bits to modality values: modality LUT, or rescale slope and intercept",
            f"modality values to 0 (black) and 1 (white): {WINDOWS[dicom.window]}",
            "clipped to [0, 1], then inverted where the photometric interpretation is MONOCHROME1",
            "pixel padding values are black",
            FLIPS[dicom.flip],
        ],
    }
