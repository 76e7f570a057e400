"""Defines all values logged at the end of an epoch, with meaning and unit; a trial's history has one row per epoch.

A row lacks values that do not apply to its objective or model, and older rows lack values that were introduced later.
"""

from goalgrid.grid.settings.components import Logged, registered

METRICS = ("i2t_r1", "i2t_r5", "i2t_r10", "i2t_medr", "t2i_r1", "t2i_r5", "t2i_r10", "t2i_medr", "rsum")
"""Metrics of an evaluation. i2t: image-to-text retrieval; t2i: text-to-image; r1: Recall@1; medr: median rank."""


def unit_of(metric: str) -> str:
    return {"medr": "rank, from 1", "rsum": "percent, sum of the six recalls"}.get(metric.split("_")[-1], "percent")


LOGGED = {
    "epoch": Logged("epochs trained", "epochs"),
    "step": Logged("weight updates so far", "steps"),
    "seconds": Logged("wall time of the epoch, including validation", "seconds"),
    "lr": Logged("learning rate of the heads"),
    "loss": Logged("mean training loss per batch, including the ramp factor"),
    "s_pos": Logged("mean similarity of positives in training", "cosine"),
    "s_neg": Logged("mean similarity of hardest negatives in training", "cosine"),
    "delta_s": Logged("mean |s_neg - s_pos| in training; SelHN Eq. (10)", "cosine"),
    "active": Logged("share of triplets that moved anything", "share"),
    "false_negatives": Logged("share of mined negatives that show the anchor's own image", "share"),
    "k": Logged("ADOPT's number of negatives", "negatives"),
    "temperature": Logged("learned temperature of itc"),
    "tau": Logged("learned inverse temperature of siglip"),
    "bias": Logged("learned bias of siglip"),
    "branch": Logged(
        "share of anchors in a special case: all negatives (selhn), no negative (shn), only repulsion (sct)", "share"
    ),
    "grad_image": Logged("mean norm of the gradient of a batch's image embeddings"),
    "grad_text": Logged("mean norm of the gradient of a batch's text embeddings"),
    "grad_norm": Logged("mean norm of the gradient of all weights, before clipping"),
    "clipped": Logged("share of steps with a clipped gradient (norm above train.clip_norm)", "share"),
    "grad_norm_image": Logged("mean norm of the gradient of the image encoder, without its last linear layer"),
    "grad_norm_last": Logged("mean norm of the gradient of the image encoder's last linear layer"),
    "grad_norm_text": Logged("mean norm of the gradient of the text encoder"),
    "grad_norm_scorer": Logged("mean norm of the gradient of the set scorer"),
    "grad_norm_objective": Logged("mean norm of the gradient of the objective's learnable parameters"),
    **{f"val_{name}": Logged(f"{name} on the validation split", unit_of(name)) for name in METRICS},
    "val_loss": Logged("mean loss per batch of validation images with their first captions"),
    "val_s_pos": Logged("mean similarity of positives of the validation split", "cosine"),
    "val_s_neg": Logged("mean similarity of the hardest negatives, mined from the whole validation split", "cosine"),
    "val_delta_s": Logged("mean |s_neg - s_pos| of the validation split", "cosine"),
    "val_uniform": Logged("log of the mean exp(s) over all pairs of validation batches; VSE+2AD's uniformity"),
    "val_gap": Logged("modality gap: distance between the mean image and text embeddings of the validation split"),
    "val_w_tri": Logged("mean triplet weight T of a cell, on batches of validation images"),
    "val_w_pos": Logged("mean pair weight P+ of a cell, on batches of validation images"),
    "val_w_neg": Logged("mean pair weight P- of a cell, on batches of validation images"),
    "val_m_pos": Logged("mean m+ of a cell that reads it, on batches of validation images"),
    "val_m_neg": Logged("mean m- of a cell that reads it, on batches of validation images"),
    "val_spread": Logged("standard deviation of validation similarities", "cosine"),
    "val_chance": Logged("rsum that an untrained model may reach by chance", "percent"),
}
"""Logged values by name; model and training components can log additional values.

In each step, the squared `grad_norm_*` of all parts add up to the squared `grad_norm`.
"""


def all_logged() -> dict[str, Logged]:
    """Return all logged values by name, including those that components log."""
    return LOGGED | {name: value for one in registered().values() for name, value in one.logged.items()}
