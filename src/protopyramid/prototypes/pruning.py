"""Pruning: the network and the settings of a run without some of its prototypes."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from protopyramid.config.schema import Config
from protopyramid.errors import UserError
from protopyramid.model.build import build_model
from protopyramid.model.network import PrototypeNetwork
from protopyramid.prototypes.cases import layer_of
from protopyramid.runs.run import Run


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
