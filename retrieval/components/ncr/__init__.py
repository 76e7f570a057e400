"""NCR: the probability that a training pair is clean, estimated from its loss. Huang et al., NeurIPS 2021."""

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
            "clean": Logged("mean estimated probability that a training pair is clean", "probability"),
            "clean_auc": Logged(
                "AUC of this probability for matched pairs against pairs mismatched by dataset.noise", "share"
            ),
        },
        about="After each epoch, the probability that a pair is clean is estimated from the losses of all pairs.",
    )
)
