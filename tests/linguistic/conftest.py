"""Model folders that the tests of training share."""

from tests.training.conftest import one_thread, tiny  # noqa: F401
