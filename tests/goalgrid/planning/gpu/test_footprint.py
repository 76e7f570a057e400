"""Estimates of memory, against the peak of real steps on a CPU as PyTorch's profiler counts it."""

import gc
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from goalgrid.grid import catalog
from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.settings import TrialSettings
from goalgrid.grid.settings.pretrained_networks import RANDOM
from goalgrid.objectives import mining
from goalgrid.planning.gpu.allocator import CachingAllocator
from goalgrid.planning.gpu.footprint import (
    _batch,
    _step,
    around,
    estimate,
    peak,
    rehearse,
    reranked_pairs,
    second_stage,
)
from goalgrid.planning.gpu.shapes_of_data import Shapes
from goalgrid.planning.gpu.trace import KERNELS, Trace, Work, unfilled, without_data
from goalgrid.planning.gpu.untrained import (
    MODELS,
    inputs_of,
    of_caption_features,
    of_features,
    without_weights,
)
from goalgrid.retrieval.components.xvlm import rerank
from goalgrid.retrieval.encoders.text import features_of, text_network
from goalgrid.retrieval.encoders.vision import Vision
from goalgrid.runners.gpu.architectures import ARCHITECTURES, as_resnext, from_architecture, in_architecture
from goalgrid.runners.gpu.cards import CARDS, card
from goalgrid.runners.gpu.memory_probe import heavy, trained_by
from goalgrid.runners.training.learner import Learner
from tests.goalgrid.planning.gpu.counting import Counting

MB = 2**20


def settings_of(recipe: str, *overrides: str) -> TrialSettings:
    words = (f'recipes=["{recipe}"]', "objectives=con_con", "seeds=[0]", *overrides)
    trials = trials_of(expand(load("selhn-table2", words)))
    return next(trial.settings for trial in trials if trial.shared.recipe == recipe)


class Silent:
    """Stands where an estimate counts, and counts nothing."""

    work, allocator = Work(), CachingAllocator()

    def hold(self, tensor: torch.Tensor) -> None: ...
    def zeros(self, shape: Sequence[int], kind: torch.dtype) -> torch.Tensor:
        return torch.zeros(shape, dtype=kind)

    def __enter__(self) -> None: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def flops(work: Work) -> float:
    return sum(operations for group in work.products.values() for operations, _ in group)


def built(settings: TrialSettings, shapes: Shapes) -> Learner:
    """A learner with weights."""
    settings = heavy(settings.model_copy(update={"model": in_architecture(settings.model, {})}))
    learner = Learner(settings, inputs_of(shapes, settings, {}))
    as_resnext(learner.model)
    return learner


def estimated_peak(settings: TrialSettings, shapes: Shapes) -> int:
    """Bytes that the estimate counts for two steps."""
    learner, trace = built(settings, shapes), Trace()
    trace.allocator = counting = Counting()
    with without_data():
        without_weights(learner, trace)
        rehearse(learner, shapes, trace)
    return counting.most_used


def real_peak(settings: TrialSettings, shapes: Shapes) -> int:
    """Most bytes that the CPU's allocator holds for the same steps with data."""
    learner, silent = built(settings, shapes), Silent()
    modules = (learner.model, learner.objective)
    begin = sum(x.numel() * x.element_size() for m in modules for x in [*m.parameters(), *m.buffers()])
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found, without_data():
        rehearse(learner, shapes, silent)  # type: ignore[arg-type]
    assert found.profiler is not None
    assert found.profiler.kineto_results is not None
    moments, sizes = list[tuple[int, int]](), begin
    pending: list[Any] = list(found.profiler.kineto_results.experimental_event_tree())
    while pending:
        event = pending.pop()
        pending += event.children
        if hasattr(event.extra_fields, "alloc_size"):
            moments.append((event.start_time_ns, event.extra_fields.alloc_size))
    most = sizes
    for _, size in sorted(moments, key=lambda moment: moment[0]):
        sizes += size
        most = max(most, sizes)
    return most


def test_after_tensors_without_data_the_process_is_as_before() -> None:
    tables = (mining.WHOLE, mining.TILE)
    before = [dict(table) for table in tables]
    with without_data():
        assert not gc.isenabled()
        assert [table["cpu"] for table in tables] == [table["cuda"] for table in tables]
    assert gc.isenabled()
    assert list(tables) == before
    assert torch.nn.modules.rnn._VF.gru is torch._VF.gru


def share_of_real(name: str, settings: TrialSettings, shapes: Shapes) -> float:
    """The estimate as a share of the real peak; both are printed (`pytest -rP`)."""
    estimated, real = estimated_peak(settings, shapes), real_peak(settings, shapes)
    sys.stdout.write(f"| {name} | {estimated / 1e6:.1f} MB | {real / 1e6:.1f} MB | {estimated / real:.3f} |\n")
    return estimated / real


SMALL = ("model.dim=64", "train.batch_size=32")
REGIONS, PIXELS = Shapes((12, 256), 500, 8, 16, 0), Shapes((3, 64, 64), 500, 8, 16, 0)
VECTORS = Shapes((256,), 500, 8, 16, 0)
FAMILIES = {
    "fc-gru": (VECTORS, 1.05),
    "vse-2ad-tiny": (REGIONS, 1.05),
    "vsepp-r152-tiny-ft": (PIXELS, 1.05),
    "vse-2ad-fc-seq2seq": (REGIONS, 1.2),
}
"""Recipes with what they read, and how far an estimate may be above the real peak."""
MORE = {
    "scan-t2i": (REGIONS, 1.05),
    "fc-bow": (VECTORS, 1.05),
    "cnn-bigru": (PIXELS, 1.2),
    "vsepp-vit-b16-tiny-ft": (PIXELS, 1.05),
    "vse-mlp": (REGIONS, 1.2),
    "vse-inf-wsl-tiny": (PIXELS, 1.2),
    "bfan-prob": (REGIONS, 1.2),
    "sgr": (REGIONS, 1.2),
    "vsrn-tiny": (REGIONS, 1.05),
    "xvlm-tiny": (Shapes((3, 32, 32), 500, 8, 16, 0), 1.2),
}
OBJECTIVES = {
    "aoq": ("fc-gru", VECTORS, 1.2, 'train.ranker="fc-bow"'),
    "ncr": ("fc-bow", VECTORS, 1.05, "model.networks=twins", "train.warmup_epochs=1"),
    "meta-spn": ("fc-bow", VECTORS, 1.05),
}
"""Objectives that read more than a batch of pairs, or that train two networks."""


@pytest.mark.parametrize("recipe", [*FAMILIES, *(pytest.param(name, marks=pytest.mark.slow) for name in MORE)])
def test_an_estimate_is_close_to_the_real_peak(recipe: str) -> None:
    shapes, above = {**FAMILIES, **MORE}[recipe]
    assert 0.97 <= share_of_real(recipe, settings_of(recipe, *SMALL), shapes) <= above


@pytest.mark.parametrize("recipe", ["vse-2ad-fc-seq2seq", "vsepp-vit-b16-tiny-ft"])
def test_a_model_that_was_traced_before_is_counted_as_at_first(recipe: str) -> None:
    settings, shapes = settings_of(recipe, *SMALL), {**FAMILIES, **MORE}[recipe][0]
    MODELS.clear()
    first = estimate(settings, shapes, {})
    with suppress(UserError):  # batch norms that learn, or no blocks
        peak(trained_by(settings, checkpoint_activations=True), shapes, {})
    evaluated = estimate(trained_by(settings, epochs=0), shapes, {})
    assert len(MODELS) == 1
    assert estimate(settings, shapes, {}) == first
    MODELS.clear()
    assert estimate(trained_by(settings, epochs=0), shapes, {}) == evaluated


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_an_estimate_counts_what_an_objective_reads_beside_its_batch(objective: str) -> None:
    recipe, shapes, above, *overrides = OBJECTIVES[objective]
    settings = settings_of(recipe, *SMALL, f"objectives={objective}", *overrides)
    assert 0.97 <= share_of_real(f"{recipe} with {objective}", settings, shapes) <= above
    assert estimated_peak(settings, shapes) > 1.2 * estimated_peak(settings_of(recipe, *SMALL), shapes)


FROM_PIXELS = ("vse-inf-wsl-tiny", *SMALL, "model.image.norm_eval=true", "model.image.size=64")


@pytest.mark.parametrize(
    "saving", [pytest.param("train.micro_batch=8", marks=pytest.mark.slow), "train.checkpoint_activations=true"]
)
def test_an_estimate_knows_what_is_computed_again(saving: str) -> None:
    settings = settings_of(*FROM_PIXELS, saving)
    assert 0.97 <= share_of_real(saving, settings, PIXELS) <= 1.2
    assert estimated_peak(settings, PIXELS) < 0.9 * estimated_peak(settings_of(*FROM_PIXELS), PIXELS)


@pytest.mark.slow
def test_parts_of_a_batch_are_estimated_from_a_whole_and_half_of_one() -> None:
    """Against four parts of eight pairs that are counted one by one."""
    words, shapes = ("train.batch_size=32", "model.image.size=224"), Shapes((3, 224, 224), 8481, 12, 40, 0)
    whole, parts = (settings_of("vsepp-r152-ft", *words, *more) for more in ((), ("train.micro_batch=8",)))
    learner, trace = built(parts, shapes), Trace()
    with without_data():
        without_weights(learner, trace)
        step, *_ = rehearse(learner, shapes, trace)
    estimated, before = estimate(parts, shapes, {}), estimate(whole, shapes, {})
    assert estimated.reserved == pytest.approx(trace.allocator.most_reserved, rel=0.1)
    assert flops(estimated.step) == pytest.approx(flops(step), rel=0.02)
    assert estimated.step.launches == pytest.approx(step.launches, rel=0.1)
    price, gpu = before.again(32).step, card("h100")
    assert 1.3 < flops(price) / flops(before.step) < 1.4
    assert price.seconds(gpu)[0] < 1.45 * before.step.seconds(gpu)[0]


# channels and side of a picture: milliseconds forward and of both passes (python benchmarks/gpu.py --only convolutions)
OF_AN_H100 = {(256, 128): (3.94, 34.5), (512, 64): (1.86, 8.33), (1024, 32): (1.00, 3.86), (2048, 16): (1.01, 4.70)}


@pytest.mark.parametrize(("channels", "side"), OF_AN_H100)
def test_a_convolution_in_groups_takes_about_what_it_took_on_an_h100(channels: int, side: int) -> None:
    with without_data(), (trace := Trace()):
        values = torch.zeros(32, channels, side, side, requires_grad=True)
        weight = torch.zeros(channels, channels // 32, 3, 3, requires_grad=True)
        trace.work = Work()
        found = torch.nn.functional.conv2d(values, weight, padding=1, groups=32)
        forwards = trace.work
        trace.work = Work()
        torch.autograd.grad(found, [values, weight], torch.zeros_like(found))
        backwards = trace.work
    forward, both = OF_AN_H100[channels, side]
    assert 1e3 * forwards.seconds(card("h100"))[0] == pytest.approx(forward, rel=0.1)
    assert 0.5 * both < 1e3 * (forwards + backwards).seconds(card("h100"))[0] < 1.5 * both
    assert forwards.launches == 32


def test_a_convolution_without_groups_costs_twice_as_much_backwards() -> None:
    with without_data(), (trace := Trace()):
        values = torch.zeros(2, 8, 5, 5, requires_grad=True)
        weight = torch.zeros(8, 8, 3, 3, requires_grad=True)
        found = torch.nn.functional.conv2d(values, weight)
        forwards = flops(trace.work)
        found.sum().backward()
    assert forwards == 2 * found.numel() * 8 * 9
    assert flops(trace.work) == 3 * forwards


def kernels(event: Any) -> int:
    """Kernels of a profiled step: of operations that are neither views nor made of others."""
    name = str(event.name)
    packet = getattr(torch.ops.aten, name.removeprefix("aten::"), None) if name.startswith("aten::") else None
    overloads = [getattr(packet, word) for word in packet.overloads()] if packet else []
    overloads = [overload for overload in overloads if torch._C._dispatch_has_kernel(overload.name())]
    if not overloads or all(overload._can_decompose() for overload in overloads):
        return sum(map(kernels, event.children))
    return 0 if all(overload.is_view for overload in overloads) else KERNELS.get(packet, 1)


WITHOUT_GRU = {
    "fc-bow": VECTORS,
    "cnn-bow": PIXELS,
    "vse-2ad-tiny": REGIONS,
    "vse-2ad-patch-tiny": PIXELS,
    "xvlm-tiny": MORE["xvlm-tiny"][0],
}
"""Recipes with what they read. A CPU computes a step of a GRU in about twenty operations, a GPU in one or two."""


@pytest.mark.parametrize(("recipe", "shapes"), WITHOUT_GRU.items())
def test_a_step_is_counted_in_the_kernels_that_it_launches(recipe: str, shapes: Shapes) -> None:
    settings = settings_of(recipe, *SMALL)
    learner, trace = built(settings, shapes), Trace()
    with without_data():
        without_weights(learner, trace)
        step, *_ = rehearse(learner, shapes, trace)
    real, silent = built(settings, shapes), Silent()
    batch = _batch(real, shapes, around(shapes.typical, 32), silent)  # type: ignore[arg-type]
    _step(real, 0, batch, silent)  # type: ignore[arg-type]
    real.begin(0)
    with profile(activities=[ProfilerActivity.CPU]) as found:
        real.gradient(batch, 0.0)
        real.optimizer.step()
    assert found.profiler is not None
    assert found.profiler.kineto_results is not None
    launches = sum(map(kernels, found.profiler.kineto_results.experimental_event_tree()))
    sys.stdout.write(f"{recipe}: {step.launches} operations estimated, {launches} counted\n")
    assert step.launches == pytest.approx(launches, rel=0.1)


def bytes_by_hand(batch: int) -> float:
    """Bytes that a training step of ResNet-152 reads and writes in fp32, layer by layer."""

    def values(resolution: int, channels: int) -> int:
        return batch * resolution**2 * channels

    def layer(before: int, after: int, *, relu: bool = True) -> int:
        """A convolution and its norm: forward 1 + 1 and 0 + 2 passes, backward 2 + 1 and 0 + 3; a ReLU: 2 and 3."""
        return 3 * before + (12 if relu else 7) * after

    count, weights, channels, resolution = layer(values(224, 3), values(112, 64)), 3 * 64 * 49, 64, 56
    count += 2 * values(112, 64) + 3 * values(56, 64)  # the largest of 3 x 3, with its place
    for width, depth in (64, 3), (128, 8), (256, 36), (512, 3):
        for block in range(depth):
            stride = 2 if width > 64 and block == 0 else 1
            given, inner = values(resolution, channels), values(resolution // stride, width)
            count += layer(given, values(resolution, width)) + layer(values(resolution, width), inner)
            count += layer(inner, 4 * inner, relu=False)
            count += 8 * 4 * inner + 3 * given  # both branches: added, ReLU; backward the ReLU, and added
            weights += width * (channels + 9 * width + 4 * width)
            if block == 0:
                count += layer(given, 4 * inner, relu=False)
                weights += channels * 4 * width
            channels, resolution = 4 * width, resolution // stride
    learning = 3 + 2 + 1 + 8  # the step itself, clipping with the norm, and Adam
    return 4.0 * (count + learning * weights)


@pytest.mark.slow
def test_a_step_of_resnet_152_is_that_of_a_count_by_hand_and_of_nvidia_s_measurement() -> None:
    """NVIDIA's ResNet-50 trains 367 pictures a second in fp32 on a V100; a ResNet-152 has 2.8 times the arithmetic."""
    settings = settings_of("vsepp-r152-ft", "train.batch_size=128")
    learner, trace = built(settings, shapes := Shapes((3, 224, 224), 8481, 12, 40, 0)), Trace()
    with without_data():
        without_weights(learner, trace)
        step, *_ = rehearse(learner, shapes, trace)
    moved = step.bytes + sum(moved for group in step.products.values() for _, moved in group)
    rates = [128 / seconds for seconds in step.seconds(CARDS["v100"])]
    sys.stdout.write(f"{moved / 1e9:.0f} GB, {bytes_by_hand(128) / 1e9:.0f} by hand; {rates} pictures a second\n")
    assert moved == pytest.approx(bytes_by_hand(128), rel=0.15)
    assert rates == [pytest.approx(367 / 2.8, abs=20)] * 2


def test_a_step_that_holds_the_backbone_only_runs_it_forwards() -> None:
    learner, trace = built(settings_of("vsepp-r152-tiny-ft", *SMALL, "model.dim=8"), PIXELS), Trace()
    with without_data():
        without_weights(learner, trace)
        step, _, frozen = rehearse(learner, PIXELS, trace, freezes=True)
    assert 0.3 < flops(frozen) / flops(step) < 0.5  # forwards is a third


def test_a_caption_costs_a_frozen_text_network_what_it_takes_with_data() -> None:
    network = settings_of("clip-zero-shot-tiny").model.text.feature_network
    assert network is not None
    work, width = of_caption_features(network, 50, 8, {})
    model = text_network(network, 50, {}).eval()
    with torch.no_grad(), FlopCounterMode(display=False) as real, sdpa_kernel(SDPBackend.MATH):
        found = features_of(model, network.output, torch.zeros((1, 8), dtype=torch.int64), torch.tensor([8]))
    assert found.shape == (1, width)
    assert flops(work) == pytest.approx(real.get_total_flops(), rel=0.05)


@pytest.mark.slow
def test_the_work_of_a_pair_that_is_ranked_anew_is_the_real_work() -> None:
    settings = settings_of("xvlm-tiny", "model.fusion.candidates=30", "train.precision=fp32")
    shapes, trace = Shapes((3, 32, 32), 500, 8, 16, 10, 50), Trace()
    learner = built(settings, shapes)
    model: Any = learner.model.eval()
    lengths = np.sort(around(shapes.typical, 50))
    packed = rerank.PackedStates(torch.zeros(int(lengths.sum()), 32), lengths, np.arange(50))
    with torch.no_grad():
        tokens = model.image.tokens(torch.zeros(1, *shapes.image, dtype=torch.uint8))
        with FlopCounterMode(display=False) as real, sdpa_kernel(SDPBackend.MATH):  # of a CPU's others it counts none
            rerank.scores_of_image(model.fusion, packed, tokens, packed.place)
    with without_data():
        without_weights(learner, trace)
        found = second_stage(learner.model, learner.settings, shapes, trace)
    assert found is not None
    assert flops(found) * 50 == pytest.approx(real.get_total_flops(), rel=0.05)


def test_pairs_that_a_fusion_encoder_ranks_lie_between_the_counts() -> None:
    settings = settings_of("xvlm-tiny", "model.fusion.candidates=10")
    random, (images, texts) = np.random.default_rng(0), (80, 400)
    owners = np.repeat(np.arange(images), 5)
    picture = torch.from_numpy(random.normal(size=(images, 8)))
    caption = picture[owners] + torch.from_numpy(random.normal(size=(texts, 8)))
    for folds in [None], [20], [None, 20]:
        listed = [rerank.folds_of(picture, caption, owners, 10, fold) for fold in folds]
        keys = [part.ravel() for way in listed for short in way for part in short.pairs(texts)]
        least, most = reranked_pairs(settings, images, texts, folds)
        assert least <= len(np.unique(np.concatenate(keys))) <= most


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["vsepp-r152-ft", "vsepp-vit-b16-ft"])
def test_an_estimate_holds_at_the_published_size_of_a_backbone(recipe: str) -> None:
    settings, shapes = settings_of(recipe, "train.batch_size=8"), Shapes((3, 224, 224), 8481, 12, 40, 0)
    assert 0.97 <= share_of_real(f"{recipe}, 8 pictures", settings, shapes) <= 1.05


def test_what_stands_for_the_resnext_has_a_cell_for_32_pixels_as_that_has() -> None:
    part = from_architecture(catalog.recipe("vse-inf-wsl").model.image, {})
    shallow = {**part.architecture, "depths": [1, 1, 1, 1]}
    features = of_features(part.model_copy(update={"architecture": shallow, "size": 128}), {})[1]
    assert features == (4 * 4, 2048)


def test_first_weights_that_are_not_drawn_are_never_drawn_anew() -> None:
    """Memory that was used before holds anything."""
    weights = torch.full((300, 300), 9.0)
    with unfilled():
        torch.nn.init.trunc_normal_(weights, std=0.02)
    assert bool((weights == 9).all())


def test_the_width_of_a_network_is_found_without_its_values() -> None:
    part = from_architecture(catalog.recipe("vsepp-vit-b16").model.image, {})
    part = part.model_copy(update={"architecture": {**part.architecture, "num_hidden_layers": 1}})
    with unfilled():
        blank = Vision(part, {})
    assert blank.width == Vision(part, {}).width


def test_the_allocator_cuts_segments_and_joins_what_is_free() -> None:
    allocator = Counting()
    small = [allocator.allocate(size) for size in (1, 513)]
    assert (allocator.used, allocator.reserved) == (512 + 1024, 2 * MB)
    large = allocator.allocate(3 * MB)
    assert allocator.reserved == 22 * MB
    assert allocator.allocate(17 * MB).size == 17 * MB  # the rest of its segment holds it
    assert allocator.reserved == 22 * MB
    for block in (*small, large):
        allocator.release(block)
    assert allocator.allocate(2 * MB - 512).size == 2 * MB - 512  # of a large segment
    assert allocator.most_reserved == 22 * MB
    assert allocator.allocate(30 * MB + 1).size == 30 * MB + 512  # cut from a segment of 32 MiB
    assert allocator.reserved == 54 * MB


def test_a_card_is_known_by_name_or_by_its_memory() -> None:
    with pytest.raises(UserError, match=r"unknown GPU 'h10' in --device\. Did you mean 'h100'\?"):
        card("h10")
    with pytest.raises(UserError, match=r"'A100' exists with several memory sizes.* a100-40, a100-80"):
        card("A100")
    work = Work({"float32": [(1e12, 0.0)]}, launches=100)
    least, most = work.seconds(CARDS["h100"])
    assert 0 < least < most
    assert work.seconds(CARDS["h100"], tf32=True)[0] < least


def test_weights_whose_architecture_is_unknown_are_named() -> None:
    models = [catalog.recipe(name).model for name in catalog.names("recipes")]
    named = [getattr(part, "weights", RANDOM) for model in models for part in (model.image, model.text)]
    assert set(named) == {*ARCHITECTURES, RANDOM}
    text = settings_of("rvsepp", "model.text.weights=some/bert").model.text
    with pytest.raises(UserError, match=r"unknown architecture of weights 'some/bert'.*--weights NAME=DIR"):
        from_architecture(text, {})
