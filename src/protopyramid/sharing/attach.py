"""Putting the pictures back into a model that was shared without them, where the images are at hand.

An image is a case's own where the digest of its pixels says so. Where it does not (another export of the
same study, say), an image of the same name and size is taken with a warning, if the model still finds the
prototype at its place on it. Anything else that claims to be the case is refused.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from protopyramid.data.images import content_hash, hash_files, prepare_sample, read_image
from protopyramid.data.io.memory import MemoryFile
from protopyramid.data.manifest import Sample, read_images
from protopyramid.errors import UserError
from protopyramid.inference.batches import device_of, model_input
from protopyramid.prototypes.cases import layer_of
from protopyramid.runs import layout
from protopyramid.runs.package import PackedCase
from protopyramid.runs.records import PrototypeRecord
from protopyramid.runs.run import Run
from protopyramid.sharing.pack import image_size
from protopyramid.training.finish import picture_bytes

LEAST_COSINE = 0.9  # between a prototype and the patch at its place, on an image taken by name
SHOWN = 5


@dataclass(frozen=True)
class Attached:
    """What attaching did: indices of prototypes by how their case was found, and those without."""

    by_digest: tuple[int, ...]
    by_name: tuple[int, ...]
    missing: tuple[int, ...]
    there: tuple[int, ...]


def attach(run: Run, manifest: Path) -> Attached:
    """Write the pictures of all cases that a manifest has; nothing is written if one is refused."""
    if run.package is None:
        raise UserError(f"{run.folder.path}: not a packed model; a run has its pictures already")
    known = {case.index: case for case in run.package.cases}
    there = [each.index for each in run.prototypes if run.cases.has_picture(each.index)]
    wanted = [each for each in run.prototypes if each.index not in there]
    samples = read_images(manifest, places=True).samples
    found, by_name = _find(run, wanted, known, samples)
    if wanted and not found:
        raise UserError(
            f"{manifest}: has none of the {len(wanted)} cases of {run.name}, neither by digest nor by name"
        )
    for index, content in found.items():
        run.folder.write_bytes(layout.picture(index), content)
    if by_name:
        warnings.warn(
            f"{manifest}: {len(by_name)} of {len(found)} cases were taken by name and size, not by digest: "
            f"{_numbers(by_name)}; their pixels are not those of training",
            stacklevel=2,
        )
    exact = tuple(index for index in found if index not in by_name)
    missing = tuple(each.index for each in wanted if each.index not in found)
    return Attached(exact, tuple(by_name), missing, tuple(there))


def _find(
    run: Run,
    wanted: Sequence[PrototypeRecord],
    known: dict[int, PackedCase],
    samples: Sequence[Sample],
) -> tuple[dict[int, bytes], list[int]]:
    """The picture of each case that was found, and the indices of those found by name only."""
    digests = hash_files([each.image for each in samples], min(4, os.cpu_count() or 1))
    found: dict[int, bytes] = {}
    by_name: list[int] = []
    for record in wanted:
        case = known.get(record.index, PackedCase(index=record.index))
        same = [
            s for s, d in zip(samples, digests, strict=True) if case.digest and d == case.digest
        ]
        named = [sample for sample in samples if _same_name(sample.name, record.image)]
        picture = _exact(run, case, same) or _exact(run, case, named, by_picture=True)
        if picture is None and named:
            picture = _by_name(run, record, case, named)
            by_name.append(record.index)
        if picture is not None:
            found[record.index] = picture
    return found, by_name


def _exact(
    run: Run, case: PackedCase, samples: Iterable[Sample], by_picture: bool = False
) -> bytes | None:
    """The picture of a case from images with its digest, or that the model sees exactly as it.

    Of several lesions on one film, the one whose crop is the case's.
    """
    pictures = [picture_bytes(prepare_sample(each, run.config.data).image) for each in samples]
    for content in pictures:
        if case.picture and _seen(content) == case.picture:
            return content
    if by_picture or case.picture or len(pictures) != 1:
        return None
    return pictures[0]


def _seen(content: bytes) -> str:
    """The digest of a picture's pixels."""
    return content_hash(read_image(MemoryFile(content, ".png")))


def _by_name(
    run: Run, record: PrototypeRecord, case: PackedCase, samples: Sequence[Sample]
) -> bytes:
    """The picture of an image that has a case's name; UserError where it is another image."""
    sample = samples[0]
    size = image_size(sample)
    what = f"{sample.image}: has the name of the case of prototype {record.index}, but"
    if case.size is None:
        raise UserError(f"{what} other pixels, and the model does not say how large the case is")
    if size != case.size:
        given, expected = ("x".join(map(str, each)) for each in (size, case.size))
        raise UserError(f"{what} {given} pixels instead of {expected}; it is another image")
    image = prepare_sample(sample, run.config.data).image
    cosine = patch_cosine(run, record, image)
    if cosine < LEAST_COSINE:
        raise UserError(
            f"{what} the prototype is not at its place there (cosine {cosine:.2f}, expected at least "
            f"{LEAST_COSINE}); it is another image"
        )
    return picture_bytes(image)


def patch_cosine(run: Run, record: PrototypeRecord, image: torch.Tensor) -> float:
    """The cosine of a prototype and the patch at its place on an image (C, S, S) in [0, 1]."""
    ready = model_input(image[None].expand(1, 3, -1, -1), run.config.data, device_of(run.model))
    with torch.inference_mode():
        maps = run.model.pyramid(ready)[record.level][0]
        if not (0 <= record.row < maps.shape[1] and 0 <= record.col < maps.shape[2]):
            raise UserError(
                f"{run.folder / layout.PROTOTYPES}: prototype {record.index} lies outside of its image; "
                "the file is damaged: pull the model again"
            )
        patch = maps[:, record.row, record.col]
        vector = layer_of(run.model).vectors[record.index]
        return float(torch.nn.functional.cosine_similarity(patch, vector, dim=0))


def _same_name(name: str, wanted: str) -> bool:
    """Whether an image has a case's name; one of them may be given with more folders.

    >>> _same_name("film/images/a.png", "images/a.png"), _same_name("b/a.png", "images/a.png")
    (True, False)
    """
    return name == wanted or name.endswith(f"/{wanted}") or wanted.endswith(f"/{name}")


def _numbers(indices: Sequence[int]) -> str:
    more = f" and {len(indices) - SHOWN} more" if len(indices) > SHOWN else ""
    return "prototypes " + ", ".join(map(str, indices[:SHOWN])) + more
