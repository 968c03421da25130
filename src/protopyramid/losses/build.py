"""From a configuration to its objective: the one place where the losses meet the config."""

from __future__ import annotations

from protopyramid.config.schema import Config
from protopyramid.losses.fine import fine_tables
from protopyramid.losses.objective import TERMS, FineOptions, LossOptions, Objective
from protopyramid.utils.arguments import checked_type


def build_objective(config: Config, processes: int = 1) -> Objective:
    """The objective of a configuration, for batches shared by a number of processes.

    >>> build_objective(Config()).weights["cluster"]
    0.8
    """
    checked_type(config, Config, "config", "a Config, as load_config returns it")
    loss, fine = config.loss, config.loss.fine
    names, negative = config.data.classes, config.data.negative_class
    inside, outside = fine_tables(fine.inside, fine.outside, names, negative, fine.transpose)
    weights = {term: fine.weight if term == "fine" else getattr(loss, term) for term in TERMS}
    options = LossOptions(
        label_smoothing=loss.label_smoothing,
        scope=loss.scope,
        cluster_over=loss.cluster_over,
        act_on=loss.act_on,
        group=loss.group,
        contrast_margin=loss.contrast_margin,
        context_share=loss.context_share,
        extent_shares=loss.extent_shares,
        extent_around=loss.extent_around,
        extent_least=loss.extent_least,
        fine=FineOptions(fine.kind, fine.combine, fine.per_pixel, fine.share, fine.reduce),
    )
    number = names.index(negative) if negative else None
    return Objective(weights, inside, outside, number, options, processes)
