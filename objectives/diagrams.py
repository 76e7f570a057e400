"""Plots of weights: GOAL's Figures 2 and 3 for any parameters, and how an objective moves a triplet.

They are readable for the colour-blind and in black and white: cividis, dashes, arrows and contours.
"""

from itertools import cycle
from textwrap import fill
from typing import Any

import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from torch import Tensor

from goalgrid.grid.errors import UserError
from goalgrid.grid.objectives import OURS, Objectives, unknown_objective
from goalgrid.grid.objectives.goal_matrix import CELLS, GOAL_COLUMNS, GOAL_ROWS, KNOWN_AS, PAIR_WEIGHTS, TRIPLET_WEIGHTS
from goalgrid.grid.palette import BLUE, COLOURS, DASHES, FAINT, INK, MARKS, VERMILION
from goalgrid.objectives import LOSSES, build
from goalgrid.objectives.objective import GradientSurrogate, Objective
from goalgrid.objectives.triplets import Triplets

MEAN = 0.1
"""m+ and m- in GOAL's Figure 3."""
FINE = 201
"""Points per side of a shaded plane."""
RANKED = torch.linspace(0.7, 0.3, 17, dtype=torch.float64)
POSITIVES = (0.9, 0.7, 0.3)
"""Similarities of the negatives, and of the positives, in the plot of pushes over rank."""
STYLE: dict[str, Any] = {"color": INK, "fontsize": 10}
SHADE: dict[str, Any] = {"origin": "lower", "extent": (0, 1, 0, 1), "vmin": 0, "interpolation": "bilinear"}


def weights(
    name: str, s_pos: Float[Tensor, "*a"], s_neg: Float[Tensor, "*a"], **settings: Any
) -> tuple[Float[Tensor, "*a"], Float[Tensor, "*a"], Float[Tensor, "*a"]]:
    """Return T, P+ and P- of a cell at given similarities. `MEAN` replaces the batch means m+ and m- of -ms weights.

    Args:
        settings: variant and parameters, as for `build`; parameters that the cell lacks are ignored.

    Raises:
        UserError: the name is not a cell of the matrix; losses have no T, P+ and P-.
    """
    if name not in CELLS:
        losses = f"{name!r} has no triplet weight and pair weights to draw. Known: {', '.join(CELLS)}."
        raise UserError(losses if name in OURS else unknown_objective(name, option=True))
    loss = _built(name, settings).loss
    assert isinstance(loss, GradientSurrogate)
    m = torch.full_like(s_pos, MEAN)[..., None]
    triplet = Triplets(s_pos[..., None], s_neg[..., None], m_pos=m, m_neg=m)
    w_pos, w_neg = loss.pair_weight(triplet)
    return loss.triplet_weight(triplet)[..., 0], w_pos[..., 0], w_neg[..., 0]


def _built(name: str, settings: dict[str, Any], known: Objectives = OURS) -> Objective:
    return build(name, known, variant=settings.get("variant", "paper"), **known[name].accepted(settings))


def triplet_weights(**settings: Any) -> Figure:
    """Draw T of the three triplet weights over (s_pos, s_neg): GOAL Fig. 2. Takes the settings of `build`."""
    figure = Figure(figsize=(8.7, 3.1), layout="constrained")
    panels = figure.subplots(1, len(GOAL_COLUMNS), sharey=True)
    s_pos, s_neg = _plane(FINE)
    for axes, triplet in zip(panels, GOAL_COLUMNS, strict=True):
        cell = f"con_{triplet}"
        w_tri = weights(cell, s_pos, s_neg, **settings)[0].numpy()
        image = axes.imshow(w_tri, **SHADE, vmax=1, cmap="cividis")
        levels = [0.5] if triplet == "con" else [0.1, 0.25, 0.5, 0.75, 0.9]
        if w_tri.min() < w_tri.max():
            lines = axes.contour(s_pos.numpy(), s_neg.numpy(), w_tri, levels=levels, colors="white", linewidths=0.8)
            axes.clabel(lines, fmt="%.2g", fontsize=7)
        axes.set_title(f"$T$ {triplet}: {_shown(TRIPLET_WEIGHTS[triplet].own, cell, settings)}", **STYLE)
        axes.set_xlabel("$s_{pos}$", **STYLE)
        _square(axes, diagonal="white")
    panels[0].set_ylabel("$s_{neg}$", **STYLE)
    figure.colorbar(image, ax=list(panels), label="T", shrink=0.85)
    return figure


def pair_weights(**settings: Any) -> Figure:
    """Draw P+ over s_pos and P- over s_neg of the five pair weights: GOAL Fig. 3. Takes the settings of `build`."""
    figure = Figure(figsize=(7.2, 3.4), layout="constrained")
    pos_axes, neg_axes = figure.subplots(1, 2)
    s = torch.linspace(0, 1, 401, dtype=torch.float64)
    for pair, colour, dashes in zip(GOAL_ROWS, COLOURS, cycle(DASHES), strict=False):
        _, w_pos, w_neg = weights(f"{pair}_con", s, s, **settings)
        for axes, curve in ((pos_axes, w_pos), (neg_axes, w_neg)):
            axes.plot(s.numpy(), curve.numpy(), color=colour, linestyle=dashes, linewidth=1.8, label=pair)
    for axes, weight, similarity in ((pos_axes, "$P_+$", "$s_{pos}$"), (neg_axes, "$P_-$", "$s_{neg}$")):
        axes.set_xlabel(similarity, **STYLE)
        axes.set_title(f"{weight} over {similarity}", **STYLE)
        axes.set_xlim(0, 1)
        _compressed(axes)
        _open(axes)
    figure.legend(
        *pos_axes.get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False, handlelength=3.2
    )
    shown = _shown(PAIR_WEIGHTS["sig"].own, "sig_con", settings)
    figure.suptitle(f"{shown}, $m_+ = m_- =$ {MEAN:g}", **{**STYLE, "fontsize": 9, "color": FAINT})
    return figure


def _compressed(axes: Axes) -> None:
    """Scale the axis near-linearly up to 1, near-logarithmically beyond, so that weights of 1 and 150 are readable."""
    least, most = axes.get_ylim()
    if most > 3:
        axes.set_yscale("asinh", linear_width=1)
        axes.set_ylim(min(least, 0) / 4, most)
        ticks = [tick for tick in (-1, -0.5, 0, 0.5, 1, 2, 5, 10, 20, 50, 100) if min(least, 0) / 4 <= tick <= most]
        axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()


def _open(axes: Axes) -> None:
    """Draw a line at 0, and hide the top and right frame."""
    axes.axhline(0, color=FAINT, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def update_field(name: str = "sig-ms_cir", known: Objectives = OURS, /, **settings: Any) -> Figure:
    """Draw how an objective moves a triplet at (s_pos, s_neg): GOAL's cells by T P+ and -T P-, Eq. (3).

    The step is the negative gradient in the plane of the two similarities, as if they could be moved freely. Arrows
    show its direction, and the shade its length. For a loss, a second panel shows the push on each of many negatives.
    """
    is_loss = name in LOSSES
    figure = Figure(figsize=(9.4 if is_loss else 5.0, 4.3), layout="constrained")
    axes, *panels = figure.subplots(1, 2 if is_loss else 1, squeeze=False)[0]
    for panel in panels:
        _by_rank(panel, name, settings)
    image = _field(axes, name, settings, known, arrows=19)
    shown = fill(_shown(known[name].parameters, name, settings, known), 60)
    axes.set_title(f"{_titled(name)}\n{shown}", **{**STYLE, "fontsize": 9})
    axes.set_xlabel("$s_{pos}$", **STYLE)
    axes.set_ylabel("$s_{neg}$", **STYLE)
    figure.colorbar(image, ax=axes, label="length of the step", shrink=0.9)
    return figure


def cells(**settings: Any) -> Figure:
    """Draw the update fields of GOAL's matrix: pair weights as rows, triplet weights as columns.

    Shades are comparable within a row only, since exponential weights can be far larger than constant or linear ones.
    """
    figure = Figure(figsize=(7.8, 11.25), layout="constrained")
    panels = figure.subplots(len(GOAL_ROWS), len(GOAL_COLUMNS), sharex=True, sharey=True)
    for row, pair in zip(panels, GOAL_ROWS, strict=True):
        names = [f"{pair}_{triplet}" for triplet in GOAL_COLUMNS]
        images = [_field(axes, name, settings, arrows=11) for axes, name in zip(row, names, strict=True)]
        largest = max(image.get_clim()[1] for image in images)
        for axes, name, image in zip(row, names, images, strict=True):
            image.set_clim(0, largest)
            axes.set_title(_titled(name), color=INK, fontsize=7.5)
        row[0].set_ylabel(f"$P$ {pair}\n$s_{{neg}}$", **STYLE)
        figure.colorbar(images[-1], ax=list(row), shrink=0.85, pad=0.01).ax.tick_params(labelsize=7)
    for axes, triplet in zip(panels[-1], GOAL_COLUMNS, strict=True):
        axes.set_xlabel(f"$s_{{pos}}$\n$T$ {triplet}", **STYLE)
    return figure


def _field(axes: Axes, name: str, settings: dict[str, Any], known: Objectives = OURS, *, arrows: int) -> AxesImage:
    lengths = torch.hypot(*_step(name, *_plane(FINE), settings, known))
    image = axes.imshow(lengths.numpy(), **SHADE, cmap="Greys", alpha=0.5)
    s_pos, s_neg = _plane(arrows, inset=0.04)
    along_pos, along_neg = _step(name, s_pos, s_neg, settings, known)
    length = torch.hypot(along_pos, along_neg)
    # The arrow length is the square root of the step, so that a tenth of the largest step is still visible.
    factor = (length.rsqrt() / length.max().sqrt()).where(length > 2e-3 * length.max(), torch.nan)
    tails_and_steps = [values.numpy() for values in (s_pos, s_neg, along_pos * factor, along_neg * factor)]
    scale, width = arrows / 1.05, 0.08 / arrows
    axes.quiver(*tails_and_steps, color=VERMILION, angles="xy", scale_units="xy", scale=scale, width=width, minlength=0)
    _square(axes, diagonal=BLUE)
    return image


def _step(
    name: str, s_pos: Tensor, s_neg: Tensor, settings: dict[str, Any], known: Objectives
) -> tuple[Tensor, Tensor]:
    """Compute how an objective moves triplets with a single negative.

    Raises:
        UserError: a user-defined loss does not read triplets.
    """
    if name in known and known[name].equation:
        if known[name].on == "scores":
            message = "is a function of all scores of a batch; a diagram needs a function of one triplet."
            raise UserError(f"{name!r} {message}")
        s_pos, s_neg = (s[..., None].clone().requires_grad_() for s in (s_pos, s_neg))
        value = _built(name, settings, known).loss(Triplets(s_pos, s_neg)).sum()
        of_pos, of_neg = torch.autograd.grad(value, (s_pos, s_neg), materialize_grads=True)
        return -of_pos[..., 0], -of_neg[..., 0]
    if name in LOSSES:
        pull, push = pull_and_push(name, s_pos.flatten(), s_neg.flatten()[:, None], **settings)
        return pull.reshape(s_pos.shape), -push.reshape(s_neg.shape)
    w_tri, w_pos, w_neg = weights(name, s_pos, s_neg, **settings)
    return w_tri * w_pos, -w_tri * w_neg


def pull_and_push(
    name: str, s_pos: Float[Tensor, " a"], s_neg: Float[Tensor, "a k"], **settings: Any
) -> tuple[Float[Tensor, " a"], Float[Tensor, "a k"]]:
    """Return -dl/ds_pos and dl/ds_neg of a loss: its pull on an anchor's positive, and its push on each negative.

    Each anchor with its negatives is a separate batch, since the K of ADOPT depends on the batch.

    Args:
        s_neg: in descending order; a loss on the hardest negative reads only the first.
        settings: variant and parameters, as for `build`; parameters that the loss lacks are ignored.
    """
    objective = _built(name, settings)
    seen = s_neg[:, : objective.k]

    def value(positive: Tensor, negatives: Tensor) -> Tensor:
        return objective.loss(Triplets(positive[None, None], negatives[None], always=objective.k == 1)).sum()

    of_pos, of_neg = torch.func.vmap(torch.func.grad(value, argnums=(0, 1)))(s_pos, seen)
    push = torch.nn.functional.pad(of_neg, (0, s_neg.shape[1] - seen.shape[1]))
    return -of_pos.detach(), push.detach()  # a loss may have parameters that learn


def _by_rank(axes: Axes, name: str, settings: dict[str, Any]) -> None:
    """Draw the push on each of the evenly spaced `RANKED` negatives, for positives above, among and below them."""
    s_neg = RANKED.expand(len(POSITIVES), -1)
    s_pos = torch.tensor(POSITIVES, dtype=s_neg.dtype)
    pull, push = pull_and_push(name, s_pos, s_neg, **settings)
    ranks = torch.arange(1, s_neg.shape[1] + 1).numpy()
    for index, (positive, pulled, pushed) in enumerate(zip(POSITIVES, pull.tolist(), push, strict=True)):
        label = f"$s_{{pos}}$ = {positive:g}: pull {pulled + 0.0:.2g}, push {float(pushed.sum()):.2g} in all"
        look = {"color": COLOURS[index + 1], "linestyle": DASHES[index], "marker": MARKS[index]}
        axes.plot(ranks, pushed.numpy(), label=label, markersize=3.5, linewidth=1.2, **look)
    axes.set_title(
        f"push on each of {len(ranks)} negatives, {RANKED[0]:g} to {RANKED[-1]:g}", **{**STYLE, "fontsize": 9}
    )
    axes.set_xlabel("rank of the negative", **STYLE)
    _open(axes)
    axes.legend(frameon=False, fontsize=7.5)


def _plane(steps: int, inset: float = 0.0) -> tuple[Tensor, Tensor]:
    s = torch.linspace(inset, 1 - inset, steps, dtype=torch.float64)
    s_neg, s_pos = torch.meshgrid(s, s, indexing="ij")
    return s_pos, s_neg


def _square(axes: Axes, diagonal: str) -> None:
    """Show similarities from 0 to 1 on both axes, and the line s_neg = s_pos in the colour `diagonal`."""
    axes.plot([0, 1], [0, 1], color=diagonal, linewidth=0.7, linestyle=":")
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axes.tick_params(labelsize=8, colors=INK)


def _shown(parameters: Any, name: str, settings: dict[str, Any], known: Objectives = OURS) -> str:
    """Return the values of the parameters that shape the weights, as text."""
    variant, entry = settings.get("variant", "paper"), known[name]
    values = entry.resolve(name, variant, entry.accepted(settings))
    whole = entry.equation or name in LOSSES
    shaping = entry.own if whole else ("margin", "tau", "offset", "alpha", "beta", "lam")
    shown = {key: values[key] for key in parameters if key in shaping}
    brief = {key: f"{value:g}" if isinstance(value, float) else str(value) for key, value in shown.items()}
    return ", ".join(f"no {key}" if shown[key] is None else f"{key} = {text}" for key, text in brief.items())


def _titled(name: str) -> str:
    return f"{name} ({KNOWN_AS[name]})" if name in KNOWN_AS else name
