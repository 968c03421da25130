"""Plain predictions: probabilities, the strongest prototypes, the nearest one, and the OOD flag."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from protopyramid.config.schema import DataConfig
from protopyramid.data.io.decoding import READERS, is_image
from protopyramid.data.manifest import Sample, read_images
from protopyramid.data.store import ImageStore
from protopyramid.errors import UserError
from protopyramid.inference.batches import EvidenceBatch, evidence_batches
from protopyramid.inference.ood import Limits, limits_for, ood_features
from protopyramid.model.network import Evidence
from protopyramid.utils.opening import is_file, is_folder, missing_image
from protopyramid.utils.tables import csv_text

if TYPE_CHECKING:
    from protopyramid.runs.run import Run

STRONGEST = 3  # prototypes named with each prediction
EDGES = ("x0", "y0", "x1", "y1")
Record = dict[str, Any]
Progress = Callable[[int, int], None]


def predict_files(
    run: Run, images: Sequence[str | Path], progress: Progress | None = None
) -> list[Record]:
    """Predictions of image files, in their order; records as of `predict_samples`."""
    return predict_samples(run, image_samples([Path(image) for image in images]), progress)


def predict_manifest(
    run: Run,
    manifest: str | Path,
    split: str | None = None,
    progress: Progress | None = None,
) -> list[Record]:
    """Predictions of a manifest's rows (of one split, or all), with their label, split and patient.

    Rows need no label and no split, and may have labels that the run does not know.
    """
    chosen = table_rows(manifest, split, run.config.data.crop)
    return with_labels(predict_samples(run, chosen, progress), chosen)


def with_labels(records: Sequence[Record], samples: Sequence[Sample]) -> list[Record]:
    """The records of a table's rows with their label, split and patient."""
    return [
        {
            "image": record["image"],
            "label": sample.label,
            "split": sample.split,
            "patient_id": sample.patient_id,
            **record,
        }
        for sample, record in zip(samples, records, strict=True)
    ]


def image_samples(paths: Sequence[Path]) -> list[Sample]:
    """Samples of image files, which must exist."""
    missing = [path for path in paths if not is_file(path)]
    if missing:
        more = f" (and {len(missing) - 1} more are missing)" if len(missing) > 1 else ""
        raise missing_image(missing[0], more)
    return [Sample(0, path.as_posix(), path, label="", split="test") for path in paths]


def table_rows(
    path: str | Path, split: str | None = None, crop: str = "none", told: bool = True
) -> tuple[Sample, ...]:
    """The rows of a table of images, or those of one split; with their lesions if these are cut out.

    told: whether to say what becomes of lesion boxes.
    """
    manifest = read_images(path, places=crop == "lesion")
    samples = manifest.samples
    if split is not None:
        samples = tuple(sample for sample in samples if sample.split == split)
        if not samples:
            found = dict.fromkeys(each.split for each in manifest.samples if each.split)
            there = f"the splits are {', '.join(found)}" if found else "no row has a split"
            raise UserError(f"{path}: no row has split {split}: {there}; choose with --split")
    if told:
        _say_what_is_done(Path(path), manifest.columns, samples, crop)
    return samples


def _say_what_is_done(
    path: Path, columns: Sequence[str], samples: Sequence[Sample], crop: str
) -> None:
    """One line on what becomes of a table's lesion boxes, where that is not what one might expect."""
    if crop == "none" and "lesion_x0" in columns:
        warnings.warn(
            f"{path}: its lesion boxes are not used, since the run sees whole images; "
            "--crop lesion cuts the square around each box",
            stacklevel=3,
        )
    whole = [sample for sample in samples if sample.box is None and sample.mask is None]
    if crop == "lesion" and whole:
        warnings.warn(
            f"{path}: {len(whole)} of {len(samples)} rows have no lesion box (first row {whole[0].row}); "
            "the model sees their whole image",
            stacklevel=3,
        )


def predict_samples(
    run: Run,
    samples: Sequence[Sample],
    progress: Progress | None = None,
    data: DataConfig | None = None,
    unreadable: Callable[[Sample, UserError], None] | None = None,
) -> list[Record]:
    """Predictions of samples, one record per image, in their order; labels are ignored.

    A record: `image`, `predicted`, `probabilities` and `logits` {class: x}, `prototypes` (the
    strongest for the predicted class: index, class, level, similarity, contribution), `nearest` (index,
    class, level, similarity), `unlikeness` (out-of-distribution distance; 1 is the limit),
    `unlike_training` (out of distribution; both None when the run has no thresholds.json) and `region`
    (what the model saw, in pixels of the file). `data`, by default that of the run, says by `crop` whether
    lesions are cut out; else annotations are ignored. A sample that cannot be read is left out and
    handed to `unreadable`, or else raises its UserError.
    """
    settings = (data or run.config.data).model_copy(update={"memory_budget": 0.0})
    if settings.crop == "none":
        bare = [replace(sample, mask=None, box=None) for sample in samples]
    else:
        bare = list(samples)
    store = ImageStore(bare, settings)
    limits = limits_for(run)
    records: list[Record] = []
    done = 0

    def leave_out(index: int, error: UserError) -> None:
        nonlocal done
        assert unreadable is not None
        done += 1
        unreadable(samples[index], error)

    size = run.config.train.eval_batch_size
    failed = leave_out if unreadable is not None else None
    for batch in evidence_batches(run.model, store, batch_size=size, unreadable=failed):
        names = [samples[index].name for index in batch.images]
        records += batch_records(run, names, batch, limits)
        done += len(names)
        if progress is not None:
            progress(done, len(samples))
    return records


def batch_records(
    run: Run, names: Sequence[str], batch: EvidenceBatch, limits: Limits | None
) -> list[Record]:
    """The records of a batch of images."""
    classes, evidence = run.config.data.classes, batch.evidence
    logits = evidence.logits.double().cpu()
    probabilities = logits.softmax(1)
    predicted = logits.argmax(1)
    details = _prototype_details(run, evidence, predicted)
    flags = _flags(batch, limits)
    return [
        {
            "image": name,
            "predicted": classes[int(predicted[row])],
            "probabilities": dict(zip(classes, probabilities[row].tolist(), strict=True)),
            "logits": dict(zip(classes, logits[row].tolist(), strict=True)),
            **details[row],
            **flags[row],
            "region": dict(zip(EDGES, batch.loaded.mappings[row].seen, strict=True)),
        }
        for row, name in enumerate(names)
    ]


def _prototype_details(run: Run, evidence: Evidence, predicted: Tensor) -> list[Record]:
    """The strongest and the nearest prototypes of each image; none for a model without them."""
    if run.model.prototypes is None:
        return [{"prototypes": [], "nearest": None} for _ in predicted]
    scores, closeness = evidence.scores.cpu(), evidence.closeness.cpu()
    contributions = run.model.head.weight.detach().cpu()[predicted] * scores
    strongest = contributions.argsort(dim=1, descending=True, stable=True)[:, :STRONGEST]
    nearest = closeness.argmax(1)
    describe = _describer(run)
    return [
        {
            "prototypes": [
                {
                    **describe(index),
                    "similarity": float(scores[row, index]),
                    "contribution": float(contributions[row, index]),
                }
                for index in strongest[row].tolist()
            ],
            "nearest": {
                **describe(int(nearest[row])),
                "similarity": float(closeness[row, nearest[row]]),
            },
        }
        for row in range(len(predicted))
    ]


def _flags(batch: EvidenceBatch, limits: Limits | None) -> list[Record]:
    """How far out of distribution each image of a batch is; None where the run has no limits."""
    if limits is None:
        return [{"unlikeness": None, "unlike_training": None} for _ in batch.images]
    evidence = batch.evidence
    features = ood_features(batch.loaded.images, evidence.scores, evidence.closeness)
    found = limits.relative_distance(features).tolist()
    return [{"unlikeness": value, "unlike_training": value > 1} for value in found]


def _describer(run: Run) -> Callable[[int], Record]:
    prototypes, names = run.model.prototypes, run.config.data.classes
    assert prototypes is not None
    owners, levels = prototypes.classes.tolist(), prototypes.levels.tolist()
    return lambda index: {
        "index": index,
        "class": names[owners[index]],
        "level": int(levels[index]),
    }


# -- files ---------------------------------------------------------------------------------------
def expand_folders(paths: Iterable[Path]) -> list[Path]:
    """The image files among these paths and, sorted, in those that are folders and in their subfolders."""
    files: list[Path] = []
    for path in paths:
        if not is_folder(path):
            files.append(path)
            continue
        inside = sorted(each for each in path.rglob("*") if is_image(each))
        if not inside:
            raise UserError(
                f"{path}: neither the folder nor its subfolders hold an image ({', '.join(READERS)})"
            )
        files += inside
    return files


def predictions_csv(records: Sequence[Record], classes: Sequence[str]) -> str:
    """Predictions as a CSV table, one row per image."""
    from_manifest = [name for name in ("label", "split", "patient_id") if name in records[0]]
    strongest = max(len(record["prototypes"]) for record in records)
    header = ["image", *from_manifest, "predicted", *(f"probability_{name}" for name in classes)]
    for rank in range(1, strongest + 1):
        header += [f"prototype_{rank}", f"prototype_{rank}_class", f"prototype_{rank}_level"]
        header += [f"prototype_{rank}_similarity", f"prototype_{rank}_contribution"]
    header += ["nearest_prototype", "nearest_similarity", "unlikeness", "unlike_training"]
    header += [f"region_{edge}" for edge in EDGES]
    rows = []
    for record in records:
        row = [record["image"], *(record[name] for name in from_manifest), record["predicted"]]
        row += [_number(record["probabilities"][name]) for name in classes]
        for entry in record["prototypes"]:
            row += [entry["index"], entry["class"], entry["level"]]
            row += [_number(entry["similarity"]), _number(entry["contribution"])]
        nearest, unlike = record["nearest"], record["unlike_training"]
        row += ["", ""] if nearest is None else [nearest["index"], _number(nearest["similarity"])]
        row.append("" if unlike is None else _number(record["unlikeness"]))
        row.append("" if unlike is None else "yes" if unlike else "no")
        row += [_number(record["region"][edge]) for edge in EDGES]
        rows.append(row)
    return csv_text(header, rows)


def _number(value: float) -> str:
    return f"{value:.6g}"
