"""Packing: a finished run as one file that others can use by name.

What is packed is what explaining and serving need. Left out are checkpoints, logs, exported models, plots
and report.html: they can be made again, and may hold pictures. A path of the machine that the run was
trained on never travels.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from protopyramid import __version__
from protopyramid.config import dump_config
from protopyramid.data.images import content_hash, read_image
from protopyramid.data.io.decoding import read_size
from protopyramid.data.io.encoding import png_bytes
from protopyramid.data.manifest import Sample, read_manifest
from protopyramid.errors import UserError
from protopyramid.inference.ood import digest_of, limits_digest
from protopyramid.inference.score_table import read_scores
from protopyramid.runs import layout
from protopyramid.runs.archive import write_archive
from protopyramid.runs.eight_bit import to_eight_bits
from protopyramid.runs.package import EIGHT_BIT, FULL, PACKAGE_VERSION, Package, check_name
from protopyramid.runs.provenance import NAME, Provenance, training_manifest
from protopyramid.runs.run import Run
from protopyramid.utils.files import json_text
from protopyramid.utils.opening import IMAGE, TEXT, WEIGHTS, read_file, read_text
from protopyramid.utils.tables import csv_text

CASES_PER_CLASS = 3
LICENCE_FILE = "LICENSE.txt"
Content = dict[str, bytes]  # the files of a package by name


@dataclass(frozen=True)
class PackOptions:
    """How a run is packed.

    `pictures`: with the pictures of the training cases; `anonymous`: with numbers instead of the names of
    image files; `bits`: of the weights of backbone and neck, 32 or 8; `cases`: a manifest, of which a few
    test images travel as examples; `card`: text that takes the place of the run's model card.
    """

    name: str = ""
    version: str = "1"
    summary: str = ""
    licence: str = ""
    pictures: bool = True
    anonymous: bool = False
    bits: int = 32
    cases: Path | None = None
    card: Path | None = None
    licence_file: Path | None = None


def pack(run: Run, target: Path, options: PackOptions) -> Package:
    """Write a run as one file. The same run and options give the same bytes."""
    name = check_name(options.name or run.name.lower(), str(target))
    if options.bits not in (8, 32):
        raise UserError(f"--bits {options.bits}: choose 8 or 32")
    if options.cases is not None and not options.pictures:
        raise UserError("--cases, --without-pictures: choose one; example cases are pictures")
    renamed = _new_names(run) if options.anonymous else _names_without_way(run)
    files = _records(run, renamed, options.anonymous)
    files[layout.MODEL], precision = _weights(run, options.bits)
    files |= _limits(run, files[layout.MODEL])
    files |= _scores(run, files[layout.MODEL])
    pictures = _pictures(run)
    if options.pictures:
        files |= pictures
    plain = options.bits == 32 and len(pictures if options.pictures else {}) == len(run.prototypes)
    number = layout.FORMAT_VERSION if plain else layout.PACKED_VERSION
    files[layout.FORMAT] = f"{number}\n".encode()
    files |= _texts(run, name, options, renamed)
    if options.cases is not None:
        files |= _examples(run, options.cases)
    about = {
        "package": PACKAGE_VERSION,
        "name": name,
        "version": options.version,
        "summary": options.summary or _summary(run),
        "licence": options.licence,
        "weights": precision,
        "pictures": options.pictures and bool(pictures),
        "software": {"name": NAME, "version": __version__},
        "cases": _cases(run),
    }
    return write_archive(target, about, files)


def _summary(run: Run) -> str:
    classes = ", ".join(run.config.data.classes)
    return f"{run.system_title}, {run.config.data.image_size} px: {classes}"


# -- names -----------------------------------------------------------------------------------------
def _facts(run: Run) -> Provenance:
    return run.provenance if (run.folder / layout.DATA).is_file() else Provenance()


def _named_images(run: Run) -> dict[str, str]:
    """Every image that the run names, with its digest."""
    digests: dict[str, str] = {}
    for images in _facts(run).splits.values():
        digests |= images
    for record in run.prototypes:
        digests.setdefault(record.image, hashlib.sha256(record.image.encode()).hexdigest())
    return digests


def _names_without_way(run: Run) -> dict[str, str]:
    """New names for images outside their manifest's folder, without the way there: it is this machine's."""
    every = [PurePosixPath(name) for name in _named_images(run)]
    outside = [name for name in every if name.is_absolute() or ".." in name.parts]
    names: dict[str, str] = {}
    for group in (
        [name for name in outside if name.is_absolute()],
        [name for name in outside if not name.is_absolute()],
    ):
        common = os.path.commonpath([name.parent for name in group]) if group else ""
        names |= {str(name): str(name.relative_to(common)) for name in group}
    inside = {str(name) for name in every} - set(names)
    if len(set(names.values()) | inside) < len(every):
        raise UserError(
            f"{run.folder.path}: two training images would have the same name; give --anonymous-names"
        )
    return names


def _new_names(run: Run) -> dict[str, str]:
    """A number for every image that the run names, in an order that says nothing: that of the digests."""
    digests = _named_images(run)
    order = sorted(digests, key=lambda name: (digests[name], name))
    return {name: f"case-{number:05d}" for number, name in enumerate(order, 1)}


def _renamed(content: Any, names: Mapping[str, str]) -> Any:
    """JSON content in which every name of an image is replaced, wherever it stands."""
    if isinstance(content, str):
        return names.get(content, content)
    if isinstance(content, list):
        return [_renamed(each, names) for each in content]
    if isinstance(content, dict):
        return {names.get(key, key): _renamed(value, names) for key, value in content.items()}
    return content


# -- files -----------------------------------------------------------------------------------------
def _records(run: Run, names: Mapping[str, str], anonymous: bool) -> Content:
    """Settings, prototypes, provenance and results, without a path of this machine."""
    backbone = run.config.model.backbone
    plain = backbone.model_copy(update={"weights": Path(backbone.weights).name})
    model = run.config.model.model_copy(update={"backbone": plain})
    files = {layout.CONFIG: dump_config(run.config.model_copy(update={"model": model})).encode()}
    records = [_renamed(record.to_json(), names) for record in run.prototypes]
    files[layout.PROTOTYPES] = json_text(records).encode()
    if (run.folder / layout.DATA).is_file():
        facts = run.provenance.to_json()
        facts["manifest_path"] = ""
        facts["manifest"] = Path(facts.get("manifest", "")).name
        facts["backbone"] = _without_path(facts.get("backbone", ""))
        if anonymous:
            facts["manifest"] = ""
        files[layout.DATA] = json_text(_renamed(facts, names)).encode()
    for path in sorted((run.folder / layout.EVALUATION).glob("*.json")):
        content = run.folder.read_json(f"{layout.EVALUATION}/{path.name}")
        if isinstance(content, dict) and "manifest" in content:
            content["manifest"] = "" if anonymous else Path(str(content["manifest"])).name
        files[f"{layout.EVALUATION}/{path.name}"] = json_text(_renamed(content, names)).encode()
    if (run.folder / layout.METRICS).is_file():
        lines = (
            json.dumps(_renamed(each, names)) for each in run.folder.read_lines(layout.METRICS)
        )
        files[layout.METRICS] = "".join(f"{line}\n" for line in lines).encode()
    return files


def _without_path(start: str) -> str:
    kind, _, name = start.partition(" ")
    return start if kind == "run" and name else Path(start).name


def _weights(run: Run, bits: int) -> tuple[bytes, str]:
    """The model's file and what its weights are; 8-bit ones are stored as they were packed before."""
    from safetensors.torch import save

    stored = read_file(run.folder / layout.MODEL, WEIGHTS)
    tensors, metadata = run.folder.read_tensors(layout.MODEL)
    if metadata.get("weights") == EIGHT_BIT:
        return stored, EIGHT_BIT
    if bits == 32:
        return stored, FULL
    packed = {name: each.contiguous() for name, each in to_eight_bits(tensors).items()}
    return save(packed, {"weights": EIGHT_BIT}), EIGHT_BIT


def _limits(run: Run, model: bytes) -> Content:
    """The out-of-distribution limits; those of the full model hold for its 8-bit weights too."""
    if not (run.folder / layout.THRESHOLDS).is_file():
        return {}
    content = run.folder.read_json(layout.THRESHOLDS)
    if isinstance(content, dict) and content.get("digest"):
        content["digest"] = digest_of(model, run.config)
    return {layout.THRESHOLDS: (json.dumps(content, allow_nan=False) + "\n").encode()}


def _scores(run: Run, model: bytes) -> Content:
    """The scores that an edit of the head needs, where they are of exactly this model.

    They name no image: they give its place in data.json, where it has the name that the package gives it.
    """
    if read_scores(run) is None or limits_digest(run) != digest_of(model, run.config):
        return {}
    return {layout.SCORES: read_file(run.folder / layout.SCORES, WEIGHTS)}


def _pictures(run: Run) -> Content:
    names = [layout.picture(record.index) for record in run.prototypes]
    return {
        name: read_file(run.folder / name, IMAGE) for name in names if (run.folder / name).is_file()
    }


def _texts(run: Run, name: str, options: PackOptions, names: Mapping[str, str]) -> Content:
    card = options.card or run.folder / layout.CARD
    files = {}
    if options.card is not None or card.is_file():
        text = _text(card)
        if options.card is None:
            text = text.replace(f"# {run.name}\n", f"# {name}\n", 1)
        for old, new in names.items():
            text = text.replace(old, new)
        if options.anonymous and _facts(run).manifest:
            text = text.replace(f"`{_facts(run).manifest}`", "of the site")
        files[layout.CARD] = text.encode()
    if options.licence_file is not None:
        files[LICENCE_FILE] = _text(options.licence_file).encode()
    return files


def _text(path: Path) -> str:
    try:
        return read_text(path, TEXT)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read as text ({error})") from error


# -- cases -----------------------------------------------------------------------------------------
def _cases(run: Run) -> list[dict[str, Any]]:
    """What is known of each prototype's training image, so that it can be found again at its site."""
    known = _known_cases(run)
    digests = {name: d for images in _facts(run).splits.values() for name, d in images.items()}
    sizes = _sizes(run)
    cases = []
    for record in run.prototypes:
        earlier = known.get(record.index, {})
        found = {
            "index": record.index,
            "digest": digests.get(record.image, "") or earlier.get("digest", ""),
            "picture": picture_digest(run, record.index) or earlier.get("picture", ""),
            "size": sizes.get(record.image) or earlier.get("size"),
        }
        cases.append(found)
    return cases


def _known_cases(run: Run) -> dict[int, dict[str, Any]]:
    """What a model that was packed before says of its cases."""
    return (
        {} if run.package is None else {each.index: each.model_dump() for each in run.package.cases}
    )


def picture_digest(run: Run, index: int) -> str:
    """Hash of the pixels that the model sees of a case, or "" where the run has no picture."""
    path = run.folder / layout.picture(index)
    return content_hash(read_image(path)) if path.is_file() else ""


def _sizes(run: Run) -> dict[str, list[int]]:
    """Width and height of the prototypes' source images, where the training data is at hand."""
    manifest = training_manifest(run)
    if manifest is None:
        return {}
    wanted = {record.image for record in run.prototypes}
    samples = [each for each in read_manifest(manifest).samples if each.name in wanted]
    return {each.name: image_size(each) for each in samples}


def image_size(sample: Sample) -> list[int]:
    """Width and height of a sample's image."""
    height, width = read_size(sample.image) or read_image(sample.image).shape[:2]
    return [int(width), int(height)]


def _examples(run: Run, manifest: Path) -> Content:
    """A few test images of each class with a manifest, for the reader and for `explain`."""
    table = read_manifest(manifest)
    rows, files = [], {}
    for label in run.config.data.classes:
        chosen = [each for each in table.split("test") if each.label == label][:CASES_PER_CLASS]
        for number, sample in enumerate(chosen, 1):
            stem = "".join(each if each.isalnum() else "-" for each in label.lower())
            name = f"{stem}-{number}.png"
            image = np.round(read_image(sample.image) * 255).astype(np.uint8)
            files[f"{layout.CASES}/{name}"] = png_bytes(image)
            box = ["" if sample.box is None else f"{side:g}" for side in sample.box or [0.0] * 4]
            rows.append([name, label, "test", *box])
    if not rows:
        raise UserError(f"{manifest}: has no test rows of the model's classes")
    header = ["image", "label", "split", "lesion_x0", "lesion_y0", "lesion_x1", "lesion_y1"]
    files[layout.CASES_MANIFEST] = csv_text(header, rows).encode()
    return files
