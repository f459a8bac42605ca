r"""ARaB, FaiRR and related measures as functions on arrays.

Symbols are those of Rekabsaz and Schedl (SIGIR 2020) and of Rekabsaz, Kopeinik and Schedl (SIGIR 2021): c_g(d) is how often words
of group g occur in document d, mag_g(d) the group's magnitude, d_1, d_2, ... the ranked documents of a query q, t the cut-off, n
the length of the list. Documents are rows, groups columns; lists are in the order of their ranks.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pyterrier_debias.core.errors import InputError, check_choice, check_number
from pyterrier_debias.gender.data.words import WordList
from pyterrier_debias.gender.formulas.counting import WordCounts

METHODS = ("tf", "bool", "tc")
TF_FORMS = ("log1p_total", "sum_log", "sum_log1p")

#: An ideal of at most this value is 0 up to rounding.
_NOTHING = 1e-12


def check_magnitude(method: str, tf_form: str) -> None:
    """Check the method and the form of TF.

    Raises:
        InputError: If one of them is unknown.
    """
    check_choice("ARaB", "method", method, METHODS)
    check_choice("ARaB", "tf_form", tf_form, TF_FORMS)


def magnitudes(counts: WordCounts, method: str = "tf", tf_form: str = "log1p_total") -> np.ndarray:
    """How strongly each group is mentioned in each document: the magnitude mag_g(d).

    - ``'tc'``: c_g, the number of words;
    - ``'bool'``: 1 if c_g > 0, else 0;
    - ``'tf'``: ln(1 + c_g), as in the released code (``tf_form='log1p_total'``); or the sum of ln(c_w) over the group's words w
      that occur, as printed in the paper, in which a word that occurs once adds nothing (``'sum_log'``); or the sum of
      ln(1 + c_w), which the released notebook computes but never uses (``'sum_log1p'``).

    Args:
        counts: The words of n documents.
        method: ``'tf'``, ``'bool'`` or ``'tc'``.
        tf_form: One of the three formulas of ``'tf'``; not used otherwise.

    Returns:
        Shape [n, groups], at least 0.

    Raises:
        InputError: For an unknown method or form.

    Example:
        >>> from pyterrier_debias.gender.formulas.counting import word_counts
        >>> counts = word_counts(["he he she"])
        >>> {form: magnitudes(counts, tf_form=form).round(4).tolist()[0] for form in TF_FORMS}
        {'log1p_total': [1.0986, 0.6931], 'sum_log': [0.6931, 0.0], 'sum_log1p': [1.0986, 0.6931]}
    """
    check_magnitude(method, tf_form)
    if method == "tf" and tf_form == "sum_log":
        return counts.total(np.log)
    if method == "tf" and tf_form == "sum_log1p":
        return counts.total(np.log1p)
    total = counts.total().astype(np.float64)
    return np.log1p(total) if method == "tf" else total if method == "tc" else np.minimum(total, 1.0)


def leans(magnitude: np.ndarray, wordlist: WordList, contrast: str | tuple[str, str] | None = None) -> np.ndarray:
    """b(d): how far a document leans to one side; by default mag of the first group minus mag of the second.

    Args:
        magnitude: Shape [n, groups].
        wordlist: The word list with these groups.
        contrast: Which groups are compared; see :meth:`WordList.contrast`.

    Returns:
        Shape [n]; positive towards the first group of the contrast.
    """
    lean = magnitude @ np.array(list(wordlist.contrast(contrast).values()))
    # One group against the mean of several: equal magnitudes would differ in their last bits.
    return np.where(np.abs(lean) <= 1e-12 * magnitude.sum(axis=1), 0.0, lean)


def rab(lean: np.ndarray, cutoff: int) -> float:
    """RaB_q@t: the mean lean of the first t documents, or of all if there are fewer.

    Args:
        lean: Shape [n], by rank.
        cutoff: t, at least 1.

    Returns:
        The mean; NaN for an empty list.

    Example:
        >>> rab(np.array([1.0, 0.0, -2.0]), 2)
        0.5
    """
    head = np.asarray(lean, dtype=np.float64)[: _positive(cutoff)]
    return float(head.mean()) if len(head) else float("nan")


def rank_weights(cutoff: int) -> np.ndarray:
    """The weight of rank i in ARaB@t: w_i = (1/t) times the sum of 1/x for x = i..t. The weights fall with the rank and sum to 1.

    Args:
        cutoff: t, at least 1.

    Returns:
        Shape [t], rank 1 first.

    Example:
        >>> rank_weights(2).tolist()
        [0.75, 0.25]
    """
    t = _positive(cutoff)
    return np.cumsum(1 / np.arange(t, 0, -1))[::-1] / t


def arab(lean: np.ndarray, cutoff: int) -> float:
    """ARaB_q@t: the mean of RaB_q@1, ..., RaB_q@t, or up to the end of the list if it is shorter.

    Args:
        lean: Shape [n], by rank.
        cutoff: t, at least 1.

    Returns:
        The mean of the leans, weighted by :func:`rank_weights` of min(t, n); NaN for an empty list.

    Example:
        RaB@1 = 1, RaB@2 = 1/2, RaB@3 = -1/3; their mean is 7/18.

        >>> round(arab(np.array([1.0, 0.0, -2.0]), 3), 4), round(7 / 18, 4)
        (0.3889, 0.3889)
    """
    lean = np.asarray(lean, dtype=np.float64)
    t = min(_positive(cutoff), len(lean))
    return float(lean[:t] @ rank_weights(t)) if t else float("nan")


def random_order_arab(lean: np.ndarray, cutoff: int) -> tuple[float, float]:
    """Expectation and standard deviation of ARaB@t for the same documents in a random order.

    Each document is equally likely at each rank, so the expectation is the documents' mean lean: the lean of the candidates
    themselves, which is not due to a ranker. With S the population variance of the leans and w the weights of the ranks (0 below
    the cut-off), drawing without replacement gives the variance S n / (n - 1) (sum w^2 - 1/n).

    Args:
        lean: Shape [n], in any order.
        cutoff: t, at least 1.

    Returns:
        Expectation and standard deviation; NaN for no documents.

    Example:
        Orders of leans 1 and 0 give ARaB@2 = 3/4 and 1/4.

        >>> random_order_arab(np.array([1.0, 0.0]), 2)
        (0.5, 0.25)
    """
    lean = np.asarray(lean, dtype=np.float64)
    n = len(lean)
    if n == 0:
        return float("nan"), float("nan")
    weights = rank_weights(min(_positive(cutoff), n))
    if n == 1:
        return float(lean[0]), 0.0
    variance = lean.var() * n / (n - 1) * max(float(weights @ weights) - 1 / n, 0.0)
    return float(lean.mean()), float(np.sqrt(variance))


def shifted_arab(lean: np.ndarray, cutoff: int) -> np.ndarray:
    """ARaB@t of all cyclic shifts of a list: in shift s, document s is first, and those before it follow the last one.

    The mean of the shifts is that of all orders (:func:`random_order_arab`), because each document is once at each rank.

    Args:
        lean: Shape [..., n], by rank; n at least 1.
        cutoff: t, at least 1.

    Returns:
        Shape [..., n], each list itself first.

    Example:
        >>> shifted_arab(np.array([1.0, 0.0, 0.0]), 2).tolist()
        [0.75, 0.0, 0.25]
    """
    lean = np.asarray(lean, dtype=np.float64)
    weights = rank_weights(min(_positive(cutoff), lean.shape[-1]))
    round_again = np.concatenate([lean, lean[..., : len(weights) - 1]], axis=-1)
    return np.lib.stride_tricks.sliding_window_view(round_again, len(weights), axis=-1) @ weights


def neutrality(
    totals: np.ndarray, groups: tuple[str, ...], portions: Mapping[str, float] | None = None, threshold: int = 1
) -> np.ndarray:
    """How evenly the groups are mentioned in a document.

    With C the sum of the counts c_g and J_g the desired portion of group g, it is 1 - sum over g of abs(c_g / C - J_g) if C is
    above the threshold, else 1. A document with one gendered word is neutral at the default threshold.

    Args:
        totals: c_g, shape [n, groups].
        groups: The groups' names.
        portions: Mapping from each group to its portion J_g; None for equal portions.
        threshold: How many words a document may have and still count as neutral.

    Returns:
        Shape [n], at most 1; at least 0 with equal portions of two groups, but possibly below 0 otherwise.

    Raises:
        InputError: For fewer than two groups; portions of other groups, below 0, or that do not sum to 1; a threshold that is not
            a number of at least 0.

    Example:
        >>> neutrality(np.array([[3, 1], [1, 0], [2, 2]]), ("male", "female")).tolist()
        [0.5, 1.0, 1.0]
    """
    if len(groups) < 2:
        raise InputError(
            f"neutrality compares groups; the word list has only {', '.join(groups)}; give a word list with at least two groups"
        )
    check_number("neutrality", "threshold", threshold, least=0, hint="it counts words")
    wished = wished_portions(groups, portions)
    totals = np.asarray(totals, dtype=np.float64)
    everything = totals.sum(axis=1)
    spoken = everything > threshold
    shares = totals / np.where(spoken, everything, 1.0)[:, None]
    return np.where(spoken, 1 - np.abs(shares - wished).sum(axis=1), 1.0)


def wished_portions(groups: tuple[str, ...], portions: Mapping[str, float] | None = None) -> np.ndarray:
    """The desired portion of each group.

    Args:
        groups: The groups' names.
        portions: Mapping from each group to its portion; None for equal portions.

    Returns:
        Shape [groups], sums to 1.

    Raises:
        InputError: For portions of other groups, below 0, or that do not sum to 1.

    Example:
        >>> wished_portions(("male", "female"), {"female": 0.75, "male": 0.25}).tolist()
        [0.25, 0.75]
    """
    if portions is None:
        return np.full(len(groups), 1 / len(groups))
    if not isinstance(portions, Mapping):
        raise InputError(f"portions={portions!r} must be a mapping from each of {', '.join(groups)} to its portion")
    for group, portion in portions.items():
        check_number("portions", str(group), portion)
    if set(portions) != set(groups) or not np.isclose(sum(portions.values()), 1) or min(portions.values()) < 0:
        raise InputError(f"portions {dict(portions)} must name each of {', '.join(groups)}, be at least 0 and sum to 1")
    return np.array([portions[group] for group in groups], dtype=np.float64)


def fairr(neutral: np.ndarray, cutoff: int) -> float:
    """FaiRR_q@t: the sum over ranks i = 1..min(t, n) of neutrality(d_i) / log2(i + 1).

    Args:
        neutral: Neutrality, shape [n], by rank.
        cutoff: t, at least 1.

    Returns:
        The sum. It is not a mean: short lists have low sums. NaN for an empty list.

    Example:
        1 / log2(2) + 0.5 / log2(3)

        >>> round(fairr(np.array([1.0, 0.5]), 5), 4)
        1.3155
    """
    head = np.asarray(neutral, dtype=np.float64)[: _positive(cutoff)]
    return float(head @ (1 / np.log2(np.arange(2, len(head) + 2)))) if len(head) else float("nan")


def ifairr(background: np.ndarray, cutoff: int, shortest: int | None = None) -> float:
    """IFaiRR_q@t: the FaiRR of the best list of the background's documents, sorted by neutrality.

    Args:
        background: Neutrality of the background's documents, shape [m], in any order.
        cutoff: t, at least 1.
        shortest: The minimum length of the list; None for all documents up to the cut-off. It matters only if neutrality is below
            0, where a shorter list is better.

    Returns:
        The sum; NaN for no documents.

    Example:
        1 - 0.5 / log2(3) for both documents; a list of the first alone has 1.

        >>> round(ifairr(np.array([-0.5, 1.0]), 2), 4), round(ifairr(np.array([-0.5, 1.0]), 2, shortest=1), 4)
        (0.6845, 1.0)
    """
    best = np.sort(np.asarray(background, dtype=np.float64))[::-1][: _positive(cutoff)]
    if not len(best):
        return float("nan")
    sums = np.cumsum(best / np.log2(np.arange(2, len(best) + 2)))
    first = len(best) if shortest is None else min(max(shortest, 1), len(best))
    return float(sums[first - 1 :].max())


def nfairr(neutral: np.ndarray, background: np.ndarray, cutoff: int) -> float:
    """NFaiRR_q@t = FaiRR_q@t / IFaiRR_q@t.

    The ideal has at least as many documents as the ranking has above the cut-off, and at most t. So the value is at most 1
    whenever the ranked documents are in the background, even if neutrality is below 0; if it is not, this is the published
    formula.

    Args:
        neutral: Neutrality of the ranked documents, shape [n], by rank.
        background: Neutrality of the background's documents, shape [m].
        cutoff: t, at least 1.

    Returns:
        1 if the ranking is as neutral as the background allows; above 1 only if it has documents that the background lacks. NaN
        if the ideal is not above 0 (a ratio to it has no meaning, and a negative divisor would reverse the order of systems), or
        if either list is empty.

    Example:
        >>> round(nfairr(np.array([0.0, 1.0]), np.array([0.0, 1.0]), 2), 4)
        0.6309
    """
    value = fairr(neutral, cutoff)
    ideal = ifairr(background, cutoff, shortest=min(len(neutral), cutoff))
    return value / ideal if ideal > _NOTHING else float("nan")


def _positive(cutoff: int) -> int:
    check_number("cut-off", "k", cutoff, least=1, whole=True)
    return int(cutoff)
