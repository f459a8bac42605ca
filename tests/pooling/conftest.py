"""Model folders that the tests of corrections share."""

from tests.rankers.conftest import one_thread, tiny  # noqa: F401
