"""Rows on explanations: their numbers against a forward pass, a case figure against a pass of VGG-16."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

from protopyramid.benchmarks.row import Row, at_most
from protopyramid.benchmarks.settings import (
    Settings,
    bare_features,
    channels_last,
    fresh_model,
    prototypes_of,
    random_images,
)
from protopyramid.benchmarks.timing import in_turns
from protopyramid.config.schema import Config
from protopyramid.explanations.explanation import explain_prepared
from protopyramid.figures.drawing import figure_bytes
from protopyramid.inference.ood import fit_limits, limits_digest, ood_features, write_limits
from protopyramid.model.network import PrototypeNetwork
from protopyramid.runs import layout
from protopyramid.runs.folder import RunFolder
from protopyramid.runs.records import PrototypeRecord
from protopyramid.runs.run import Run
from protopyramid.training.finish import picture_bytes

NUMBERS_TARGET = 1.3  # ours: times a forward pass of the same model
FIGURE_TARGET = 2.0  # ours: times one image through a full-size VGG-16
PATIENTS = 8  # whose noise the out-of-distribution limits are made of


def explanation_rows(settings: Settings) -> Iterator[Row]:
    """All numbers of an explanation, with boxes and flag, as JSON; then its figure as the bytes of a PNG."""
    config = settings.config()
    model = fresh_model(config)
    size = config.data.image_size
    image, ready = torch.rand(1, size, size), random_images(1, size)
    with tempfile.TemporaryDirectory() as folder:
        run = noise_run(Path(folder), config, model)

        def forward() -> object:
            with torch.inference_mode():
                return model(ready)

        def features() -> object:
            with torch.inference_mode():
                return bare_features(model)(ready)

        pair = in_turns(
            lambda: explain_prepared(run, image).to_json(), forward, settings.repetitions
        )
        yield at_most("explanation, 1 image: all numbers", "forward, 1 image", pair, NUMBERS_TARGET)
        explained = explain_prepared(run, image)
        pair = in_turns(lambda: figure_bytes(explained.sheet()), features, settings.repetitions)
        yield at_most("case figure as PNG", "bare VGG-16 features, 1 image", pair, FIGURE_TARGET)


def noise_run(path: Path, config: Config, model: PrototypeNetwork) -> Run:
    """A run folder of a model with random weights: cases, limits and all that an explanation reads."""
    folder = RunFolder(path)
    folder.begin(config)
    folder.write_tensors(layout.MODEL, model.state_dict())
    layer, size = prototypes_of(model), config.data.image_size
    records = []
    for index, (owner, level) in enumerate(
        zip(layer.classes.tolist(), layer.levels.tolist(), strict=True)
    ):
        name = config.data.classes[owner]
        records.append(PrototypeRecord(index, name, level, f"{index}.png", 0, 0, 1.0, label=name))
        folder.write_bytes(layout.picture(index), picture_bytes(torch.rand(1, size, size)))
    folder.write_json(layout.PROTOTYPES, [record.to_json() for record in records])
    run = Run(folder, config, model, records)
    images = torch.rand(PATIENTS, 3, size, size)
    with torch.inference_mode():
        found = model(channels_last(images))
    limits = fit_limits(
        ood_features(images, found.scores, found.closeness), [str(n) for n in range(PATIENTS)]
    )
    write_limits(folder, limits, limits_digest(run))
    return run
