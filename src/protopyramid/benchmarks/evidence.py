"""The row on evidence regions: what an explanation adds to show what was used."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from protopyramid.benchmarks.row import Row, at_most
from protopyramid.benchmarks.settings import Settings, fresh_model, random_images
from protopyramid.benchmarks.timing import in_turns
from protopyramid.explanations.evidence import Gradients, evidence_regions, perturbed_image
from protopyramid.model.network import PrototypeNetwork

EVIDENCE_TARGET = 2.0  # ours: times five backward passes
PROTOTYPES = 5


def evidence_row(settings: Settings) -> Iterator[Row]:
    """Evidence regions of five prototypes on one image, against five backward passes as in training.

    An explanation has the maps of the unchanged image by then.
    """
    config = settings.config()
    model = fresh_model(config).eval()
    image = torch.rand(1, config.data.image_size, config.data.image_size)
    ready = random_images(1, config.data.image_size)
    layer = model.prototypes
    assert layer is not None
    # Over all levels, as in an explanation.
    chosen = torch.linspace(0, len(layer.classes) - 1, PROTOTYPES).long().tolist()

    before = perturbed_image(model, config.data, image, None).before

    def ours() -> None:
        perturbed = perturbed_image(model, config.data, image, image.flip(-1), before)
        rankings, gains = Gradients(model, config.data).attributed(perturbed, chosen)
        evidence_regions(perturbed, rankings, chosen, gains)

    pair = in_turns(ours, lambda: _backward(model, ready, chosen), settings.repetitions)
    work = f"evidence regions of {PROTOTYPES} prototypes"
    yield at_most(work, f"{PROTOTYPES} backward passes, all gradients", pair, EVIDENCE_TARGET)


def _backward(model: PrototypeNetwork, images: torch.Tensor, chosen: list[int]) -> None:
    """The gradients of single scores, one backward pass each, after one forward pass."""
    with torch.enable_grad():
        scores = model(images).scores[0]
        for index in chosen:
            scores[index].backward(retain_graph=True)
    model.zero_grad(set_to_none=True)
