"""``python -m pyterrier_debias`` and the console script ``pyterrier-debias``."""

from pyterrier_debias.report.cli import app, place_errors


def main() -> None:
    """Run the command line."""
    with place_errors():
        app(prog_name="pyterrier-debias")


if __name__ == "__main__":
    main()
