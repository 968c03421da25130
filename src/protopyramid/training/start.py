"""The start of a training: weights to start from, a centred pyramid, prototypes from patches."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protopyramid.config.schema import Config, TrainPhaseConfig, unrolled
from protopyramid.errors import UserError
from protopyramid.model.necks import Pyramid
from protopyramid.model.network import PrototypeNetwork
from protopyramid.model.weights import start_backbone
from protopyramid.runs.folder import RunFolder
from protopyramid.runs.provenance import RANDOM
from protopyramid.training.centring import ChannelMoments, centre_level
from protopyramid.training.distributed import gather, to_device
from protopyramid.training.initialise import PatchCollector, initialise_prototypes, merge_patches
from protopyramid.training.parts import BLOCKS, frozen_blocks
from protopyramid.training.passes import Passes
from protopyramid.utils.opening import real_path
from protopyramid.utils.progress import Reporter

CENTRING_IMAGES = 256  # a sample is enough for the means and variances of channels
HELD_BYTES = 10**9  # of backbone maps that are kept from one level's centring to the next


def load_start_weights(
    model: PrototypeNetwork, weights: str, backbone_from: Path | None, reporter: Reporter
) -> None:
    """Load the weights that training starts from: the backbone of another run, else published ones."""
    if backbone_from is not None:
        count = load_backbone_of_run(model, backbone_from)
        reporter.say(f"backbone from {backbone_from}: {count} tensors matched")
        return
    report = start_backbone(model.backbone, weights, partial(reporter.bar, unit="MB"))
    if report is not None:
        reporter.say(f"backbone weights from {weights}: {report}")


def start_provenance(weights: str, backbone_from: Path | None) -> dict[str, str]:
    """What data.json says of the weights that training started from."""
    if backbone_from is None:
        return {"backbone": weights or RANDOM}
    return {"backbone": f"run {real_path(backbone_from).name}"}


def warn_of_frozen_random_backbone(config: Config, backbone_from: Path | None) -> None:
    """Warn where a phase learns on top of a backbone, or of first blocks, that have learned nothing yet."""
    if config.model.backbone.weights or backbone_from is not None:
        return
    first = next(
        (s for s in unrolled(config.train.schedule) if isinstance(s, TrainPhaseConfig)), None
    )
    if first is not None and (frozen := frozen_blocks(first.learns)):
        whole = len(frozen) == len(BLOCKS)
        what = (
            "a frozen backbone"
            if whole
            else f"frozen first blocks of the backbone (1 to {len(frozen)})"
        )
        warnings.warn(
            f"phase {first.name} trains on {what} with random weights, which it can learn little "
            "from; start from ImageNet (--set model.backbone.weights=imagenet) or from another run "
            "(--backbone-from RUN), or let the backbone learn from the first phase on",
            stacklevel=2,
        )


def load_backbone_of_run(model: PrototypeNetwork, path: Path) -> int:
    """Load the backbone of another run; every tensor must fit. Returns how many there are."""
    other = RunFolder(path)
    other.check_format()
    tensors = other.read_weights()
    prefix = "backbone."
    found = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
    own = model.backbone.state_dict()
    wrong = [name for name in own if name not in found or found[name].shape != own[name].shape]
    if wrong or len(found) != len(own):
        raise UserError(
            f"{path}: its backbone does not fit this one ({(wrong or ['other tensors'])[0]} differs); "
            "both runs need the same model.backbone name, width and batch_norm"
        )
    model.backbone.load_state_dict(found)
    return len(found)


def initialise_model(passes: Passes) -> None:
    """Centre the pyramid and set the prototypes to patches, if the configuration asks for it."""
    config, model = passes.config.model, passes.model
    if isinstance(model.neck, Pyramid) and config.neck.start == "centred":
        centre_pyramid(passes, model.neck)
    if model.prototypes is not None and config.prototypes.init == "patches":
        prototypes_from_patches(passes)


def centre_pyramid(passes: Passes, neck: Pyramid) -> None:
    """Centre every level on a sample of the images, coarsest first, since each level feeds the next."""
    passes.model.eval()
    held: dict[int, dict[int, Tensor]] = {}  # backbone maps by the first image of their batch
    sample = passes.pool(CENTRING_IMAGES)
    for level in reversed(neck.inputs):
        moments = ChannelMoments(level, passes.config.model.neck.dim)
        for part in passes.batches(passes.train, sample, f"centring level {level}"):
            with torch.no_grad():
                moments.update(neck(_held_maps(passes, held, part)))
        centre_level(neck, level, gather(passes.fabric, moments.result()))


def prototypes_from_patches(passes: Passes) -> None:
    """Set the prototypes to training patches of their class and level."""
    prototypes, seed = passes.model.prototypes, passes.config.train.seed
    assert prototypes is not None
    collector = PatchCollector(prototypes, seed)
    for batch in passes.training_batches("initialising prototypes"):
        collector.update(batch)
    parts = to_device(gather(passes.fabric, collector.result()), passes.fabric.device)
    initialise_prototypes(prototypes, merge_patches(parts), seed)


def _held_maps(
    passes: Passes, held: dict[int, dict[int, Tensor]], part: NDArray[np.int64]
) -> dict[int, Tensor]:
    """Backbone maps of a batch as it is; kept in `held` as long as that stays small."""
    first = int(part[0])
    if first in held:
        return held[first]
    batch = passes.train.source.plain(part)
    maps = passes.model.backbone.advance(batch.maps, passes.model.neck.inputs)
    if sum(_tensor_bytes(each) for each in (*held.values(), maps)) <= HELD_BYTES:
        held[first] = maps
    return maps


def _tensor_bytes(tensors: Mapping[int, Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
