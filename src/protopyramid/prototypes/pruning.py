"""Pruning: a run without some of its prototypes, with its head fitted again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save
from torch import Tensor

from protopyramid.config.schema import Config
from protopyramid.data.manifest import Sample
from protopyramid.data.store import ImageStore
from protopyramid.errors import UserError
from protopyramid.inference.batches import evidence_batches
from protopyramid.inference.ood import digest_of, validation_limits, write_limits
from protopyramid.metrics.validation import ValidationMetrics, validation_metrics
from protopyramid.model.build import build_model, initial_head_weights
from protopyramid.model.network import PrototypeNetwork
from protopyramid.prototypes.cases import layer_of
from protopyramid.runs import layout
from protopyramid.runs.folder import RunFolder
from protopyramid.runs.provenance import write_provenance
from protopyramid.runs.run import Run, load_run
from protopyramid.training.head_fit import fit_head
from protopyramid.training.sampling import training_pool

HISTORY = "pruned"  # key of data.json


@dataclass(frozen=True)
class Pruned:
    """The new run, what was removed, and how well both do on validation (None without one)."""

    run: Run
    removed: tuple[int, ...]
    before: ValidationMetrics | None
    after: ValidationMetrics | None


def prune(
    run: Run,
    removed: Sequence[int],
    out: str | Path,
    train: Sequence[Sample],
    validation: Sequence[Sample],
) -> Pruned:
    """Write a run without the prototypes `removed`; its head is fitted to the training images.

    The remaining prototypes are numbered from 0 again; `prototypes.json` identifies them by their source.
    data.json keeps the history. The caller finishes the run as any other (`api.finish`: model card).
    """
    gone = sorted(set(removed))
    kept = kept_prototypes(run, gone)
    model = pruned_model(run, kept)
    _fit(model, run, train)
    before, after = (_validate(each, run, validation) for each in (run.model, model))
    folder = RunFolder(out)
    _write_records(run, folder, kept)
    _write_history(run, folder, gone, before, after)
    if validation:
        store = ImageStore(validation, run.config.data)
        size = run.config.train.eval_batch_size
        digest = digest_of(_model_bytes(model), pruned_config(run, kept))
        write_limits(folder, validation_limits(model, store, size), digest)
    # The model last: where it is, everything else is.
    folder.write_tensors(layout.MODEL, model.state_dict())
    return Pruned(load_run(out), tuple(gone), before, after)


def _model_bytes(model: PrototypeNetwork) -> bytes:
    """What model.safetensors will hold: the limits are written before it."""
    return save({name: each.cpu().contiguous() for name, each in model.state_dict().items()}, {})


def kept_prototypes(run: Run, removed: Sequence[int]) -> list[int]:
    """The prototypes that stay; UserError if an index is wrong or a class would have none left."""
    layer = layer_of(run.model)
    total = len(layer.classes)
    unknown = [index for index in removed if not 0 <= index < total]
    if unknown:
        raise UserError(f"no prototype {unknown[0]}; they are numbered 0 to {total - 1}")
    kept = [index for index in range(total) if index not in set(removed)]
    names = run.config.data.classes
    lost = set(layer.classes.tolist()) - set(layer.classes[kept].tolist())
    if lost:
        raise UserError(
            f'class "{names[min(lost)]}" would have no prototype left; '
            "choose with --remove which ones to remove"
        )
    return kept


def pruned_model(run: Run, kept: Sequence[int]) -> PrototypeNetwork:
    """The network with only the prototypes kept, and their columns of the head."""
    model = build_model(pruned_config(run, kept))
    state = dict(run.model.state_dict())
    index = torch.tensor(kept)
    for name in ("prototypes.vectors", "prototypes.classes", "prototypes.levels"):
        state[name] = state[name].cpu()[index]
    state["head.weight"] = state["head.weight"].cpu()[:, index]
    # Levels finer than the finest one left are no longer part of the pyramid.
    model.load_state_dict({name: state[name] for name in model.state_dict()})
    return model.eval()


def pruned_config(run: Run, kept: Sequence[int]) -> Config:
    """The configuration with the number of prototypes that are left."""
    layer, names = layer_of(run.model), run.config.data.classes
    counts: dict[str, dict[int, int]] = {name: {} for name in names}
    for index in kept:
        name, level = names[int(layer.classes[index])], int(layer.levels[index])
        counts[name][level] = counts[name].get(level, 0) + 1
    content = run.config.model_dump()
    content["model"]["prototypes"]["per_class"] = counts
    return Config.model_validate(content)


def _fit(model: PrototypeNetwork, run: Run, train: Sequence[Sample]) -> None:
    """Fit the head to the images that training fitted it to: of the negatives, only those drawn."""
    layer, config = layer_of(model), run.config
    numbers = np.array([config.data.classes.index(sample.label) for sample in train])
    pool = training_pool(numbers, config.data, config.train.seed, 0)
    scores, _, labels = _pass(model, run, [train[place] for place in pool])
    first = initial_head_weights(layer.classes, len(config.data.classes), config.model.head)
    fitted = fit_head(scores, labels, layer.classes, first, config.head_fit)
    with torch.no_grad():
        model.head.weight.copy_(fitted.weight)


def _pass(
    model: PrototypeNetwork, run: Run, samples: Sequence[Sample]
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores (N, m), logits (N, C) and labels (N,) of samples."""
    classes = run.config.data.classes
    store = ImageStore(samples, run.config.data)
    scores, logits = [], []
    for batch in evidence_batches(model, store, batch_size=run.config.train.eval_batch_size):
        scores.append(batch.evidence.scores.cpu())
        logits.append(batch.evidence.logits.double().cpu())
    labels = torch.tensor([classes.index(sample.label) for sample in samples])
    return torch.cat(scores), torch.cat(logits), labels


def _validate(
    model: PrototypeNetwork, run: Run, samples: Sequence[Sample]
) -> ValidationMetrics | None:
    if not samples:
        return None
    data = run.config.data
    _, logits, labels = _pass(model, run, samples)
    values: NDArray[np.float64] = logits.numpy()
    return validation_metrics(values, labels.numpy(), data.classes, data.negative_class)


def _write_records(run: Run, folder: RunFolder, kept: Sequence[int]) -> None:
    """Write settings, prototypes and their pictures, renumbered."""
    folder.begin(pruned_config(run, kept))
    records = {record.index: record for record in run.prototypes}
    for new, old in enumerate(kept):
        if run.cases.has_picture(old):
            picture = (run.folder / layout.picture(old)).read_bytes()
            folder.write_bytes(layout.picture(new), picture)
        else:
            folder.write_text(layout.FORMAT, f"{layout.PACKED_VERSION}\n")
    content = [replace(records[old], index=new).to_json() for new, old in enumerate(kept)]
    folder.write_json(layout.PROTOTYPES, content)


def _write_history(
    run: Run,
    folder: RunFolder,
    removed: Sequence[int],
    before: ValidationMetrics | None,
    after: ValidationMetrics | None,
) -> None:
    """Write where the run comes from: data.json with its prunings, and the log of its training."""
    record = {
        "kind": "prune",
        "removed": list(removed),
        "from": run.name,
        "before": None if before is None else asdict(before),
        "validation": None if after is None else asdict(after),
    }
    if (run.folder / layout.DATA).is_file():
        origin = run.provenance.moved(run.folder.path, folder.path)
        history = [*origin.to_json().get(HISTORY, []), record]
        write_provenance(folder, origin.model_copy(update={HISTORY: history}))
    if (run.folder / layout.METRICS).is_file():
        folder.write_bytes(layout.METRICS, (run.folder / layout.METRICS).read_bytes())
    folder.append_line(layout.METRICS, json.dumps(record))


def prunings(run: Run) -> list[dict[str, Any]]:
    """The prunings that a run went through, oldest first, as data.json records them."""
    if not (run.folder / layout.DATA).is_file():
        return []
    found: list[dict[str, Any]] = run.provenance.to_json().get(HISTORY, [])
    return found
