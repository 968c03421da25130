"""A study as data: a TOML file that lists the runs to compare and what is measured of them.

title = "Four systems on phantoms"
seeds = [0, 1, 2]
set = { "train.batch_size" = 16 }  # settings of every variant

[[variants]]
name = "fpn-iaia-bl"              # the folder of its runs, and its row in the tables
preset = "fpn-iaia-bl"            # or a TOML file, relative to the study's
on = "small"                      # named settings put on top (config/overlays)
backbone_from = "first"           # start from the backbone of another variant
set = { "loss.contrast" = 0.0 }   # and single settings put on top of those

A variant with `like = "fpn-iaia-bl"` has the keys of that earlier variant, except those that it gives itself.
With `like = "other.toml"`, a study in the same folder, a file states only what differs: other keys, and the
variants that it takes from that study, by name.

With `by_source = true`, for a manifest of several datasets (`protopyramid data join`), every run is tested
on each source by itself. A variant with `sources = ["film"]` is trained on those alone, and tested on all
rows of the others.

A variant with `run_of = "fpn-iaia-bl"` is not trained: it reuses the runs of that variant with other values
of settings that training does not see.

Cross-validation: with `folds = K`, patients are split into K folds and each run tests one of them. There are
two ways to do it. With `dealing = 1` all seeds share one partition and seed S tests fold S mod K, so seed and
fold are tied; runs are in seed-S/VARIANT. It is the default, as in earlier versions.
With `dealing = 2` every seed has its own partition, exactly as `protopyramid crossval` does, and tests
every fold of it; runs are in seed-S/fold-F/VARIANT. New studies should use 2.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from protopyramid.config import load_config, load_overlay, preset_names
from protopyramid.config.aliases import current_key
from protopyramid.config.schema import Config
from protopyramid.errors import UserError
from protopyramid.utils.opening import SETTINGS, read_text

OLD_OVERLAYS = {"demo-first": "demo-iaia-bl", "demo-second": "demo"}  # names of earlier versions
OLD_KEYS = {"control": "occlusion_control", "moved": "shift_test"}  # of a variant; both are read
AFTER_TRAINING = ("model.tta",)  # settings that training does not see
PARTITION_SEED = 0  # of the one partition into folds that all seeds share with dealing 1

# What a study writes beside the runs of a replicate; studies of earlier versions have the same.
PHANTOMS, OCCLUDED, SHIFTED, CACHE, COMPARISON = (
    "phantoms",
    "control",
    "moved",
    "cache",
    "comparison",
)
OWN_FOLDERS = (PHANTOMS, OCCLUDED, SHIFTED, CACHE, COMPARISON)


def _not_a_folder_of_ours(name: str) -> str:
    if name.casefold() in OWN_FOLDERS:
        raise ValueError(f"{name} is the name of a folder that studies write; choose another")
    return name


Name = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$"), AfterValidator(_not_a_folder_of_ours)
]


@dataclass(frozen=True)
class Replicate:
    """One repetition of every variant: its seed and, with folds, the fold that it tests.

    `partition` is the seed by which patients are split into folds.
    """

    seed: int
    fold: int | None = None
    partition: int = PARTITION_SEED
    folder: str = ""
    label: str = ""


class Variant(BaseModel):
    """One way to train, or to use what was trained, and so one run for each replicate."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name = Field(description="Folder of its runs and its row in the tables.")
    preset: str = Field("", description="Name of a preset, or a TOML file relative to the study's.")
    on: str = Field("", description="Overlay, or preset whose own settings are put on top.")
    set: dict[str, Any] = Field(
        {}, description="Single settings by dotted key, put on top of those."
    )
    backbone_from: str = Field("", description="Variant whose backbone it starts from.")
    run_of: str = Field(
        "",
        description="Variant whose trained runs it reuses; `set` may then only change model.tta.",
    )
    without: list[str] = Field([], description="Labels whose rows are left out of its data.")
    sources: list[str] = Field(
        [],
        description="Sources whose rows it is trained on; all rows of the others are tested. "
        "Empty: all sources.",
    )
    group: str = Field("", description="Heading above its rows in the tables.")
    shown: bool = Field(True, description="Whether it has a row in the tables.")
    occlusion_control: bool = Field(
        False,
        description="Also measure it on images whose annotated part is occluded (formerly control).",
    )
    shift_test: bool = Field(
        False,
        description="Also measure whether its prototypes follow shifted lesions (formerly moved).",
    )

    @model_validator(mode="before")
    @classmethod
    def _old_keys(cls, content: Any) -> Any:
        return _with_current_names(content) if isinstance(content, Mapping) else content

    @property
    def after(self) -> str:
        """The variant that must be finished before this one; "" for none."""
        return self.run_of or self.backbone_from

    @model_validator(mode="after")
    def _is_trained_or_taken(self) -> Variant:
        if not self.run_of:
            if not self.preset:
                raise ValueError(f'variant "{self.name}": give its preset')
            return self
        trained = [
            name
            for name in ("preset", "on", "backbone_from", "without", "sources")
            if getattr(self, name)
        ]
        trained += [key for key in self.set if current_key(key) not in AFTER_TRAINING]
        if trained:
            raise ValueError(
                f'variant "{self.name}" reuses the runs of "{self.run_of}", so {trained[0]} cannot be set'
            )
        return self


class Study(BaseModel):
    """Variants, the seeds and folds they are trained with, and the data."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str = Field(description="Heading of the result.")
    data: Literal["phantoms", "manifest"] = Field(
        "phantoms", description="New phantoms for each seed, or the manifest of --data."
    )
    holdout: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0,
        description="Share of patients held out as test rows if the manifest has none, for all seeds alike.",
    )
    folds: Annotated[int, Field(ge=0)] = Field(
        0,
        description="Folds of patients for cross-validation; each run tests one fold. 0 = none.",
    )
    dealing: Literal[1, 2] = Field(
        1,
        description="1: one partition, seed S tests fold S mod K. 2: each seed has its own partition, "
        "as crossval does, and tests every fold.",
    )
    seeds: list[Annotated[int, Field(ge=0)]] = Field([0, 1, 2], min_length=1)
    threads: Annotated[int, Field(ge=1)] = Field(1, description="CPU threads per run.")
    set: dict[str, Any] = Field({}, description="Settings of every variant, by dotted key.")
    share_cache: bool = Field(
        False, description="Variants of a replicate share the cached maps of frozen parts."
    )
    compare: bool = Field(
        False, description="Also compare the variants with each other, for each replicate."
    )
    saliency: bool = Field(True, description="Whether the comparison includes saliency methods.")
    by_source: bool = Field(
        False,
        description="Test every run on each source of the manifest by itself, and tell how well each "
        "does there. Takes the place of the other tables.",
    )
    controls: list[str] = Field(
        ["source"],
        description="With by_source: columns of which is asked how well they alone tell the class.",
    )
    variants: list[Variant] = Field(min_length=1)

    @model_validator(mode="after")
    def _data_makes_sense(self) -> Study:
        if self.folds and (self.holdout or self.data != "manifest"):
            raise ValueError('folds need a dataset without holdout: data = "manifest"')
        if self.folds == 1:
            raise ValueError("folds: there must be two or more")
        if self.dealing == 2 and not self.folds:
            raise ValueError("dealing = 2 needs folds; set folds too")
        if self.by_source and (self.data != "manifest" or self.compare):
            raise ValueError('by_source needs data = "manifest", and compare = false')
        return self

    @model_validator(mode="after")
    def _names_make_sense(self) -> Study:
        known: list[str] = []
        for variant in self.variants:
            if variant.name in known:
                raise ValueError(f'two variants are called "{variant.name}"')
            if variant.after and variant.after not in known:
                raise ValueError(
                    f'variant "{variant.name}" starts from "{variant.after}", '
                    "which is not an earlier variant"
                )
            known.append(variant.name)
        return self

    @property
    def each(self) -> str:
        """What a replicate is called: a seed or a fold."""
        return "fold" if self.folds else "seed"

    @property
    def replicates(self) -> list[Replicate]:
        """Every repetition of the variants: seeds, or folds of seeds."""
        if not self.folds:
            return [Replicate(s, folder=f"seed-{s}", label=f"seed {s}") for s in self.seeds]
        if self.dealing == 1:
            return [
                Replicate(s, s % self.folds, folder=f"seed-{s}", label=f"fold {s}")
                for s in self.seeds
            ]
        return [
            Replicate(s, fold, s, f"seed-{s}/fold-{fold}", f"seed {s} fold {fold}")
            for s in self.seeds
            for fold in range(self.folds)
        ]

    @property
    def shown(self) -> list[Variant]:
        """The variants with a row in the tables; the first is the reference."""
        return [variant for variant in self.variants if variant.shown]

    def only(self, names: Sequence[str]) -> Study:
        """The study with some of its variants; those that they start from are kept, but not shown."""
        chosen = {self.variant(name).name for name in names}
        needed, variants = set(chosen), list[Variant]()
        for variant in reversed(self.variants):  # those that a variant starts from come before it
            if variant.name in needed:
                needed.add(variant.after)
                shown = variant.shown and variant.name in chosen
                variants.insert(0, variant.model_copy(update={"shown": shown}))
        return self.model_copy(update={"variants": variants})

    def variant(self, name: str) -> Variant:
        """The variant of a name."""
        for variant in self.variants:
            if variant.name == name:
                return variant
        names = ", ".join(variant.name for variant in self.variants)
        raise UserError(f'no variant "{name}"; the variants are {names}')


def read_study(path: str | Path, settings: Mapping[str, Any] | None = None) -> Study:
    """Read a study and check the configuration of every variant before any work.

    `settings` by dotted key are put on top of those of every variant.
    """
    path = Path(path)
    tree = read_tree(path)
    if "like" in tree:
        tree = _on_top(tree, path)
    tree = {**tree, "variants": _like_others(_variants(tree, path), path)}
    try:
        study = Study.model_validate(tree)
    except ValidationError as error:
        raise UserError(f"{path}: {_first_line(error)}") from None
    if settings:
        study = study.model_copy(update={"set": {**study.set, **settings}})
    for variant in study.variants:
        try:
            variant_config(study, variant, study.seeds[0], path.parent)
        except UserError as error:
            raise UserError(f'{path}: variant "{variant.name}": {error}') from None
    return study


def read_tree(path: Path) -> dict[str, Any]:
    """The content of a TOML file; UserError where it cannot be read."""
    try:
        return tomllib.loads(read_text(path, SETTINGS))
    except RecursionError:
        raise UserError(f"{path}: tables or lists are nested too deeply") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"{path}: not valid TOML: {error}") from None


def _on_top(tree: dict[str, Any], path: Path, seen: tuple[str, ...] = ()) -> dict[str, Any]:
    """The content of a file put on top of the study that it is like, variant by variant."""
    like = tree.pop("like")
    if not isinstance(like, str) or Path(like).name != like:
        raise UserError(f"{path}: like: give the file name of a study in the same folder")
    if like in seen:
        raise UserError(f"{path}: like: {like} leads back to itself, by way of {', '.join(seen)}")
    other = read_tree(path.parent / like)
    if "like" in other:
        other = _on_top(other, path.parent / like, (*seen, like))
    resolved = _like_others(_variants(other, path.parent / like), path.parent / like)
    theirs = {each.get("name"): each for each in resolved}
    taken = [{**theirs.get(each.get("name"), {}), **each} for each in _variants(tree, path)]
    return {**other, **tree, "variants": taken or list(theirs.values())}


def _like_others(variants: Sequence[dict[str, Any]], path: Path) -> list[dict[str, Any]]:
    """The variants, those with `like` put on top of an earlier one."""
    done: dict[str, dict[str, Any]] = {}
    found = []
    for variant in variants:
        like = variant.get("like")
        if like is not None:
            if like not in done:
                raise UserError(
                    f'{path}: variant "{variant.get("name")}" is like "{like}", which is not an earlier '
                    "variant"
                )
            own = {key: value for key, value in variant.items() if key != "like"}
            settings = {**done[like].get("set", {}), **own.get("set", {})}
            variant = {**done[like], **own, "set": settings}
        done[str(variant.get("name"))] = variant
        found.append(variant)
    return found


def _variants(tree: Mapping[str, Any], path: Path) -> list[dict[str, Any]]:
    variants = tree.get("variants", [])
    if not isinstance(variants, list) or not all(isinstance(each, dict) for each in variants):
        raise UserError(f"{path}: variants: write each as [[variants]]")
    return [_with_current_names(each) for each in variants]


def _with_current_names(variant: Mapping[str, Any]) -> dict[str, Any]:
    """A variant with the present names of its keys."""
    return {OLD_KEYS.get(key, key): value for key, value in variant.items()}


def variant_config(study: Study, variant: Variant, seed: int, folder: Path) -> Config:
    """The complete configuration of a variant for one seed; `folder` is the study's."""
    if variant.run_of:
        taken = study.variant(variant.run_of)
        settings = {**taken.set, **variant.set}
        return variant_config(study, taken.model_copy(update={"set": settings}), seed, folder)
    settings = {
        **study.set,
        **(_overlay(variant.on) if variant.on else {}),
        **variant.set,
        "train.seed": seed,
        "train.threads": study.threads,
    }
    preset = variant.preset
    return load_config(preset if preset in preset_names() else folder / preset, settings)


def _overlay(name: str) -> dict[str, Any]:
    try:
        return load_overlay(OLD_OVERLAYS.get(name, name))
    except UserError as error:
        raise UserError(f"on: {error}") from None


def _first_line(error: ValidationError) -> str:
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place}: {first['msg']}" if place else str(first["msg"])
