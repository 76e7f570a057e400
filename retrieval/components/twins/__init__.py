"""Twins: two networks in one model, as in NCR's co-teaching. Huang et al., NeurIPS 2021."""

from goalgrid.grid.settings.components import Component, register

register(
    Component(
        "twins",
        needs="two networks of two encoders each",
        without="set model.networks = single",
        of=lambda model: "model.networks = twins" if model.networks == "twins" else "",
        network=f"{__name__}.network.Twins",
    )
)
