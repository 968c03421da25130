"""The presets of published systems against the published networks, written down here layer by layer.

The networks below use nothing of the package: plain torch modules with the names of the public code.
"""

import pytest
import torch
from torch import Tensor, nn

from protopyramid.config import load_config
from protopyramid.config.schema import Config
from protopyramid.errors import UserError
from protopyramid.model import build_model
from protopyramid.model.network import PrototypeNetwork

SIXTEEN = (64, 64, "M", 128, 128, "M", 256, 256, 256, "M", 512, 512, 512, "M", 512, 512, 512, "M")


def vgg16_features(width: float, last_pool: bool) -> nn.Sequential:
    layers: list[nn.Module] = []
    inputs = 3
    for entry in SIXTEEN if last_pool else SIXTEEN[:-1]:
        if entry == "M":
            layers.append(nn.MaxPool2d(2, 2))
            continue
        outputs = round(int(entry) * width)
        convolution = nn.Conv2d(inputs, outputs, 3, padding=1)
        nn.init.kaiming_normal_(convolution.weight)  # so that activations keep their size
        layers += [convolution, nn.ReLU()]
        inputs = outputs
    return nn.Sequential(*layers)


class PublishedPrototypes(nn.Module):
    """ProtoPNet and IAIA-BL: VGG-16, 1x1 convolution, ReLU, 1x1 convolution, sigmoid, L2, log, pooling."""

    def __init__(self, width: float, dim: int, m: int, squared: bool, k: int, last_pool: bool):
        super().__init__()
        self.features = nn.Module()
        self.features.features = vgg16_features(width, last_pool)
        self.add_on_layers = nn.Sequential(
            nn.Conv2d(round(512 * width), dim, 1), nn.ReLU(), nn.Conv2d(dim, dim, 1), nn.Sigmoid()
        )
        self.prototype_vectors = nn.Parameter(torch.rand(m, dim, 1, 1))
        self.last_layer = nn.Linear(m, 4, bias=False)
        self.squared, self.k = squared, k

    def forward(self, images: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        z = self.add_on_layers(self.features.features(images))
        distances = (z[:, None] - self.prototype_vectors[None]).square().sum(2)
        if not self.squared:
            distances = distances.sqrt()
        similar = torch.log((distances + 1) / (distances + 1e-4)).flatten(2)
        scores = similar.sort(dim=2, descending=True).values[..., : self.k].mean(2)
        return self.last_layer(scores), tuple(distances.shape[2:])


def copy_weights(published: PublishedPrototypes, ours: PrototypeNetwork) -> None:
    """Into our network, from the published one."""
    published_state = published.state_dict()
    state = {}
    for name in ours.state_dict():
        old = name.replace("backbone.features.", "features.features.")
        old = old.replace("neck.layers.", "add_on_layers.").replace("head.", "last_layer.")
        old = old.replace("prototypes.vectors", "prototype_vectors")
        if old in published_state:
            state[name] = published_state[old].reshape(ours.state_dict()[name].shape)
    missing = ours.load_state_dict(state, strict=False)
    assert set(missing.missing_keys) == {"prototypes.classes", "prototypes.levels"}


@pytest.mark.parametrize(
    ("preset", "published", "side"),
    [
        ("protopnet", {"dim": 128, "m": 40, "squared": True, "k": 1, "last_pool": True}, 7),
        ("iaia-bl", {"dim": 512, "m": 20, "squared": False, "k": 9, "last_pool": False}, 14),
    ],
)
@pytest.mark.parametrize("width", [1.0, 0.0625])
def test_a_preset_with_the_published_networks_weights_has_its_logits(
    preset, published, side, width
):
    torch.manual_seed(3)
    theirs = PublishedPrototypes(width, **published).eval()
    nn.init.normal_(theirs.last_layer.weight)
    ours = build_model(load_config(preset, {"model.backbone.width": width})).eval()
    copy_weights(theirs, ours)
    images = torch.randn(1 if width == 1.0 else 3, 3, 224, 224)
    with torch.no_grad():
        expected, cells = theirs(images)
        evidence = ours(images)
    assert cells == evidence.maps[5].shape[2:] == (side, side)
    assert (evidence.logits - expected).abs().max() < 1e-5
    assert (evidence.maps[5].std((2, 3)) > 1e-3).all()  # images, not biases, make the maps


def test_without_the_last_pool_protopnet_is_another_network():
    torch.manual_seed(3)
    theirs = PublishedPrototypes(0.0625, 128, 40, squared=True, k=1, last_pool=True).eval()
    settings = {"model.backbone.width": 0.0625, "model.backbone.last_pool": False}
    ours = build_model(load_config("protopnet", settings)).eval()
    copy_weights(theirs, ours)
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        assert (ours(images).logits - theirs(images)[0]).abs().max() > 1e-4


def test_the_gradients_of_the_published_protopnet_are_ours():
    torch.manual_seed(4)
    theirs = PublishedPrototypes(0.0625, 128, 40, squared=True, k=1, last_pool=True)
    ours = build_model(load_config("protopnet", {"model.backbone.width": 0.0625}))
    copy_weights(theirs, ours)
    images, labels = torch.randn(2, 3, 64, 64), torch.tensor([1, 3])
    nn.functional.cross_entropy(theirs(images)[0], labels).backward()
    nn.functional.cross_entropy(ours(images).logits, labels).backward()
    theirs_first = theirs.features.features[0].weight.grad
    ours_first = ours.backbone.features[0].weight.grad
    torch.testing.assert_close(ours_first, theirs_first, rtol=1e-3, atol=1e-7)
    torch.testing.assert_close(
        ours.prototypes.vectors.grad, theirs.prototype_vectors.grad[..., 0, 0], rtol=1e-3, atol=1e-6
    )


@pytest.mark.parametrize("size", [48, 112])
def test_the_last_pool_wants_multiples_of_32(size):
    with pytest.raises(ValueError, match=r"data\.image_size.*last_pool.*multiple of 32"):
        Config.model_validate(
            {"data": {"image_size": size}, "model": {"backbone": {"last_pool": True}}}
        )
    Config.model_validate({"data": {"image_size": size}})


class PublishedVGG16(nn.Module):
    """VGG-16 with its classifier: 7 x 7 cells, two hidden layers with dropout, a last layer with bias."""

    def __init__(self, width: float, units: int) -> None:
        super().__init__()
        self.features = vgg16_features(width, last_pool=True)
        self.avgpool = nn.AdaptiveAvgPool2d((7, 7))
        self.classifier = nn.Sequential(
            nn.Linear(49 * round(512 * width), units),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(units, units),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(units, 4),
        )

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.avgpool(self.features(images)).flatten(1))
        return logits


def black_box(width: float = 0.0625, units: int = 24, **more: object) -> PrototypeNetwork:
    settings = {
        "model.backbone.width": width,
        "model.backbone.last_pool": True,
        "model.pooling.kind": "flatten",
        "model.head.hidden": [units, units],
        "model.head.dropout": 0.5,
        **more,
    }
    return build_model(load_config("vgg16", settings))


def published_black_box() -> tuple[PublishedVGG16, PrototypeNetwork]:
    torch.manual_seed(5)
    theirs, ours = PublishedVGG16(0.0625, 24), black_box()
    ours.backbone.features.load_state_dict(theirs.features.state_dict())
    ours.hidden.load_state_dict(
        {n: x for n, x in theirs.classifier.state_dict().items() if not n.startswith("6.")}
    )
    ours.head.load_state_dict(theirs.classifier[6].state_dict())
    return theirs, ours


@pytest.mark.parametrize("size", [224, 64, 96])
def test_the_black_box_with_hidden_layers_is_vgg16_with_its_classifier(size):
    theirs, ours = published_black_box()
    images = torch.randn(3, 3, size, size)
    with torch.no_grad():
        expected, evidence = theirs.eval()(images), ours.eval()(images)
    assert (evidence.logits - expected).abs().max() < 1e-5
    assert expected.std(0).max() > 1e-3  # images, not biases, make the logits
    assert evidence.scores.shape == (3, 49 * 32)
    assert evidence.maps == {}
    assert evidence.closeness.shape == (3, 0)


def test_the_full_black_box_has_the_published_number_of_weights():
    with torch.device("meta"):
        model = black_box(1.0, 4096)
    classifier = 25088 * 4096 + 4096 + 4096 * 4096 + 4096 + 4096 * 4 + 4
    assert sum(p.numel() for p in model.parameters()) == 14_714_688 + classifier


def test_hidden_layers_may_follow_pooled_channels():
    model = black_box(**{"model.pooling.kind": "average"}).eval()
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        evidence, c5 = model(images), model.backbone(images)[5]
        x = c5.mean((2, 3))
        assert torch.equal(evidence.scores, x)
        for layer in (model.hidden[0], model.hidden[3]):
            x = (x @ layer.weight.T + layer.bias).clamp(min=0)
        torch.testing.assert_close(evidence.logits, x @ model.head.weight.T + model.head.bias)


def test_dropout_acts_in_training_and_not_in_use():
    model, images = black_box(), torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(model.eval()(images).logits, model(images).logits)
        model.train()
        assert not torch.equal(model(images).logits, model(images).logits)


def test_with_hidden_layers_copies_of_an_image_are_averaged_by_their_logits():
    model = black_box(**{"model.tta": 4}).eval()
    images = torch.randn(2, 3, 64, 64)
    turned = [images, images.flip(3), images.flip(2), images.flip(2, 3)]
    with torch.no_grad():
        logits = [model.forward_once(each).logits for each in turned]
        torch.testing.assert_close(model(images).logits, sum(logits) / 4)


@pytest.mark.parametrize(
    "settings",
    [{"head": {"hidden": [8]}}, {"pooling": {"kind": "flatten"}}],
    ids=["hidden", "flat"],
)
def test_a_head_on_prototypes_stays_linear(settings):
    with pytest.raises(ValueError, match="black box"):
        Config.model_validate({"model": settings})


@pytest.mark.parametrize("key", ["model.head.hidden", "model.pooling.kind"])
def test_the_head_fit_is_refused_where_it_cannot_solve(key):
    value = {"model.head.hidden": [8], "model.pooling.kind": "flatten"}[key]
    schedule = [{"step": "fit-head"}]
    load_config("vgg16", {"train.schedule": schedule})
    with pytest.raises(UserError, match=r'fit-head.*let "head" learn in a train phase'):
        load_config("vgg16", {key: value, "train.schedule": schedule})
