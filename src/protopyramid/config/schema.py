"""The schema of a configuration: every setting, its type, its default and a sentence on it.

Defaults are those of the `fpn-iaia-bl` preset at full size. A comment "paper" marks a value that the
FPN-IAIA-BL paper fixes, "ancestor" one taken from IAIA-BL, ProtoPNet or Deformable ProtoPNet, "ours" a
choice that the paper leaves open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
MARGIN_CLASSES = ("circumscribed", "indistinct", "spiculated", "negative")
SIZE_MULTIPLE = 16  # four max-pools of stride 2 come before the coarsest level
PARTS = ("backbone", "neck", "prototypes", "head")
MAX_BLOCKS = 5

Level = Annotated[int, Field(ge=2, le=5)]
Count = Annotated[int, Field(ge=0, le=10_000)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Percentage = Annotated[float, Field(ge=0, le=100)]
PoolSize = Annotated[int, Field(ge=1)] | Annotated[float, Field(gt=0, lt=1)]
ClassTable = dict[str, dict[str, float]]

# The paper's fine-annotation coefficients: rows are the sample's class, columns the prototype's.
# The captions of the paper decide which table is which; its two labels are swapped.
PAPER_OUTSIDE: ClassTable = {
    row: {column: float(row != "negative") for column in MARGIN_CLASSES} for row in MARGIN_CLASSES
}
PAPER_INSIDE: ClassTable = {
    "circumscribed": {"circumscribed": 0, "indistinct": 0, "spiculated": 0, "negative": 1},
    "indistinct": {"circumscribed": 0, "indistinct": 0, "spiculated": 0, "negative": 1},
    "spiculated": {"circumscribed": 1, "indistinct": 1, "spiculated": 0, "negative": 1},
    "negative": {"circumscribed": 0, "indistinct": 0, "spiculated": 0, "negative": 0},
}


def _check_part(part: str) -> None:
    name, _, block = part.partition(".")
    blocks = [str(number) for number in range(1, MAX_BLOCKS + 1)]
    if name not in PARTS or (block and (name != "backbone" or block not in blocks)):
        raise ValueError(
            f'no part "{part}"; the parts are {", ".join(PARTS)} and backbone.1 to backbone.5'
        )


def _check_table_names(fine: FineLossConfig, classes: list[str]) -> None:
    """Refuse a class in a fine table that is neither configured nor one of the paper's."""
    known = {*classes, *MARGIN_CLASSES}
    for key, table in (("inside", fine.inside), ("outside", fine.outside)):
        named = set(table) | {column for row in table.values() for column in row}
        if named - known:
            raise ValueError(
                f"loss.fine.{key} names {sorted(named - known)}, not among data.classes {classes}"
            )


class Section(BaseModel):
    """A table of the configuration; unknown keys are refused."""

    model_config = ConfigDict(
        extra="forbid", validate_default=True, frozen=True, allow_inf_nan=False
    )


class NegativesConfig(Section):
    """How the negative class is drawn from its training images."""

    count: Count = Field(
        200,
        description="Negative training images used in an epoch; 0 uses all (paper: 200 of 5,000).",
    )
    resample: Literal["once", "epoch"] = Field(
        "once", description="Draw the negatives once for the run (paper) or anew each epoch (ours)."
    )


class DicomConfig(Section):
    """How the values of DICOM files become grey; other files have one reading only."""

    window: Literal["file", "percentile", "full"] = Field(
        "file",
        description="Black and white by the file's own VOI table or first window (without one: full), by percentiles of its pixels, or by the full range of its stored bits.",
    )
    percentiles: tuple[Percentage, Percentage] = Field(
        (0.5, 99.5),
        description="Percentages of the pixels (without padding) that are black at most, and white at least, with window percentile.",
    )
    flip: Literal["none", "left"] = Field(
        "none",
        description='"left" mirrors images, masks and lesion boxes of right breasts, so that every chest wall is on the left; a file that does not tell its side stays as it is.',
    )

    @field_validator("percentiles")
    @classmethod
    def _percentiles_rise(cls, percentiles: tuple[float, float]) -> tuple[float, float]:
        if percentiles[0] >= percentiles[1]:
            raise ValueError(f"must rise, as in [0.5, 99.5], got {list(percentiles)}")
        return percentiles


class RegionConfig(Section):
    """The square around a lesion that the model sees."""

    margin: Annotated[float, Field(ge=0, le=4)] = Field(
        0.5,
        description="Tissue on each side of a lesion box, as a share of its longer side, as in data import --margin.",
    )


class DataConfig(Section):
    """What the images are and how they reach the model."""

    classes: list[str] = Field(
        list(MARGIN_CLASSES),
        min_length=2,
        description="Class names in the order of the logits; every label of the manifest must be one of them.",
    )
    negative_class: str = Field(
        "negative",
        description='The class of images without a lesion, left out of margin AUROC; "" for none.',
    )
    image_size: int = Field(
        224,
        ge=SIZE_MULTIPLE,
        le=8192,
        description="Side of the model's square input in pixels, a multiple of 16.",
    )
    fit: Literal["stretch", "pad"] = Field(
        "stretch",
        description="Bring an image to the input size by stretching it (IAIA-BL) or by keeping its aspect and padding.",
    )
    crop: Literal["none", "lesion"] = Field(
        "none",
        description='What the model sees of an image file: all of it, or the square around its lesion box (else its mask; an image with neither is taken whole). "lesion" is for manifests of full films.',
    )
    region: RegionConfig = Field(
        RegionConfig(), description="The square around a lesion that the model sees."
    )
    mean: tuple[float, float, float] = Field(
        IMAGENET_MEAN,
        description="Mean of the red, green and blue channels, subtracted from the [0, 1] image.",
    )
    std: tuple[Positive, Positive, Positive] = Field(
        IMAGENET_STD, description="Standard deviation by which the three channels are divided."
    )
    validation_fraction: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.2,
        description="Share of the training patients held out for validation when the manifest has no validation rows.",
    )
    balance: Literal["none", "class"] = Field(
        "class",
        description="Draw training images as they come, or so that every class is drawn equally often.",
    )
    annotated_share: Share = Field(
        0.0,
        description="Least share of annotated images in each training batch, so that the fine loss has something to do.",
    )
    negatives: NegativesConfig = Field(
        NegativesConfig(), description="How the negative class is drawn."
    )
    dicom: DicomConfig = Field(
        DicomConfig(), description="How the values of DICOM files become grey."
    )
    memory_budget: NonNegative = Field(
        2.0,
        description="Gigabytes of decoded images kept in memory; the rest is decoded each time.",
    )

    @field_validator("image_size")
    @classmethod
    def _size_is_a_multiple(cls, size: int) -> int:
        if size % SIZE_MULTIPLE:
            below = size - size % SIZE_MULTIPLE
            raise ValueError(
                f"must be a multiple of {SIZE_MULTIPLE}, got {size}; try {below} or {below + SIZE_MULTIPLE}"
            )
        return size

    @model_validator(mode="after")
    def _class_names_make_sense(self) -> DataConfig:
        if len(set(self.classes)) != len(self.classes):
            raise ValueError(f"classes has a name twice: {self.classes}")
        if any(not name.strip() for name in self.classes):
            raise ValueError("classes has an empty name")
        if self.negative_class and self.negative_class not in self.classes:
            raise ValueError(
                f'negative_class "{self.negative_class}" is not one of classes {self.classes}; '
                'set data.negative_class to one of them, or to "" for none'
            )
        return self


class AugmentationConfig(Section):
    """Random changes of a training image, its mask and its lesion box together."""

    flip: bool = Field(
        True, description="Mirror left-right and up-down, each with probability one half."
    )
    quarter_turns: bool = Field(True, description="Turn by a random multiple of 90 degrees.")
    rotation: Annotated[float, Field(ge=0, le=180)] = Field(
        10.0, description="Largest rotation in degrees, either way, on top of the quarter turns."
    )
    zoom: tuple[Positive, Positive] = Field(
        (0.9, 1.1),
        description="Range of the random magnification; above 1 crops, below 1 pads by reflection.",
    )
    shift: Annotated[float, Field(ge=0, lt=0.5)] = Field(
        0.0,
        description="Largest shift each way, as a share of the side; reflects at the edges (ours).",
    )
    brightness: NonNegative = Field(0.1, description="Largest change added to the [0, 1] image.")
    contrast: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.1, description="Largest relative change of contrast about the image's mean."
    )

    @field_validator("zoom")
    @classmethod
    def _zoom_is_a_range(cls, zoom: tuple[float, float]) -> tuple[float, float]:
        if zoom[0] > zoom[1]:
            raise ValueError(f"must be [smallest, largest], got {list(zoom)}")
        return zoom


class BackboneConfig(Section):
    """The convolutional network that the pyramid stands on."""

    name: str = Field(
        "vgg16", description='"vgg16", or "timm:NAME" for a network of the timm library.'
    )
    width: Annotated[float, Field(gt=0, le=4)] = Field(
        1.0,
        description="Multiplier of the number of channels; below 1 gives a small network (ours).",
    )
    batch_norm: bool = Field(
        False, description="Batch norm after each convolution (ours, for training from nothing)."
    )
    padding: Literal["zeros", "replicate"] = Field(
        "zeros",
        description="What convolutions see beyond the edge: zeros (VGG-16), or the edge again (ours, for training from nothing).",
    )
    weights: str = Field(
        "",
        description='Where training starts from: "" (nothing), "imagenet" (downloaded once), or a .safetensors or .pth file.',
    )


class NeckConfig(Section):
    """What turns backbone maps into the vectors that prototypes are compared with."""

    kind: Literal["pyramid", "add-on", "none"] = Field(
        "pyramid",
        description="The paper's top-down pyramid, ProtoPNet's two 1x1 convolutions, or nothing.",
    )
    dim: Annotated[int, Field(ge=1, le=4096)] = Field(
        128,
        description="Number d of channels of the pyramid and of each prototype (ours; IAIA-BL has 512).",
    )
    upsample: Literal["nearest", "bilinear"] = Field(
        "nearest", description="How a coarser map is brought to the size of the finer one (ours)."
    )
    start: Literal["centred", "random"] = Field(
        "centred",
        description="Pyramid only: training starts it with channels of mean 0 and variance 1 (ours), or as drawn.",
    )
    batch_norm: bool = Field(
        False,
        description="Pyramid only: batch norm without bias on each level (ours), so that no direction is common to all patches.",
    )
    padding: Literal["zeros", "replicate"] = Field(
        "zeros",
        description="What the pyramid's 3x3 convolutions see beyond the edge of a map: zeros, or the edge again (ours).",
    )


class PrototypesConfig(Section):
    """How many prototypes each class has on each level."""

    counts: dict[Level, Count] = Field(
        {2: 3, 3: 3, 4: 3, 5: 3},
        description="Prototypes per level of every class that per_class does not name (ours).",
    )
    negative_counts: dict[Level, Count] = Field(
        {2: 1, 3: 1, 4: 1, 5: 1}, description="Prototypes per level of the negative class (ours)."
    )
    per_class: dict[str, dict[Level, Count]] = Field(
        {}, description="Prototypes per level of single classes, by class name."
    )
    init: Literal["patches", "random"] = Field(
        "patches",
        description="Training starts the prototypes as training patches (ours) or leaves them random.",
    )


class SimilarityConfig(Section):
    """How a patch is compared with a prototype."""

    kind: Literal["cosine", "log-l2"] = Field(
        "cosine",
        description="Cosine similarity (paper) or log((d+1)/(d+1e-4)) of the L2 distance d.",
    )
    squared: bool = Field(
        False,
        description="log-l2 only: use the squared distance (ProtoPNet), not the plain one (IAIA-BL).",
    )
    relu: bool = Field(False, description="Cosine only: set negative similarities to zero.")


class PoolingConfig(Section):
    """How a similarity map becomes one score."""

    kind: Literal["focal", "topk", "max", "average"] = Field(
        "focal",
        description="Top-k mean minus mean (paper), top-k mean (IAIA-BL), maximum (ProtoPNet) or mean.",
    )
    k: PoolSize | dict[Level, PoolSize] = Field(
        9,
        description="Patches in the top-k mean: a number, a fraction of the map, or a table of either by level.",
    )


class HeadConfig(Section):
    """The last layer: logits = W scores, no bias."""

    own: float = Field(
        1.0, description="First weight of a prototype for its own class, before the scale."
    )
    other: float = Field(
        -0.5, description="First weight of a prototype for other classes, before the scale (ours)."
    )
    scale: Positive = Field(1.0, description="Scale of the scores, folded into the first weights.")


class ModelConfig(Section):
    """The network."""

    backbone: BackboneConfig = Field(BackboneConfig(), description="The convolutional network.")
    neck: NeckConfig = Field(NeckConfig(), description="What follows the backbone.")
    prototypes: PrototypesConfig = Field(
        PrototypesConfig(), description="How many prototypes, and where."
    )
    similarity: SimilarityConfig = Field(
        SimilarityConfig(), description="How patches and prototypes are compared."
    )
    pooling: PoolingConfig = Field(
        PoolingConfig(), description="How a similarity map becomes a score."
    )
    head: HeadConfig = Field(HeadConfig(), description="The last layer.")
    tta: Literal[1, 4, 8] = Field(
        1,
        description="Test-time augmentation: copies of an image whose scores are averaged for a prediction: 1 = the image alone (paper), 4 = with flips, 8 = with quarter turns too. Training is unaffected.",
    )


class FineLossConfig(Section):
    """The fine-annotation loss."""

    weight: NonNegative = Field(
        0.001, description="Weight of the fine-annotation loss (the paper's lambda 4)."
    )
    kind: Literal["class-pair", "grouped"] = Field(
        "class-pair",
        description="The paper's loss by class pair, or IAIA-BL's with one norm per group of prototypes.",
    )
    combine: Literal["paper", "disjoint"] = Field(
        "paper",
        description="Outside pixels weigh outside + inside (paper), or outside alone (ours).",
    )
    transpose: bool = Field(
        False,
        description="Transpose the inside table among the non-negative classes, as the paper's text (not its table) says.",
    )
    per_pixel: bool = Field(
        False,
        description="Divide each norm by the square root of the number of pixels (ours), so that sizes compare.",
    )
    share: bool = Field(
        False,
        description="Divide each norm by that of the whole map (ours): penalise where prototypes activate, not how much; per_pixel then has no effect.",
    )
    outside: ClassTable = Field(
        PAPER_OUTSIDE,
        description="Penalty of activating outside the annotation, by sample class and prototype class.",
    )
    inside: ClassTable = Field(
        PAPER_INSIDE,
        description="Penalty of activating inside the annotation, by sample class and prototype class.",
    )

    @model_validator(mode="after")
    def _share_is_of_single_maps(self) -> FineLossConfig:
        if self.share and self.kind == "grouped":
            raise ValueError(
                'share needs kind "class-pair": the norms of kind "grouped" are of several maps at once'
            )
        return self


class LossConfig(Section):
    """The objective: cross entropy + weighted terms."""

    cross_entropy: NonNegative = Field(1.0, description="Weight of the cross entropy.")
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="Label smoothing of the cross entropy (ours)."
    )
    cluster: NonNegative = Field(
        0.8, description="Weight of the cluster loss (lambda 1; ancestor: .8)."
    )
    separation: NonNegative = Field(
        0.08, description="Weight of the separation loss (lambda 2; ancestor: .08)."
    )
    scope: Literal["level", "all"] = Field(
        "level",
        description="Cluster and separation maxima per level, averaged (ours), or over all prototypes at once.",
    )
    cluster_over: Literal["max", "mean"] = Field(
        "max",
        description="Cluster draws the nearest prototype of the class (ancestor) or all of them (ours) to an image.",
    )
    orthogonality: NonNegative = Field(
        0.01, description="Weight of the orthogonality loss (lambda 3)."
    )
    group: Literal["class-level", "class"] = Field(
        "class-level",
        description="Prototypes that should be orthogonal: of one class and level (ours), or of one class.",
    )
    contrast: NonNegative = Field(
        0.0,
        description="Weight of the contrast loss (ours): own-class prototypes prefer the annotation to the rest by a margin.",
    )
    contrast_margin: Annotated[float, Field(gt=0, le=2)] = Field(
        0.5, description="Margin of the contrast loss, in units of similarity."
    )
    fine: FineLossConfig = Field(FineLossConfig(), description="The fine-annotation loss.")


class HeadFitConfig(Section):
    """The convex problem that is solved for the head after each projection."""

    l1: NonNegative = Field(
        1e-4, description="L1 penalty on weights between a prototype and other classes (ancestor)."
    )
    ridge: Positive = Field(
        1e-3,
        description="Squared penalty on the distance from the head's first weights, which are zero "
        "without prototypes (ours: makes the optimum unique).",
    )
    tolerance: Positive = Field(
        1e-7, description="The solve stops when no weight's optimality error exceeds this."
    )
    balance: bool = Field(True, description="Weigh the classes equally.")


class ProjectionConfig(Section):
    """How a prototype becomes its nearest training patch."""

    source: Literal["class", "any"] = Field(
        "class",
        description="Patches of training images of the prototype's class (ancestor) or of any class (paper's words).",
    )
    unique: Literal["image", "patch", "none"] = Field(
        "image",
        description="No two prototypes of a class and level take the same image, or the same patch, or no such rule (ours).",
    )
    inside_annotation: bool = Field(
        False, description="Only patches inside the annotation of annotated images (ours)."
    )
    candidates: Annotated[int, Field(ge=1)] = Field(
        20,
        description="Nearest images remembered for each prototype, from which the unique choice is made.",
    )


class TrainPhaseConfig(Section):
    """A step of the schedule that trains some parts for some epochs."""

    step: Literal["train"] = Field("train", description="Kind of the step.")
    name: str = Field(
        "train", description="Name in logs; the decay counts epochs over all steps of one name."
    )
    learns: list[str] = Field(
        ["neck", "prototypes", "head"],
        min_length=1,
        description='Parts that learn: "backbone", single blocks of it such as "backbone.5", "neck", "prototypes", "head".',
    )
    epochs: Positive = Field(1.0, description="Epochs, before train.scale.")
    learning_rates: dict[str, Positive] = Field(
        {},
        description="Learning rate of each part that learns; parts not named take learning_rate.",
    )
    learning_rate: Positive = Field(
        1e-3, description="Learning rate of the parts that learning_rates does not name."
    )
    weight_decay: NonNegative = Field(
        1e-3, description="Weight decay of backbone, neck and head; prototypes have none."
    )
    warmup: NonNegative = Field(
        0.0, description="Epochs over which the rates rise from zero, before train.scale."
    )
    decay: Literal["constant", "cosine", "step"] = Field(
        "constant", description="How the rates fall after the warm-up."
    )
    decay_every: Positive = Field(
        5.0, description="Epochs between two falls of decay step, before train.scale."
    )
    decay_factor: Positive = Field(
        0.1, description="Factor of each fall of decay step, or what is left at the end of cosine."
    )
    clip: NonNegative = Field(0.0, description="Largest norm of the gradient; 0 does not clip.")
    views: Count = Field(
        0,
        description="Fixed augmented views of each image, cached where the frozen part ends; 0 draws fresh ones, uncached.",
    )
    losses: dict[
        Literal["cross_entropy", "cluster", "separation", "orthogonality", "fine", "contrast"],
        NonNegative,
    ] = Field({}, description="Weights of loss terms for this step alone.")

    @field_validator("learns")
    @classmethod
    def _parts_exist(cls, learns: list[str]) -> list[str]:
        for part in learns:
            _check_part(part)
        return learns

    @field_validator("learning_rates")
    @classmethod
    def _rates_of_parts(cls, rates: dict[str, float]) -> dict[str, float]:
        for part in rates:
            if part not in PARTS:
                raise ValueError(f'no part "{part}"; the parts are {", ".join(PARTS)}')
        return rates


class ProjectPhaseConfig(Section):
    """A step that projects every prototype onto its nearest training patch."""

    step: Literal["project"] = Field("project", description="Kind of the step.")


class FitHeadPhaseConfig(Section):
    """A step that solves for the head with everything else fixed."""

    step: Literal["fit-head"] = Field("fit-head", description="Kind of the step.")


class RepeatConfig(Section):
    """A step that runs other steps several times."""

    step: Literal["repeat"] = Field("repeat", description="Kind of the step.")
    times: Annotated[int, Field(ge=1, le=10_000)] = Field(description="How often.")
    steps: list[SimpleStep] = Field(min_length=1, description="What is repeated.")


SimpleStep = Annotated[
    TrainPhaseConfig | ProjectPhaseConfig | FitHeadPhaseConfig, Field(discriminator="step")
]
Step = Annotated[
    TrainPhaseConfig | ProjectPhaseConfig | FitHeadPhaseConfig | RepeatConfig,
    Field(discriminator="step"),
]
RepeatConfig.model_rebuild()


class CacheConfig(Section):
    """Maps of the frozen part of the backbone, computed once."""

    enabled: bool = Field(
        True, description="Cache the maps of fixed views; false computes them anew in each epoch."
    )
    disk_budget: NonNegative = Field(
        20.0,
        description="Gigabytes that the cache may take on disk; more is refused before any work.",
    )
    half: bool = Field(
        False,
        description="Keep the cached maps of augmented views in half precision; those of the images as they are stay exact.",
    )


class TrainConfig(Section):
    """The engine."""

    seed: Annotated[int, Field(ge=0, lt=2**31)] = Field(
        0, description="Seed of every random choice."
    )
    batch_size: Annotated[int, Field(ge=1)] = Field(
        32, description="Images in a training batch, over all processes."
    )
    eval_batch_size: Annotated[int, Field(ge=1)] = Field(
        32, description="Images in a batch without gradients, per process."
    )
    scale: Positive = Field(
        1.0,
        description="Multiplies the epochs of every step: one number makes the schedule longer or shorter.",
    )
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] = Field(
        "32-true", description="Arithmetic, in lightning-fabric's words."
    )
    channels_last: bool = Field(
        True, description="Keep images and maps in channels-last memory order."
    )
    threads: Count = Field(0, description="CPU threads; 0 leaves torch's choice.")
    validate_every: Annotated[int, Field(ge=1)] = Field(
        1,
        description="Epochs between two measurements on the validation split; the last one of a step, and all of a model without prototypes, are measured anyway.",
    )
    cache: CacheConfig = Field(CacheConfig(), description="Cached maps of the frozen part.")
    schedule: list[Step] = Field(
        [
            TrainPhaseConfig(
                name="A", epochs=5, learning_rates={"neck": 3e-3, "prototypes": 3e-3, "head": 1e-3}
            ),
            ProjectPhaseConfig(),
            FitHeadPhaseConfig(),
            RepeatConfig(
                times=3,
                steps=[
                    TrainPhaseConfig(
                        name="C",
                        learns=["backbone", "neck", "prototypes", "head"],
                        epochs=5,
                        learning_rates={
                            "backbone": 1e-4,
                            "neck": 1e-3,
                            "prototypes": 1e-3,
                            "head": 1e-3,
                        },
                    ),
                    ProjectPhaseConfig(),
                    FitHeadPhaseConfig(),
                ],
            ),
        ],
        min_length=1,
        description="The steps of training, in order.",
    )


class Config(Section):
    """A complete configuration: data, augmentation, model, loss and training."""

    system: str = Field("fpn-iaia-bl", description="Name of the system, for tables and figures.")
    data: DataConfig = Field(DataConfig(), description="Images and classes.")
    augmentation: AugmentationConfig = Field(
        AugmentationConfig(), description="Random changes of training images."
    )
    model: ModelConfig = Field(ModelConfig(), description="The network.")
    loss: LossConfig = Field(LossConfig(), description="The objective.")
    projection: ProjectionConfig = Field(ProjectionConfig(), description="Prototype projection.")
    head_fit: HeadFitConfig = Field(HeadFitConfig(), description="The fit of the head.")
    train: TrainConfig = Field(TrainConfig(), description="Schedule and engine.")

    @model_validator(mode="after")
    def _prototypes_fit_classes_and_neck(self) -> Config:
        unknown = sorted(set(self.model.prototypes.per_class) - set(self.data.classes))
        if unknown:
            raise ValueError(
                f"model.prototypes.per_class names {unknown}, not among data.classes {self.data.classes}"
            )
        _check_table_names(self.loss.fine, self.data.classes)
        if self.model.neck.kind == "none":
            return self
        counts = prototype_counts(self)
        if not any(count for levels in counts.values() for count in levels.values()):
            raise ValueError("model.prototypes has no prototype; set counts, e.g. {2 = 3, 5 = 3}")
        levels = {level for by_level in counts.values() for level, n in by_level.items() if n}
        if self.model.neck.kind == "add-on" and levels != {5}:
            raise ValueError(
                f'model.neck.kind "add-on" has level 5 alone, but prototypes are on levels {sorted(levels)}'
            )
        return self

    @model_validator(mode="after")
    def _schedule_ends_projected_and_fitted(self) -> Config:
        kinds = [step.step for step in unrolled(self.train.schedule)]
        if self.model.neck.kind == "none":
            if "project" in kinds:
                raise ValueError("train.schedule has project, but the model has no prototypes")
        elif kinds[-2:] != ["project", "fit-head"]:
            raise ValueError(
                "train.schedule must end with the steps project and fit-head: "
                "the model that is saved has always just been projected and fitted"
            )
        return self


def prototype_counts(config: Config) -> dict[str, dict[int, int]]:
    """Prototypes of each class on each level, in the order of the classes."""
    settings = config.model.prototypes
    counts: dict[str, dict[int, int]] = {}
    for name in config.data.classes:
        default = (
            settings.negative_counts if name == config.data.negative_class else settings.counts
        )
        counts[name] = dict(settings.per_class.get(name, default))
    return counts


def unrolled(
    schedule: list[Step],
) -> Iterator[TrainPhaseConfig | ProjectPhaseConfig | FitHeadPhaseConfig]:
    """The steps of a schedule one after the other, repeats written out."""
    for step in schedule:
        if isinstance(step, RepeatConfig):
            for _ in range(step.times):
                yield from step.steps
        else:
            yield step


def pool_size(k: int | float | Mapping[int, int | float], level: int, cells: int) -> int:
    """Number of patches in the top-k mean of one level, between 1 and the number of cells.

    >>> pool_size(9, 5, 196), pool_size(0.05, 2, 3136), pool_size({2: 20}, 5, 196)
    (9, 157, 9)
    """
    chosen = k.get(level, PoolingConfig.model_fields["k"].default) if isinstance(k, Mapping) else k
    wanted = chosen if isinstance(chosen, int) else round(chosen * cells)
    return max(1, min(int(wanted), cells))
