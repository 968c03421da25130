"""Plain predictions: probabilities, the strongest prototypes, and how near the nearest one is."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from protopyramid.data.io.decoding import READERS, is_image
from protopyramid.data.manifest import Sample, read_images
from protopyramid.data.store import ImageStore
from protopyramid.errors import UserError
from protopyramid.inference.batches import EvidenceBatch, evidence_batches
from protopyramid.inference.ood import Limits, limits_for, numbers_of
from protopyramid.model.network import Evidence
from protopyramid.runs.folder import RunFolder

if TYPE_CHECKING:
    from protopyramid.runs.run import Run

STRONGEST = 3  # prototypes named with each prediction
Record = dict[str, Any]
Progress = Callable[[int, int], None]


def predict_files(
    run: Run, images: Sequence[str | Path], progress: Progress | None = None
) -> list[Record]:
    """Predictions of image files, one record an image, in their order.

    A record: `image`, `predicted`, `probabilities` and `logits` {class: x}, `prototypes` (the
    strongest for the predicted class: index, class, level, similarity, contribution), `nearest` (index,
    class, level, similarity), `unlikeness` (distance from ordinary images; 1 is the limit) and
    `unlike_training` (both None when the run has no thresholds.json).
    """
    paths = [Path(image) for image in images]
    missing = [path for path in paths if not path.is_file()]
    if missing:
        more = f" (and {len(missing) - 1} more are missing)" if len(missing) > 1 else ""
        raise UserError(f"{missing[0]}: no such image file{more}; check the path")
    samples = [Sample(0, path.as_posix(), path, label="", split="test") for path in paths]
    return predict_samples(run, samples, progress)


def predict_manifest(
    run: Run,
    manifest: str | Path,
    split: str | None = None,
    progress: Progress | None = None,
) -> list[Record]:
    """Predictions of a manifest's rows (of one split, or all), with their label, split and patient.

    Rows need no label and no split, and their labels may be others than the run's.
    """
    chosen = table_rows(manifest, split)
    records = predict_samples(run, chosen, progress)
    return [
        {
            "image": record["image"],
            "label": sample.label,
            "split": sample.split,
            "patient_id": sample.patient_id,
            **record,
        }
        for sample, record in zip(chosen, records, strict=True)
    ]


def table_rows(path: str | Path, split: str | None = None) -> tuple[Sample, ...]:
    """The rows of a table of images, or those of one split."""
    samples = read_images(path).samples
    if split is None:
        return samples
    chosen = tuple(sample for sample in samples if sample.split == split)
    if not chosen:
        found = ", ".join(dict.fromkeys(sample.split for sample in samples if sample.split))
        there = f"the splits are {found}" if found else "no row has a split"
        raise UserError(f"{path}: no row has split {split}: {there}; choose with --split")
    return chosen


def predict_samples(
    run: Run, samples: Sequence[Sample], progress: Progress | None = None
) -> list[Record]:
    """Predictions of samples; their labels and annotations are not looked at."""
    bare = [replace(sample, mask=None, box=None) for sample in samples]
    store = ImageStore(bare, run.config.data.model_copy(update={"memory_budget": 0.0}))
    limits = limits_for(run)
    records: list[Record] = []
    for seen in evidence_batches(run.model, store, batch_size=run.config.train.eval_batch_size):
        names = [samples[index].name for index in seen.images]
        records += batch_records(run, names, seen, limits)
        if progress is not None:
            progress(len(records), len(samples))
    return records


def batch_records(
    run: Run, names: Sequence[str], seen: EvidenceBatch, limits: Limits | None
) -> list[Record]:
    """The records of a batch of images."""
    classes, evidence = run.config.data.classes, seen.evidence
    logits = evidence.logits.double().cpu()
    probabilities = logits.softmax(1)
    predicted = logits.argmax(1)
    details = _prototype_details(run, evidence, predicted)
    flags = _flags(seen, limits)
    return [
        {
            "image": name,
            "predicted": classes[int(predicted[row])],
            "probabilities": dict(zip(classes, probabilities[row].tolist(), strict=True)),
            "logits": dict(zip(classes, logits[row].tolist(), strict=True)),
            **details[row],
            **flags[row],
        }
        for row, name in enumerate(names)
    ]


def _prototype_details(run: Run, evidence: Evidence, predicted: Tensor) -> list[Record]:
    """What each image of a batch owes to prototypes; nothing, for a model without them."""
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


def _flags(seen: EvidenceBatch, limits: Limits | None) -> list[Record]:
    """How unlike ordinary images each image of a batch is; None where the run cannot tell."""
    if limits is None:
        return [{"unlikeness": None, "unlike_training": None} for _ in seen.images]
    evidence = seen.evidence
    numbers = numbers_of(seen.loaded.images, evidence.scores, evidence.closeness)
    found = limits.unlikeness(numbers).tolist()
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
        if not path.is_dir():
            files.append(path)
            continue
        inside = sorted(each for each in path.rglob("*") if each.is_file() and is_image(each))
        if not inside:
            raise UserError(
                f"{path}: neither the folder nor its subfolders hold an image ({', '.join(READERS)})"
            )
        files += inside
    return files


def predictions_csv(records: Sequence[Record], classes: Sequence[str]) -> str:
    """Predictions as a CSV table, one row an image."""
    from_manifest = [name for name in ("label", "split", "patient_id") if name in records[0]]
    strongest = max(len(record["prototypes"]) for record in records)
    header = ["image", *from_manifest, "predicted", *(f"probability_{name}" for name in classes)]
    for rank in range(1, strongest + 1):
        header += [f"prototype_{rank}", f"prototype_{rank}_class", f"prototype_{rank}_level"]
        header += [f"prototype_{rank}_similarity", f"prototype_{rank}_contribution"]
    header += ["nearest_prototype", "nearest_similarity", "unlikeness", "unlike_training"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
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
        writer.writerow(row)
    return text.getvalue()


def write_csv(path: Path, text: str) -> None:
    """Write a table atomically, wherever it is."""
    if path.is_dir():
        raise UserError(f"{path}: is a folder; give the name of a CSV file")
    RunFolder(path.parent).write_text(path.name, text)


def _number(value: float) -> str:
    return f"{value:.6g}"
