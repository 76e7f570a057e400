"""NCR: how probably each training pair is clean, estimated from its loss. Huang et al., NeurIPS 2021."""

from goalgrid.grid.settings.components import Component, Logged, register

register(
    Component(
        "clean-probabilities",
        needs="the losses of all pairs",
        without="choose another objective",
        training_method=f"{__name__}.clean_probabilities.CleanProbabilities",
        warms_up=True,
        libraries=frozenset({"scikit-learn"}),
        logged={
            "clean": Logged("mean estimated probability of a training pair to be clean", "probability"),
            "clean_auc": Logged(
                "share of pairs (matched, mismatched by dataset.noise) that this probability orders", "share"
            ),
        },
        about="A training estimates clean probabilities epoch by epoch from the losses of the pairs.",
    )
)
