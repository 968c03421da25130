"""Class folders: the folder of an image is its label, and the whole image is taken.

    SRC/<class>/<name>.png           or  SRC/<split>/<class>/<name>.png

where <split> is train, val (valid, validation) or test; without such folders, the test split is
drawn at random. A mask is looked for, in this order, in

    <class>/<name>_mask.png          beside its image
    <class>_masks/<name>.png         beside the class folder
    masks/<class>/<name>.png         beside the class folder
    SRC/masks/<split>/<class>/<name>.png  and  SRC/masks/<class>/<name>.png

under the image's name, with or without _mask, and with any suffix that can be read. White is
inside; a black mask says that the image has no lesion.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from protopyramid.data.annotations import MaskFile
from protopyramid.data.importers.base import Crop, ImportPlan, Options, Skipped
from protopyramid.data.importers.own_labels import finish
from protopyramid.data.importers.reading import Names, relative, walk
from protopyramid.data.importers.splits import SPLIT_WORDS
from protopyramid.data.io.decoding import image_stem, is_image
from protopyramid.errors import UserError

MASKS = "masks"
MASK_FOLDER = re.compile(r"masks?|.+_masks?", re.IGNORECASE)
MASK_NAME = re.compile(r"(.+)_mask(_\d+)?", re.IGNORECASE)


def find(source: Path, options: Options) -> ImportPlan:
    """The images in class folders, with their masks."""
    files, skipped = walk(source)
    pictures = {path for path in files if is_image(path)}
    by_place = {
        (path.parent, image_stem(path).lower()): path for path in sorted(pictures, reverse=True)
    }
    masks = {path for path in pictures if _is_mask(source, path, by_place)}
    splits = _split_folders(source, files)
    crops: list[Crop] = []
    used: set[Path] = set()
    names = Names()
    for path in files:
        if path in masks:
            continue
        reason, split = _place(source, path, splits)
        if reason:
            skipped.append(Skipped(relative(path, source), reason))
            continue
        mask = _mask_of(source, path, by_place)
        used |= {mask} if mask else set()
        crops.append(_crop(source, path, split, mask, names))
    if not crops:
        raise UserError(
            f"{source}: no images in class folders; SRC/CLASS/NAME.png or "
            "SRC/train/CLASS/NAME.png is expected"
        )
    skipped += [
        Skipped(relative(path, source), "mask without an image, or a second mask of the same image")
        for path in sorted(masks - used)
    ]
    return finish(source, crops, skipped, _mask_notes(crops), options)


def _is_mask(source: Path, path: Path, by_place: dict[tuple[Path, str], Path]) -> bool:
    """Whether a file is in a folder of masks, or beside the image that its name speaks of."""
    if any(MASK_FOLDER.fullmatch(part) for part in path.relative_to(source).parts[:-1]):
        return True
    match = MASK_NAME.fullmatch(image_stem(path))
    return match is not None and (path.parent, match[1].lower()) in by_place


def _split_folders(source: Path, files: Iterable[Path]) -> set[str]:
    """Folders in the source with the name of a split; such a name is never a class."""
    folders = {path.relative_to(source).parts[0] for path in files if path.parent != source}
    return {name for name in folders if name.lower() in SPLIT_WORDS}


def _place(source: Path, path: Path, splits: set[str]) -> tuple[str, str]:
    """Why a file is not an image of a class, or else its split ("" for none)."""
    folders = path.relative_to(source).parts[:-1]
    in_split = bool(folders) and folders[0] in splits
    if not is_image(path):
        return f"not a readable image: {path.suffix.lower() or 'no suffix'}", ""
    if splits and folders and not in_split:
        return (
            f"folder beside the splits: {folders[0]} is not one of {', '.join(sorted(splits))}",
            "",
        )
    if len(folders) != 1 + in_split:
        return "not directly in a class folder", ""
    return "", SPLIT_WORDS[folders[0].lower()] if in_split else ""


def _mask_of(source: Path, path: Path, by_place: dict[tuple[Path, str], Path]) -> Path | None:
    label, above = path.parent.name, path.parent.parent
    folders = [
        *(above / f"{label}_{word}" for word in (MASKS, "mask")),
        above / MASKS / label,
        source / MASKS / path.parent.relative_to(source),
        source / MASKS / label,
    ]
    stem = image_stem(path).lower()
    wanted = [(path.parent, f"{stem}_mask")]
    wanted += [(folder, name) for folder in folders for name in (stem, f"{stem}_mask")]
    return next((by_place[place] for place in wanted if place in by_place), None)


def _crop(source: Path, path: Path, split: str, mask: Path | None, names: Names) -> Crop:
    return Crop(
        name=names.new(relative(path.with_name(image_stem(path)), source)),
        image=path,
        label=path.parent.name.strip(),
        split=split,
        annotation=MaskFile(mask) if mask else None,
        whole=True,
    )


def _mask_notes(crops: Sequence[Crop]) -> list[str]:
    """Masks that some images have and others lack; all or none needs no words."""
    without = sum(crop.annotation is None for crop in crops)
    return [f"{without} of {len(crops)} images have no mask"] if 0 < without < len(crops) else []
