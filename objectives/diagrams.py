"""Pictures of weights: GOAL's Figures 2 and 3 for any parameters, and how a cell moves a triplet.

Colours are those that the colour-blind can tell apart (cividis; `grid.palette`), lines differ in their dashes too, and
arrows and contours carry the reading where colour is lost in print. The suffix of the path chooses PNG, PDF or SVG.
"""

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from grid.errors import UserError
from grid.objectives import (
    CELLS,
    GOAL,
    KNOWN_AS,
    PAIR_WEIGHTS,
    TRIPLET_WEIGHTS,
    accepted,
    resolve,
    unknown_objective,
)
from grid.palette import BLUE, COLOURS, DASHES, FAINT, INK, VERMILION
from objectives import build
from objectives.goal import GradientSurrogate
from objectives.triplets import Triplets

MEAN = 0.1
"""m+ and m- in GOAL's Figure 3."""
LINES = dict(zip(PAIR_WEIGHTS, zip(cycle(COLOURS), cycle(DASHES), strict=False), strict=False))
"""Colour and dashes of each pair weight."""
STYLE: dict[str, Any] = {"color": INK, "fontsize": 10}

Weights = tuple[Float[Tensor, "*a"], Float[Tensor, "*a"], Float[Tensor, "*a"]]


def weights(
    name: str, s_pos: Float[Tensor, "*a"], s_neg: Float[Tensor, "*a"], *, mean: float = MEAN, **settings: Any
) -> Weights:
    """T, P+ and P- of a cell at given similarities.

    Args:
        mean: m+ and m- of the -ms weights, which in a batch depend on the other pairs.
        settings: variant and parameters, as for `build`; those that this cell does not have are left out.
    """
    _check([name])
    variant = settings.pop("variant", "paper")
    loss = build(name, variant=variant, **accepted(name, settings)).loss
    assert isinstance(loss, GradientSurrogate)
    m = torch.full_like(s_pos, mean)[..., None]
    triplet = Triplets(s_pos[..., None], s_neg[..., None], m_pos=m, m_neg=m)
    w_tri = loss.triplet_weight(triplet)
    w_pos, w_neg = loss.pair_weight(triplet)
    return w_tri[..., 0], w_pos[..., 0], w_neg[..., 0]


def triplet_weights(
    path: Path, names: Sequence[str] = ("con_con", "con_nca", "con_cir"), *, low: float = 0.0, **settings: Any
) -> None:
    """Draw T over (s_pos, s_neg) for the triplet weights of those cells: GOAL Fig. 2.

    Args:
        low: smallest similarity of the axes; the paper's are from 0 to 1.
        settings: variant and parameters, as for `build`.
    """
    _check(names)
    columns = list(dict.fromkeys(name.split("_")[1] for name in names))
    figure = Figure(figsize=(2.6 * len(columns) + 0.9, 3.1), layout="constrained")
    every = figure.subplots(1, len(columns), sharey=True, squeeze=False)[0]
    s_pos, s_neg = _plane(low, 201)
    for axes, triplet in zip(every, columns, strict=True):
        cell = f"con_{triplet}"
        w_tri = weights(cell, s_pos, s_neg, **settings)[0].numpy()
        image = axes.imshow(
            w_tri, origin="lower", extent=(low, 1, low, 1), vmin=0, vmax=1, cmap="cividis", interpolation="bilinear"
        )
        levels = [0.5] if triplet == "con" else [0.1, 0.25, 0.5, 0.75, 0.9]
        if w_tri.min() < w_tri.max():
            lines = axes.contour(s_pos.numpy(), s_neg.numpy(), w_tri, levels=levels, colors="white", linewidths=0.8)
            axes.clabel(lines, fmt="%.2g", fontsize=7)
        axes.plot([low, 1], [low, 1], color="white", linewidth=0.6, linestyle=":")
        axes.set_title(f"$T$ {triplet}: {_shown(TRIPLET_WEIGHTS[triplet].parameters, cell, settings)}", **STYLE)
        axes.set_xlabel("$s_{pos}$", **STYLE)
        _plain(axes, low)
    every[0].set_ylabel("$s_{neg}$", **STYLE)
    figure.colorbar(image, ax=list(every), label="T", shrink=0.85)
    figure.savefig(path, dpi=200)


def pair_weights(
    path: Path,
    names: Sequence[str] = ("con_con", "lin_con", "sig_con", "lin-ms_con", "sig-ms_con"),
    *,
    mean: float = MEAN,
    low: float = 0.0,
    **settings: Any,
) -> None:
    """Draw P+ over s_pos and P- over s_neg for the pair weights of those cells: GOAL Fig. 3.

    Args:
        mean: m+ and m- of the -ms weights.
        low: smallest similarity of the axes; the paper's are from 0 to 1.
        settings: variant and parameters, as for `build`.
    """
    _check(names)
    figure = Figure(figsize=(7.2, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    s = torch.linspace(low, 1, 401, dtype=torch.float64)
    for pair in dict.fromkeys(name.split("_")[0] for name in names):
        _, w_pos, w_neg = weights(f"{pair}_con", s, s, mean=mean, **settings)
        colour, dashes = LINES[pair]
        for axes, curve in ((left, w_pos), (right, w_neg)):
            axes.plot(s.numpy(), curve.numpy(), color=colour, linestyle=dashes, linewidth=1.8, label=pair)
    for axes, what, of in ((left, "$P_+$", "$s_{pos}$"), (right, "$P_-$", "$s_{neg}$")):
        axes.set_xlabel(of, **STYLE)
        axes.set_title(f"{what} over {of}", **STYLE)
        axes.set_xlim(low, 1)
        _compressed(axes)
        axes.axhline(0, color=FAINT, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(
        *left.get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False, handlelength=3.2
    )
    shown = _shown(PAIR_WEIGHTS["sig"].parameters, "sig_con", settings)
    figure.suptitle(f"{shown}, $m_+ = m_- =$ {mean:g}", **{**STYLE, "fontsize": 9, "color": FAINT})
    figure.savefig(path, dpi=200)


def _compressed(axes: Axes) -> None:
    """Near linear up to 1, near logarithmic beyond, so that bounded weights can be read beside one that reaches 150."""
    least, most = axes.get_ylim()
    if most > 3:
        axes.set_yscale("asinh", linear_width=1)
        axes.set_ylim(min(least, 0) / 4, most)
        ticks = [tick for tick in (-1, -0.5, 0, 0.5, 1, 2, 5, 10, 20, 50, 100) if min(least, 0) / 4 <= tick <= most]
        axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()


def update_field(
    path: Path, name: str = "sig-ms_cir", *, mean: float = MEAN, low: float = 0.0, **settings: Any
) -> None:
    """Draw how a triplet at (s_pos, s_neg) moves under a cell: by T P+ along s_pos and by -T P- along s_neg.

    That is GOAL Eq. (3) in the plane of the two similarities, as if they could be moved freely. Arrows show the
    direction, the shade behind them the length of the step.
    """
    figure = Figure(figsize=(5.0, 4.3), layout="constrained")
    axes = figure.subplots()
    image = _field(axes, name, mean, low, settings, arrows=19, largest=None)
    axes.set_title(f"{name}{_known(name)}\n{_shown(resolve(name), name, settings)}", **{**STYLE, "fontsize": 9})
    axes.set_xlabel("$s_{pos}$", **STYLE)
    axes.set_ylabel("$s_{neg}$", **STYLE)
    figure.colorbar(image, ax=axes, label="length of the step", shrink=0.9)
    figure.savefig(path, dpi=200)


def cells(path: Path, names: Sequence[str] = GOAL, *, mean: float = MEAN, low: float = 0.0, **settings: Any) -> None:
    """Draw the update fields of cells side by side: pair weights as rows, triplet weights as columns.

    Shades are comparable within a row: a constant or a linear weight is never larger than an exponential can be.
    """
    _check(names)
    rows = [pair for pair in PAIR_WEIGHTS if any(name.startswith(f"{pair}_") for name in names)]
    columns = [triplet for triplet in TRIPLET_WEIGHTS if any(name.endswith(f"_{triplet}") for name in names)]
    figure = Figure(figsize=(2.3 * len(columns) + 0.9, 2.15 * len(rows) + 0.5), layout="constrained")
    every = figure.subplots(len(rows), len(columns), sharex=True, sharey=True, squeeze=False)
    for line, pair in zip(every, rows, strict=True):
        wanted = [f"{pair}_{triplet}" for triplet in columns if f"{pair}_{triplet}" in names]
        largest = max(_length(name, low, mean, settings) for name in wanted)
        for axes, triplet in zip(line, columns, strict=True):
            name = f"{pair}_{triplet}"
            if name not in names:
                axes.set_visible(False)
                continue
            image = _field(axes, name, mean, low, settings, arrows=11, largest=largest)
            axes.set_title(f"{name}{_known(name)}", color=INK, fontsize=7.5)
        line[0].set_ylabel(f"$P$ {pair}\n$s_{{neg}}$", **STYLE)
        figure.colorbar(image, ax=list(line), shrink=0.85, pad=0.01).ax.tick_params(labelsize=7)
    for axes, triplet in zip(every[-1], columns, strict=True):
        axes.set_xlabel(f"$s_{{pos}}$\n$T$ {triplet}", **STYLE)
    figure.savefig(path, dpi=200)


def _field(
    axes: Axes, name: str, mean: float, low: float, settings: dict[str, Any], *, arrows: int, largest: float | None
) -> Any:
    s_pos, s_neg = _plane(low, 201)
    along_pos, along_neg = _step(name, s_pos, s_neg, mean, settings)
    image = axes.imshow(
        torch.hypot(along_pos, along_neg).numpy(),
        origin="lower",
        extent=(low, 1, low, 1),
        vmin=0,
        vmax=largest,
        cmap="Greys",
        alpha=0.5,
        interpolation="bilinear",
    )
    s_pos, s_neg = _plane(low, arrows, inset=0.04)
    along_pos, along_neg = _step(name, s_pos, s_neg, mean, settings)
    length = torch.hypot(along_pos, along_neg)
    # Arrows are as long as the square root of the step, so that a tenth of the largest can still be read.
    factor = (length.rsqrt() / length.max().sqrt()).where(length > 2e-3 * length.max(), torch.nan)
    tails_and_steps = [values.numpy() for values in (s_pos, s_neg, along_pos * factor, along_neg * factor)]
    scale, width = arrows / (1.05 * (1 - low)), 0.08 / arrows
    axes.quiver(*tails_and_steps, color=VERMILION, angles="xy", scale_units="xy", scale=scale, width=width, minlength=0)
    axes.plot([low, 1], [low, 1], color=BLUE, linewidth=0.8, linestyle=":")
    _plain(axes, low)
    return image


def _step(name: str, s_pos: Tensor, s_neg: Tensor, mean: float, settings: dict[str, Any]) -> tuple[Tensor, Tensor]:
    w_tri, w_pos, w_neg = weights(name, s_pos, s_neg, mean=mean, **settings)
    return w_tri * w_pos, -w_tri * w_neg


def _length(name: str, low: float, mean: float, settings: dict[str, Any]) -> float:
    return torch.hypot(*_step(name, *_plane(low, 201), mean, settings)).max().item()


def _plane(low: float, steps: int, inset: float = 0.0) -> tuple[Tensor, Tensor]:
    s = torch.linspace(low + inset * (1 - low), 1 - inset * (1 - low), steps, dtype=torch.float64)
    s_neg, s_pos = torch.meshgrid(s, s, indexing="ij")
    return s_pos, s_neg


def _plain(axes: Axes, low: float) -> None:
    axes.set_xlim(low, 1)
    axes.set_ylim(low, 1)
    axes.set_aspect("equal")
    axes.tick_params(labelsize=8, colors=INK)


def _shown(parameters: Any, name: str, settings: dict[str, Any]) -> str:
    """The values of those parameters that shape the weights."""
    own = {key: value for key, value in settings.items() if key != "variant"}
    values = resolve(name, variant=settings.get("variant", "paper"), **accepted(name, own))
    shapes = [key for key in parameters if key in ("margin", "tau", "offset", "alpha", "beta", "lam")]
    return ", ".join(f"{key} = {values[key]:g}" if values[key] is not None else f"no {key}" for key in shapes)


def _known(name: str) -> str:
    return f" ({KNOWN_AS[name]})" if name in KNOWN_AS else ""


def _check(names: Sequence[str]) -> None:
    """Raise a UserError for a name that is no cell of the matrix: losses have no T, P+ and P-."""
    for name in names:
        if name not in CELLS and "_" in name:
            raise UserError(unknown_objective(name))
        if name not in CELLS:
            raise UserError(f"{name!r} has no triplet weight and pair weights to draw. Known: {', '.join(CELLS)}.")
