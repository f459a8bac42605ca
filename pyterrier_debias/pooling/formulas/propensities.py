r"""Inverse propensity weights: estimate the loss over all pairs from the labelled ones.

A document d of a query is selected for labelling with a probability :math:`p_d`, its propensity, independently of the others.
:math:`l_{ij}` is the loss of a pair of a relevant document i and another one j.

Source: Cai, Guo, Fan, Ai, Zhang and Cheng, "Hard Negatives or False Negatives: Correcting Pooling Bias in Training Neural Ranking
Models", CIKM 2022, Equations 5 to 13, which correct selection by propensities before these are estimated; Joachims, Swaminathan
and Schnabel, "Unbiased Learning-to-Rank with Biased Feedback", WSDM 2017.
"""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from pyterrier_debias.core.errors import InputError, check_choice, check_number

#: How the documents that a positive is compared with were chosen.
NEGATIVES = ("selected", "given")


def is_mark(value: Any) -> bool:
    """Whether a value marks yes or no; others, such as a missing value or the text ``'False'``, would wrongly count as yes.

    Args:
        value: Any value.

    Returns:
        True for True, False, 1 and 0.

    Example:
        >>> [is_mark(value) for value in (True, 0, 1.0, float("nan"), "False")]
        [True, True, True, False, False]
    """
    return isinstance(value, (numbers.Real, np.bool_)) and value in (0, 1)


def inverse_propensity_weights(
    positive: np.ndarray,
    negative: np.ndarray,
    selected: np.ndarray | None = None,
    *,
    negatives: str = "selected",
    least: float = 0.0,
) -> np.ndarray:
    r"""Compute weights of pairs that make the sum of losses over labelled documents unbiased.

    ``'selected'``: :math:`1 / (p_i p_j)` for a pair of two selected documents, 0 where j was not selected. Over all pairs of a
    selected relevant document and a selected one that is not, the weighted sum of :math:`l_{ij}` has the expectation
    :math:`\sum l_{ij}` over *all* relevant and not relevant documents, seen or not: a pair is there with the probability
    :math:`p_i p_j`.

    ``'given'``: :math:`1 / p_i`, if the documents j do not depend on the selection, such as a sample of the collection or
    the other documents of the list; the expectation is the sum over all relevant documents i and these j.

    Both statements are about sums. A mean over the pairs of a batch divides by a number that is itself random, and is a little
    biased.

    Args:
        positive: Propensities of the positives, any shape.
        negative: Propensities of the documents with which they are compared, of a shape that broadcasts with the positives'.
        selected: Whether the latter were selected, in the same shape: True or False, 1 or 0; None if all were.
        negatives: How the documents j were chosen, see above.
        least: The lowest propensity; lower ones are raised to this value, which adds some bias but bounds the weights.

    Returns:
        Weights of at least 0, of the common shape.

    Raises:
        InputError: For a propensity that is used and is not in (0, 1], a mark that is neither true nor false, or an option out
            of range.

    When not to use it: with guessed propensities, since their errors are inverted, too; if some relevant documents could
    never be selected, since no weight can recover these.

    Example:
        >>> inverse_propensity_weights(np.array(0.5), np.array([0.25, 1.0, 0.1]), np.array([True, True, False])).tolist()
        [8.0, 2.0, 0.0]
        >>> inverse_propensity_weights(np.array(0.5), np.array([0.25, 1.0]), negatives="given").tolist()
        [2.0, 2.0]
    """
    check_choice("inverse_propensity_weights", "negatives", negatives, NEGATIVES)
    check_number("inverse_propensity_weights", "least", least, least=0, most=1)
    given = [np.asarray(values, dtype=np.float64) for values in (positive, negative)]
    positive, negative = np.broadcast_arrays(*given)
    both = negatives == "selected"
    bad = [mark for mark in np.ravel(np.array(True if selected is None else selected, dtype=object)) if not is_mark(mark)]
    if bad:
        raise InputError(f"inverse propensities: selected holds {bad[0]!r}; it must be True or False (or 1 or 0), map it first")
    counts = np.broadcast_to(True if selected is None or not both else np.asarray(selected, dtype=bool), positive.shape)
    for name, values in (("a positive", positive[counts]), *([("a negative", negative[counts])] if both else [])):
        wrong = values[~((values > 0) & (values <= 1))]
        if len(wrong):
            raise InputError(f"inverse propensities: {name} has the propensity {wrong[0]:g}; it must be above 0 and at most 1")
    chances = np.where(counts, np.maximum(positive, least), 1.0)
    if both:
        chances = chances * np.where(counts, np.maximum(negative, least), 1.0)
    return np.where(counts, 1 / chances, 0.0)
