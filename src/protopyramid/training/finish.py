"""What training writes into the run folder: provenance at its start; prototypes and model at its end."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from protopyramid import __version__
from protopyramid.config.differences import differences
from protopyramid.config.schema import Config
from protopyramid.data.framing import training_framing
from protopyramid.data.images import hash_files
from protopyramid.data.io.encoding import png_bytes
from protopyramid.data.manifest import SPLITS, Manifest, Sample
from protopyramid.data.store import ImageStore
from protopyramid.inference.batches import evidence_batches
from protopyramid.model.activation import Box, activation_region
from protopyramid.model.network import PrototypeNetwork
from protopyramid.runs import layout
from protopyramid.runs.folder import RunFolder
from protopyramid.runs.provenance import NAME, Provenance, Software, write_provenance
from protopyramid.runs.records import PrototypeRecord


def finish_run(
    folder: RunFolder,
    config: Config,
    model: PrototypeNetwork,
    store: ImageStore,
    records: Sequence[Mapping[str, Any]],
) -> None:
    """Write prototypes.json, the prototypes' pictures and, last, model.safetensors."""
    found = prototype_records(model, store, records, config.train.eval_batch_size)
    places = _places(store)
    for record in found:
        loaded = store.load([places[record.image]])
        folder.write_bytes(layout.picture(record.index), picture_bytes(loaded.images[0]))
    folder.write_json(layout.PROTOTYPES, [record.to_json() for record in found])
    folder.write_tensors(layout.MODEL, model.state_dict())


def prototype_records(
    model: PrototypeNetwork,
    store: ImageStore,
    records: Sequence[Mapping[str, Any]],
    batch_size: int,
) -> list[PrototypeRecord]:
    """The records of a projection, each with the label of its source image and its activation's box."""
    places = _places(store)
    sources = sorted({places[record["image"]] for record in records})
    boxes: dict[int, Box] = {}
    assert model.prototypes is not None or not records
    for seen in evidence_batches(model, store, sources, batch_size, tta=False):
        for record in records:
            source = places[record["image"]]
            if source in seen.images:
                row = seen.images.index(source)
                boxes[record["index"]] = _box(model, seen.evidence.maps, record, row, store)
    return [
        PrototypeRecord(
            index=record["index"],
            class_name=record["class"],
            level=record["level"],
            image=record["image"],
            row=record["row"],
            col=record["col"],
            similarity=record["similarity"],
            box=boxes[record["index"]],
            label=store.samples[places[record["image"]]].label,
        )
        for record in records
    ]


def picture_bytes(image: torch.Tensor) -> bytes:
    """An image (C, S, S) in [0, 1] as PNG: 16-bit where it is grey, so that nothing is lost."""
    values = image.numpy()
    if len(values) == 1:
        return png_bytes(np.round(values[0] * 65535).astype(np.uint16))
    return png_bytes(np.round(values.transpose(1, 2, 0) * 255).astype(np.uint8))


def write_data_facts(
    folder: RunFolder, manifest: Manifest, config: Config, more: Mapping[str, Any]
) -> None:
    """Write data.json: the images that the model learns from, with a digest of each, and the software.

    `more` are further fields of the provenance, such as the backbone's starting weights.
    """
    facts = Provenance(
        classes=config.data.classes,
        manifest=manifest.path.name,
        manifest_path=os.path.relpath(manifest.path, folder.path),
        counts={
            name: dict(Counter(sample.label for sample in manifest.split(name))) for name in SPLITS
        },
        splits={name: _digests(manifest.split(name)) for name in ("train", "validation")},
        software=Software(name=NAME, version=__version__),
        framing=training_framing(manifest.split("train"), config.data),
        differences=[each.to_json() for each in differences(config, more.get("backbone", ""))],
        **more,
    )
    write_provenance(folder, facts)


def _digests(samples: Sequence[Sample]) -> dict[str, str]:
    digests = hash_files([sample.image for sample in samples], min(4, os.cpu_count() or 1))
    return {sample.name: digest for sample, digest in zip(samples, digests, strict=True)}


def _places(store: ImageStore) -> dict[str, int]:
    return {sample.name: number for number, sample in enumerate(store.samples)}


def _box(
    model: PrototypeNetwork,
    maps: Mapping[int, torch.Tensor],
    record: Mapping[str, Any],
    row: int,
    store: ImageStore,
) -> Box:
    assert model.prototypes is not None
    level = record["level"]
    column = record["index"] - model.prototypes.slices[level].start
    size = store.data.image_size
    return activation_region(maps[level][row, column], size, size).box
