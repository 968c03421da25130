"""The schema of a configuration: every setting with its type, default and description.

The defaults are the library's: the paper's system with the choices that we make where it leaves any. The
preset `fpn-iaia-bl` is the paper to the letter and spells every value. In descriptions, "paper" marks what
the FPN-IAIA-BL paper fixes, "ancestor" what IAIA-BL, ProtoPNet or Deformable ProtoPNet have, "ours" a choice
of this project. The string below a setting is its description; `protopyramid presets show` prints it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
NEGATIVE_CLASS = "negative"
MARGIN_CLASSES = ("circumscribed", "indistinct", "spiculated", NEGATIVE_CLASS)
SIZE_MULTIPLE = 16  # four max-pools of stride 2 come before the coarsest level
PARTS = ("backbone", "neck", "prototypes", "head")
MAX_BLOCKS = 5
LONGEST_CLASS = 100  # letters of a name; it stands in figures, tables and file names

Level = Annotated[int, Field(ge=2, le=5)]
Count = Annotated[int, Field(ge=0, le=10_000)]
AtLeastOne = Annotated[int, Field(ge=1)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
BelowOne = Annotated[float, Field(ge=0, lt=1)]
Percentage = Annotated[float, Field(ge=0, le=100)]
PoolSize = AtLeastOne | Annotated[float, Field(gt=0, lt=1)]
Padding = Literal["zeros", "replicate"]
ClassTable = dict[str, dict[str, float]]

# The paper's fine-annotation coefficients: rows are the sample's class, columns the prototype's.
# The captions say which table is which. (The text calls the second coefficient lambda_out, the equation
# lambda_full: one slip of a name, no more.)
PAPER_OUTSIDE: ClassTable = {
    row: {column: float(row != NEGATIVE_CLASS) for column in MARGIN_CLASSES}
    for row in MARGIN_CLASSES
}
PAPER_INSIDE: ClassTable = {
    "circumscribed": {"circumscribed": 0, "indistinct": 0, "spiculated": 0, "negative": 1},
    "indistinct": {"circumscribed": 0, "indistinct": 0, "spiculated": 0, "negative": 1},
    "spiculated": {"circumscribed": 1, "indistinct": 1, "spiculated": 0, "negative": 1},
    "negative": {"circumscribed": 0, "indistinct": 0, "spiculated": 0, "negative": 0},
}


def _default_negative_class(data: dict[str, Any]) -> str:
    """The paper's negative class where it is one of the classes, else none."""
    return NEGATIVE_CLASS if NEGATIVE_CLASS in data.get("classes", []) else ""


def _not_a_multiple(size: int, multiple: int) -> str:
    below = size - size % multiple
    sizes = f"{below} or {below + multiple}" if below else str(multiple)
    return f"must be a multiple of {multiple}, got {size}; try {sizes}"


def _check_part(part: str) -> None:
    name, _, block = part.partition(".")
    blocks = [str(number) for number in range(1, MAX_BLOCKS + 1)]
    if name not in PARTS or (block and (name != "backbone" or block not in blocks)):
        raise ValueError(
            f'no part "{part}"; the parts are {", ".join(PARTS)} and backbone.1 to backbone.5'
        )


def _check_table_names(fine: FineLossConfig, classes: list[str]) -> None:
    """Refuse a class in a fine-annotation table that is neither configured nor the paper's."""
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
        extra="forbid",
        validate_default=True,
        frozen=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )


class NegativesConfig(Section):
    """How images of the negative class are sampled for training."""

    count: Count = 200
    """Negative images per training epoch; 0 uses all of them (paper: 200 of 5,000)."""
    resample: Literal["once", "epoch"] = "once"
    """Sample the negatives once per run (paper) or again in every epoch (ours)."""


class DicomConfig(Section):
    """How stored DICOM values become grey values; other formats need no choice."""

    window: Literal["file", "percentile", "full"] = "file"
    """Grey window: the file's VOI LUT or first window (the full range if it has neither),
    percentiles of its pixels, or the full range of its stored bits."""
    percentiles: tuple[Percentage, Percentage] = (0.5, 99.5)
    """Pixel percentiles (padding excluded) mapped to black and white, in per cent; for
    window = "percentile"."""
    flip: Literal["none", "left"] = "none"
    """"left" mirrors images, masks and lesion boxes of right breasts, so that the chest wall is always
    on the left; a file without laterality is left as it is."""

    @field_validator("percentiles")
    @classmethod
    def _percentiles_increase(cls, percentiles: tuple[float, float]) -> tuple[float, float]:
        if percentiles[0] >= percentiles[1]:
            raise ValueError(f"must increase, as in [0.5, 99.5], got {list(percentiles)}")
        return percentiles


class RegionConfig(Section):
    """The square around a lesion that the model sees."""

    margin: Annotated[float, Field(ge=0, le=4)] = 0.5
    """Tissue on each side of a lesion box, as a fraction of its longer side; `data import --margin` is
    the same."""


class MarginBandConfig(Section):
    """The band around a lesion's outline, for data.annotation = "margin"."""

    inner: Share = 0.07
    """Width of the band inside the outline, as a fraction of the lesion's size: the diameter of a disc
    of the same area."""
    outer: Share = 0.07
    """Width of the band outside the outline, as a fraction of the lesion's size."""
    box_inner: Share = 0.25
    """The same for a lesion that is known by its box only: width inside the ellipse in the box. It is
    larger, since the true outline may lie anywhere near the ellipse."""
    box_outer: Share = 0.1
    """Width outside the ellipse in the lesion box."""

    @model_validator(mode="after")
    def _band_has_a_width(self) -> MarginBandConfig:
        for inner, outer in (("inner", "outer"), ("box_inner", "box_outer")):
            if getattr(self, inner) + getattr(self, outer) == 0:
                raise ValueError(
                    f"{inner} and {outer} are both 0: the band is empty; make one of them larger"
                )
        return self


class DataConfig(Section):
    """Classes, images, and how they are prepared for the model."""

    classes: list[str] = Field(list(MARGIN_CLASSES), min_length=2)
    """Class names in the order of the logits; every label in the manifest must be one of them."""
    negative_class: str = Field(default_factory=_default_negative_class)
    """Class of images without a lesion, excluded from the margin AUROC; "" if there is none, which is
    the default when the classes do not include "negative"."""
    image_size: int = Field(224, ge=SIZE_MULTIPLE, le=8192)
    """Side length of the model's square input in pixels; a multiple of 16. With
    model.backbone.last_pool, a multiple of 32."""
    fit: Literal["stretch", "pad"] = "stretch"
    """How an image is brought to the input size: stretched (IAIA-BL), or padded so that its aspect
    ratio is kept."""
    crop: Literal["none", "lesion"] = "none"
    """What the model sees of an image file: all of it, or the square around its lesion box (without one,
    around its mask; an image with neither is seen whole). Use "lesion" for manifests of full films."""
    region: RegionConfig = RegionConfig()
    """The square around a lesion that the model sees."""
    annotation: Literal["lesion", "margin"] = "lesion"
    """What the fine annotation is: the mask (without one, the ellipse in the lesion box), or the band
    around its outline, where the margin is (ours). The paper's annotations are of margins; most public
    masks are of lesions."""
    margin_band: MarginBandConfig = MarginBandConfig()
    """The band around a lesion's outline, for annotation = "margin"."""
    mean: tuple[float, float, float] = IMAGENET_MEAN
    """Mean of the red, green and blue channels, subtracted from images in [0, 1]."""
    std: tuple[Positive, Positive, Positive] = IMAGENET_STD
    """Standard deviation by which the red, green and blue channels are divided."""
    validation_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Fraction of the training patients held out for validation if the manifest has no validation
    rows."""
    balance: Literal["none", "class", "source-class"] = "class"
    """Sample training images uniformly, or so that every class is drawn equally often, or every pair of
    source (the manifest's column `source`) and class."""
    annotated_share: Share = 0.0
    """Minimum fraction of annotated images in each training batch, so that the fine-annotation loss
    always has something to act on."""
    negatives: NegativesConfig = NegativesConfig()
    """How images of the negative class are sampled."""
    dicom: DicomConfig = DicomConfig()
    """How stored DICOM values become grey values."""
    memory_budget: NonNegative = 2.0
    """Gigabytes of decoded images kept in memory; the rest are decoded each time."""

    @field_validator("image_size")
    @classmethod
    def _size_is_a_multiple(cls, size: int) -> int:
        if size % SIZE_MULTIPLE:
            raise ValueError(_not_a_multiple(size, SIZE_MULTIPLE))
        return size

    @model_validator(mode="after")
    def _class_names_make_sense(self) -> DataConfig:
        if len(set(self.classes)) != len(self.classes):
            raise ValueError(f"classes has the same name twice: {self.classes}")
        if any(not name.strip() for name in self.classes):
            raise ValueError("classes has an empty name")
        if any(len(name) > LONGEST_CLASS or not name.isprintable() for name in self.classes):
            raise ValueError(
                f"classes has a name of more than {LONGEST_CLASS} letters, or with line breaks or "
                "control characters; give it a short, plain name"
            )
        if self.negative_class and self.negative_class not in self.classes:
            raise ValueError(
                f'negative_class "{self.negative_class}" is not one of classes {self.classes}; '
                'set data.negative_class to one of them, or to "" for none'
            )
        return self


class AugmentationConfig(Section):
    """Random transformations of a training image together with its mask and lesion box."""

    flip: bool = True
    """Flip horizontally and vertically, each with probability 0.5."""
    quarter_turns: bool = True
    """Rotate by a random multiple of 90 degrees."""
    rotation: Annotated[float, Field(ge=0, le=180)] = 10.0
    """Maximum rotation in either direction in degrees, on top of the quarter turns."""
    zoom: tuple[Positive, Positive] = (0.9, 1.1)
    """Range of the random magnification; above 1 crops, below 1 pads by reflection."""
    shift: Annotated[float, Field(ge=0, lt=0.5)] = 0.0
    """Maximum shift in each direction as a fraction of the image side, padded by reflection (ours)."""
    brightness: NonNegative = 0.1
    """Maximum brightness offset, added to images in [0, 1]."""
    contrast: BelowOne = 0.1
    """Maximum relative change of contrast about the image mean."""
    transplant: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Probability that an annotated lesion is put into the surroundings of a negative image (ours)."""
    transplant_margin: Annotated[float, Field(ge=0, le=0.5)] = 0.05
    """How much of a lesion's own surroundings is moved with it, as a fraction of the image side (ours)."""

    @field_validator("zoom")
    @classmethod
    def _zoom_is_a_range(cls, zoom: tuple[float, float]) -> tuple[float, float]:
        if zoom[0] > zoom[1]:
            raise ValueError(f"must be [smallest, largest], got {list(zoom)}")
        return zoom


class BackboneConfig(Section):
    """The convolutional network below the pyramid."""

    name: str = "vgg16"
    """"vgg16", or "timm:NAME" for a network from the timm library."""
    width: Annotated[float, Field(gt=0, le=4)] = 1.0
    """Channel multiplier; below 1 gives a smaller network (ours)."""
    batch_norm: bool = False
    """Batch norm after every convolution (ours, for training from scratch)."""
    padding: Padding = "zeros"
    """Padding of the convolutions: zeros (VGG-16), or copies of the edge (ours, for training from
    scratch)."""
    last_pool: bool = False
    """VGG-16 only: keep its last max-pool (ancestor: ProtoPNet), so that the coarsest map is 7x7 at 224
    px and not 14x14 (paper, IAIA-BL); data.image_size must then be a multiple of 32."""
    weights: str = ""
    """Initial weights: "imagenet" (downloaded once), a .safetensors or .pth file, or "" (also "none") for
    random ones. `--backbone-from RUN` takes their place."""

    @field_validator("weights")
    @classmethod
    def _none_is_empty(cls, weights: str) -> str:
        return "" if weights == "none" else weights


class NeckConfig(Section):
    """What turns backbone maps into the vectors that prototypes are compared with."""

    kind: Literal["pyramid", "add-on", "none"] = "pyramid"
    """The paper's top-down pyramid, ProtoPNet's two 1x1 convolutions, or no neck at all."""
    dim: Annotated[int, Field(ge=1, le=4096)] = 128
    """Channels d of the neck and of each prototype (ours; IAIA-BL: 512)."""
    upsample: Literal["nearest", "bilinear"] = "nearest"
    """Interpolation from a coarser level to the next finer one (ancestor: FPN's nearest)."""
    top_down: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Pyramid only: factor of what a coarser level passes down to the next finer one. 1 is the paper's; 0
    leaves every level with its own map alone, so that fine prototypes see only fine detail (ours)."""
    start: Literal["centred", "random"] = "centred"
    """Pyramid only: start training with channels of mean 0 and variance 1 (ours), or as initialised."""
    batch_norm: bool = False
    """Pyramid only: batch norm without bias on each level (ours), so that no direction is common to
    all patches."""
    padding: Padding = "zeros"
    """Padding of the pyramid's 3x3 convolutions: zeros, or copies of the edge (ours)."""


class PrototypesConfig(Section):
    """How many prototypes each class has on each level."""

    counts: dict[Level, Count] = {2: 3, 3: 3, 4: 3, 5: 3}
    """Prototypes per level for every class that per_class does not name (ours)."""
    negative_counts: dict[Level, Count] = {2: 1, 3: 1, 4: 1, 5: 1}
    """Prototypes per level for the negative class (ours)."""
    per_class: dict[str, dict[Level, Count]] = {}
    """Prototypes per level for individual classes, by class name."""
    init: Literal["patches", "random"] = "patches"
    """Initialise prototypes as training patches (ours) or at random when training starts."""


class SimilarityConfig(Section):
    """How a patch is compared with a prototype."""

    kind: Literal["cosine", "log-l2"] = "cosine"
    """Cosine similarity (paper), or log((d+1)/(d+1e-4)) of the L2 distance d (ancestor)."""
    squared: bool = False
    """log-l2 only: use the squared distance (ProtoPNet) instead of the distance (IAIA-BL)."""
    relu: bool = False
    """Cosine only: set negative similarities to zero."""


class PoolingConfig(Section):
    """How a similarity map becomes one score."""

    kind: Literal["focal", "topk", "max", "average", "flatten"] = "focal"
    """Top-k mean minus the mean of all (paper), top-k mean (IAIA-BL), maximum (ProtoPNet), or mean. The
    black box has the mean of each channel or, with "flatten", VGG-16's own input to its classifier: the
    map averaged to 7x7 cells, all of them side by side."""
    k: PoolSize | dict[Level, PoolSize] = 9
    """Patches in the top-k mean (ancestor: 9 of 196): a number, a fraction of the map, or a table of
    either by level."""


class HeadConfig(Section):
    """The last layer: logits = W scores, without bias."""

    own: float = 1.0
    """Initial weight of a prototype for its own class, before scaling."""
    other: float = -0.5
    """Initial weight of a prototype for the other classes, before scaling (ancestor: ProtoPNet and
    Deformable ProtoPNet; IAIA-BL has -1)."""
    scale: Positive = 1.0
    """Scale of the scores, folded into the initial weights."""
    hidden: list[Annotated[int, Field(ge=1, le=65536)]] = []
    """Black box only: units of the hidden layers before the last one, each with a ReLU; none by default
    (ours). IAIA-BL's VGG-16 baseline: [4096, 4096]."""
    dropout: BelowOne = 0.0
    """Dropout after each hidden layer while it learns (IAIA-BL's VGG-16 baseline: 0.5)."""


class ModelConfig(Section):
    """The network."""

    backbone: BackboneConfig = BackboneConfig()
    """The convolutional network below the pyramid."""
    neck: NeckConfig = NeckConfig()
    """What turns backbone maps into the vectors that prototypes are compared with."""
    prototypes: PrototypesConfig = PrototypesConfig()
    """How many prototypes each class has on each level."""
    similarity: SimilarityConfig = SimilarityConfig()
    """How a patch is compared with a prototype."""
    pooling: PoolingConfig = PoolingConfig()
    """How a similarity map becomes one score."""
    head: HeadConfig = HeadConfig()
    """The last layer: logits = W scores, without bias."""
    tta: Literal[1, 4, 8] = 1
    """Test-time augmentation, averaging the scores of several orientations of an image: 1 = the image
    alone (paper), 4 = with flips, 8 = with quarter turns too. Training is unaffected."""


class FineLossConfig(Section):
    """The fine-annotation loss."""

    weight: NonNegative = 0.001
    """Weight of the fine-annotation loss (the paper's lambda 4)."""
    kind: Literal["class-pair", "grouped"] = "class-pair"
    """The paper's loss by pair of classes, or IAIA-BL's with one norm per group of prototypes."""
    combine: Literal["paper", "disjoint"] = "paper"
    """Weight of a pixel outside the annotation: outside + inside (paper), or outside alone (ours)."""
    transpose: bool = False
    """Transpose the inside table among the non-negative classes, as the paper's text (but not its
    table) says."""
    per_pixel: bool = False
    """Divide each norm by the square root of the number of pixels (ours), so that the weight carries
    across image sizes."""
    share: bool = False
    """Divide each norm by that of the whole map (ours): penalise where prototypes activate, not how
    much; per_pixel then has no effect."""
    reduce: Literal["mean", "sum"] = "mean"
    """Average over the annotated images of a batch (ours), or sum over them (ancestor: IAIA-BL)."""
    outside: ClassTable = PAPER_OUTSIDE
    """Penalty for activating outside the annotation, by sample class and prototype class."""
    inside: ClassTable = PAPER_INSIDE
    """Penalty for activating inside the annotation, by sample class and prototype class."""

    @model_validator(mode="after")
    def _share_needs_single_maps(self) -> FineLossConfig:
        if self.share and self.kind == "grouped":
            raise ValueError(
                'share needs kind "class-pair": a norm of kind "grouped" is taken over several maps'
            )
        return self


OwnLoss = Literal["contrast", "context", "extent"]


class LossConfig(Section):
    """The objective: cross entropy plus weighted terms."""

    cross_entropy: NonNegative = 1.0
    """Weight of the cross entropy."""
    label_smoothing: BelowOne = 0.0
    """Label smoothing of the cross entropy (ours)."""
    cluster: NonNegative = 0.8
    """Weight of the cluster loss (lambda 1; ancestor: 0.8)."""
    separation: NonNegative = 0.08
    """Weight of the separation loss (lambda 2; ancestor: 0.08)."""
    scope: Literal["level", "all"] = "level"
    """Maximum in the cluster and separation losses: per level and then averaged (ours), or over all
    prototypes at once."""
    cluster_over: Literal["max", "mean"] = "max"
    """The cluster loss pulls the nearest prototype of an image's class towards it (ancestor), or all of
    them (ours)."""
    act_on: Literal["closeness", "score"] = "closeness"
    """What cluster and separation act on: the closeness, a top-k mean of similarities or of distances
    (ancestor: IAIA-BL, ProtoPNet), or the pooled score that enters the head (ancestor: Deformable
    ProtoPNet). They differ with focal pooling, and with log-l2."""
    orthogonality: NonNegative = 0.01
    """Weight of the orthogonality loss (lambda 3)."""
    group: Literal["class-level", "class"] = "class-level"
    """Prototypes made orthogonal to each other: those of one class and level (ours), or of one class."""
    contrast: NonNegative = 0.0
    """Weight of the contrast loss (ours): own-class prototypes prefer the annotation to the rest of
    the image by a margin."""
    contrast_margin: Annotated[float, Field(gt=0, le=2)] = 0.5
    """Margin of the contrast loss, in units of similarity."""
    context: NonNegative = 0.0
    """Weight of the context loss (ours): what own-class prototypes find in a part of an image stays the
    same in other surroundings. Costs a second pass of the network, and with cached maps space for the
    augmented copies of the images themselves."""
    context_every: AtLeastOne = 1
    """The context loss counts in every so many batches of an epoch, from the first on: in one of four, it
    costs a quarter."""
    context_share: Annotated[float, Field(gt=0, le=1)] = 0.25
    """Area of the part that the context loss leaves as it is, as a share of the image."""
    extent: NonNegative = 0.0
    """Weight of the extent loss (ours): own-class prototypes are above half maximum in a small part of
    the image on fine levels, and in a larger part on coarse ones."""
    extent_shares: dict[Level, Annotated[float, Field(gt=0, le=1)]] = {2: 0.05, 3: 0.05}
    """The largest part, as a share of the map, on each level that the extent loss limits."""
    extent_around: dict[Level, Annotated[float, Field(gt=0, le=1)]] = {}
    """The largest part in one place, around the peak of the map, likewise."""
    extent_least: dict[Level, Annotated[float, Field(gt=0, le=1)]] = {}
    """The smallest part, likewise."""
    fine: FineLossConfig = FineLossConfig()
    """The fine-annotation loss."""


class HeadFitConfig(Section):
    """The convex problem solved for the head after each projection."""

    l1: NonNegative = 1e-4
    """L1 penalty on weights between a prototype and other classes (ancestor)."""
    ridge: NonNegative = 1e-3
    """Squared penalty on the distance from the head's initial weights, which are zero without
    prototypes (ours: makes the optimum exist and be unique). 0 gives the ancestors' problem, which has
    no optimum where the scores separate the classes."""
    tolerance: Positive = 1e-7
    """Stop when no weight violates the optimality conditions by more than this."""
    balance: bool = True
    """Give every class the same total weight (ours); false lets every image weigh the same."""
    max_iterations: AtLeastOne = 500
    """Maximum number of iterations; the fit stops there even if it has not converged."""


class ProjectionConfig(Section):
    """How a prototype is replaced by its nearest training patch."""

    source: Literal["class", "any"] = "class"
    """Candidate patches: from training images of the prototype's class (ancestor), or of any class
    (the paper's words)."""
    unique: Literal["image", "patch", "none"] = "image"
    """What prototypes of the same class and level may not share: the source image, the patch, or no
    such rule (ours)."""
    inside_annotation: bool = False
    """In annotated images, consider only patches inside the annotation (ours)."""
    annotated_only: bool = False
    """Consider only annotated training images, with a mask or a lesion box (ancestor: IAIA-BL); those of
    the negative class, which have nothing to annotate, stay eligible (ours)."""
    candidates: AtLeastOne = 20
    """Nearest images kept per prototype, from which the unique ones are chosen."""


class TrainPhaseConfig(Section):
    """A phase of the schedule that trains some parts for some epochs."""

    step: Literal["train"] = "train"
    """Kind of phase."""
    name: str = "train"
    """Name in logs; the decay counts epochs over all phases of the same name."""
    learns: list[str] = Field(["neck", "prototypes", "head"], min_length=1)
    """Parts that learn: "backbone", single blocks of it such as "backbone.5", "neck", "prototypes",
    "head"."""
    epochs: Positive = 1.0
    """Epochs, before train.scale."""
    learning_rates: dict[str, Positive] = {}
    """Learning rate by part; parts not named here use learning_rate."""
    learning_rate: Positive = 1e-3
    """Learning rate of the parts that learning_rates does not name."""
    weight_decay: NonNegative = 1e-3
    """Weight decay of the backbone, neck and head; prototypes have none."""
    warmup: NonNegative = 0.0
    """Epochs over which the learning rates rise from zero, before train.scale."""
    decay: Literal["constant", "cosine", "step"] = "constant"
    """Learning-rate schedule after the warm-up."""
    decay_every: Positive = 5.0
    """Epochs between drops with decay = "step", before train.scale."""
    decay_factor: Positive = 0.1
    """Factor of each drop with decay = "step", or the fraction left at the end with "cosine"."""
    clip: NonNegative = 0.0
    """Maximum gradient norm; 0 disables clipping."""
    views: Count = 0
    """Fixed augmented copies of each image, cached where the frozen part ends; 0 augments afresh in
    every epoch, without a cache."""
    losses: dict[
        Literal[
            "cross_entropy",
            "cluster",
            "separation",
            "orthogonality",
            "fine",
            "contrast",
            "context",
            "extent",
        ],
        NonNegative,
    ] = {}
    """Weights of loss terms that apply to this phase alone."""

    @field_validator("learns")
    @classmethod
    def _parts_exist(cls, learns: list[str]) -> list[str]:
        for part in learns:
            _check_part(part)
        return learns

    @field_validator("learning_rates")
    @classmethod
    def _rates_are_of_parts(cls, rates: dict[str, float]) -> dict[str, float]:
        for part in rates:
            if part not in PARTS:
                raise ValueError(f'no part "{part}"; the parts are {", ".join(PARTS)}')
        return rates


class ProjectPhaseConfig(Section):
    """A phase that projects every prototype onto its nearest training patch."""

    step: Literal["project"] = "project"
    """Kind of phase."""


class FitHeadPhaseConfig(Section):
    """A phase that solves for the head with everything else fixed."""

    step: Literal["fit-head"] = "fit-head"
    """Kind of phase."""


class RepeatConfig(Section):
    """Phases that run several times."""

    step: Literal["repeat"] = "repeat"
    """Kind of phase."""
    times: Annotated[int, Field(ge=1, le=10_000)]
    """Number of repetitions."""
    steps: list[SimpleStep] = Field(min_length=1)
    """The phases to repeat, in order."""


SimpleStep = Annotated[
    TrainPhaseConfig | ProjectPhaseConfig | FitHeadPhaseConfig, Field(discriminator="step")
]
Step = Annotated[
    TrainPhaseConfig | ProjectPhaseConfig | FitHeadPhaseConfig | RepeatConfig,
    Field(discriminator="step"),
]
RepeatConfig.model_rebuild()

# The paper gives the stages A, B and C; epochs and rates are ours.
STAGE_A = TrainPhaseConfig(
    name="A", epochs=5, learning_rates={"neck": 3e-3, "prototypes": 3e-3, "head": 1e-3}
)
STAGE_B: list[ProjectPhaseConfig | FitHeadPhaseConfig] = [
    ProjectPhaseConfig(),
    FitHeadPhaseConfig(),
]
STAGE_C = TrainPhaseConfig(
    name="C",
    learns=list(PARTS),
    epochs=5,
    learning_rates={"backbone": 1e-4, "neck": 1e-3, "prototypes": 1e-3, "head": 1e-3},
)


class CacheConfig(Section):
    """The cache of maps computed by the frozen part of the backbone."""

    enabled: bool = True
    """Cache the maps of fixed augmented copies; false computes them again in every epoch."""
    disk_budget: NonNegative = 20.0
    """Gigabytes the cache may take on disk; a larger one is refused before any work."""
    half: bool = False
    """Store the maps of augmented copies in half precision; those of the original images stay exact."""


class TrainConfig(Section):
    """Schedule, batches and arithmetic."""

    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Seed of all random numbers."""
    batch_size: AtLeastOne = 32
    """Images per training batch, over all processes."""
    eval_batch_size: AtLeastOne = 32
    """Images per batch without gradients, per process."""
    optimizer: Literal["adamw", "adam"] = "adamw"
    """AdamW, whose weight decay is decoupled from the gradient (ours), or Adam with the decay added to
    the gradient (ancestor)."""
    scale: Positive = 1.0
    """Multiplier of the epochs of every phase: makes the whole schedule longer or shorter."""
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] = "32-true"
    """Numerical precision, in lightning-fabric's terms."""
    channels_last: bool = True
    """Keep images and maps in channels-last memory format."""
    threads: Count = 0
    """CPU threads; 0 leaves the choice to torch."""
    validate_every: AtLeastOne = 1
    """Epochs between validations; the last epoch of a phase, and every epoch of a model without
    prototypes, is always validated."""
    cache: CacheConfig = CacheConfig()
    """The cache of maps computed by the frozen part of the backbone."""
    schedule: list[Step] = Field(
        [STAGE_A, *STAGE_B, RepeatConfig(times=3, steps=[STAGE_C, *STAGE_B])], min_length=1
    )
    """The phases of training, in order."""


class Config(Section):
    """A complete configuration: data, augmentation, model, loss and training."""

    system: str = "custom"
    """Name of the system, for tables and figures. A published system keeps its published name there only
    with the settings of its preset."""
    data: DataConfig = DataConfig()
    """Classes, images, and how they are prepared for the model."""
    augmentation: AugmentationConfig = AugmentationConfig()
    """Random transformations of training images."""
    model: ModelConfig = ModelConfig()
    """The network."""
    loss: LossConfig = LossConfig()
    """The objective: cross entropy plus weighted terms."""
    projection: ProjectionConfig = ProjectionConfig()
    """How a prototype is replaced by its nearest training patch."""
    head_fit: HeadFitConfig = HeadFitConfig()
    """The convex problem solved for the head after each projection."""
    train: TrainConfig = TrainConfig()
    """Schedule, batches and arithmetic."""

    @model_validator(mode="after")
    def _prototypes_fit_classes_and_neck(self) -> Config:
        unknown = sorted(set(self.model.prototypes.per_class) - set(self.data.classes))
        if unknown:
            raise ValueError(
                f"model.prototypes.per_class names {unknown}, "
                f"not among data.classes {self.data.classes}"
            )
        _check_table_names(self.loss.fine, self.data.classes)
        if self.model.neck.kind == "none":
            return self
        if self.model.head.hidden or self.model.pooling.kind == "flatten":
            raise ValueError(
                'model.head.hidden and model.pooling.kind "flatten" are for the black box '
                '(model.neck.kind "none"): a head on prototypes is linear, so that their '
                "contributions add up to the logits"
            )
        counts = prototype_counts(self)
        levels = {level for by_level in counts.values() for level, n in by_level.items() if n}
        if not levels:
            raise ValueError(
                "model.prototypes has no prototypes; set counts, for example {2 = 3, 5 = 3}"
            )
        if self.model.neck.kind == "add-on" and levels != {5}:
            raise ValueError(
                f'model.neck.kind "add-on" has level 5 only, '
                f"but there are prototypes on levels {sorted(levels)}"
            )
        return self

    @model_validator(mode="after")
    def _size_fits_the_last_pool(self) -> Config:
        backbone, size = self.model.backbone, self.data.image_size
        multiple = 2 * SIZE_MULTIPLE
        if backbone.name == "vgg16" and backbone.last_pool and size % multiple:
            raise ValueError(
                f"data.image_size with model.backbone.last_pool = true "
                f"{_not_a_multiple(size, multiple)}, or set model.backbone.last_pool = false"
            )
        return self

    @model_validator(mode="after")
    def _schedule_ends_projected_and_fitted(self) -> Config:
        kinds = [step.step for step in unrolled(self.train.schedule)]
        if self.model.neck.kind == "none":
            if "project" in kinds:
                raise ValueError("train.schedule has project, but the model has no prototypes")
            if "fit-head" in kinds and not fits_head(self.model):
                raise ValueError(
                    "train.schedule has fit-head, which solves for a linear head on pooled channels; "
                    'with model.head.hidden or model.pooling.kind "flatten", let "head" learn in a '
                    "train phase instead"
                )
        elif kinds[-2:] != ["project", "fit-head"]:
            raise ValueError(
                "train.schedule must end with project and fit-head: "
                "a model is saved only when it has just been projected and fitted"
            )
        return self

    def uses_loss(self, name: OwnLoss) -> bool:
        """Whether a train phase gives a loss of ours a weight."""
        phases = [step for step in unrolled(self.train.schedule) if step.step == "train"]
        of_all: float = getattr(self.loss, name)
        return any(phase.losses.get(name, of_all) for phase in phases)


def fits_head(model: ModelConfig) -> bool:
    """Whether the head can be solved for: it is linear, on prototypes or on pooled channels."""
    return not model.head.hidden and model.pooling.kind != "flatten"


def prototype_counts(config: Config) -> dict[str, dict[int, int]]:
    """Prototypes of each class on each level, in the order of the classes."""
    settings = config.model.prototypes
    counts: dict[str, dict[int, int]] = {}
    for name in config.data.classes:
        negative = name == config.data.negative_class
        default = settings.negative_counts if negative else settings.counts
        counts[name] = dict(settings.per_class.get(name, default))
    return counts


def unrolled(
    schedule: list[Step],
) -> Iterator[TrainPhaseConfig | ProjectPhaseConfig | FitHeadPhaseConfig]:
    """The phases of a schedule in order, with repeats written out."""
    for step in schedule:
        if isinstance(step, RepeatConfig):
            for _ in range(step.times):
                yield from step.steps
        else:
            yield step
