"""Which queries a collection contains and which of them were answered: Chapter 3 of Gupta (2021) for any collection of this kind.

    python examples/survivorship_bias/dataset_report.py --dataset msmarco_qna --split qna --out report

takes a folder with MS MARCO QnA (or another collection, or `irds:msmarco-qna/dev`) and writes a CSV file for each table that
the collection allows (sizes, types, first relevant ranks overall and by type, lengths of the lists shown, duplicates, written
answers), `available.csv` with the reason for each missing table, `types.png`, `first_ranks.png` and
`first_ranks_by_type.png`, and `report.inc` for the documentation.
"""

import argparse
import sys
from pathlib import Path

from pyterrier_debias import InputError, open_dataset
from pyterrier_debias.core import plots
from pyterrier_debias.core.files import write_whole
from pyterrier_debias.survivorship.data.dataset_report import dataset_report

# The modules that programs share are one folder up.
sys.path.append(str(Path(__file__).resolve().parent.parent))
from workshop import markdown, restructured


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", required=True, help="a folder, or an id of ir_datasets as irds:...")
    parser.add_argument("--split", help="split of the dataset")
    parser.add_argument("--docno", default="qna", choices=["qna", "passage"], help="passage: docnos match up to the hyphen")
    parser.add_argument("--min-label", type=int, default=1, help="lowest label of an answer (default 1)")
    parser.add_argument("--proxy", action="store_true", help="use the first run in place of the lists that labellers were shown")
    parser.add_argument("--out", type=Path, default=Path("report"), help="folder for results")
    options = parser.parse_args()
    try:
        dataset = open_dataset(options.dataset, split=options.split)
        report = dataset_report(dataset, min_label=options.min_label, docno=options.docno, proxy=options.proxy)
        for name, table in report.tables.items():
            write_whole(options.out / f"{name}.csv", table.to_csv(index=False))
        write_whole(options.out / "available.csv", report.available().to_csv(index=False))
        pictures = {
            "types": ("types", lambda axes: report.plot_types(axes)),
            "first_ranks": ("first_ranks", lambda axes: report.plot_first_ranks(axes)),
            "first_ranks_by_type": ("first_ranks_by_type", lambda axes: report.plot_first_ranks(axes, by_type=True)),
        }
        for name, (table, draw) in pictures.items():
            if table in report.tables:
                axes = plots.new_axes()
                draw(axes)
                plots.save(axes.figure, options.out / f"{name}.png")
        shown = {name: report.tables[name] for name in ("sizes", "types", "first_ranks") if name in report.tables}
        caption = f"{report.name}: "
        write_whole(options.out / "report.inc", "\n".join(restructured(t, caption + n) for n, t in shown.items()))
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    print(report)
    for name, table in report.tables.items():
        print(f"\n## {name}\n\n{markdown(table)}")
    for name, reason in report.missing.items():
        print(f"\nno {name}: {reason}")
    print(f"\nwritten to {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
