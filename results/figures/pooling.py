"""What a pooling learnt: theta over rank, and ADPOOL's balance of its token level and its embedding level.

VSE+2AD Fig. 3 and Eq. (3)-(5), VSE-infinity §3: from the selected checkpoints, over the validation split.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from goalgrid.results.figures.study import FigureKind, Study, by_dataset
from goalgrid.results.figures.style import blank, legend_below, line_styles
from goalgrid.results.figures.training import curve
from goalgrid.results.records import steps

MODALITIES = {"image": "image regions", "text": "tokens of a caption"}


def draw(study: Study) -> Figure | None:
    """A panel a modality with theta, and a panel with the balance; None where no trial kept what a pooling learnt."""
    trials = [trial for name in study.part.cells for trial in study.trials(name)]
    learnt = {trial: steps.read(study.home.trial(trial).pooling, "rank", study.scores.leave) for trial in trials}
    study = replace(study, histories={trial: values for trial, values in learnt.items() if values})
    names = [name for name in study.part.cells if study.trials(name)]
    if not names:
        return None
    styles = line_styles(names)
    figure = blank(3.1, study, "mean and ± one sample standard deviation over seeds")
    *panels, balances = figure.subplots(1, len(MODALITIES) + 1, width_ratios=[2, 2, 1.2])
    handles: dict[str, Any] = {}
    for axes, (modality, title) in zip(panels, MODALITIES.items(), strict=True):
        for name in names:
            if len(study.curve(name, f"theta_{modality}")[0]):
                count = len(study.trials(name))
                handles[f"{name}, n = {count}"] = curve(axes, study, name, f"theta_{modality}", styles[name])
        axes.set(title=title, xlabel="rank, from the largest", ylim=(0, None))
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(visible=True)
    panels[0].set_ylabel(r"mean weight $\theta$")
    _balances(balances, study, names, styles)
    legend_below(figure, handles.values(), handles, most=3)
    return figure


def shares(study: Study, name: str, modality: str) -> np.ndarray:
    """Share of the token level in each trial of a cell, (trials,); none of another pooling than ADPOOL."""
    return study.curve(name, f"balance_{modality}")[1][:, :1].ravel()


def _balances(axes: Axes, study: Study, names: Sequence[str], styles: dict[str, dict[str, Any]]) -> None:
    """A large mark a cell with its band, and a small mark a trial: the mean alone would hide seeds that disagree."""
    balances = {name: [shares(study, name, modality) for modality in MODALITIES] for name in names}
    balanced = [name for name in names if any(map(len, balances[name]))]
    places = np.linspace(-0.2, 0.2, len(balanced)) if len(balanced) != 1 else [0.0]
    for name, shift in zip(balanced, places, strict=True):
        look = styles[name] | {"linestyle": "none"}
        for place, values in enumerate(balances[name]):
            if len(values):
                spread = values.std(ddof=1) if len(values) > 1 else None
                axes.errorbar(place + shift, values.mean(), yerr=spread, capsize=3, markersize=5, **look)
                axes.plot(np.full(len(values), place + shift + 0.08), values, markersize=2.5, fillstyle="none", **look)
    axes.set_visible(bool(balanced))
    axes.set(title="balance", ylabel="share of the token level", xlim=(-0.5, 1.5), ylim=(-0.03, 1.03))
    axes.set_xticks(range(len(MODALITIES)), list(MODALITIES))
    axes.grid(visible=True, axis="y")


FIGURE_KINDS = {
    "pooling": FigureKind(
        10, draw, "What the pooling learnt", "trials whose model pools by GPO or ADPOOL, which keep it", by_dataset
    )
}
