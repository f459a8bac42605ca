"""``python -m pyterrier_debias`` and the console script ``pyterrier-debias``."""

from pyterrier_debias.report.cli import app


def main() -> None:
    """Run the command line."""
    app(prog_name="pyterrier-debias")


if __name__ == "__main__":
    main()
