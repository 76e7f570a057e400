"""Stacked models: each of K is the single one, forward and backward, and does not depend on its company."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from grid import catalog
from grid.encoders import ModelSettings
from retrieval import recurrent
from retrieval.model import Vse, build
from retrieval.stacked.layers import repeated
from retrieval.stacked.model import StackedVse, why_not
from retrieval.stacked.recurrent import Gru, Packing

K = 3
WORDS = 40


@st.composite
def lengths(draw: st.DrawFn) -> Tensor:
    return torch.tensor(draw(st.lists(st.integers(1, 9), min_size=1, max_size=7)))


def grus(bidirectional: bool, count: int = K) -> tuple[list[recurrent.Gru], Gru]:
    """Single GRUs with weights of their own, and the same ones stacked."""
    torch.manual_seed(0)
    singles = [recurrent.Gru(5, 4, bidirectional=bidirectional) for _ in range(count)]
    stacked = Gru(singles[0], count, shared=False)
    with torch.no_grad():
        for name, weight in stacked.named_parameters():
            weight.copy_(torch.stack([single.get_parameter(name) for single in singles]))
    return singles, stacked


class TestGru:
    @settings(max_examples=30)
    @given(lengths=lengths(), bidirectional=st.booleans(), last=st.booleans(), beyond=st.integers(0, 2))
    def test_it_equals_torch_forward_and_backward(
        self, lengths: Tensor, bidirectional: bool, last: bool, beyond: int
    ) -> None:
        singles, stacked = grus(bidirectional)
        values = torch.randn(K, len(lengths), int(lengths.max()) + beyond, 5, requires_grad=True)
        own = values.detach().clone().requires_grad_()

        def read(gru: recurrent.Gru | Gru, of: Tensor) -> Tensor:
            return gru.last(of, lengths) if last else gru.states(of, lengths)

        given = read(stacked, values)
        expected = torch.stack([read(single, of) for single, of in zip(singles, own, strict=True)])
        torch.testing.assert_close(given, expected, atol=1e-6, rtol=0)
        upstream = torch.randn_like(expected)
        given.backward(upstream)
        expected.backward(upstream)
        torch.testing.assert_close(values.grad, own.grad, atol=1e-5, rtol=1e-5)
        for name, weight in stacked.named_parameters():
            of_single = torch.stack([
                torch.zeros_like(w) if (g := w.grad) is None else g
                for w in (single.get_parameter(name) for single in singles)
            ])  # fmt: skip
            of_stacked = torch.zeros_like(weight) if weight.grad is None else weight.grad
            torch.testing.assert_close(of_stacked, of_single, atol=1e-5, rtol=1e-5)

    def test_its_gradient_is_the_numeric_one(self) -> None:
        _, stacked = grus(bidirectional=True, count=2)
        stacked.double()
        values = torch.randn(2, 3, 4, 5, dtype=torch.double, requires_grad=True)
        lengths = torch.tensor([2, 4, 1])
        assert torch.autograd.gradcheck(lambda *of: stacked.states(of[0], lengths), (values, *stacked.parameters()))

    @given(lengths=lengths())
    def test_packing_is_undone_by_padding_and_mirroring_by_itself(self, lengths: Tensor) -> None:
        b, n = len(lengths), int(lengths.max())
        packing = Packing.of(lengths, n, torch.device("cpu"))
        present = torch.arange(n) < lengths[:, None]
        values = (1 + torch.arange(b * n, dtype=torch.float)).reshape(1, b, n, 1) * present[..., None]
        packed = packing.pack(values)
        assert packing.pad(packed, b, n).equal(values)
        assert packed[:, packing.mirrored][:, packing.mirrored].equal(packed)
        assert packed[0, packing.last, 0].tolist() == [values[0, i, length - 1, 0] for i, length in enumerate(lengths)]


RECIPES = ["cnn-bow", "cnn-gru", "cnn-bigru", "fc-bow", "fc-gru", "fc-bigru", "vse-mlp", "rvse-mlp"]
CHANGES: dict[str, dict[str, dict[str, object]]] = {
    **{recipe: {} for recipe in RECIPES},
    **{f"fc-bigru {name}": {"text": {"pooling": name}} for name in ("max", "kmax", "softmax", "gpo", "adpool")},
    "fc-bow gpo": {"image": {"pooling": "gpo"}},
    "fc-bow adpool-released": {"image": {"pooling": "adpool-released"}, "text": {"pooling": "adpool-released"}},
    "fc-bow dropout": {"image": {"dropout": 0.3}, "text": {"dropout": 0.3}},
    "fc-bow size": {"image": {"drop": 0.4, "pooling": "max"}},
    "cnn-bow max": {"image": {"pooling": "max", "flip": True}},
    "cnn-bow 5 channels": {"image": {"channels": 5}},
    **{f"fc-bow {head}": {"image": {"encoder": head, "hidden": 6}} for head in ("linear-mlp", "mlp", "residual-mlp")},
}


def settings_of(what: str) -> ModelSettings:
    content = catalog.recipe(what.split()[0]).model.model_dump() | {"dim": 8}
    for part, values in CHANGES[what].items():
        content[part] |= values
    content["text"]["word_dim"] = 6
    if content["image"]["encoder"] == "cnn":
        content["image"] |= {"size": 16, "channels": CHANGES[what].get("image", {}).get("channels", 16)}
    return ModelSettings.model_validate(content)


def models(what: str, count: int = K) -> list[Vse]:
    """Models with weights of their own."""
    of = settings_of(what)
    shape = (3, 16, 16) if of.image.encoder == "cnn" else (5, 7)
    return [build(of, shape, WORDS, seed=seed) for seed in range(count)]


def stack(singles: list[Vse]) -> StackedVse:
    stacked = StackedVse(singles[0], len(singles))
    for place, single in enumerate(singles):
        stacked.load_weights_of(place, single.weights())
    return stacked


def batch(what: str) -> tuple[Tensor, Tensor, Tensor]:
    """Images and captions."""
    torch.manual_seed(1)
    lengths = torch.tensor([3, 7, 1, 7, 2, 5])
    ids = torch.randint(1, WORDS, (6, 7)) * (torch.arange(7) < lengths[:, None])
    image = torch.randn(6, 5, 7)
    if settings_of(what).image.encoder == "cnn":
        image = torch.randint(0, 255, (6, 3, 16, 16), dtype=torch.uint8)
    return image, ids, lengths


def learn(model: Vse, what: str, place: int | None = None) -> tuple[Tensor, Tensor]:
    """Embeddings of one training step, and a gradient in every weight."""
    images, ids, lengths = batch(what)
    torch.manual_seed(7)
    image, text = model.embed_images(images), model.embed_texts(ids, lengths)
    generator = torch.Generator().manual_seed(2)
    upstream = torch.randn(2, K, *image.shape[-2:], generator=generator)
    upstream = upstream if place is None else upstream[:, place]
    ((image * upstream[0]).sum() + (text * upstream[1]).sum()).backward()
    return image, text


@pytest.mark.parametrize("what", CHANGES)
def test_each_of_the_stacked_models_is_the_single_one(what: str) -> None:
    singles = models(what)
    stacked = stack(singles)
    embedded = learn(stacked, what)
    for place, single in enumerate(singles):
        alone = learn(single, what, place)
        for one, many in zip(alone, embedded, strict=True):
            torch.testing.assert_close(many[place], one, atol=1e-6, rtol=0)
        for name, weight in single.named_parameters():
            of_stacked = stacked.get_parameter(name).grad
            assert weight.grad is not None
            assert of_stacked is not None
            torch.testing.assert_close(of_stacked[place], weight.grad, atol=2e-5, rtol=1e-4, msg=lambda m: name + m)  # noqa: B023
        own = stacked.weights_of(place)
        for name, value in single.weights().items():  # running statistics too
            torch.testing.assert_close(own[name], value, atol=1e-6, rtol=0)
    images, ids, lengths = batch(what)
    with torch.inference_mode():
        evaluated = stacked.eval().embed_images(images), stacked.embed_texts(ids, lengths)
        for place, single in enumerate(singles):
            torch.testing.assert_close(evaluated[0][place], single.eval().embed_images(images), atol=1e-6, rtol=0)
            torch.testing.assert_close(evaluated[1][place], single.embed_texts(ids, lengths), atol=1e-6, rtol=0)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("what", [what for what in CHANGES if not why_not(settings_of(what))])
def test_to_the_bit_a_model_does_not_depend_on_its_company(what: str, count: int) -> None:
    singles = models(what)
    few, all_of_them = stack(singles[:count]), stack(singles)
    images, ids, lengths = batch(what)
    for model in (few, all_of_them):
        torch.manual_seed(7)
        embedded = model.embed_images(images), model.embed_texts(ids, lengths)
        torch.stack([part[:count].cumsum(-1).square().sum() for part in embedded]).sum().backward()
    for name, weight in few.named_parameters():
        of_all = all_of_them.get_parameter(name).grad
        assert weight.grad is not None
        assert of_all is not None
        assert weight.grad[:count].equal(of_all[:count]), name
    last = count - 1
    assert all(few.weights_of(last)[name].equal(value) for name, value in all_of_them.weights_of(last).items())


def test_a_slice_of_stacked_weights_is_strided_as_the_single_ones() -> None:
    for name, value in models("cnn-bow")[0].weights().items():
        assert repeated(value, K)[1].stride() == value.stride(), name


def test_weights_survive_stacking() -> None:
    singles = models("vse-mlp")
    stacked = stack(singles)
    for place, single in enumerate(singles):
        assert all(value.equal(stacked.weights_of(place)[name]) for name, value in single.weights().items())
        assert list(single.weights()) == list(stacked.weights_of(place))
    assert {kind: len(group) for kind, group in stacked.groups().items()} == {
        kind: len(group) for kind, group in singles[0].groups().items()
    }


def test_what_is_stacked_is_left_as_it_was() -> None:
    single = models("cnn-bow", 1)[0]
    before = copy.deepcopy(single.state_dict())
    learn(StackedVse(single, K), "cnn-bow")
    assert all(value.equal(before[name]) for name, value in single.state_dict().items())


def test_models_whose_backbone_learns_or_whose_channels_are_odd_are_not_stacked() -> None:
    assert "no multiple of 16" in why_not(settings_of("cnn-bow 5 channels"))
    assert why_not(catalog.recipe("fc-gru").model) == ""
    assert why_not(catalog.recipe("vsepp-r152").model) == ""
    assert "image backbone" in why_not(catalog.recipe("vsepp-r152-ft").model)
    assert "text backbone" in why_not(catalog.recipe("vse-inf-butd").model)
