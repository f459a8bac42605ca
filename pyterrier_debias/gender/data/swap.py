"""SwapGender: replaces gendered words in a text with their counterparts of the other gender."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.caches import marked
from pyterrier_debias.core.errors import InputError, check_choice, check_number, kind_of
from pyterrier_debias.core.frames import check_text
from pyterrier_debias.core.scripts import composed, is_unspaced, word_pattern, word_places
from pyterrier_debias.core.stage import RowWise
from pyterrier_debias.core.terrier import warn_of_expressions
from pyterrier_debias.core.text import keyed_hash
from pyterrier_debias.core.variants import reworded

#: Words and their counterparts, both ways: titles, kinship, nouns for persons. Pronouns that have more than one are decided by
#: :func:`followed_by_noun`. Words with other common meanings are left out (count, host, miss); "Guy", "Gal", "Ms" and "MR" count
#: where they can be told from names and units, see :func:`_told_by_case`.
PAIRS: dict[str, str] = dict(
    pair.split("/")
    for pair in """
    he/she himself/herself man/woman men/women boy/girl boys/girls male/female males/females
    mr/mrs sir/madam gentleman/lady gentlemen/ladies
    father/mother fathers/mothers dad/mom dads/moms daddy/mommy daddies/mommies papa/mama papas/mamas
    stepfather/stepmother stepfathers/stepmothers stepdad/stepmom stepdads/stepmoms
    godfather/godmother godfathers/godmothers godson/goddaughter godsons/goddaughters
    grandfather/grandmother grandfathers/grandmothers grandpa/grandma grandpas/grandmas
    son/daughter sons/daughters stepson/stepdaughter stepsons/stepdaughters
    grandson/granddaughter grandsons/granddaughters
    brother/sister brothers/sisters stepbrother/stepsister stepbrothers/stepsisters
    uncle/aunt uncles/aunts nephew/niece nephews/nieces
    husband/wife husbands/wives bridegroom/bride bridegrooms/brides widower/widow widowers/widows
    boyfriend/girlfriend boyfriends/girlfriends fiancé/fiancée fiancés/fiancées
    fatherhood/motherhood boyhood/girlhood manhood/womanhood brotherhood/sisterhood
    fatherly/motherly brotherly/sisterly paternal/maternal paternity/maternity masculine/feminine masculinity/femininity
    king/queen kings/queens prince/princess princes/princesses duke/duchess dukes/duchesses
    emperor/empress emperors/empresses baron/baroness barons/baronesses
    actor/actress actors/actresses waiter/waitress waiters/waitresses hero/heroine heroes/heroines
    guy/gal guys/gals airman/airwoman airmen/airwomen househusband/housewife househusbands/housewives
    fireman/firewoman firemen/firewomen fisherman/fisherwoman fishermen/fisherwomen cameraman/camerawoman cameramen/camerawomen
    councilman/councilwoman councilmen/councilwomen serviceman/servicewoman servicemen/servicewomen
    nobleman/noblewoman noblemen/noblewomen cowboy/cowgirl cowboys/cowgirls steward/stewardess stewards/stewardesses
    patriarch/matriarch patriarchs/matriarchs patriarchal/matriarchal patriarchy/matriarchy manly/womanly boyish/girlish
    landlord/landlady landlords/landladies heir/heiress heirs/heiresses
    policeman/policewoman policemen/policewomen businessman/businesswoman businessmen/businesswomen
    chairman/chairwoman chairmen/chairwomen spokesman/spokeswoman spokesmen/spokeswomen
    salesman/saleswoman salesmen/saleswomen congressman/congresswoman congressmen/congresswomen
    sportsman/sportswoman sportsmen/sportswomen horseman/horsewoman horsemen/horsewomen
    schoolboy/schoolgirl schoolboys/schoolgirls monk/nun monks/nuns god/goddess gods/goddesses lad/lass lads/lasses
    """.split()
)

#: Words whose counterpart has a different counterpart: swapping twice does not restore them.
ONE_WAY: dict[str, str] = {
    "mum": "dad", "mums": "dads", "mommie": "daddy", "mummies": "daddies", "granddad": "grandma", "granddads": "grandmas",
    "granny": "grandpa", "mister": "mrs", "missus": "mr", "gent": "lady", "gents": "ladies",
    "fella": "gal", "fellas": "gals", "ms": "mr",
}  # fmt: skip

_PRONOUNS = frozenset(("his", "her", "him", "hers"))

#: Words that, after "her" or "his", do not begin a noun phrase that it owns; before any other word, a noun is expected. Swapping
#: maps the set to itself, so that a swapped text is read like its original.
NOT_NOUNS = frozenset(
    """a an the this that these those some any each every either neither both all another no
    i me my mine we us our ours you your yours he she him her his hers it its they them their theirs
    myself yourself himself herself itself ourselves themselves one's
    who whom whose which what when where why how whether if because although though while than as so but and or nor yet until
    unless since before after once then
    of in on at by for from to into onto upon with within without about above across against along among around behind below
    beneath beside between beyond down during inside near off out outside over past through throughout toward towards under up via
    am is are was were be been being do does did done has have had having can could may might must shall should will would
    isn aren wasn weren don doesn didn hasn haven hadn can couldn won wouldn shouldn not
    there here too also again alone away back home now today yesterday tomorrow tonight later soon ago already still ever never
    always often sometimes maybe perhaps however therefore
    asks asked says said told tells thinks thought knew knows went goes came comes became becomes""".split()
)

#: Adjectives that can also follow "her" alone ("made her happy"): they begin a noun phrase only if a noun follows.
_ADJECTIVES = frozenset(
    """able absent afraid aged alive alone angry anxious ashamed asleep available awake aware bad bankrupt beautiful
    better blind bored broke broken busy calm capable cold comfortable confident crazy curious dead deaf dependent
    desperate different difficult disabled drunk eligible embarrassed exhausted famous fat fit free frightened full
    furious glad gone good grateful great guilty happy healthy helpless homeless hot hungry hurt ill immortal
    independent infertile injured innocent insane jealous late lonely mad miserable much nervous nice numb old out pale
    paralysed paralyzed perfect pleased poor popular powerful powerless pregnant proud quiet ready responsible rich sad
    safe sane satisfied scared sexy sick silent single sleepless sleepy small smart speechless strange strong stupid
    successful sure tall tense thin thirsty tired tough ugly unable unarmed uncomfortable unconscious unhappy uninjured
    unprepared unwell upset useless vulnerable warm weak wealthy welcome well wet worried worse worthy wrong young""".split()
)

#: Verbs after which "her" does or undergoes something: a verb, an adjective, or a noun that is not hers follows.
_CAUSING = frozenset(
    """feel feels felt had has have hear heard hearing hears help helped helping helps let lets letting made make makes
    making saw see seeing seen sees watch watched watches watching""".split()
)

#: Words that, after "her", may be bare infinitives if one of :data:`_CAUSING` comes before.
_INFINITIVES = frozenset(
    """accept achieve act add adjust agree appear apply arrive ask avoid be become begin believe bleed blush breathe
    build buy call carry catch choose climb come complain continue cook cope cross cry dance deal decide describe
    develop die discover do drink drive drop eat enjoy enter escape explain express face fall feel fight find finish fit
    focus forget gain get give go grow handle happen have heal hear identify improve join jump keep kiss know laugh
    learn leave lie live look lose make manage marry meet move open overcome pack paint pass pay perform pick play
    practise prepare present pull push put quit reach read realise realize recover relax remember rest return ride run
    save say scream see sell send set shake shine shout show sing sit sleep smile speak spend stand start stay stop
    struggle study succeed suffer swim take talk tell think throw try turn understand use vomit wait wake walk want
    watch weep win wonder work write""".split()
)

_FINDING = frozenset(
    """catch catches caught find finds found keep keeps kept leave leaves left show showed shown shows start started
    stop stopped""".split()
)
_PREPOSITIONS = frozenset(
    """about above across against along among around at behind below beneath beside between beyond by down during for
    from in inside into near of off on onto outside over past since through throughout to toward towards under until up
    upon via with within without""".split()
)

#: Verbs with two objects, and nouns that are given to her rather than hers.
_GIVING = frozenset(
    """bought bring bringing brings brought buy buying buys cook cooked cost costs denied denies deny earn earned fed
    feed gave give given gives giving grant granted grants guarantee guaranteed hand handed hands lend lending lends
    lent offer offered offering offers owe owed owes paid pay paying pays promise promised promises refuse refused
    refuses send sending sends sent serve served show showed shows take taken takes taking taught teach teaches teaching
    tell telling tells told took wish wished""".split()
)
_GIVEN = frozenset(
    """advice antibiotics books chess chocolate chocolates credit directions drugs encouragement fame flowers food
    french german greek happiness hope information instructions insulin latin letters lies maths medication medicine
    messages money morphine music permission pills pleasure presents recognition roses strength thanks tickets time
    trouble water wealth""".split()
)
_NUMBERS = frozenset("one two three four five six seven eight nine ten eleven twelve twenty thirty fifty hundred".split())
_TIMES = frozenset(
    """afternoon april august autumn day days december evening fall february friday january july june march monday month
    months morning night nights november october saturday september spring summer sunday thursday time times tuesday
    wednesday week weekend weeks winter year years""".split()
)
_NAMING = frozenset(
    """appoint appointed appoints call called calls crown crowned declare declared elect elected elects made make makes
    name named names""".split()
)
_OFFICES = frozenset(
    """captain chair chairman chairwoman champion chancellor director editor emperor empress governor head king leader
    mayor minister president queen secretary""".split()
)
#: Further words, besides :data:`NOT_NOUNS`, that do not begin a noun phrase with an owner.
_ALONE = frozenset(
    """abroad afterwards ahead alike along anybody anymore anyone anything anyway anywhere apart aside beforehand
    despite downstairs else enough everybody everyone everything everywhere except forever forward hence indoors instead
    like meanwhile nobody nothing nowhere outdoors per quite somebody someone something sometime somewhere thus together
    too twice unlike up upstairs""".split()
)
_DEGREES = frozenset("very so too quite rather really extremely more most less least".split())

_NEXT = re.compile(r"[\s\"'\u2018\u2019\u201c\u201d(\[-]*(\w+)")
_BRACKETED = re.compile(r"(\s*)[(\[]([^()\[\]]*)[)\]]")
_LAST = re.compile(r"(\w+)[\s\"'\u2018\u201c(\[]*\Z")
_BESIDE = re.compile(r"(?:\s+(?:or|and)\s+|\s*/\s*)(?:his|hers|her|their|its|my|your|our)(?!\w)", re.IGNORECASE)
_PARTNER_AFTER = re.compile(r"(?:\s+or\s+|\s*/\s*)(his|him|her)(?!\w)", re.IGNORECASE)
_PARTNER_BEFORE = re.compile(r"(?<!\w)(his|him|her)(?:\s+or\s+|\s*/\s*)\Z", re.IGNORECASE)


def followed_by_noun(text: str, end: int) -> bool:
    """Whether a noun phrase is expected after a pronoun, so that "her" means "his" and not "him".

    It is expected if the next word is not in a list of words that do not begin one (:data:`NOT_NOUNS`); adverbs in -ly are
    skipped, and "his or her", "his/her" are treated as one pronoun. Adjectives, infinitives and things that are given count if
    the verb before the pronoun and the word after them allow a noun phrase: "made her happy" has none, "made her bed" and "her
    happy son" have one.

    Args:
        text: The text.
        end: Where the pronoun ends.

    Returns:
        The guess. It depends on the words around the pronoun, not on the pronoun itself, and is the same for the swapped text.

    Example:
        >>> text = "her sister gave it to her"
        >>> followed_by_noun(text, 3), followed_by_noun(text, len(text))
        (True, False)
        >>> followed_by_noun("makes her happy", 9), followed_by_noun("her happy childhood", 3)
        (False, True)
    """
    start = end
    while start and (text[start - 1].isalnum() or text[start - 1] == "_"):
        start -= 1
    last = _LAST.search(text, max(0, start - 40), start)
    return _noun_behind(text, end, last[1].lower() if last else "")


def _after(text: str, end: int) -> tuple[str, int]:
    """The next word, in lower case, and where it ends; no word after a sign that ends a phrase."""
    found = _NEXT.match(text, end)
    return ("", end) if found is None or found.start(1) == end else (found[1].lower(), found.end(1))


def _noun_behind(text: str, end: int, before: str) -> bool:
    beside = _BESIDE.match(text, end)
    if beside is not None:
        return _noun_behind(text, beside.end(), before)
    bracketed = _BRACKETED.match(text, end)
    if bracketed is not None:  # "her (late) father" is read as "her late father"
        return _noun_behind(" ".join((*bracketed.groups(), text[bracketed.end() :])), 0, before)
    word, end = _after(text, end)
    if word == "not" and _after(text, end)[0] in _DEGREES:
        return _noun_behind(text, end, before)
    if not word or word in NOT_NOUNS or word in _ALONE:
        return False
    behind, _ = _after(text, end)
    if word.endswith("ly") and len(word) > 4:
        return _noun_behind(text, end, before)
    if word == "home":
        return before in _PREPOSITIONS or before in _GIVING
    if word in _DEGREES:
        if behind in ("much", "well", "often", "than", "closely", "money", "time", "power"):
            return False
        # "her more recent work" is a phrase, "loves her more than him" is none.
        return _noun_behind(text, end, before)
    ends_there = not behind or behind in NOT_NOUNS or behind in _ALONE or (behind.endswith("ly") and len(behind) > 4)
    if word in _ADJECTIVES and ends_there:
        return False
    if before in _CAUSING and (word in _INFINITIVES or word in _ADJECTIVES) and not (word == "work" and ends_there):
        return _noun_follows_adjective(word, behind)
    if word.endswith("ing") and len(word) > 5 and (before in _CAUSING or before in _FINDING):
        return word in ("wedding", "painting", "building", "clothing", "earring", "evening", "morning", "offspring")
    if before in _GIVING and (word in _GIVEN or word in _NUMBERS or word.isdigit()):
        return False
    if word in ("last", "next") and behind in _TIMES:
        return before in _PREPOSITIONS
    if word in _TIMES - {"time", "times", "day", "days", "evening", "night", "morning"} and ends_there:
        return before in _PREPOSITIONS
    return not (before in _NAMING and word in _OFFICES)


def _noun_follows_adjective(word: str, behind: str) -> bool:
    """Whether "made her old house", not "helped her find a house": an adjective with a noun behind it."""
    return word in _ADJECTIVES and bool(behind) and behind not in NOT_NOUNS and behind not in _ALONE


def _pronoun(word: str, text: str, start: int, end: int) -> str:
    """The counterpart of a pronoun that has several."""
    if word == "him":
        return "her"
    if word == "hers":
        return "his"
    after, before = _PARTNER_AFTER.match(text, end), _PARTNER_BEFORE.search(text, max(0, start - 12), start)
    partners = {found[1].lower() for found in (after, before) if found is not None}
    # "his/her" is one pronoun written for both, and so is "him or her".
    if word == "her" and "him" in partners and "his" not in partners:
        return "him"
    noun = ("his" if word == "her" else "her") in partners or followed_by_noun(text, end)
    return ("his" if noun else "him") if word == "her" else ("her" if noun else "hers")


_SENTENCE = re.compile(r"(?:^|[.!?:\n][\"'\u2019\u201d)\]]*)[\s\"'\u2018\u201c(\[-]*\Z")
_NAME = re.compile(r"\.?\s+[^\W\d_]")


_BY_CASE = frozenset(("guy", "gal", "ms", "mr", "mrs"))
#: Words written for both genders at once, "s/he", "(wo)men", "actor(ess)", up to and from the end of the gendered word.
_BOTH_BEFORE = re.compile(
    r"(?<![\w'\u2019])(?:(?:s[/-]|\(s\))he|(?:wo[/-]|\(wo\))m[ae]n\w*|(?:fe[/-]|\(fe\))males?)\Z", re.IGNORECASE
)
_BOTH_AFTER = re.compile(r"[/(](?:d?ess|ss|ine|er|e)(?!\w)", re.IGNORECASE)


def _for_both(text: str, start: int, end: int) -> bool:
    """Whether a word is a part of one that is written for both genders, which would mean nothing with the part swapped."""
    return _BOTH_AFTER.match(text, end) is not None or _BOTH_BEFORE.search(text, max(0, start - 4), end) is not None


def _told_by_case(word: str, text: str, start: int, end: int) -> bool:
    """Whether a word that can be a name or unit is a gendered word here: "Guy" begins a sentence, "Ms", "MR" precede a name."""
    written, found = text[start:end], _NAME.match(text, end)
    before_name = found is not None and found[0][-1].isupper()
    if word == "ms":
        return written == "Ms" and before_name
    if word in ("guy", "gal"):
        begins = _SENTENCE.search(text, max(0, start - 10), start) is not None
        return not written.istitle() or (begins and not before_name)
    # The full stop of an abbreviation tells a title, too: "MR. and MRS. Hill".
    return not written.isupper() or before_name or (found is not None and found[0][0] == ".")


def _in_case(word: str, like: str) -> str | None:
    """A word in the case of another one; None if that case cannot be kept."""
    if like.islower() or like.lower() == like.upper():
        return word
    if like.istitle():
        return word.capitalize()
    return word.upper() if like.isupper() else None


#: The words that are replaced and their counterparts; None for pronouns, which have several.
_TABLE: dict[str, str | None] = {
    **dict.fromkeys(_PRONOUNS), **ONE_WAY, **PAIRS, **{other: one for one, other in PAIRS.items()}
}  # fmt: skip
#: The gender of each word: the first of a pair is male; a word of :data:`ONE_WAY` has the gender that its counterpart has not.
_GENDER = {**dict.fromkeys(PAIRS, "m"), **dict.fromkeys(PAIRS.values(), "f"), "him": "m", "his": "m", "her": "f", "hers": "f"}
_GENDER |= {word: "f" if _GENDER[other] == "m" else "m" for word, other in ONE_WAY.items()}
#: The table for each ``to``, without the words of that gender.
_TABLES = {to: {word: other for word, other in _TABLE.items() if _GENDER[word] != to} for to in (None, "m", "f")}


def _table(pairs: Mapping[str, str] | None, to: str | None) -> dict[str, str | None]:
    """Counterparts of the library's words, without those of the gender ``to``, and of the user's, checked and lower-cased."""
    check_choice("SwapGender", "to", to, _TABLES)
    if not pairs:
        return _TABLES[to]
    own = _own_pairs(pairs)
    gender = {**_GENDER, **dict.fromkeys(own, "m"), **dict.fromkeys(own.values(), "f")}
    table = {**_TABLE, **own, **{female: male for male, female in own.items()}}
    return {word: other for word, other in table.items() if gender[word] != to}


def _own_pairs(pairs: Mapping[str, str]) -> dict[str, str]:
    """The user's words, checked and lower-cased."""
    if not isinstance(pairs, Mapping):
        raise InputError(f"SwapGender: pairs is {kind_of(pairs)}; give a mapping from male words to female ones")
    found: list[tuple[str, str]] = []
    for pair in pairs.items():
        bad = [word for word in pair if not isinstance(word, str) or word_places(word) != [(0, len(word))]]
        if bad and isinstance(bad[0], str) and is_unspaced(bad[0]):
            raise InputError(
                f"SwapGender: {bad[0]!r} in pairs is in a script without blanks, where each character is a word; leave it out"
            )
        if bad:
            raise InputError(f"SwapGender: {bad[0]!r} in pairs is not a single word; give words of letters and digits")
        found.append((composed(pair[0].lower()), composed(pair[1].lower())))
    times = Counter(word for pair in found for word in pair)
    twice = next((word for word, n in times.items() if n > 1 or word in _PRONOUNS), None)
    if twice is not None:
        raise InputError(f"SwapGender: {twice!r} has more than one counterpart in pairs; a word may be in one pair only")
    return dict(found)


def swap_gender(text: str, pairs: Mapping[str, str] | None = None, *, to: str | None = None) -> tuple[str, int]:
    """Replace each gendered word of a text by its counterpart of the other gender.

    Swapping twice restores the text, except words that share a counterpart: "him" or "hers" before a noun ("gave him shelter"),
    and words such as "mum" and "granddad" (:data:`ONE_WAY`). Words keep their case; a word in mixed case is not swapped.

    Args:
        text: Any text.
        pairs: Further male words and their female counterparts, e.g. first names. They are used in both directions and take
            precedence over the library's own.
        to: ``'m'``: only female words are replaced, so that none is left; ``'f'``: only male ones; None: both.

    Returns:
        The text, and how many words were swapped.

    Raises:
        InputError: If a pair is not two single words, if a word is in two pairs, or for an unknown ``to``.

    Example:
        >>> swap_gender("Her brother told HIM that his aunt is hers.")[0]
        'His sister told HER that her uncle is his.'
        >>> swap_gender("Mary met him", {"john": "mary"})
        ('John met her', 2)
        >>> swap_gender("She and her brother", to="m")
        ('He and his brother', 2)
    """
    return _swap(text, _table(pairs, to))


def _swap(text: str, table: Mapping[str, str | None]) -> tuple[str, int]:
    parts, at, n = [], 0, 0
    for found in word_pattern(text).finditer(text):
        word = composed(found[0].lower())
        start, end = found.span()
        if word not in table or (word in _BY_CASE and not _told_by_case(word, text, start, end)) or _for_both(text, start, end):
            continue
        other = _in_case(table[word] or _pronoun(word, text, start, end), found[0])
        if other is None:
            continue
        parts += [text[at:start], other]
        at, n = end, n + 1
    return "".join([*parts, text[at:]]) if n else text, n


class SwapGender(RowWise):
    """Swaps gendered words in documents, in queries, or in both, to make counterfactual texts.

    ===============  ==========================================================================
    columns in       ``docno`` and the text column; with ``queries=True`` ``qid`` and ``query``; any others
    columns out      the same, texts swapped; ``swapped``: how many words of the text; ``text_variant`` if there is a ``qid``:
                     the docno and a hash of the text, for caches; ``text_orig`` with ``keep_original=True``;
                     with ``queries=True`` the old query in ``query_0``
    ===============  ==========================================================================

    As a probe: does a ranker score the swapped document differently? As a treatment: with ``share=0.5``, half of the passages are
    swapped, so that nothing occurs more often with one gender; ``Training(augment=SwapGender(share=0.5))`` draws a new half in
    each epoch (counterfactual data augmentation, as Zhao et al., NAACL 2018, and Lu et al., 2018, do it in other tasks).

    "her" becomes "his" before a noun and "him" elsewhere, "his" becomes "her" before a noun and "hers" elsewhere. Whether a noun
    follows is decided by lists of words around it, see :func:`followed_by_noun`: correct in 58 of 60 sentences that were written
    after the lists (NLTK's tagger in 84 of 140 others, so no tagger is used). "Ms" before a name becomes "Mr", which becomes
    "Mrs"; in capitals, "MR" and "MRS" are swapped only before a name or with a full stop. Words written for both genders ("s/he",
    "(wo)men") stay as they are. Which texts are swapped depends only on the seed, the docno (or qid) and the epoch.

    With ``to='m'`` or ``to='f'``, words change to one gender only: this makes no counterfactual, but can plant a known bias ("his
    or her doctor" becomes "his or his doctor").

    Raises:
        InputError: For an option that is unknown or out of range, when the stage is first used.

    Example:
        >>> import pandas as pd
        >>> docs = pd.DataFrame({"docno": ["d1"], "text": ["Mr Hill and his wife"]})
        >>> SwapGender()(docs)[["text", "swapped"]].values.tolist()
        [['Mrs Hill and her husband', 3]]

        Before a ranker: ``bm25 >> texts >> SwapGender() >> ranker``; do not put a cache keyed by docno after it, but
        ``ScorerCache(path, ranker, key='text_variant')``.

    When not to use it: on texts about named persons or bodies ("Queen Elizabeth and her husband", "prostate cancer in men"),
    which become nonsense and not a counterfactual; for persons who are neither male nor female, for whom it has no words; for
    languages other than English. Names and occupations are not changed unless they are in ``pairs``.
    """

    schematic: ClassVar[dict[str, Any]] = {"label": "SwapGender", "help_url": None}

    def __init__(
        self,
        *,
        text_field: str | None = "text",
        queries: bool = False,
        share: float = 1.0,
        pairs: Mapping[str, str] | None = None,
        to: str | None = None,
        seed: int = 0,
        keep_original: bool = False,
    ):
        """
        Args:
            text_field: The column to swap; None for queries only.
            queries: Whether to swap queries too.
            share: The share of documents (and of queries) to swap, from 0 to 1; the two are drawn independently.
            pairs: Further male words and their female counterparts, used in both directions.
            to: ``'m'``: only female words are replaced; ``'f'``: only male ones; None: both.
            seed: Seed of the draw of texts to swap.
            keep_original: Whether to add ``text_orig``.
        """
        self.text_field = text_field
        self.queries = queries
        self.share = share
        self.pairs = pairs
        self.to = to
        self.seed = seed
        self.keep_original = keep_original

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Swap the texts and add the columns that the class describes.

        Raises:
            InputError: For invalid options, or a text that is missing or not a string.
        """
        columns = [] if self.text_field is None else ["docno", self.text_field]
        pt.validate.columns(inp, includes=columns + (["qid", "query"] if self.queries else []), context=self)
        turn = self._turner(0)
        out = inp
        if self.text_field is not None:
            check_text(inp, self.text_field, self)
            texts, docnos = inp[self.text_field].tolist(), inp["docno"].tolist()
            swapped = [turn(text, "document", docno) for text, docno in zip(texts, docnos)]
            added: dict[str, Any] = {"text_orig": inp[self.text_field]} if self.keep_original else {}
            added[self.text_field] = pd.Series([text for text, _ in swapped], index=inp.index, dtype="str")
            added["swapped"] = np.array([n for _, n in swapped], dtype=np.int64)
            out = marked(out.assign(**added), self.text_field)
        if self.queries:
            check_text(inp, "query", self)
            warn_of_expressions(inp["query"], self)
            new = {
                (qid, query): turn(query, "query", qid)[0]
                for qid, query in set(zip(inp["qid"], inp["query"]))
            }
            queries = [new[pair] for pair in zip(inp["qid"], inp["query"])]
            out = reworded(out, queries)
        return out

    def changes(self) -> frozenset[str]:
        """Which of the text column and ``query`` are swapped; see :class:`~pyterrier_debias.core.stage.Stage`."""
        return frozenset(([] if self.text_field is None else [self.text_field]) + ["query"] * self.queries)

    def by_docno(self) -> tuple[str, str] | None:
        """The draw, unless all texts are swapped or none; see :class:`~pyterrier_debias.core.stage.Stage`."""
        drawn = "draws for each docno or qid whether it swaps the text"
        return (drawn, "swap every text (share=1)") if 0 < self.share < 1 else None

    def rotator(self, *, draw: int = 0) -> Callable[..., tuple[str, int]]:
        """The function for ``Training(augment=...)``.

        Args:
            draw: The number of the epoch; each epoch swaps an independently drawn share.

        Returns:
            ``turn(text, docno, qid)``, which returns the text, swapped or not, and how many words were swapped.

        Raises:
            InputError: For invalid options.
        """
        turn = self._turner(draw)
        return lambda text, docno, qid="": turn(text, "document", docno)

    def _turner(self, draw: int) -> Callable[[str, str, str], tuple[str, int]]:
        """A function that swaps a text, given its kind and name; the pairs are read only once."""
        check_number("SwapGender", "share", self.share, least=0, most=1)
        if self.text_field is None and not self.queries:
            raise InputError("SwapGender: text_field=None and queries=False leave nothing to swap; name a column")
        table, limit = _table(self.pairs, self.to), self.share * 2.0**64

        def turned(text: str, kind: str, name: str) -> tuple[str, int]:
            if self.share < 1 and keyed_hash(self.seed, "swap", kind, str(draw), name) >= limit:
                return text, 0
            return _swap(text, table)

        return turned
