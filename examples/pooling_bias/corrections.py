"""Which correction copes with hidden judgements on a real collection? CET, its forms and its alternatives in one table.

    python examples/pooling_bias/corrections.py --dataset nfcorpus --out corrections

opens a deeply judged collection and hides the relevant documents that a pool of BM25's first ten would not have kept (it keeps at
most two per query). It trains a ranker with every correction on the remaining judgements, with negatives from a dense retriever
(all-MiniLM-L6-v2), and evaluates all of them with full and with pooled judgements. They are compared with plain training and with
an oracle that never draws a hidden document as a negative; `--arms` also offers `CET, lexical`, the controls `CET, mean one` and
`CET, shuffled` (its weights in random order), and a training on all judgements.

- NFCorpus trains on its own training queries. TREC DL (`--dataset msmarco_trec_dl`) trains on one year and tests on the other,
  both ways round; its own BM25 run is the pool, `--negatives tasb` or `repllama` takes candidates from its other runs, and judged
  passages without a text are left out. Vaswani is split into halves, and each half is used for training and for testing. For such
  small sets of queries `--triples 400` is enough.
- `--long firstp --max-length 256` trains on the first 150 words of each document, and scores only these. 256 tokens hold about
  150 words of NFCorpus and a query; a smaller window would also cut the passage, so `firstp` would be the same as truncation.
- MS MARCO: `--dataset irds:msmarco-passage/train irds:msmarco-passage/dev/small --config full.json` has the paper's settings (it
  needs a GPU, and memory for some ten million candidates).

A run that was stopped continues with the same command. Seeds and corrections can be made by several commands (`--seeds`,
`--arms`); the last one, which names all of them, reads the finished ones. The small setting is the default; `--estimate` prints
how long it takes. The lists of retrievers are made first, and stored.

What it cannot tell: how a correction works with another pool than the simulated one, or with a ranker that is trained to
convergence (640 triples teach little). On sparse judgements such as MS MARCO's, "full" judgements miss most relevant documents,
so the oracle knows hardly more than the others. The relabelling judge is simulated from the judgements; it shows the value of a
judge with that accuracy, not that of a language model. Rank distributions are estimated from judgements that the other
corrections do not get.
"""

import re
import sys

from protocol import CONTROLS, CORRECTIONS, RETRIEVERS, TAUGHT, carry_out, opened, parser, seconds_of
from workshop import minutes, program, write_results

from pyterrier_debias.core import plots

#: Name of the training on all judgements.
FULL = "all judgements"

#: The corrections that are compared by default.
ARMS = [name for name in CORRECTIONS if name not in {"CET, lexical", *CONTROLS}]

NOTES = [
    "full, pooled: nDCG@10 against all judgements and against those that the pool left. low, high: 95 %, bootstrap over seeds "
    "and queries. gap_closed: share of the oracle's gain over plain training; it is missing where that gain may be 0.",
    "auc: the chance that a true negative counts more than a hidden positive, .5 by guessing; false_share: hidden positives "
    "among the negatives that were shown; false_weight: their share of the weight.",
    "BM25's negatives are the candidates that BM25 ranks among its first 100. denoised: the teacher is a plain ranker trained on "
    "the other half of the queries. positive-aware: by the cosine of the dense retriever. rank distribution: from queries that "
    "were set aside with full judgements. relabelled: a simulated judge that knows the truth and errs in a share of pairs.",
    "Losses that weight pairs by the current scores (debiased contrastive, dynamic weights) draw negatives like plain training "
    "and do not report their weights: their AUC is that of the draw.",
    "Training and scoring read a window of max_length tokens; if long is firstp, the window is part of the first passage.",
]


def main() -> None:
    options = parser(__doc__)
    which = [*CORRECTIONS, FULL]
    options.add_argument("--arms", nargs="+", choices=which, default=ARMS, help=f"corrections (default: {', '.join(ARMS)})")
    options.add_argument(
        "--negatives", help=f"retriever of the candidates: {', '.join(RETRIEVERS)}, or a run of the collection (default dense)"
    )
    options.add_argument("--long", help="treatment of long documents: truncate (default), firstp or maxp")
    options.add_argument("--max-length", type=int, help="largest number of tokens of an input (default 128)")
    options = options.parse_args()
    settings, lists, setups, table = opened(options, "corrections")
    arms = [name for name in CORRECTIONS if name in {"plain", *options.arms}]
    if options.estimate:
        names = [*arms, "oracle", *({FULL} & {*options.arms})]
        seconds = seconds_of(setups, names, teachers=not TAUGHT.isdisjoint(arms))
        print(f"about {minutes(seconds)} for all of it on this machine")
        return
    result = carry_out(
        setups,
        lambda setup: {name: CORRECTIONS[name](setup) for name in arms},
        options.out,
        full=FULL if FULL in options.arms else None,
    )
    for name in arms:
        picture = f"emphasis_{re.sub(r'[^a-z0-9]+', '_', name.lower())}.png"
        plots.save(result.plot_emphasis(name).figure, options.out / picture)
    tables = {
        "summary": result.summary(),
        "effectiveness": result.table,
        "false_negatives": result.false_negatives,
        "sizes": table,
        "costs": result.costs,
    }
    title = f"Corrections under hidden judgements: {lists.source.name}, negatives of {settings.negatives}"
    read = {"firstp": ", first passages only", "maxp": ", best passages"}.get(settings.long, "")
    captions = {"summary": f"Corrections on {lists.source.name}, negatives of {settings.negatives}{read}"}
    write_results(options.out, title, settings, tables, [*NOTES, *result.notes], captions)


if __name__ == "__main__":
    sys.exit(program(main))
