"""Which phases of a plan train on cached features, and the caches that are open at a time."""

from __future__ import annotations

from collections.abc import Sequence

from lightning_fabric import Fabric

from protopyramid.config.schema import CacheConfig, TrainPhaseConfig
from protopyramid.model.network import PrototypeNetwork
from protopyramid.training.feature_cache import check_budget, used_bytes
from protopyramid.training.features import CachePlace
from protopyramid.training.parts import frozen_cut
from protopyramid.training.schedule import Phase
from protopyramid.training.split import Split
from protopyramid.utils.progress import Reporter


def is_cached(model: PrototypeNetwork, phase: TrainPhaseConfig, cache: CacheConfig) -> bool:
    """Whether a phase trains on cached features: fixed augmented copies, and a frozen beginning."""
    return bool(phase.views and frozen_cut(model, phase.learns) and cache.enabled)


class PhaseCaches:
    """Opens, for both splits, the feature caches that the phases of a plan read."""

    def __init__(
        self,
        plan: Sequence[Phase],
        model: PrototypeNetwork,
        train: Split,
        validation: Split,
        place: CachePlace,
        settings: CacheConfig,
    ) -> None:
        self.plan, self.model, self.place, self.settings = plan, model, place, settings
        self.train, self.validation = train, validation

    def check_budgets(self) -> None:
        """Refuse a schedule whose caches do not fit, before any work."""
        old = 0 if self.place.shared else used_bytes(self.place.folder)
        for phase in self.plan:
            config = phase.config
            if isinstance(config, TrainPhaseConfig) and self._is_cached(config):
                cut = frozen_cut(self.model, config.learns)
                layouts = [
                    *self.train.source.layouts(cut, config.views),
                    *self.validation.source.layouts(cut, 0),
                ]
                check_budget(self.place.folder, layouts, self.settings.disk_budget, old)

    def open_for(self, number: int, fabric: Fabric, reporter: Reporter) -> None:
        """Open the cache that a phase reads.

        A phase that does not train reads that of the last train phase before it or, at the start, of
        the first one.
        """
        before, after = (
            [phase.config for phase in phases if isinstance(phase.config, TrainPhaseConfig)]
            for phases in (self.plan[:number], self.plan[number:])
        )
        for config in [*before[-1:], *after][:1]:
            self.prepare(config, fabric, reporter)

    def prepare(self, phase: TrainPhaseConfig, fabric: Fabric, reporter: Reporter) -> None:
        """Open the cache of a train phase, or none if it is not cached."""
        if not self._is_cached(phase):
            self.close()
            return
        cut = frozen_cut(self.model, phase.learns)
        self.train.source.open_cache(cut, phase.views, fabric, reporter)
        self.validation.source.open_cache(cut, 0, fabric, reporter)

    def close(self) -> None:
        """Go back to the images."""
        self.train.source.close_cache()
        self.validation.source.close_cache()

    def _is_cached(self, phase: TrainPhaseConfig) -> bool:
        return is_cached(self.model, phase, self.settings)
