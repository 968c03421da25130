"""Backbone weights: names, shapes, damaged and hostile files, downloads."""

import hashlib
import os
import pickle
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from protopyramid.errors import UserError
from protopyramid.model.backbones import VGG16
from protopyramid.model.weights import (
    VGG16_IMAGENET,
    Published,
    fetch_published,
    load_backbone_weights,
    read_tensors,
    start_backbone,
)

IMAGENET = Path(__file__).parents[3] / "shared" / "weights" / "vgg16_imagenet_features.safetensors"


@pytest.fixture
def source() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {name: x.clone() for name, x in VGG16(width=0.0625).state_dict().items()}


@pytest.fixture
def backbone() -> VGG16:
    torch.manual_seed(1)
    return VGG16(width=0.0625)


def write(path: Path, tensors: dict[str, torch.Tensor]) -> Path:
    if path.suffix == ".safetensors":
        save_file(tensors, path)
    else:
        torch.save(tensors, path)
    return path


def same(backbone: torch.nn.Module, tensors: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(x, tensors[name]) for name, x in backbone.state_dict().items())


@pytest.fixture
def unchanged(backbone):
    """Checks at the end of a test that nothing was loaded, not even in part."""
    before = {name: x.clone() for name, x in backbone.state_dict().items()}
    yield
    assert same(backbone, before)


@pytest.mark.parametrize("suffix", [".safetensors", ".pth", ".pt"])
@pytest.mark.parametrize(
    "rename",
    [
        lambda name: name,
        lambda name: name.removeprefix("features."),
        lambda name: f"module.{name}",
        lambda name: f"module.{name.removeprefix('features.')}",
        lambda name: f"model.backbone.{name}",
        lambda name: f"features.{name}",
        lambda name: f"module.features.{name}",
    ],
    ids=["torchvision", "bare", "module", "module-bare", "nested", "iaia-bl", "iaia-bl-module"],
)
def test_every_way_of_naming_loads(tmp_path, source, backbone, suffix, rename):
    path = write(tmp_path / f"w{suffix}", {rename(name): x for name, x in source.items()})
    report = load_backbone_weights(backbone, path)
    assert same(backbone, source)
    assert report.matched == tuple(source)
    assert report.ignored == ()
    assert str(report) == "26 tensors matched"


@pytest.mark.parametrize("key", ["state_dict", "model"])
def test_a_checkpoint_that_wraps_its_state_dict_loads(tmp_path, source, backbone, key):
    path = tmp_path / "w.pth"
    torch.save({key: source, "epoch": 3}, path)
    load_backbone_weights(backbone, path)
    assert same(backbone, source)


def test_a_classifier_is_left_out_and_reported(tmp_path, source, backbone):
    extra = {"classifier.0.weight": torch.zeros(2, 2), "classifier.0.bias": torch.zeros(2)}
    report = load_backbone_weights(backbone, write(tmp_path / "w.pth", {**source, **extra}))
    assert same(backbone, source)
    assert report.ignored == ("classifier.0.bias", "classifier.0.weight")
    assert str(report) == "26 tensors matched, 2 not needed"


@pytest.mark.parametrize("prefix", ["", "module."])
def test_a_published_checkpoint_of_iaia_bl_gives_its_backbone(tmp_path, source, backbone, prefix):
    """Its add-on, prototypes and last layer are left out and reported."""
    rest = {
        "prototype_vectors": torch.rand(15, 512, 1, 1),
        "ones": torch.ones(15, 512, 1, 1),
        "add_on_layers.0.weight": torch.zeros(8, 32, 1, 1),
        "add_on_layers.0.bias": torch.zeros(8),
        "last_layer.weight": torch.zeros(3, 15),
    }
    tensors = {f"features.{name}": x for name, x in source.items()} | rest
    path = write(tmp_path / "w.pth", {prefix + name: x for name, x in tensors.items()})
    report = start_backbone(backbone, str(path))
    assert same(backbone, source)
    assert report is not None
    assert report.matched == tuple(source)
    assert report.ignored == tuple(sorted(rest))


def test_a_published_checkpoint_of_another_backbone_is_refused(
    tmp_path, source, backbone, unchanged
):
    extra = {"features.features.30.weight": torch.zeros(2, 2, 3, 3)}
    tensors = {f"features.{name}": x for name, x in source.items()} | extra
    with pytest.raises(UserError, match=r"features\.30\.weight is not expected"):
        load_backbone_weights(backbone, write(tmp_path / "w.pth", tensors))


def test_a_published_checkpoint_that_is_a_pickled_module_is_not_executed(
    tmp_path, backbone, unchanged
):
    path = tmp_path / "w.pth"
    torch.save(torch.nn.Sequential(backbone), path)
    with pytest.raises(UserError, match="more than tensors"):
        load_backbone_weights(backbone, path)


def test_batch_norm_weights_load_with_and_without_their_counters(tmp_path):
    torch.manual_seed(0)
    source = VGG16(width=0.0625, batch_norm=True).state_dict()
    for name, x in source.items():
        if name.endswith("running_mean"):
            x.normal_()
    plain = {name: x for name, x in source.items() if not name.endswith("num_batches_tracked")}
    for number, tensors in enumerate((source, plain)):
        backbone = VGG16(width=0.0625, batch_norm=True)
        load_backbone_weights(backbone, write(tmp_path / f"{number}.pth", tensors))
        assert same(backbone, source)


def test_the_type_of_the_backbone_is_kept(tmp_path, source, backbone):
    path = write(tmp_path / "w.safetensors", source)
    load_backbone_weights(backbone.double(), path)
    assert {x.dtype for x in backbone.state_dict().values()} == {torch.float64}


def test_a_missing_tensor_is_named(tmp_path, source, backbone, unchanged):
    del source["features.28.bias"]
    with pytest.raises(UserError, match=r"w\.pth.*features\.28\.bias is missing"):
        load_backbone_weights(backbone, write(tmp_path / "w.pth", source))


def test_a_tensor_of_another_shape_is_named_with_both_shapes(tmp_path, source, backbone, unchanged):
    source["features.28.weight"] = torch.zeros(3, 3)
    with pytest.raises(
        UserError, match=r"features\.28\.weight is \(3, 3\), expected \(32, 32, 3, 3\)"
    ):
        load_backbone_weights(backbone, write(tmp_path / "w.pth", source))


def test_an_unexpected_tensor_is_named(tmp_path, source, backbone, unchanged):
    source["features.99.weight"] = torch.zeros(3)
    with pytest.raises(UserError, match=r"features\.99\.weight is not expected"):
        load_backbone_weights(backbone, write(tmp_path / "w.pth", source))


def test_many_problems_are_counted_and_the_message_is_one_line(tmp_path, backbone, unchanged):
    wide = VGG16(width=0.125).state_dict()
    with pytest.raises(UserError, match=r"and 23 more; check .*width") as caught:
        load_backbone_weights(backbone, write(tmp_path / "w.safetensors", wide))
    assert "\n" not in str(caught.value)


def test_plain_weights_do_not_load_into_batch_norm_or_the_reverse(tmp_path, source, backbone):
    with pytest.raises(UserError, match="batch_norm"):
        load_backbone_weights(
            VGG16(width=0.0625, batch_norm=True), write(tmp_path / "w.pth", source)
        )
    normed = VGG16(width=0.0625, batch_norm=True).state_dict()
    with pytest.raises(UserError, match="batch_norm"):
        load_backbone_weights(backbone, write(tmp_path / "n.pth", normed))


class Trap:
    """Unpickling it would create a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("writer", [torch.save, "pickle"])
def test_a_pickled_object_is_refused_and_not_executed(tmp_path, backbone, unchanged, writer):
    sprung, path = tmp_path / "sprung", tmp_path / "w.pth"
    content = {"features.0.weight": Trap(sprung)}
    if writer == "pickle":
        path.write_bytes(pickle.dumps(content, protocol=2))
    else:
        writer(content, path)
    with pytest.raises(UserError, match=r"w\.pth.*(not loaded|not a readable file)") as caught:
        load_backbone_weights(backbone, path)
    assert not sprung.exists()
    assert "\n" not in str(caught.value)


def test_the_trap_of_the_test_above_works(tmp_path):
    """Otherwise its silence would mean nothing."""
    sprung = tmp_path / "sprung"
    pickle.loads(pickle.dumps(Trap(sprung)))
    assert sprung.exists()


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
@pytest.mark.parametrize("damage", ["truncated", "noise", "empty"])
def test_a_damaged_file_is_refused_in_one_line(
    tmp_path, source, backbone, unchanged, suffix, damage
):
    path = write(tmp_path / f"w{suffix}", source)
    whole = path.read_bytes()
    path.write_bytes(
        {"truncated": whole[: len(whole) // 2], "noise": b"\x07" * 99, "empty": b""}[damage]
    )
    with pytest.raises(UserError, match=rf"w\{suffix}") as caught:
        load_backbone_weights(backbone, path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("nowhere.pth", "no such file"),
        (".", "cannot be read: is a folder, not a file$"),
        ("pipe", "cannot be read: is a pipe, not a file$"),
        ("empty.pth", "is empty"),
    ],
)
def test_what_is_not_a_file_of_weights_is_refused(tmp_path, path, reason):
    (tmp_path / "empty.pth").touch()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match=reason):
        read_tensors(tmp_path / path)


@pytest.mark.parametrize("content", [{}, [1, 2], {"epoch": 3}, torch.zeros(3)])
def test_a_file_without_a_table_of_tensors_is_refused(tmp_path, content):
    path = tmp_path / "w.pth"
    torch.save(content, path)
    with pytest.raises(UserError, match="no table of tensors"):
        read_tensors(path)


class Site(BaseHTTPRequestHandler):
    """Serves `content` once for every request, or breaks off after `sent` bytes."""

    content, sent, requests = b"", None, 0

    def do_GET(self) -> None:
        type(self).requests += 1
        if self.path != "/models/vgg16-test.pth":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.content)))
        self.end_headers()
        self.wfile.write(self.content[: self.sent])

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def site(source, tmp_path) -> Iterator[tuple[type[Site], Published]]:
    """A server on the loopback device, and the file that it publishes."""
    content = write(tmp_path / "source.pth", source).read_bytes()
    handler = type("Site", (Site,), {"content": content})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}/models/vgg16-test.pth"
    yield handler, Published(url, hashlib.sha256(content).hexdigest(), "test weights")
    server.shutdown()
    server.server_close()
    thread.join(timeout=10)


@pytest.fixture
def published(site) -> Published:
    """A published file on the loopback device."""
    return site[1]


def test_a_published_file_is_downloaded_once(tmp_path, site, published, source, backbone):
    cache = tmp_path / "a" / "cache"
    path = fetch_published(published, cache)
    assert path == cache / "vgg16-test.pth"
    load_backbone_weights(backbone, path)
    assert same(backbone, source)
    site[0].content = b""  # the second time, nothing is fetched
    assert fetch_published(published, cache) == path
    assert [file.name for file in cache.iterdir()] == ["vgg16-test.pth"]


def test_a_download_with_the_wrong_hash_is_refused_and_leaves_nothing(tmp_path, published):
    cache = tmp_path / "cache"
    with pytest.raises(UserError, match=r"vgg16-test\.pth.*damaged"):
        fetch_published(published._replace(digest="0" * 64), cache)
    assert list(cache.iterdir()) == []


def test_a_damaged_file_in_the_cache_is_fetched_again(tmp_path, published):
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "vgg16-test.pth").write_bytes(b"half a fi")
    path = fetch_published(published, cache)
    assert hashlib.sha256(path.read_bytes()).hexdigest().startswith(published.digest)
    assert len(list(cache.iterdir())) == 1


def test_a_file_is_not_fetched_from_the_disk_by_an_address(tmp_path, source):
    path = write(tmp_path / "here.pth", source)
    local = Published(path.as_uri(), hashlib.sha256(path.read_bytes()).hexdigest(), "test weights")
    with pytest.raises(UserError, match="not an http or https address"):
        fetch_published(local, tmp_path / "cache")


def test_a_beginning_of_the_hash_is_not_enough(tmp_path, published):
    with pytest.raises(UserError, match="damaged"):
        fetch_published(published._replace(digest=published.digest[:8]), tmp_path / "cache")


def test_a_failed_download_says_so_and_leaves_nothing(tmp_path, published):
    cache = tmp_path / "cache"
    gone = published._replace(url=f"{published.url}-gone")
    with pytest.raises(UserError, match=r"could not be downloaded.*model\.backbone\.weights"):
        fetch_published(gone, cache)
    assert list(cache.iterdir()) == []


def test_a_file_is_downloaded_over_http_once_with_progress(tmp_path, site, source, backbone):
    handler, published = site
    shown = []

    @contextmanager
    def bars(what):
        yield lambda done, total: shown.append((what, done, total))

    path = fetch_published(published, tmp_path / "cache", bars)
    load_backbone_weights(backbone, path)
    assert same(backbone, source)
    assert {what for what, _, _ in shown} == {"downloading vgg16-test.pth"}
    assert all(0 <= done <= total for _, done, total in shown)
    assert fetch_published(published, tmp_path / "cache", bars) == path
    assert handler.requests == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"url": "/models/elsewhere.pth"}, "404"),
        ({"sent": 100}, "damaged|could not be downloaded"),
        ({"content": b"x" * 4000}, "damaged"),
    ],
)
def test_what_goes_wrong_over_http_is_one_line_and_leaves_nothing(tmp_path, site, change, message):
    handler, published = site
    if "url" in change:
        published = published._replace(
            url=published.url.replace("/models/vgg16-test.pth", change["url"])
        )
    else:
        for name, value in change.items():
            setattr(handler, name, value)
    with pytest.raises(UserError, match=message) as caught:
        fetch_published(published, tmp_path / "cache")
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "cache").iterdir()) == []


def test_offline_one_line_says_what_to_fetch_where_to_put_it_and_how_to_do_without(
    monkeypatch, tmp_path
):
    with socket.socket() as probe:  # a port that nobody listens on
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    monkeypatch.setenv("PROTOPYRAMID_CACHE", str(tmp_path / "mine"))
    offline = VGG16_IMAGENET._replace(url=f"http://127.0.0.1:{port}/vgg16-397923af.pth")
    with pytest.raises(UserError) as caught:
        fetch_published(offline)
    message = str(caught.value)
    assert "\n" not in message
    for part in (
        "torchvision's VGG-16 ImageNet weights",
        "397923af8e79cdbb6a7127f12361acd7a2f83e06b05044ddf496e83de57a5bf0",
        str(tmp_path / "mine" / "weights" / "vgg16-397923af.pth"),
        "--set model.backbone.weights=none",
    ):
        assert part in message


def test_a_file_that_was_put_into_the_cache_folder_needs_no_network(
    monkeypatch, tmp_path, source, backbone
):
    monkeypatch.setenv("PROTOPYRAMID_CACHE", str(tmp_path))
    path = write(tmp_path / "put.pth", source)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    (tmp_path / "weights").mkdir()
    path.rename(tmp_path / "weights" / "vgg16-test.pth")
    backbone.imagenet = Published("http://127.0.0.1:1/vgg16-test.pth", digest, "test weights")
    start_backbone(backbone, "imagenet")
    assert same(backbone, source)


def test_the_name_of_the_published_file_carries_the_beginning_of_its_hash():
    assert VGG16_IMAGENET.name == f"vgg16-{VGG16_IMAGENET.digest[:8]}.pth"
    assert len(VGG16_IMAGENET.digest) == 64


def test_start_backbone_takes_nothing_or_a_file(tmp_path, source, backbone):
    before = {name: x.clone() for name, x in backbone.state_dict().items()}
    assert start_backbone(backbone, "") is None
    assert same(backbone, before)
    report = start_backbone(backbone, str(write(tmp_path / "w.safetensors", source)))
    assert len(report.matched) == 26
    assert same(backbone, source)


def test_start_backbone_takes_imagenet_from_the_backbones_published_file(
    monkeypatch, tmp_path, source, backbone, published
):
    monkeypatch.setenv("PROTOPYRAMID_CACHE", str(tmp_path / "cache"))
    backbone.imagenet = published
    start_backbone(backbone, "imagenet")
    assert same(backbone, source)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, VGG16_IMAGENET),
        ({"padding": "replicate"}, VGG16_IMAGENET),
        ({"width": 0.0625}, None),
        ({"batch_norm": True}, None),
    ],
)
def test_only_the_full_vgg16_without_batch_norm_has_imagenet_weights(options, expected):
    assert VGG16(**options).imagenet == expected


def test_a_backbone_without_imagenet_weights_refuses_them_and_downloads_nothing(
    monkeypatch, backbone, unchanged
):
    def never(*arguments, **options):
        raise AssertionError("downloaded")

    monkeypatch.setattr("protopyramid.model.weights.fetch_published", never)
    message = r'model\.backbone\.weights "imagenet".*VGG-16.*\.safetensors or \.pth'
    with pytest.raises(UserError, match=message):
        start_backbone(backbone, "imagenet")


@pytest.mark.skipif(not IMAGENET.is_file(), reason="the ImageNet weights are not at hand")
def test_the_imagenet_weights_match_every_tensor():
    backbone = VGG16()
    report = load_backbone_weights(backbone, IMAGENET)
    assert len(report.matched) == 26
    assert report.ignored == ()
    # The first filter of torchvision's vgg16, IMAGENET1K_V1.
    assert backbone.features[0].weight[0, 0, 0, 0].item() == pytest.approx(-0.5537, abs=1e-4)
