"""What holds for every objective, and what the trainer relies on."""

import copy
import pickle
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from goalgrid.grid.errors import UserError
from goalgrid.grid.objectives import FAMILIES, LOSSES, OURS, needs, resolve
from goalgrid.grid.objectives.goal_matrix import CELLS, GOAL, PAIR_WEIGHTS, TRIPLET_WEIGHTS
from goalgrid.grid.objectives.parameters import VARIANTS, Parameter, Value
from goalgrid.grid.registration import registered
from goalgrid.objectives import build
from goalgrid.objectives.objective import GradientSurrogate, diagnostics
from goalgrid.objectives.pair_weights import RELATIVE
from goalgrid.objectives.triplets import Triplets
from tests.cases import every
from tests.objectives.test_goal import batch, embedding_gradients, gradient, ties, unit

EVERY = [(name, variant) for name in OURS for variant in VARIANTS]


@every(("name", "variant"), EVERY)
def test_the_order_of_the_pairs_does_not_matter(name: str, variant: str) -> None:
    image, text = batch(8)
    order = torch.randperm(8, generator=torch.Generator().manual_seed(0))
    objective = build(name, variant=variant)
    permuted = embedding_gradients(objective, image[order], text[order])
    for found, expected in zip(permuted, embedding_gradients(objective, image, text), strict=True):
        torch.testing.assert_close(found, expected[order])


@every("name", OURS)
def test_swapping_the_modalities_swaps_the_gradients(name: str) -> None:
    image, text = batch(8)
    objective = build(name)
    swapped = embedding_gradients(objective, text, image)
    for found, expected in zip(reversed(swapped), embedding_gradients(objective, image, text), strict=True):
        torch.testing.assert_close(found, expected)


@every("name", OURS)
def test_upstream_scale_reaches_the_gradient(name: str) -> None:
    image, text = (e.requires_grad_() for e in batch(6))
    objective = build(name)
    once = torch.autograd.grad(objective(image, text), (image, text))
    scaled = torch.autograd.grad(-512.0 * objective(image, text), (image, text))
    for found, expected in zip(scaled, once, strict=True):
        torch.testing.assert_close(found, -512.0 * expected)


@every("name", OURS)
def test_accumulated_gradients_are_the_sum_of_the_steps(name: str) -> None:
    image, text = (e.requires_grad_() for e in batch(6))
    objective = build(name)
    for half in (slice(0, 3), slice(3, 6)):
        (objective(image[half], text[half]) / 2).backward()
    first = embedding_gradients(objective, image.detach()[:3], text.detach()[:3])[0]
    torch.testing.assert_close(image.grad[:3], first / 2)


@every("name", OURS)
def test_reductions_differ_by_the_number_of_pairs_and_directions(name: str) -> None:
    image, text = batch(5)
    values = [build(name, reduction=reduction)(image, text) for reduction in ("sum", "mean", "average")]
    torch.testing.assert_close(values[0], 5 * values[1])
    torch.testing.assert_close(values[1], 2 * values[2])


@every("size", [2, 7])
def test_the_hinge_of_ce_and_mmt_is_a_mean_over_all_pairs_but_the_matching_ones(size: int) -> None:
    sim = torch.rand(size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(size)) - 0.5
    rows = [max(0.0, 0.05 - float(sim[i, i] - other)) for i in range(size) for j in range(size) if i != j
            for other in (sim[i, j], sim[j, i])]  # fmt: skip
    loss = build("triplet", margin=0.05, reduction="negatives").from_similarity(sim)
    assert float(loss) == pytest.approx(sum(rows) / max(len(rows), 1), rel=1e-12)


@every(("name", "variant"), EVERY)
def test_autocast_computes_weights_in_float32(name: str, variant: str) -> None:
    image, text = (e.float() for e in batch(6))
    expected = build(name, variant=variant)(image, text)
    with torch.autocast("cpu", torch.bfloat16):
        found = build(name, variant=variant)(image, text)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected)


@every(("name", "variant"), EVERY)
@every("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_finite(name: str, variant: str, dtype: torch.dtype) -> None:
    for mix in (0.0, 0.5, 1.0):
        image, text = (e.to(dtype) for e in batch(6, mix=mix))
        for found in embedding_gradients(build(name, variant=variant), image, text):
            assert found.dtype == dtype
            assert found.isfinite().all()


@every("name", OURS)
def test_half_precision_similarities_are_weighed_in_float32(name: str) -> None:
    sim = (unit(6, 4) @ unit(6, 4, seed=1).T).bfloat16()
    objective = build(name)
    assert objective.from_similarity(sim).dtype == torch.float32
    found = gradient(objective, sim)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, gradient(objective, sim.float()).bfloat16())


@every("name", OURS)
def test_the_report_has_the_same_keys_whatever_is_known(name: str) -> None:
    image, text = (e.requires_grad_() for e in batch(4))
    objective = build(name)
    objective.from_similarity((image @ text.T).detach())
    keys = set(objective.report)
    assert torch.isnan(objective.report["false_negatives"])
    objective(image, text, torch.tensor([0, 0, 1, 2])).backward()
    assert set(objective.report) == keys
    assert {"s_pos", "s_neg", "delta_s", "active", "false_negatives", "grad_image", "grad_text"} <= keys
    for value in objective.report.values():
        assert value.shape == ()
        assert not value.requires_grad
        assert value.isfinite()
    torch.testing.assert_close(objective.report["grad_image"], image.grad.norm())
    torch.testing.assert_close(objective.report["grad_text"], text.grad.norm())


@every("name", ["con_con", "infonce"])
def test_the_report_tells_what_was_mined(name: str) -> None:
    sim = torch.tensor([[0.9, 0.8, 0.1], [0.3, 0.6, 0.2], [0.0, 0.4, 0.5]])
    objective = build(name)
    objective.from_similarity(sim, torch.tensor([7, 7, 8]))
    hardest = torch.tensor([0.8, 0.3, 0.4, 0.3, 0.8, 0.2])
    torch.testing.assert_close(objective.report["s_pos"], torch.tensor(2.0 / 3))
    torch.testing.assert_close(objective.report["s_neg"], hardest.mean())
    leads = hardest - torch.tensor([0.9, 0.6, 0.5]).repeat(2)
    torch.testing.assert_close(objective.report["delta_s"], leads.abs().mean())


def test_anchors_without_negatives_are_left_out_of_the_report() -> None:
    """The second of three anchors has none."""
    s_neg = torch.tensor([[0.8, -torch.inf], [-torch.inf, -torch.inf], [0.4, 0.1]])
    found = diagnostics(
        Triplets(torch.tensor([[0.9], [0.6], [0.5]]), s_neg, always=False), torch.tensor([[1.0, 0.0]]).expand(3, 2)
    )
    torch.testing.assert_close(found["s_neg"], torch.tensor((0.8 + 0.4) / 2))
    torch.testing.assert_close(found["delta_s"], torch.tensor(0.1))
    torch.testing.assert_close(found["active"], torch.tensor(2 / 3))


def test_false_negatives_are_the_mined_captions_of_the_same_image() -> None:
    sim = torch.tensor([[0.9, 0.8, 0.1], [0.3, 0.6, 0.2], [0.0, 0.4, 0.5]])
    ids = torch.tensor([7, 7, 8])
    for name, parameters, share in (
        ("con_con", {}, 4 / 6),  # images 0, 1 and texts 0, 1 mine each other
        ("con_con", {"ignore_same_image": True}, 0.0),
        ("triplet", {}, 4 / 12),
    ):
        objective = build(name, **parameters)
        objective.from_similarity(sim, ids)
        torch.testing.assert_close(objective.report["false_negatives"], torch.tensor(share))


def test_active_is_the_share_of_triplets_that_still_learn() -> None:
    sim = torch.tensor([[0.9, 0.8, 0.1], [0.3, 0.6, 0.2], [0.0, 0.4, 0.5]])
    for name in ("con_con", "triplet-hn"):
        objective = build(name)
        objective.from_similarity(sim)
        torch.testing.assert_close(objective.report["active"], torch.tensor(3 / 6))


@pytest.mark.parametrize(
    ("name", "changed", "said"),
    [
        ("con_con", {}, "margin=0.2, reduction='sum', ignore_same_image=False, mining='hardest', k=1"),
        ("con_con", {"mining": "all"}, "margin=0.2, reduction='sum', ignore_same_image=False, mining='all'"),
        ("sig_nca", {"tau": 3, "variant": "released"}, "tau=3.0, alpha=2.0, beta=10.0, lam=0.5, reduction='sum', "
         "ignore_same_image=False, mining='hardest', k=1"),
        ("unified", {"gamma": 7}, "gamma=7.0, margin=0.2, scaled=True, reduction='sum', ignore_same_image=False"),
    ],
)  # fmt: skip
def test_a_built_objective_shows_its_name_and_the_parameters_that_it_reads(
    name: str, changed: dict[str, Any], said: str
) -> None:
    assert repr(build(name, **changed)) == f"Objective({name}, {said})"


@every("name", OURS)
def test_warming_up_is_another_objective(name: str) -> None:
    objective = build(name)
    warm = objective.with_all_negatives()
    sim = unit(6, 4) @ unit(6, 4, seed=1).T
    if "mining" not in OURS[name].parameters:
        assert warm is objective
    else:
        torch.testing.assert_close(gradient(warm, sim), gradient(build(name, mining="all"), sim))
        torch.testing.assert_close(gradient(objective, sim), gradient(build(name), sim))


@every("name", OURS)
def test_an_objective_can_be_sent_to_another_process(name: str) -> None:
    image, text = batch(5)
    objective = build(name)
    for copied in (pickle.loads(pickle.dumps(objective)), copy.deepcopy(objective)):
        torch.testing.assert_close(copied(image, text), objective(image, text))


@every("name", ["sig-ms_cir", "infonce"])
def test_second_derivatives_exist(name: str) -> None:
    image, text = (e.requires_grad_() for e in batch(5))
    objective = build(name)
    (first,) = torch.autograd.grad(objective(image, text), image, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), text)
    assert second.isfinite().all()
    assert second.abs().max() > 0


@every(
    ("shapes", "context", "message"),
    [
        (((1, 4), (1, 4)), None, "batch of 1 has no negatives; it needs at least 2 pairs"),
        (((2, 4), (3, 4)), None, r"embeddings \(2, 4\) and \(3, 4\) are not pairs"),
        (((3, 4), (3, 4)), torch.zeros(2).long(), "image_of_text must have one index for each of the 3"),
    ],
)
def test_a_batch_without_negatives_or_pairs_is_refused(shapes: tuple, context: Tensor | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build("con_con")(unit(*shapes[0]), unit(*shapes[1]), context)


def test_scores_of_no_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match=r"scores \(2, 3\) are not square"):
        build("con_con").from_similarity(torch.zeros(2, 3))


def test_same_images_must_be_known_to_be_ignored() -> None:
    with pytest.raises(ValueError, match="needs image_of_text"):
        build("con_con", ignore_same_image=True)(unit(3, 4), unit(3, 4))


@every(
    ("name", "parameters", "message"),
    [
        ("sigg_con", {}, "unknown pair weight 'sigg'"),
        ("sig_cirr", {}, "unknown triplet weight 'cirr'"),
        ("unifed", {}, "Did you mean 'unified'"),
        ("my-own", {}, r"In Python, goalgrid.load\(GRID\)\.objective\(NAME\) builds a loss that the grid uses"),
        ("con_con", {"tau": 1}, "unknown parameter 'tau'"),
        ("con_con", {"k": 0}, "whole number from 1 up"),
        ("con_con", {"k": 1.5}, "whole number from 1 up"),
        ("con_con", {"mining": "some"}, "must be one of hardest, all"),
        ("con_con", {"margin": "wide"}, "must be a number"),
        ("con_con", {"ignore_same_image": 1}, "must be true or false"),
    ],
)
def test_an_unknown_setting_names_the_known_ones(name: str, parameters: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        build(name, **parameters)


@every("name", OURS)
def test_the_catalogue_explains_every_objective(name: str) -> None:
    entry = OURS[name]
    assert entry.family
    assert entry.source
    assert entry.formula
    assert all(parameter.meaning for parameter in entry.parameters.values())
    for variant in VARIANTS:
        for key, value in resolve(name, variant=variant).items():
            assert entry.parameters[key].parse(value) == value


def test_the_matrix_is_complete() -> None:
    assert list(CELLS) == [f"{pair}_{triplet}" for pair in PAIR_WEIGHTS for triplet in TRIPLET_WEIGHTS]
    assert len(GOAL) == 15
    assert [name for name in CELLS if name in GOAL] == list(GOAL)


def declared(*files: str) -> list[tuple[str, Any]]:
    """What the functions of modules declare now that they are imported, as it is read without importing them."""
    found = [one for file in files for one in registered[f"goalgrid.objectives.{file}"]]
    return [(one.name, replace(one.entry, equation=None)) for one in found]


def test_what_is_read_without_torch_is_what_the_functions_declare() -> None:
    losses = [(name, replace(entry, family=LOSSES[name].family)) for name, entry in declared(*FAMILIES)]
    assert losses == list(LOSSES.items())
    assert declared("triplet_weights") == list(TRIPLET_WEIGHTS.items())
    pairs = [(name, replace(weight, relative=None)) for name, weight in declared("pair_weights")]
    assert pairs == [(name, replace(weight, relative=None)) for name, weight in PAIR_WEIGHTS.items()]
    assert list(RELATIVE) == ["lin-ms", "sig-ms"]


@every("name", OURS)
def test_cells_of_the_matrix_train_with_the_gradient_directly(name: str) -> None:
    assert isinstance(build(name).loss, GradientSurrogate) == (name in CELLS)


OTHER_VALUES = {
    "k": 3, "tau": 3.0, "alpha": 5.0, "beta": 3.0, "lam": 0.1, "eps": 0.4, "empty": 0.6, "offset": 0.3, "gamma": 7.0,
    "epsilon": 0.6, "ceiling": 0.3, "temperature": 0.3, "scale": 0.1, "base": 3.0, "margin": 0.55,
}  # fmt: skip
"""Another value of the numbers whose default times 1.5 is not another equation, or changes too little to count."""
CONTEXT: dict[str, dict[str, Value]] = {"divisor": {"epsilon": 0.6}, "sets": {"eps": 0.25}}
"""Other parameters with which a parameter is reached by the pairs of a small batch."""


def another(key: str, parameter: Parameter, value: Value) -> Value:
    if parameter.choices:
        return next(choice for choice in parameter.choices if choice != value)
    return not value if isinstance(value, bool) else OTHER_VALUES.get(key, float(value or 0) * 1.5 + 0.1)


@every(("name", "variant"), EVERY)
def test_every_parameter_is_read_or_is_no_axis(name: str, variant: str) -> None:
    """Changed, it changes loss or gradient; where an equation does not read it, a grid does not apply it either."""
    image, text = batch(9)
    owners = torch.tensor([0, 0, 1, 2, 3, 3, 4, 5, 6])
    extras = {
        "clean-probabilities": ("clean", torch.tensor([[0.05], [0.7], [0.9]] * 3, dtype=image.dtype)),
        "offline-negatives": ("offline", torch.linspace(-0.4, 0.4, 36, dtype=image.dtype).view(2, 9, 2)),
    }
    extra = dict(extras[part] for part in needs(name) if part in extras)

    def gradients(**parameters: Value) -> list[float]:
        leaves = [e.clone().requires_grad_() for e in (image, text)]
        loss = build(name, variant=variant, **parameters)(*leaves, owners, extra=extra)
        loss.backward()
        return [
            float(loss.detach()),
            *torch.cat([leaf.grad.flatten() for leaf in leaves if leaf.grad is not None]).tolist(),
        ]

    for key, parameter in OURS[name].parameters.items():
        if key == "mixture":  # the training reads it
            continue
        contexts = [CONTEXT.get(key, {})]
        if parameter.only_with:
            other, value = parameter.only_with
            unread = another(other, OURS[name].parameters[other], value)
            contexts = [{other: value}, {other: unread}]
        for context in contexts:
            changed = {**context, key: another(key, parameter, parameter.of_variant(variant))}
            read = key in OURS[name].accepted(changed, variant)
            values = [
                gradient(build(name, variant=variant, **some), ties(9)).tolist() if key == "sets" else gradients(**some)
                for some in (context, changed)
            ]
            assert (values[0] != values[1]) == read, (key, context)
