"""Weights of networks, how far two lie apart, and a training that can be killed and resumed."""

from pyterrier_debias import CrossEncoder, RotatePassages
from tests.training.toy import candidates, qrels, training


def weights(ranker):
    return {name: value.clone() for name, value in ranker.module.state_dict().items()}


def difference(left, right):
    return max(float((left[name] - right[name]).abs().max()) for name in left if left[name].is_floating_point())


def resumable(model, folder, **more):
    """A run with everything that a resume has to restore: dropout, schedule, accumulation, epochs, augmentation, patience."""
    options = training(
        max_steps=8,
        accumulation=2,
        evaluate_every=2,
        patience=50,
        schedule="cosine",
        augment=RotatePassages(),
        checkpoints=folder,
        **more,
    )
    ranker = CrossEncoder(model, training=options)
    return ranker.fit(candidates(), qrels(), candidates("v"), qrels("v"))
