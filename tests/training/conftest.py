"""Model folders and a small collection that the tests of training share."""

from tests.rankers.conftest import one_thread, tiny  # noqa: F401
