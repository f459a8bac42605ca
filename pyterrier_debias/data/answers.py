"""Collections with answers: SQuAD, human-marked spans, MS MARCO QnA."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pandas as pd

from pyterrier_debias.core.errors import InputError, kind_of
from pyterrier_debias.data.base import Collection
from pyterrier_debias.data.lines import fault, read_head, read_json, read_json_lines, stem
from pyterrier_debias.data.readers import json_field

_QUERY_NAMES = ("query", "query_en", "query_hi")
#: The beginning of the published MS MARCO QnA files: a column, which is an object from row number to value.
_QNA_COLUMNS = re.compile(r'\s*\{\s*"(answers|passages|query|query_id|query_type|wellFormedAnswers)"\s*:\s*\{\s*"\d+"\s*:')


def read_squad(
    path: str | Path, *, only_certain: bool = False, unanswerable: bool = False, split: str | None = None
) -> Collection:
    """Read SQuAD JSON (v1.1 or v2.0) as a test collection, with paragraphs as passages and answerable questions as topics.

    The relevant passage of a question is its own paragraph, with label 1. Questions marked ``is_impossible`` and questions
    without an answer are left out, as in Hofstätter et al. (ECIR 2021), unless ``unanswerable`` is True. A passage's docno is
    derived from its text, so it is the same in every file and version that contains the paragraph; the qid is the question's id.

    Files whose offsets were reconstructed by searching mark each answer with ``offset``: ``unique`` (certain), ``overlap`` or
    ``first`` (the string occurs several times, and its first occurrence was taken). By default all answers are kept: wrong
    guesses are always too early, but dropping every repeated string loses more early answers than it corrects. Over the 1,190
    questions of XQuAD, which have true offsets, the mean relative start is .427; with reconstructed offsets it is .419 if all
    answers are kept, and .437 if only the certain ones are.

    Args:
        path: The file, plain or gzipped.
        only_certain: Whether to drop the answers whose ``offset`` is not ``unique``; in files without this field, all are kept.
        unanswerable: Whether questions without an answer are topics too. Topics then have ``answered``, True or False, and
            ``title``, the title of the article; questions without an answer have no judgement.
        split: Name of the split; None for the file's name without its ending.

    Returns:
        A collection: corpus ``docno``, ``text``, ``title`` (of the article); topics ``qid``, ``query``; qrels; answers ``qid``,
        ``docno``, ``answer``, ``start``, ``end`` (characters, ``end`` exclusive), ``offset`` (``given`` if the file does not
        say). Answers have one row for each labeller's answer: an answer on which several labellers agree occurs several times.

    Raises:
        InputError: With the file's name, for JSON that is not in SQuAD format, an answer that is not found at its offset, or a
            question id that occurs twice.

    Example:
        >>> import json, pathlib, tempfile
        >>> question = {"id": "q1", "question": "When does water boil?", "answers": [{"text": "at 100", "answer_start": 12}]}
        >>> article = {"title": "Water", "paragraphs": [{"context": "Water boils at 100 degrees.", "qas": [question]}]}
        >>> path = pathlib.Path(tempfile.mkdtemp(), "dev.json")
        >>> _ = path.write_text(json.dumps({"version": "v2.0", "data": [article]}))
        >>> read_squad(path).get_answers()[["qid", "answer", "start", "end"]].values.tolist()
        [['q1', 'at 100', 12, 18]]
    """
    split = split or stem(path)
    corpus: dict[str, dict[str, str]] = {}
    topics: dict[str, dict[str, Any]] = {}
    qrels, answers = [], []
    try:
        for title, context, question in _squad_questions(read_json(path)):
            docno = f"p{blake2b(context.encode(), digest_size=6).hexdigest()}"
            corpus.setdefault(docno, {"docno": docno, "text": context, "title": title})
            if question is None:
                continue
            answered = not question.get("is_impossible") and bool(question["answers"])
            if not answered and not unanswerable:
                continue
            qid = str(question["id"])
            if qid in topics:
                raise InputError(f"{path}: question id {qid!r} occurs twice; keep one of the two")
            more: dict[str, Any] = {"answered": answered, "title": title} if unanswerable else {}
            topics[qid] = {"qid": qid, "query": question["question"].strip(), **more}
            if not answered:
                continue
            qrels.append({"qid": qid, "docno": docno, "label": 1})
            for answer in question["answers"]:
                text, start = answer["text"], answer["answer_start"]
                end = start + len(text)
                if start < 0 or context[start:end] != text:
                    raise InputError(
                        f"{path}: answer {text!r} of question {qid!r} is not at offset {start} of its paragraph, which has "
                        f"{context[max(start, 0):max(end, 0)]!r} there; count characters, not bytes, and correct the answer or "
                        f"leave it out"
                    )
                offset = answer.get("offset", "given")
                if not only_certain or offset in ("unique", "given"):
                    answers.append((qid, docno, text, start, end, offset))
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: not SQuAD JSON ({error!r}); use data, paragraphs, context, qas and answers") from error
    return Collection(
        stem(path),
        corpus=_frame(path, corpus.values(), "paragraphs"),
        topics={split: _frame(path, topics.values(), "questions" if unanswerable else "answerable questions")},
        qrels={split: pd.DataFrame(qrels, columns=["qid", "docno", "label"])},
        answers=pd.DataFrame(answers, columns=["qid", "docno", "answer", "start", "end", "offset"]),
    )


def _squad_questions(content: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any] | None]]:
    """Title, paragraph and question, for each question; None as the question of a paragraph without questions."""
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"] or [None]:
                yield article.get("title", ""), paragraph["context"], question


def read_spans(path: str | Path, *, split: str = "test") -> Collection:
    """Read passages in which labellers marked the answers to a query, one annotation per line.

    A line is a JSON object with ``qid``, ``query``, ``psgid``, ``passage`` and ``selected_spans`` (a list of strings). Each span
    is searched for in its passage; white space around it and non-printing characters are ignored.

    Args:
        path: The file, plain or gzipped.
        split: Name of the split.

    Returns:
        A collection in which a passage has label 1 for a query if a labeller marked anything in it, otherwise 0. Answers are as
        in :func:`read_squad`, but ``offset`` is ``unique``, ``first`` (the span occurs several times; its first occurrence was
        taken) or ``absent`` (``start`` and ``end`` are -1). Annotations of an empty passage and empty spans are left out; a span
        that several labellers marked occurs several times.

    Raises:
        InputError: With file and line, if a field is missing.

    Example:
        >>> import json, pathlib, tempfile
        >>> row = {"qid": 1, "query": "who", "psgid": 7, "passage": "It was Ada.", "selected_spans": ["Ada"]}
        >>> path = pathlib.Path(tempfile.mkdtemp(), "human_spans.jsonl")
        >>> _ = path.write_text(json.dumps(row))
        >>> read_spans(path).get_answers().values.tolist()
        [['1', '7', 'Ada', 7, 10, 'unique']]
    """
    corpus: dict[str, dict[str, str]] = {}
    topics: dict[str, dict[str, str]] = {}
    qrels: dict[tuple[str, str], dict[str, Any]] = {}
    answers = []
    for number, row in read_json_lines(path):
        _expect(path, number, row, qid=(str, int), query=str, psgid=(str, int), passage=str, selected_spans=list)
        if not row["passage"].strip():
            continue
        qid, docno = str(row["qid"]), str(row["psgid"])
        text = corpus.setdefault(docno, {"docno": docno, "text": row["passage"]})["text"]
        topics.setdefault(qid, {"qid": qid, "query": row["query"].strip()})
        judgement = qrels.setdefault((qid, docno), {"qid": qid, "docno": docno, "label": 0})
        for span in filter(None, map(str.strip, row["selected_spans"])):
            judgement["label"] = 1
            answers.append((qid, docno, span, *locate(span, text)))
    return Collection(
        stem(path),
        corpus=_frame(path, corpus.values(), "passages"),
        topics={split: _frame(path, topics.values(), "topics")},
        qrels={split: _frame(path, qrels.values(), "passages")},
        answers=pd.DataFrame(answers, columns=["qid", "docno", "answer", "start", "end", "offset"]),
    )


def locate(span: str, text: str) -> tuple[int, int, str]:
    """Find a span in a text, ignoring non-printing characters.

    Args:
        span: The string to find, not empty.
        text: The text to search.

    Returns:
        Start and end (characters of the text, end exclusive), and ``unique`` or ``first`` (it occurs again); -1, -1 and
        ``absent`` if it is not found.

    Example:
        >>> locate("isn't", "It isn\\x92't so.")
        (3, 9, 'unique')
    """
    printed = [i for i, character in enumerate(text) if character.isprintable()]
    shown = "".join(text[i] for i in printed)
    wanted = "".join(character for character in span if character.isprintable())
    start = shown.find(wanted) if wanted else -1
    if start < 0:
        return -1, -1, "absent"
    unique = shown.find(wanted, start + 1) < 0
    return printed[start], printed[start + len(wanted) - 1] + 1, "unique" if unique else "first"


def read_qna(path: str | Path, *, split: str = "dev") -> Collection:
    """Read MS MARCO QnA: queries, the passages shown to labellers (in that order), the passages they used, and their answers.

    Formats: the published JSON of columns (``passages``, ``query``, ``query_type``, ``answers``, each by row, in any order) or
    one JSON object per line with the same fields; ``answers`` may be missing.

    Args:
        path: The file, plain or gzipped.
        split: Name of the split.

    Returns:
        A collection with docno ``<query id>-<place>``, where place is the passage's place in the list shown; topics ``qid``,
        ``query``, ``type`` and the row's other strings; qrels with label 1 (used for the answer) and 0 (shown, not used);
        candidates in the order shown, with the negative place as the score, as in ``ir_datasets``; answers with offsets -1, for
        each passage that was used (labellers wrote them in their own words), or None if the file has none. The placeholder
        "No Answer Present." is not an answer.

    Raises:
        InputError: With file and line, if a field is missing.

    Example:
        >>> import json, pathlib, tempfile
        >>> passages = [{"is_selected": 0, "passage_text": "No."}, {"is_selected": 1, "passage_text": "At 100 degrees."}]
        >>> row = {"query_id": 5, "query": "when does water boil", "query_type": "NUMERIC",
        ...        "answers": ["100 degrees"], "passages": passages}
        >>> path = pathlib.Path(tempfile.mkdtemp(), "qna.jsonl")
        >>> _ = path.write_text(json.dumps(row))
        >>> read_qna(path).get_answers().values.tolist()
        [['5', '5-1', '100 degrees', -1, -1]]
    """
    corpus, topics, qrels, candidates = [], [], [], []
    answers: list[tuple[str, str, str, int, int]] = []
    told = False
    for number, row in _qna_rows(path):
        _expect(path, number, row, query_id=(str, int), passages=list)
        qid = str(row["query_id"])
        query = str(row[json_field(path, number, row, _QUERY_NAMES)])
        others = {k: v for k, v in row.items() if isinstance(v, str) and k not in ("query", "query_type", "query_id")}
        topics.append({"qid": qid, "query": query.strip(), "type": row.get("query_type", ""), **others})
        told = told or "answers" in row
        given = [a for a in row.get("answers") or [] if a and a != "No Answer Present."]
        for rank, passage in enumerate(row["passages"]):
            _expect(path, number, passage, passage_text=str)
            place = passage.get("passage_index", rank)
            docno, used = f"{qid}-{place}", int(passage.get("is_selected") or 0)
            others = {"url": passage["url"]} if passage.get("url") else {}
            corpus.append({"docno": docno, "text": passage["passage_text"], **others})
            qrels.append({"qid": qid, "docno": docno, "label": used})
            candidates.append({"qid": qid, "docno": docno, "score": -float(place), "rank": rank})
            answers.extend((qid, docno, answer, -1, -1) for answer in given if used)
    return Collection(
        stem(path),
        corpus=_frame(path, corpus, "passages"),
        topics={split: _frame(path, topics, "queries")},
        qrels={split: pd.DataFrame(qrels)},
        candidates=pd.DataFrame(candidates),
        answers=pd.DataFrame(answers, columns=["qid", "docno", "answer", "start", "end"]) if told else None,
    )


def _qna_rows(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Rows of the line format, or of the published format, whose columns are objects from row number to value."""
    if not _QNA_COLUMNS.match(read_head(path)):
        yield from read_json_lines(path)
        return
    columns = read_json(path)
    for key in columns[json_field(path, 1, columns, ("passages",))]:
        yield 1, {name: values.get(key) for name, values in columns.items()}


def _expect(path: str | Path, number: int, row: dict[str, Any], **types: Any) -> None:
    """Check that the fields of an object exist and have their types."""
    for name, wanted in types.items():
        if not isinstance(row.get(name), wanted):
            found = f"is {kind_of(row[name])}" if name in row else "is missing"
            raise fault(path, number, f"field {name!r} {found}", f"write the fields {', '.join(types)} as documented")


def _frame(path: str | Path, records: Iterable[dict[str, Any]], what: str) -> pd.DataFrame:
    frame = pd.DataFrame(list(records))
    if frame.empty:
        raise InputError(f"{path}: the file contains no {what}; give another file")
    return frame.fillna("")


#: The format of a file with answers, by a string at its beginning.
READERS: dict[str, Callable[..., Collection]] = {
    '"paragraphs"': read_squad,
    '"selected_spans"': read_spans,
    '"passages"': read_qna,
}


def reader_of(path: str | Path) -> Callable[..., Collection] | None:
    """Choose the reader for a file with answers.

    Args:
        path: A JSON file.

    Returns:
        :func:`read_squad`, :func:`read_spans` or :func:`read_qna`; None if the file is of another kind.
    """
    head = read_head(path)
    return read_qna if _QNA_COLUMNS.match(head) else next((reader for mark, reader in READERS.items() if mark in head), None)
