"""NCR: how probably each training pair is clean, estimated from its loss. Huang et al., NeurIPS 2021."""

from goalgrid.grid.settings.parts import Part, register

register(
    Part(
        "clean-probabilities",
        needs="the losses of all pairs",
        without="choose another objective",
        companion=f"{__name__}.clean_probabilities.CleanProbabilities",
        warms_up=True,
        libraries=frozenset({"scikit-learn"}),
        about="A training estimates clean probabilities epoch by epoch from the losses of the pairs.",
    )
)
