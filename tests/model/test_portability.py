"""The same numbers whatever the type, memory order, device or compiler."""

import pytest
import torch

from protopyramid.config.schema import Config
from protopyramid.losses import build_objective
from protopyramid.model import build_model

FPN = {"backbone": {"width": 0.0625}, "neck": {"dim": 8}}
LOG_L2 = {
    "backbone": {"width": 0.0625},
    "neck": {"kind": "add-on", "dim": 8},
    "prototypes": {"counts": {5: 2}, "negative_counts": {5: 2}},
    "similarity": {"kind": "log-l2"},
    "pooling": {"kind": "topk"},
}
SYSTEMS = pytest.mark.parametrize("model", [FPN, LOG_L2], ids=["cosine", "log-l2"])


def built(model, seed=0):
    torch.manual_seed(seed)
    config = Config.model_validate({"model": model})
    return config, build_model(config).eval()


def assert_same(ours, theirs, **tolerance):
    torch.testing.assert_close(ours.logits, theirs.logits, **tolerance)
    torch.testing.assert_close(ours.scores, theirs.scores, **tolerance)
    torch.testing.assert_close(ours.closeness, theirs.closeness, **tolerance)
    assert list(ours.maps) == list(theirs.maps)
    for level in theirs.maps:
        torch.testing.assert_close(ours.maps[level], theirs.maps[level], **tolerance)


def evidence_of(model):
    """The network of a system, two random images, and its evidence of them."""
    _, network = built(model)
    images = torch.randn(2, 3, 48, 32)
    with torch.no_grad():
        return network, images, network(images)


@SYSTEMS
def test_float64_gives_the_numbers_of_float32(model):
    network, images, single = evidence_of(model)
    with torch.no_grad():
        double = network.double()(images.double())
    assert double.logits.dtype == double.scores.dtype == torch.float64
    assert {x.dtype for x in double.maps.values()} == {torch.float64}
    assert_same(single, double, rtol=1e-3, atol=1e-4, check_dtype=False)


@SYSTEMS
def test_channels_last_gives_the_numbers_of_contiguous(model):
    network, images, contiguous = evidence_of(model)
    with torch.no_grad():
        network = network.to(memory_format=torch.channels_last)
        last = network(images.to(memory_format=torch.channels_last))
    assert_same(last, contiguous, rtol=1e-5, atol=1e-5)


@SYSTEMS
def test_losses_and_gradients_do_not_depend_on_the_memory_order(model):
    config, network = built(model)
    images = torch.randn(3, 3, 48, 32)
    labels, annotated = torch.tensor([0, 1, 2]), torch.ones(3, dtype=torch.bool)
    masks = torch.zeros(3, 48, 32)
    masks[:, 10:30, 8:20] = 1.0
    gradients = []
    for order in (torch.contiguous_format, torch.channels_last):
        network.zero_grad()
        evidence = network.to(memory_format=order)(images.contiguous(memory_format=order))
        build_objective(config)(
            evidence, labels, masks, annotated, network.prototypes
        ).total.backward()
        gradients.append({name: p.grad.clone() for name, p in network.named_parameters()})
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, rtol=1e-3, atol=1e-4, msg=name)


@SYSTEMS
def test_compiled_without_graph_breaks_the_outputs_and_gradients_are_equal(model):
    _, network = built(model)
    images = torch.randn(2, 3, 32, 32)
    expected = network(images)
    expected.logits.sum().backward()
    gradient = network.prototypes.vectors.grad.clone()
    network.zero_grad()
    torch.compiler.reset()
    compiled = torch.compile(network, fullgraph=True, backend="aot_eager")
    ours = compiled(images)
    assert_same(ours, expected, rtol=1e-5, atol=1e-5)
    ours.logits.sum().backward()
    torch.testing.assert_close(network.prototypes.vectors.grad, gradient, rtol=1e-4, atol=1e-5)


@SYSTEMS
def test_exported_with_a_free_batch_size_the_outputs_are_equal(model):
    _, network = built(model)
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(
        network, (torch.randn(2, 3, 32, 32),), dynamic_shapes={"images": {0: batch}}
    ).module()
    for size in (1, 5):
        images = torch.randn(size, 3, 32, 32)
        with torch.no_grad():
            assert_same(program(images), network(images), rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@SYSTEMS
def test_cuda_gives_the_numbers_of_the_cpu(model):
    config, network = built(model)
    images = torch.randn(2, 3, 48, 32)
    masks = torch.zeros(2, 48, 32)
    masks[:, 10:30, 8:20] = 1.0
    labels, annotated = torch.tensor([0, 2]), torch.ones(2, dtype=torch.bool)
    on_cpu = network(images)
    total = build_objective(config)(on_cpu, labels, masks, annotated, network.prototypes).total
    network, objective = network.cuda(), build_objective(config).cuda()
    on_gpu = network(images.cuda())
    assert_same(
        on_gpu._replace(maps={k: v.cpu() for k, v in on_gpu.maps.items()}),
        on_cpu._replace(maps=on_cpu.maps),
        rtol=1e-3,
        atol=1e-3,
        check_device=False,
    )
    ours = objective(
        on_gpu, labels.cuda(), masks.cuda(), annotated.cuda(), network.prototypes
    ).total
    torch.testing.assert_close(ours.cpu(), total, rtol=1e-3, atol=1e-3)
    ours.backward()
    assert all(torch.isfinite(p.grad).all() for p in network.parameters())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_fine_loss_on_cuda_under_autocast_gives_the_numbers_of_the_cpu():
    from protopyramid.losses import fine_annotation

    maps, masks = torch.rand(2, 3, 7, 7), (torch.rand(2, 32, 32) > 0.5).float()
    inside, outside = torch.zeros(2, 3), torch.ones(2, 3)
    expected = fine_annotation(maps, masks, inside, outside)
    with torch.autocast("cuda", torch.bfloat16):
        ours = fine_annotation(maps.cuda(), masks.cuda(), inside.cuda(), outside.cuda())
    torch.testing.assert_close(ours.cpu(), expected, rtol=1e-5, atol=0)
