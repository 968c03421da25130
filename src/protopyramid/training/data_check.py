"""Checks of the training data before any work is done."""

from __future__ import annotations

import json
import shlex
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from protopyramid.config.schema import Config, prototype_counts
from protopyramid.data.manifest import (
    Manifest,
    check_one_lesion,
    read_manifest,
    with_validation,
)
from protopyramid.errors import UserError


def training_manifest(path: str | Path, config: Config) -> Manifest:
    """The manifest of a training: read, with validation rows, and fit for this configuration."""
    return fit_for_training(labelled_manifest(path, config), config)


def fit_for_training(manifest: Manifest, config: Config) -> Manifest:
    """A labelled manifest with validation rows; UserError where this configuration cannot train on it."""
    check_one_lesion(manifest, config.data.crop)
    warn_of_whole_images(manifest, config)
    if not manifest.split("train"):
        raise UserError(f"{manifest.path}: no row has split 'train'; there is nothing to train on")
    manifest = with_validation(manifest, config.data.validation_fraction, config.train.seed)
    check_classes(manifest, config)
    check_annotations(manifest, config)
    check_balance(manifest, config)
    return manifest


def check_balance(manifest: Manifest, config: Config) -> None:
    """Refuse to balance by sources that the manifest does not give."""
    if config.data.balance != "source-class":
        return
    unnamed = [sample for sample in manifest.split("train") if not sample.source]
    if unnamed:
        more = f" and {len(unnamed) - 1} more rows" if len(unnamed) > 1 else ""
        raise UserError(
            f"{manifest.path}: row {unnamed[0].row}{more}: no source, but data.balance is "
            '"source-class"; fill the column source, or use data.balance = "class"'
        )


def labelled_manifest(path: str | Path, config: Config) -> Manifest:
    """The manifest, refused in one line where labels are not among the classes of the configuration."""
    manifest = read_manifest(path)
    classes = config.data.classes
    unknown = [sample for sample in manifest.samples if sample.label not in classes]
    if unknown:
        first = unknown[0]
        more = f" and {len(unknown) - 1} more rows" if len(unknown) > 1 else ""
        raise UserError(
            f"{path}: row {first.row}{more}: label {first.label!r} is not one of the classes "
            f"{', '.join(classes)}; correct the labels, or train on them as they are: "
            f"{class_settings(manifest.labels(), config.data.negative_class)}"
        )
    return manifest


def class_settings(labels: Sequence[str], negative_class: str) -> str:
    """The options that make labels the classes of a training.

    >>> print(class_settings(["benign", "malignant"], "negative"))
    --set 'data.classes=["benign", "malignant"]' --set 'data.negative_class=""'
    """
    listed = ", ".join(json.dumps(label, ensure_ascii=False) for label in labels)
    settings = [f"data.classes=[{listed}]"]
    if negative_class and negative_class not in labels:
        settings.append('data.negative_class=""')
    return " ".join(f"--set {shlex.quote(setting)}" for setting in settings)


def warn_of_whole_images(manifest: Manifest, config: Config) -> None:
    """Warn of lesions without a place, where the others are cut from their films."""
    if config.data.crop == "none":
        return
    lesions = [each for each in manifest.samples if each.label != config.data.negative_class]
    whole = [each for each in lesions if each.box is None and each.mask is None]
    if whole:
        warnings.warn(
            f"{manifest.path}: {len(whole)} of {len(lesions)} lesions have neither box nor mask (first row "
            f"{whole[0].row}), so the model sees their whole image; add boxes, or drop the rows",
            stacklevel=3,
        )


def check_classes(manifest: Manifest, config: Config) -> None:
    """Every class needs training images, and as many as its prototypes need sources."""
    images = Counter(sample.label for sample in manifest.split("train"))
    without = [name for name in config.data.classes if not images[name]]
    if without:
        left = [name for name in config.data.classes if images[name]]
        raise UserError(
            f"{manifest.path}: no training image of class {', '.join(without)}; add some, or leave "
            f"the class out: {class_settings(left, config.data.negative_class)}"
        )
    if config.model.neck.kind != "none":
        check_projection_sources(manifest, config)


def check_projection_sources(manifest: Manifest, config: Config) -> None:
    """Every class needs images that its prototypes can be projected onto."""
    projection = config.projection
    if projection.source != "class":
        return
    eligible = Counter(
        sample.label
        for sample in manifest.split("train")
        if not projection.annotated_only
        or (sample.mask or sample.box or sample.label == config.data.negative_class)
    )
    kind = "annotated training images" if projection.annotated_only else "training images"
    for name, by_level in prototype_counts(config).items():
        most = max(by_level.values(), default=0)
        if most and not eligible[name]:
            raise UserError(
                f"{manifest.path}: class {name} has no {kind} to project its prototypes onto; add masks or "
                "lesion boxes, or set projection.annotated_only=false"
            )
        if projection.unique == "image" and eligible[name] < most:
            raise UserError(
                f"{manifest.path}: class {name} has {eligible[name]} {kind} but {most} "
                'prototypes on one level; lower model.prototypes.counts, or set projection.unique="patch"'
            )


def check_annotations(manifest: Manifest, config: Config) -> None:
    """Warn where the fine loss has no effect, or validation says nothing about a class."""
    train, validation = manifest.split("train"), manifest.split("validation")
    lesions = [sample for sample in train if sample.label != config.data.negative_class]
    fine = config.loss.fine.weight and config.model.neck.kind != "none"
    if fine and not any(sample.mask or sample.box for sample in lesions):
        warnings.warn(
            f"{manifest.path}: no training image has a mask or a lesion box, so the fine loss has "
            "no effect; add masks or set loss.fine.weight=0",
            stacklevel=2,
        )
    if not validation:
        raise UserError(
            f"{manifest.path}: too few training patients to hold some out for validation; "
            "add rows with split 'validation'"
        )
    present = {sample.label for sample in validation}
    missing = [name for name in config.data.classes if name not in present]
    if missing:
        warnings.warn(
            f"{manifest.path}: no validation image of class {', '.join(missing)}; "
            "the best model is chosen without it",
            stacklevel=2,
        )
